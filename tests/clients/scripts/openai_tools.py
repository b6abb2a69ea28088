"""The official library: tools in a loop, demanded and by the model's own choice, plain and streamed; schemas."""
import json
import sys

sys.path.pop(0)
import openai
import pydantic

url, model, _, _, by_heart_url = sys.argv[1:6]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
fields = {"model": model, "temperature": 0, "max_tokens": 64}

# Each call is answered, and the answer is told.
tools = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                   "required": ["city"], "additionalProperties": False}}}]
messages = [{"role": "user", "content": "What is the weather in Paris?"}]
for streamed in (False, True):
    if streamed:
        with client.chat.completions.stream(messages=messages, tools=tools, tool_choice="required",
                                            parallel_tool_calls=False, **fields) as stream:
            choice = stream.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(messages=messages, tools=tools, tool_choice="required",
                                                parallel_tool_calls=False, **fields).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    messages.append({"role": "assistant", "content": choice.message.content, "tool_calls": [
        {"id": call.id, "type": "function",
         "function": {"name": call.function.name, "arguments": call.function.arguments}}
        for call in choice.message.tool_calls]})
    for call in choice.message.tool_calls:
        assert call.id and call.function.name == "get_weather"
        assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "18 degrees"})
last = client.chat.completions.create(messages=messages, tools=tools, tool_choice="none", **fields).choices[0]
assert last.message.content and not last.message.tool_calls


class Answer(pydantic.BaseModel):
    sure: bool
    city: str = pydantic.Field(json_schema_extra={"enum": ["Paris", "Rome"]})


parsed = client.chat.completions.parse(messages=messages[:1], response_format=Answer, **fields)
assert isinstance(parsed.choices[0].message.parsed, Answer)

# A model that knows when to call: one tool, two in a turn, an answer by a schema, reasons before an answer.
by_heart = openai.OpenAI(base_url=f"{by_heart_url}/v1", api_key="unused", max_retries=0)


def converse(question, streamed):
    """The cities asked for in each turn, and the last text."""
    said, asked_for = [{"role": "user", "content": question}], []
    while True:
        asked = {"model": model, "messages": said, "tools": tools}
        if streamed:
            with by_heart.chat.completions.stream(**asked) as stream:
                choice = stream.get_final_completion().choices[0]
        else:
            choice = by_heart.chat.completions.create(**asked).choices[0]
        calls = choice.message.tool_calls or []
        assert choice.finish_reason == ("tool_calls" if calls else "stop")
        if not calls:
            return asked_for, choice.message.content
        asked_for.append([json.loads(call.function.arguments)["city"] for call in calls])
        said.append(choice.message.to_dict() if not streamed else
                    {"role": "assistant", "content": choice.message.content, "tool_calls": [
                        {"id": call.id, "type": "function", "function": {
                            "name": call.function.name, "arguments": call.function.arguments}} for call in calls]})
        said += [{"role": "tool", "tool_call_id": call.id, "content": "18 degrees"} for call in calls]


for streamed in (False, True):
    assert converse("What is the weather in Paris?", streamed) == ([["Paris"]], "It is 18 degrees in Paris.")
    assert converse("What is the weather in Paris and in Rome?", streamed) == \
        ([["Paris", "Rome"]], "It is 18 degrees in Paris and in Rome.")
    assert converse("What is the weather in Paris, then in Rome?", streamed) == \
        ([["Paris"], ["Rome"]], "It is 18 degrees in both.")
sure = {"model": model, "messages": [{"role": "user", "content": "Are you sure?"}]}
assert by_heart.chat.completions.parse(**sure, response_format=Answer).choices[0].message.parsed == \
    Answer(sure=True, city="Paris")
legs = by_heart.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "How many legs have two cats?"}]).choices[0].message
assert legs.content == "Eight legs." and legs.reasoning_content == "Two cats of four legs each: eight."
