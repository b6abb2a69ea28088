"""The official anthropic client against the server."""

import json
import pathlib

import anthropic
import pydantic
import pytest
from tandem_server import MODEL_NAME

HELLO = [{"role": "user", "content": "Say hello in one short sentence."}]
WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 16}, "days": {"type": "integer", "maximum": 99}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
TOOLS = [WEATHER, {"type": "web_search_20250305", "name": "web_search"}]
# Beside what the package knows, as Claude Code sends it.
CLAUDE_CODE = {
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
               {"type": "text", "text": "Be kind."}],
    "max_tokens": 32_000,
    "metadata": {"user_id": "u"},
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "medium"},
    "tools": [{**WEATHER, "defer_loading": True}],
    "stream": True,
}


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120)


def arguments_of(**fields):
    """Those of the package's methods, which have no name for the temperature."""
    extra = {"temperature": fields.pop("temperature", 0), **fields.pop("extra_body", {})}
    return {"model": MODEL_NAME, "messages": HELLO, "max_tokens": 12, **fields, "extra_body": extra}


def ask(client, **fields):
    return client.messages.create(**arguments_of(**fields))


def events_of(text):
    events = []
    for frame in text.decode().strip().split("\n\n"):
        name, data = frame.split("\n")
        assert name.startswith("event: ") and data.startswith("data: ")
        events.append(json.loads(data.removeprefix("data: ")))
        assert events[-1]["type"] == name.removeprefix("event: ")
    return events


def num_input(message):
    return message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_a_message(client):
    message = ask(client)
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL_NAME)
    assert message.id.startswith("msg_")
    [block] = message.content
    assert block.type == "text" and block.text
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert num_input(message) > 0 and 0 < message.usage.output_tokens <= 12
    assert message.usage.cache_creation_input_tokens == 0


def test_a_stream_has_the_same_message(client):
    plain = ask(client)
    with client.messages.stream(**arguments_of()) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert len(pieces) > 1
    assert "".join(pieces) == message.content[0].text == plain.content[0].text
    assert message.stop_reason == plain.stop_reason
    assert message.usage.output_tokens == plain.usage.output_tokens
    assert num_input(message) == num_input(plain)


def test_stop_sequences_and_prefill(client):
    text = ask(client, max_tokens=24).content[0].text
    word = text.split()[1]
    stopped = ask(client, max_tokens=24, stop_sequences=[word])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)
    begun = ask(client, messages=[*HELLO, {"role": "assistant", "content": text[:8]}], max_tokens=24)
    assert begun.content[0].text
    assert num_input(begun) > num_input(ask(client))


@pytest.mark.parametrize("temperature", [0, 1])
def test_tools_in_a_loop(client, temperature):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    fields = {"tools": TOOLS, "max_tokens": 120, "temperature": temperature, "extra_body": {"seed": 4}}
    for _ in range(2):
        message = ask(client, messages=messages, tool_choice={"type": "any", "disable_parallel_tool_use": True},
                      **fields)
        assert message.stop_reason == "tool_use"
        [call] = message.content
        assert (call.type, call.name) == ("tool_use", "get_weather")
        assert isinstance(call.input["city"], str) and isinstance(call.input["days"], int)
        before = client.messages.count_tokens(model=MODEL_NAME, messages=messages, tools=TOOLS).input_tokens
        messages += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "rain"}]},
                {"type": "text", "text": "And tomorrow?"}]}]
        after = client.messages.count_tokens(model=MODEL_NAME, messages=messages, tools=TOOLS).input_tokens
        assert after > before
    answer = ask(client, messages=messages, tool_choice={"type": "none"}, **fields)
    assert [block.type for block in answer.content] == ["text"]


def test_a_call_streams_its_input(client):
    fields = arguments_of(messages=[{"role": "user", "content": "Weather?"}], tools=TOOLS, max_tokens=120,
                          tool_choice={"type": "tool", "name": "get_weather"})
    with client.messages.stream(**fields) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    assert len(pieces) > 3
    assert json.loads("".join(pieces)) == message.content[0].input
    assert message.stop_reason == "tool_use"
    assert message.content[0].input == client.messages.create(**fields).content[0].input


def test_a_call_that_was_cut_off_is_text(client):
    message = ask(client, tools=TOOLS, tool_choice={"type": "any"}, max_tokens=14)
    assert message.stop_reason == "max_tokens"
    assert [block.type for block in message.content] == ["text"]


def test_answers_follow_a_schema(client):
    class Weather(pydantic.BaseModel):
        rain: bool
        days: int

    schema = {**Weather.model_json_schema(), "additionalProperties": False}
    schema["properties"]["days"]["maximum"] = 99
    config = {"format": {"type": "json_schema", "schema": schema}}
    message = ask(client, max_tokens=60, extra_body={"output_config": config})
    Weather.model_validate_json(message.content[0].text)


def test_tokens_are_counted_as_they_are_used(client):
    fields = {"model": MODEL_NAME, "messages": HELLO, "system": "Be kind.", "tools": [WEATHER]}
    count = client.messages.count_tokens(**fields).input_tokens
    assert count == ask(client, **fields).usage.input_tokens
    long = [{"role": "user", "content": "word " * 3000}]
    assert client.messages.count_tokens(model=MODEL_NAME, messages=long).input_tokens > 3000


def test_what_claude_code_sends(server):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?", "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": "Answer in English."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris", "days": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]}]
    body = {"model": MODEL_NAME, "messages": messages, **CLAUDE_CODE, "stop_sequences": ["\n", "."]}
    status, headers, text = server.request("POST", "/v1/messages?beta=true", body,
                                           headers={"anthropic-version": "2023-06-01", "x-api-key": "k"})
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream")
    assert "X-Tandem-Ignored-Fields" not in headers
    types = [event["type"] for event in events_of(text)]
    assert types[:2] == ["message_start", "ping"] and types[-2:] == ["message_delta", "message_stop"]
    assert types.count("content_block_start") == types.count("content_block_stop") > 0
    status, counted = server.post("/v1/messages/count_tokens?beta=true",
                                  {"model": MODEL_NAME, "messages": messages, "tools": [WEATHER]})
    assert status == 200 and counted["input_tokens"] > 0
    assert server.request("HEAD", "/api/hello")[0] == 404


def test_errors_are_exceptions_of_their_kind(client):
    with pytest.raises(anthropic.NotFoundError) as unknown_model:
        ask(client, model="other")
    assert unknown_model.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.0\.content\.1: images are not supported"):
        ask(client, messages=[{"role": "user", "content": [
            {"type": "text", "text": "?"},
            {"type": "image", "source": {"type": "url", "url": "http://localhost/x.png"}}]}])
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 1023 maximum"):
        ask(client, messages=[{"role": "user", "content": "word " * 3000}])
    with pytest.raises(anthropic.BadRequestError, match=r"tools\.2\.name: there are two tools called get_weather"):
        ask(client, tools=[WEATHER, {"type": "web_search_20250305", "name": "web_search"}, WEATHER])
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.format\.schema: "):
        ask(client, extra_body={"output_config": {"format": {"type": "json_schema", "schema": {"type": "what"}}}})
    with pytest.raises(anthropic.BadRequestError) as wrong:
        ask(client, temperature=1.5)
    assert wrong.value.body == {"type": "error", "request_id": None, "error": {
        "type": "invalid_request_error", "message": "temperature must be in [0, 1], got 1.5"}}


def test_what_the_package_would_not_send(server):
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        status, answer = server.post(path, "{")
        assert status == 400 and (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error")
        assert server.post(path, "[]")[1]["type"] == "error"
        status, _, text = server.request("GET", path)
        assert status == 405 and json.loads(text)["type"] == "error"


def test_keys_come_in_either_header(start_server, tmp_path: pathlib.Path):
    keys = tmp_path / "keys"
    keys.write_text("sk-messages-test-0123456789\n")
    keys.chmod(0o600)
    server = start_server("--api-key-file", str(keys))
    good, bad = "sk-messages-test-0123456789", "wrong"
    for arguments in ({"api_key": good}, {"auth_token": good}):
        client = anthropic.Anthropic(base_url=server.url, max_retries=0, timeout=120, **arguments)
        assert ask(client, max_tokens=1).usage.output_tokens == 1
    client = anthropic.Anthropic(base_url=server.url, api_key=bad, max_retries=0, timeout=120)
    with pytest.raises(anthropic.AuthenticationError) as refused:
        ask(client)
    assert refused.value.body["error"]["type"] == "authentication_error"


def test_a_stream_that_is_closed_frees_its_blocks(server, client):
    free = server.free_blocks(server.wait_idle())
    with client.messages.stream(model=MODEL_NAME, max_tokens=900, messages=[
            {"role": "user", "content": "Count from one to a thousand, in words, one a line."}]) as stream:
        next(iter(stream.text_stream))
    assert server.free_blocks(server.wait_idle()) == free
