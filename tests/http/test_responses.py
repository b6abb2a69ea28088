"""/v1/responses with the openai package, and what other clients send to it."""

import json
import pathlib
import re

import openai
import pydantic
import pytest
from openai.types.responses import Response, ResponseTextDeltaEvent
from tandem_server import MODEL_NAME

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/agent_request_fields.md"
PATH = "/v1/responses"
BODY = {"input": "Say hello.", "max_output_tokens": 3, "temperature": 0}
FIELDS = {"model": MODEL_NAME, "temperature": 0, "max_output_tokens": 24}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather in a city.", "strict": True,
           "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                          "required": ["city"], "additionalProperties": False}}
# A value that each implemented field takes beside BODY.
VALUES = {
    "allowed_token_ids": [28, 29, 30],
    "bad_words": ["hello"],
    "cache_salt": "salt",
    "chat_template_kwargs": {"custom": 1},
    "enable_thinking": False,
    "frequency_penalty": 0.5,
    "ignore_eos": True,
    "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
    "input": [{"role": "user", "content": "Hi."}],
    "instructions": "Be brief.",
    "logit_bias": {"28": 1},
    "max_output_tokens": 2,
    "min_p": 0.1,
    "min_tokens": 1,
    "model": MODEL_NAME,
    "parallel_tool_calls": False,
    "presence_penalty": 0.5,
    "previous_response_id": None,
    "reasoning": {"effort": None},
    "reasoning.effort": "low",
    "reasoning.summary": "auto",
    "repetition_penalty": 1.1,
    "seed": 1,
    "service_tier": "flex",
    "stop": ["zzz"],
    "stop_token_ids": [5],
    "store": False,
    "stream": False,
    "temperature": 0.5,
    "text": {},
    "text.format": {"type": "text"},
    "tool_choice": "none",
    "tools": [WEATHER],
    "top_k": 5,
    "top_logprobs": 2,
    "top_p": 0.5,
    "truncation": "auto",
}


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120)


def events_of(text):
    return [(event.split("\n")[0].removeprefix("event: "), json.loads(event.split("\n")[1].removeprefix("data: ")))
            for event in text.strip().split("\n\n")]


def counts(answer):
    """Of tokens, cached or not."""
    return answer.usage.input_tokens, answer.usage.output_tokens


# --- the library

def test_a_whole_answer_is_what_the_library_expects(client):
    raw = client.responses.with_raw_response.create(input="Say hello.", instructions="Be brief.", tools=[WEATHER],
                                                    tool_choice="none", **FIELDS)
    Response.model_validate_json(raw.text)  # strictly, unlike the library itself
    answer = raw.parse()
    assert answer.id.startswith("resp_") and answer.object == "response" and answer.model == MODEL_NAME
    assert answer.output_text
    assert answer.instructions == "Be brief." and answer.tools[0].name == "get_weather" and answer.store
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert 0 <= answer.usage.input_tokens_details.cached_tokens < answer.usage.input_tokens


def test_what_was_cut_says_so(client):
    answer = client.responses.create(input="Count to a hundred.", **{**FIELDS, "max_output_tokens": 2})
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.output_tokens == 2
    bounded = client.responses.create(input="Say hello.", **{**FIELDS, "max_output_tokens": 10**9})
    assert bounded.status in ("completed", "incomplete")


def test_a_stream_is_the_whole_answer(client):
    whole = client.responses.create(input="Say hello.", **FIELDS)
    events = list(client.responses.create(input="Say hello.", stream=True, **FIELDS))
    assert [event.type for event in events[:4]] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert [event.type for event in events[-4:-1]] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if isinstance(event, ResponseTextDeltaEvent)) == whole.output_text
    assert events[-2].item.content[0].text == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage == whole.usage
    with client.responses.stream(input="Say hello.", **FIELDS) as stream:
        for _ in stream:
            pass
        if events[-1].type == "response.completed":
            assert stream.get_final_response().output_text == whole.output_text


def test_logprobs_are_with_the_text(client):
    answer = client.responses.create(input="Say hello.", top_logprobs=2, include=["message.output_text.logprobs"],
                                     **FIELDS)
    part = answer.output[0].content[0]
    assert part.text.startswith("".join(entry.token for entry in part.logprobs)[:5])
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


def test_tools_in_a_loop(client):
    turns = [{"role": "user", "content": "What is the weather in Paris?"}]
    for streams in (False, True):
        fields = {"input": turns, "tools": [WEATHER], "tool_choice": "required", **FIELDS, "max_output_tokens": 64}
        if streams:
            events = list(client.responses.create(stream=True, **fields))
            answer = events[-1].response
            deltas = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
            assert deltas == "".join(item.arguments for item in answer.output if item.type == "function_call")
        else:
            answer = client.responses.create(**fields)
        calls = [item for item in answer.output if item.type == "function_call"]
        assert calls
        for call in calls:
            assert call.name == "get_weather" and json.loads(call.arguments)["city"] in ("Paris", "Rome")
        outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"} for call in calls]
        told = client.responses.create(input=[*turns, *answer.output, *outputs], tools=[WEATHER], tool_choice="none",
                                       **FIELDS)
        # The same by reference: the prompt is the same to the token.
        by_id = client.responses.create(input=outputs, previous_response_id=answer.id, tools=[WEATHER],
                                        tool_choice="none", **FIELDS)
        assert by_id.usage.input_tokens == told.usage.input_tokens
        assert by_id.output_text == told.output_text
        assert by_id.previous_response_id == answer.id


def test_namespaces_and_custom_tools_come_back_under_their_names(client, server):
    space = {"type": "namespace", "name": "mcp__files__", "tools": [{**WEATHER, "name": "read"}]}
    custom = {"type": "custom", "name": "shell", "description": "Runs a command."}
    body = {**FIELDS, "input": "Do it.", "max_output_tokens": 200, "parallel_tool_calls": False,
            "tools": [{"type": "web_search"}, space, custom]}
    status, answer = server.post(PATH, {**body, "tool_choice": {"type": "function", "name": "read",
                                                                "namespace": "mcp__files__"}})
    assert status == 200, answer
    call = answer["output"][0]
    assert (call["type"], call["name"], call["namespace"]) == ("function_call", "read", "mcp__files__")
    status, answer = server.post(PATH, {**body, "tool_choice": {"type": "custom", "name": "shell"}})
    assert status == 200, answer
    call = answer["output"][0]
    assert (call["type"], call["name"]) == ("custom_tool_call", "shell") and isinstance(call["input"], str)


def test_parse_gives_the_model(client):
    class Answer(pydantic.BaseModel):
        sure: bool

    parsed = client.responses.parse(input="Are you sure?", text_format=Answer, **FIELDS)
    assert isinstance(parsed.output_parsed, Answer)


def test_errors_are_exceptions(client):
    for error, param, wrong in ((openai.BadRequestError, "temperature", {"temperature": 7}),
                                (openai.NotFoundError, "model", {"model": "another"}),
                                (openai.BadRequestError, "previous_response_id", {"previous_response_id": "resp_x"}),
                                (openai.BadRequestError, "input[0].content[0]",
                                 {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
                                (openai.BadRequestError, "text.format.schema",
                                 {"text": {"format": {"type": "json_schema", "name": "x",
                                                      "schema": {"type": "nothing"}}}}),
                                (openai.BadRequestError, "background", {"background": True})):
        with pytest.raises(error) as found:
            client.responses.create(**{"input": "Hi", **FIELDS, **wrong})
        assert found.value.param == param, found.value


# --- stored responses

def test_a_conversation_goes_on_by_id(client):
    first = client.responses.create(input="My name is Ada.", instructions="Be brief.", **FIELDS)
    turns = [{"role": "user", "content": "My name is Ada."}, *first.output,
             {"role": "user", "content": "What is my name?"}]
    by_id = client.responses.create(input="What is my name?", previous_response_id=first.id, **FIELDS)
    whole = client.responses.create(input=turns, **FIELDS)
    assert by_id.output_text == whole.output_text and counts(by_id) == counts(whole)
    reference = [turns[0], {"type": "item_reference", "id": first.output[0].id}, turns[2]]
    assert counts(client.responses.create(input=reference, **FIELDS)) == counts(whole)
    assert client.responses.retrieve(by_id.id).to_dict() == by_id.to_dict()
    items = client.responses.input_items.list(by_id.id, order="asc", limit=2)
    assert [item.role for item in items] == ["user", "assistant", "user"]  # over two pages
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(by_id.id)


def test_what_is_not_stored_is_not_found(client, start_server):
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(client.responses.create(input="Hi.", store=False, **FIELDS).id)
    server = start_server("--responses-store-count", "1", "--replica-id", "east1")
    ids = [server.post(PATH, BODY)[1]["id"] for _ in range(2)]
    assert all(re.fullmatch("resp_east1_[0-9a-f]{32}", each) for each in ids)
    assert [server.request("GET", f"{PATH}/{each}")[0] for each in ids] == [404, 200]
    server = start_server("--responses-store-bytes", "0")
    answer = server.post(PATH, BODY)[1]
    assert answer["store"] is False
    assert server.request("GET", f"{PATH}/{answer['id']}")[0] == 404


def test_a_key_does_not_read_anothers(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice key-a\nbob key-b\n")
    server = start_server("--api-key-file", str(keys))
    alice, bob = ({"Authorization": f"Bearer {key}"} for key in ("key-a", "key-b"))
    own = server.post(PATH, BODY, headers=alice)[1]["id"]
    assert server.request("GET", f"{PATH}/{own}", headers=bob)[0] == 404
    assert server.request("DELETE", f"{PATH}/{own}", headers=bob)[0] == 404
    status, answer = server.post(PATH, {**BODY, "previous_response_id": own}, headers=bob)
    assert (status, answer["error"]["code"]) == (400, "previous_response_not_found")
    assert server.post(PATH, {**BODY, "previous_response_id": own}, headers=alice)[0] == 200
    assert server.request("GET", f"{PATH}/{own}")[0] == 401


# --- what Codex sends

def test_codex_requests_are_taken(server):
    body = {"model": MODEL_NAME, "stream": True, "store": False, "tool_choice": "auto", "parallel_tool_calls": True,
            "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
                      {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "More."}]},
                      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
                      {"type": "reasoning", "summary": [], "encrypted_content": None},
                      {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
                      {"type": "function_call_output", "call_id": "c1", "output": "done"}],
            "tools": [{**WEATHER, "strict": False}, {"type": "web_search"},
                      {"type": "namespace", "name": "agents", "description": "More.", "tools": [WEATHER]}],
            "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "k", "client_metadata": {"a": "b"}, "max_output_tokens": 8}
    status, headers, answer = server.request("POST", PATH, json.dumps(body))
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream")
    assert "X-Tandem-Ignored-Fields" not in headers
    events = events_of(answer.decode())
    assert all(name == event["type"] for name, event in events)
    names = [name for name, _ in events]
    assert "response.output_item.done" in names and names[-1] in ("response.completed", "response.incomplete")
    assert events[-1][1]["response"]["usage"]["input_tokens"] > 0


def test_a_full_context_fails_in_the_stream(server):
    body = {"input": "word " * 3000, "stream": True}
    status, headers, answer = server.request("POST", PATH, json.dumps(body))
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream")
    events = events_of(answer.decode())
    assert [name for name, _ in events] == ["response.created", "response.failed"]
    assert events[1][1]["response"]["error"]["code"] == "context_length_exceeded"
    status, answer = server.post(PATH, {"input": "word " * 3000})
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    turns = [{"role": "user", "content": "word " * 3000}, {"role": "user", "content": "Hello."}]
    assert server.post(PATH, {**BODY, "input": turns, "truncation": "auto"})[0] == 200


def test_websockets_are_refused_at_once(server):
    status, _, _ = server.request("GET", PATH, headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    assert status == 426
    status, headers, _ = server.request("GET", PATH)
    assert (status, headers["Allow"]) == (405, "POST, OPTIONS")


# --- every field of docs/request_fields.md

def rows_of(wanted):
    for line in PAGE.read_text().splitlines():
        found = re.match(r"\| (`.*`.*) \| responses \| ([a-z ]+) \| .* \|$", line)
        if found and found[2] == wanted:
            for name, harmless in re.findall(r"`([^`]+)`(?: \(`([^`]*)`\))?", found[1]):
                yield pytest.param(name, json.loads(f"[{harmless}]"), id=name)


def ask(server, **fields):
    return server.request("POST", PATH, json.dumps({**BODY, **fields}))


def member(name, value):
    outer, _, inner = name.partition(".")
    return {outer: {inner: value} if inner else value}


@pytest.mark.parametrize("name, harmless", rows_of("implemented"))
def test_implemented_fields_are_taken(server, name, harmless):
    status, headers, answer = ask(server, **member(name, VALUES[name]))
    assert status == 200, answer
    assert "X-Tandem-Ignored-Fields" not in headers


@pytest.mark.parametrize("name, harmless", rows_of("without effect"))
def test_fields_without_effect_change_nothing(server, name, harmless):
    texts = [json.loads(ask(server, **fields)[2])["output"][0]["content"]
             for fields in ({}, member(name, {"a": 1} if "." not in name and name == "stream_options" else "text"))]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name, harmless", rows_of("refused"))
def test_refused_fields_are_refused_by_name(server, name, harmless):
    status, _, answer = ask(server, **member(name, {"not": "served"}))
    assert (status, json.loads(answer)["error"]["param"]) == (400, name)
    for value in [None, *harmless[:1]]:
        assert ask(server, **member(name, value))[0] == 200
