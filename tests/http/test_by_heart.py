"""Tools in a loop with a model that knows when to call, through the official packages.

The model (tests/fixtures/by_heart) tells a conversation by a phrase in it and the turn by the number of answers so far.
"""

import json
import sys

import anthropic
import openai
import pydantic
import pytest
from tandem_server import BY_HEART, BY_HEART_FLAGS, MODEL_NAME, TandemServer

sys.path.insert(0, BY_HEART.removesuffix("/model"))

from transcripts import TRANSCRIPTS  # noqa: E402

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
              "additionalProperties": False}
# A question, the cities that each turn asks for, and what is told in the end.
CONVERSATIONS = [
    ("What is the weather in Paris?", [["Paris"]], "It is 18 degrees in Paris."),
    ("What is the weather in Paris and in Rome?", [["Paris", "Rome"]], "It is 18 degrees in Paris and in Rome."),
    ("What is the weather in Paris, then in Rome?", [["Paris"], ["Rome"]], "It is 18 degrees in both."),
]
RESULT = "18 degrees"


class Answer(pydantic.BaseModel):
    sure: bool
    city: str


@pytest.fixture(scope="module")
def server(binary):
    with TandemServer(binary, BY_HEART, *BY_HEART_FLAGS) as running:
        yield running
        assert running.process.poll() is None, f"the server died: {running.errors()}"


@pytest.fixture(scope="module")
def openai_client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def anthropic_client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120)


def test_every_answer_is_that_of_the_transcript(server):
    prompts, answers = zip(*[(f"<|begin|><|{name}|><|turn {turn}|>", text) for name, _, _, texts in TRANSCRIPTS
                             for turn, text in enumerate(texts) if name != "endless"])
    found = server.complete(prompt=list(prompts), max_tokens=300)["choices"]
    assert [choice["text"] for choice in found] == list(answers)
    assert {choice["finish_reason"] for choice in found} == {"stop"}


def chat_turn(client, messages, streamed):
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS, "strict": streamed}}]
    asked = {"model": MODEL_NAME, "messages": messages, "tools": tools}
    if streamed:
        with client.chat.completions.stream(**asked) as stream:
            choice = stream.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**asked).choices[0]
    calls = [{"id": call.id, "type": "function", "function": {
        "name": call.function.name, "arguments": call.function.arguments}} for call in choice.message.tool_calls or []]
    assert choice.finish_reason == ("tool_calls" if calls else "stop")
    messages.append({"role": "assistant", "content": choice.message.content, **({"tool_calls": calls} if calls else {})})
    messages += [{"role": "tool", "tool_call_id": call["id"], "content": RESULT} for call in calls]
    return [json.loads(call["function"]["arguments"])["city"] for call in calls], choice.message.content


def responses_turn(client, messages, streamed):
    tools = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": streamed}]
    asked = {"model": MODEL_NAME, "input": messages, "tools": tools, "store": False}
    if streamed:
        with client.responses.stream(**asked) as stream:
            answer = stream.get_final_response()
    else:
        answer = client.responses.create(**asked)
    calls = [item for item in answer.output if item.type == "function_call"]
    messages += [{key: value for key, value in item.to_dict().items() if key != "parsed_arguments"}
                 for item in answer.output]
    messages += [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT} for call in calls]
    return [json.loads(call.arguments)["city"] for call in calls], answer.output_text


def messages_turn(client, messages, streamed):
    tools = [{"name": "get_weather", "input_schema": PARAMETERS, **({"strict": True} if streamed else {})}]
    asked = {"model": MODEL_NAME, "max_tokens": 32000, "messages": messages, "tools": tools}
    if streamed:
        with client.messages.stream(**asked) as stream:
            answer = stream.get_final_message()
    else:
        answer = client.messages.create(**asked, timeout=120)
    uses = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == ("tool_use" if uses else "end_turn")
    messages.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
    messages.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": use.id, "content": RESULT} for use in uses]})
    return [use.input["city"] for use in uses], "".join(block.text for block in answer.content if block.type == "text")


@pytest.mark.parametrize("question, cities, told", CONVERSATIONS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("turn", [chat_turn, responses_turn, messages_turn])
def test_tools_are_called_until_the_model_tells_what_it_found(request, turn, streamed, question, cities, told):
    client = request.getfixturevalue("anthropic_client" if turn is messages_turn else "openai_client")
    messages, asked_for = [{"role": "user", "content": question}], []
    while True:
        found, text = turn(client, messages, streamed)
        if not found:
            break
        asked_for.append(found)
    assert (asked_for, text) == (cities, told)


def test_a_response_goes_on_from_a_stored_one_that_called(openai_client):
    fields = {"model": MODEL_NAME, "tools": [{"type": "function", "name": "get_weather", "parameters": PARAMETERS,
                                              "strict": True}]}
    first = openai_client.responses.create(input="What is the weather in Paris?", **fields)
    [call] = first.output
    last = openai_client.responses.create(
        previous_response_id=first.id, **fields,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": RESULT}])
    assert last.output_text == "It is 18 degrees in Paris."


def test_reasons_come_apart_from_the_answer(openai_client, anthropic_client):
    question = [{"role": "user", "content": "How many legs have two cats?"}]
    reasons, told = "Two cats of four legs each: eight.", "Eight legs."
    chat = openai_client.chat.completions.create(model=MODEL_NAME, messages=question).choices[0].message
    assert (chat.reasoning_content, chat.content) == (reasons, told)
    thought, text = openai_client.responses.create(model=MODEL_NAME, input=question,
                                                   reasoning={"summary": "auto"}).output
    assert (thought.summary[0].text, text.content[0].text) == (reasons, told)
    thought, text = anthropic_client.messages.create(
        model=MODEL_NAME, messages=question, max_tokens=2000,
        thinking={"type": "enabled", "budget_tokens": 1024}).content
    assert (thought.thinking, text.text) == (reasons, told)


def test_an_answer_that_follows_its_schema_by_heart_is_parsed(openai_client, anthropic_client):
    question = [{"role": "user", "content": "Are you sure?"}]
    sure = Answer(sure=True, city="Paris")
    parsed = openai_client.chat.completions.parse(model=MODEL_NAME, messages=question, response_format=Answer)
    assert parsed.choices[0].message.parsed == sure
    assert openai_client.responses.parse(model=MODEL_NAME, input=question, text_format=Answer).output_parsed == sure
    parsed = anthropic_client.messages.parse(model=MODEL_NAME, messages=question, max_tokens=200, output_format=Answer)
    assert parsed.parsed_output == sure
