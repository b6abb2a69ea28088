"""Tools and structured output over HTTP, with the openai package and the real model."""

import concurrent.futures
import json
import re

import openai
import pydantic
import pytest
from tandem_server import MODEL_NAME, read_until

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 16}, "celsius": {"type": "integer", "minimum": -50,
                                                                            "maximum": 50}},
    "required": ["city", "celsius"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"type": "boolean"}},
        "required": ["a", "b"], "additionalProperties": False}}},
]
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def chat(client, **fields):
    return client.chat.completions.create(**{"model": MODEL_NAME, "messages": QUESTION, "temperature": 0, "max_tokens": 120,
                                             **fields})


def check_weather(text):
    value = json.loads(text)
    assert set(value) == {"city", "celsius"}
    assert isinstance(value["city"], str) and len(value["city"]) <= 16
    assert isinstance(value["celsius"], int) and -50 <= value["celsius"] <= 50


def test_a_named_tool_is_called_once_with_arguments_of_its_schema(client):
    choice = chat(client, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "add"}}).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    [call] = choice.message.tool_calls
    assert call.function.name == "add"
    arguments = json.loads(call.function.arguments)
    assert isinstance(arguments["a"], int) and isinstance(arguments["b"], bool)


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_required_call_streams_piece_by_piece(client, temperature):
    fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "temperature": temperature,
              "seed": 5}
    whole = chat(client, **fields).choices[0]
    name, arguments, identity, pieces, reasons = "", "", "", 0, []
    for chunk in chat(client, stream=True, **fields):
        choice = chunk.choices[0]
        assert not choice.delta.content
        if choice.finish_reason:
            reasons.append(choice.finish_reason)
        for call in choice.delta.tool_calls or []:
            assert call.index == 0
            name += call.function.name or ""
            identity += call.id or ""
            arguments += call.function.arguments or ""
            pieces += bool(call.function.arguments)
    assert reasons == ["tool_calls"]
    assert pieces > 3
    [call] = whole.message.tool_calls
    assert (name, arguments) == (call.function.name, call.function.arguments)
    assert re.fullmatch("call_[0-9a-f]{24}", identity)
    json.loads(arguments)


def test_calls_and_results_reach_the_model(server, client):
    [call] = chat(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls
    history = QUESTION + [
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "rain and 13 degrees"},
    ]
    answer = chat(client, messages=history, tools=TOOLS, max_tokens=30)
    assert answer.choices[0].message.content
    body = json.dumps({"messages": history, "tools": TOOLS}).encode()
    tokens = json.loads(server.request("POST", "/tokenize", body)[2])["tokens"]
    prompt = json.loads(server.request("POST", "/detokenize", json.dumps({"tokens": tokens}).encode())[2])["prompt"]
    for text in ("rain and 13 degrees", call.function.arguments, "Weather of a city.", "get_weather"):
        assert text in prompt
    assert answer.usage.prompt_tokens == len(tokens)


def test_a_json_schema_is_followed(client):
    class Weather(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        city: str = pydantic.Field(max_length=16)
        celsius: int

    parsed = client.chat.completions.parse(model=MODEL_NAME, messages=QUESTION, temperature=0, max_tokens=120,
                                           response_format=Weather).choices[0].message.parsed
    assert isinstance(parsed, Weather)


def test_many_at_once_each_by_its_own(client):
    """With what sampling has: temperature, penalties, n, logprobs, seeds; free ones between them."""
    schema = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True}}

    def one(i):
        kind = i % 4
        if kind == 0:
            return chat(client, response_format=schema, temperature=1, seed=i, n=2, max_tokens=400)
        if kind == 1:
            return chat(client, extra_body={"structured_outputs": {"regex": "[a-c]{3}-[0-9]{2}"}}, temperature=1.5,
                        seed=i, logprobs=True, top_logprobs=3)
        if kind == 2:
            return chat(client, extra_body={"guided_choice": ["rain", "snow", "sun"]}, temperature=1, seed=i,
                        presence_penalty=1.5, frequency_penalty=1)
        return chat(client, max_tokens=20, seed=i, temperature=1)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(24)))
    whole = 0
    for i, answer in enumerate(answers):
        for choice in answer.choices:
            text = choice.message.content
            if i % 4 == 0:
                whole += choice.finish_reason == "stop"
                if choice.finish_reason == "stop":
                    check_weather(text)
                else:  # at this temperature one in a hundred is lost in the white space that JSON allows
                    assert len("".join(text.split())) < 80
            elif i % 4 == 1:
                assert re.fullmatch("[a-c]{3}-[0-9]{2}", text)
                assert "".join(token.token for token in choice.logprobs.content).startswith(text)
            elif i % 4 == 2:
                assert text in ("rain", "snow", "sun")
    assert whole >= 9  # of 12
    assert len({choice.message.content for choice in answers[0].choices}) == 2


def test_a_grammar_ends_the_answer_whatever_else_is_asked(client):
    answer = chat(client, extra_body={"structured_outputs": {"regex": "ab"}, "ignore_eos": True, "min_tokens": 20},
                  max_tokens=50)
    assert answer.choices[0].message.content == "ab"
    assert answer.choices[0].finish_reason == "stop"


def test_tools_or_a_schema_where_both_are_given(client):
    schema = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}
    message = chat(client, tools=TOOLS, response_format=schema, parallel_tool_calls=False).choices[0].message
    if message.tool_calls:
        json.loads(message.tool_calls[0].function.arguments)
    else:
        check_weather(message.content)


@pytest.mark.parametrize("fields, param, words", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {
        "type": "object", "properties": {"a": {"not": {}}}}}}}, "response_format.json_schema.schema", "#/properties/a/not"),
    ({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex", "byte 0"),
    ({"structured_outputs": {"grammar": "root ::= other"}}, "structured_outputs.grammar", "other"),
    ({"structured_outputs": {"json": {"type": "string", "minLength": 10**9}}}, "structured_outputs.json", "#"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}}],
      "tool_choice": "required"}, "tools", "not"),
    ({"allowed_token_ids": [5], "structured_outputs": {"regex": "a"}}, "allowed_token_ids", "grammar"),
])
def test_what_cannot_be_followed_is_refused_with_its_place(client, fields, param, words):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, extra_body=fields)
    assert caught.value.param == param
    assert words in caught.value.message


def test_what_is_cancelled_leaves_nothing(start_server):
    server = start_server()
    before = server.free_blocks(server.metrics())
    for _ in range(3):
        stream = server.open_stream(structured_outputs={"regex": "[a-z ]{400}"}, max_tokens=300)
        read_until(stream, b"data: ")
        stream.close()
    assert server.free_blocks(server.wait_idle()) == before


def test_the_parser_can_be_forced_or_off(start_server):
    server = start_server("--tool-call-parser", "none")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    assert chat(client, tools=TOOLS, max_tokens=5).choices[0].message.tool_calls is None
    with pytest.raises(openai.BadRequestError, match="--tool-call-parser is none"):
        chat(client, tools=TOOLS, tool_choice="required")
