"""Every field of docs/request_fields.md and docs/embeddings.md against the server: implemented ones are taken and show their effect, those
without effect change nothing, refused ones are refused by name, near misses too, unknown ones are named."""

import json
import pathlib
import re

import pytest
from tandem_server import MODEL_NAME

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "request_fields.md", DOCS / "embeddings.md"]
GENERATING = ("completions", "chat")
PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "embeddings": "/v1/embeddings"}
BODIES = {
    "completions": {"prompt": "Once upon a time", "max_tokens": 3, "temperature": 0},
    "chat": {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 3, "temperature": 0},
    "embeddings": {"input": "Once upon a time"},
}
STRUCTURAL_TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}
# A value that each implemented field takes beside BODIES, and others that it needs.
VALUES = {
    "add_generation_prompt": True,
    "add_special_tokens": False,
    "allowed_token_ids": [28, 29, 30],
    "bad_words": ["upon"],
    "best_of": 1,
    "cache_prompt": False,
    "cache_salt": "salt",
    "chat_template_kwargs": {"custom": 1},
    "continue_final_message": False,
    "dimensions": 8,
    "documents": [{"title": "a", "text": "b"}],
    "ebnf": 'root ::= "a"',
    "echo": True,
    "enable_thinking": False,
    "encoding_format": "base64",
    "format": "json",
    "frequency_penalty": 0.5,
    "grammar": 'root ::= "a"',
    "guided_choice": ["yes", "no"],
    "guided_grammar": 'root ::= "a"',
    "guided_json": {"type": "integer"},
    "guided_regex": "[ab]",
    "ignore_eos": True,
    "include_stop_str_in_output": True,
    "input": "Hello",
    "json_schema": {"type": "boolean"},
    "logit_bias": {"28": 1},
    "logprobs": True,
    "max_completion_tokens": 2,
    "max_tokens": 2,
    "messages": [{"role": "user", "content": "Hi."}],
    "min_p": 0.1,
    "min_tokens": 1,
    "model": MODEL_NAME,
    "n": 2,
    "normalize": False,
    "parallel_tool_calls": False,
    "presence_penalty": 0.5,
    "prompt": "Hello",
    "prompt_logprobs": 1,
    "reasoning_effort": "low",
    "regex": "[ab]",
    "repeat_penalty": 1.1,
    "repetition_penalty": 1.1,
    "request_id": "a-request",
    "response_format": {"type": "json_object"},
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "seed": 1,
    "service_tier": "flex",
    "skip_special_tokens": False,
    "stop": ["zzz"],
    "stop_token_ids": [5],
    "stream": False,
    "structural_tag": STRUCTURAL_TAG,
    "structured_outputs": {"choice": ["yes", "no"]},
    "structured_outputs.choice": ["yes", "no"],
    "structured_outputs.disable_additional_properties": True,
    "structured_outputs.disable_any_whitespace": True,
    "structured_outputs.grammar": 'root ::= "a"',
    "structured_outputs.json": {"type": "integer"},
    "structured_outputs.json_object": True,
    "structured_outputs.regex": "[ab]",
    "structured_outputs.structural_tag": STRUCTURAL_TAG,
    "temperature": 0.5,
    "tool_choice": "none",
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "top_k": 5,
    "top_logprobs": 0,
    "top_p": 0.5,
    "truncate_prompt_tokens": 3,
    "truncation_side": "right",
}
STREAM_OPTIONS = {"include_usage": True, "continuous_usage_stats": True, "include_obfuscation": True}


def rows():
    for line in "\n".join(page.read_text() for page in PAGES).splitlines():
        found = re.match(r"\| (`.*`.*) \| (both|chat|completions|embeddings) \| ([a-z ]+) \| .* \|$", line)
        if not found:
            continue
        names, route, state = found.groups()
        for name, harmless in re.findall(r"`([^`]+)`(?: \(`([^`]*)`\))?", names):
            for each in GENERATING if route == "both" else [route]:
                yield pytest.param(each, name, json.loads(f"[{harmless}]"), id=f"{each}-{name}"), state


ROWS = list(rows())


def rows_of(state):
    return [row for row, its_state in ROWS if its_state == state]


def ask(server, route, /, **fields):
    body = {**BODIES[route], **fields}
    status, headers, answer = server.request("POST", PATHS[route], json.dumps(body).encode())
    return status, headers, json.loads(answer)


def member(name, value):
    """The field, or the object that it is a member of."""
    outer, _, inner = name.partition(".")
    return {outer: {inner: value} if inner else value}


def answer_of(server, route, /, **fields):
    status, _, body = ask(server, route, **fields)
    assert status == 200, body
    return body


def text_of(body):
    if "data" in body:
        return body["data"][0]["embedding"]
    choice = body["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


@pytest.fixture(scope="module")
def usual(server):
    """Of prompts that are cached, as in all that follow: a rest of other length is rounded otherwise in bf16."""
    for route in PATHS:
        answer_of(server, route)
    return {route: text_of(answer_of(server, route)) for route in PATHS}


def test_the_page_has_all_states():
    assert {state for _, state in ROWS} == {"implemented", "without effect", "refused"}
    assert len(ROWS) > 300
    assert {route.values[0] for route, _ in ROWS} == set(PATHS)


@pytest.mark.parametrize("route, name, harmless", rows_of("implemented"))
def test_implemented_fields_are_taken(server, route, name, harmless):
    if name.startswith("stream_options"):
        fields = {"stream": True, "stream_options": {name.partition(".")[2] or "include_usage": True}}
        body = {**BODIES[route], **fields}
        status, headers, _ = server.request("POST", PATHS[route], json.dumps(body).encode())
    else:
        status, headers, body = ask(server, route, **member(name, VALUES[name]))
    assert status == 200, body
    assert "X-Tandem-Ignored-Fields" not in headers


@pytest.mark.parametrize("route, name, harmless", rows_of("without effect"))
def test_fields_without_effect_change_nothing(server, usual, route, name, harmless):
    if name.startswith("stream_options."):
        fields = {"stream": True, "stream_options": {name.partition(".")[2]: True}}
        status, headers, _ = server.request("POST", PATHS[route], json.dumps({**BODIES[route], **fields}).encode())
        assert status == 200
        return
    for value in ({"a": 1}, "text"):
        status, headers, body = ask(server, route, **{name: value})
        assert status == 200, body
        assert "X-Tandem-Ignored-Fields" not in headers
    assert text_of(body) == usual[route]


@pytest.mark.parametrize("route, name, harmless", rows_of("refused"))
def test_refused_fields_are_refused_by_name(server, route, name, harmless):
    status, _, body = ask(server, route, **member(name, {"not": "served"}))
    assert status == 400
    assert body["error"]["param"] == name
    assert name in body["error"]["message"]
    for value in [None, *harmless[:1]]:
        fields = {} if route == "embeddings" else {"max_tokens": 1}
        status, _, body = ask(server, route, **fields, **member(name, value))
        assert status == 200, (value, body)


@pytest.mark.parametrize("route", GENERATING)
@pytest.mark.parametrize("name, meant", [("temprature", "temperature"), ("maxTokens", "max_tokens"), ("sed", "seed"),
                                         ("stpo", "stop"), ("structured_output", "structured_outputs")])
def test_near_misses_are_named(server, route, name, meant):
    status, _, body = ask(server, route, **{name: 1})
    assert status == 400
    assert body["error"]["param"] == name
    assert f"did you mean {meant}?" in body["error"]["message"]


@pytest.mark.parametrize("name, meant", [("dimension", "dimensions"), ("inptu", "input"), ("encodingFormat",
                                                                                          "encoding_format")])
def test_near_misses_of_embeddings_are_named(server, name, meant):
    status, _, body = ask(server, "embeddings", **{name: 1})
    assert (status, body["error"]["param"]) == (400, name)
    assert f"did you mean {meant}?" in body["error"]["message"]


@pytest.mark.parametrize("route", PATHS)
def test_unknown_fields_are_named_counted_and_logged_once(start_server, route):
    server = start_server()
    for stream in (False, True, True):
        streams = {} if route == "embeddings" else {"stream": stream}
        body = {**BODIES[route], **streams, "frobnicate": 1, "a,\r\nSet-Cookie: x": 2}
        status, headers, _ = server.request("POST", PATHS[route], json.dumps(body).encode())
        assert status == 200
        assert headers["X-Tandem-Ignored-Fields"] == "frobnicate, a%2C%0D%0ASet-Cookie:%20x"
        assert "Set-Cookie" not in headers
    metrics = server.request("GET", "/metrics")[2].decode()
    assert re.search(r"^tandem:ignored_request_fields_total\{.*\} 6$", metrics, re.M)
    assert server.errors().count("frobnicate") == 1


def test_the_strict_reject_them(start_server):
    server = start_server("--unknown-fields", "reject")
    for route in PATHS:
        status, _, body = ask(server, route, frobnicate=1)
        assert (status, body["error"]["param"]) == (400, "frobnicate")
        assert ask(server, route)[0] == 200


# --- what the fields do

def test_bad_words_do_not_come(server):
    fields = {"prompt": "The capital of France is", "max_tokens": 8}
    plain = text_of(answer_of(server, "completions", **fields))
    assert "Paris" in plain
    for words in (["Paris"], [" Paris"]):
        assert "Paris" not in text_of(answer_of(server, "completions", bad_words=words, **fields))
    beginning = "Paris.\n\nThe"  # several tokens
    assert plain.strip().startswith(beginning)
    assert beginning not in text_of(answer_of(server, "completions", bad_words=[beginning], **fields))


def test_only_allowed_tokens_are_drawn(server):
    tokens = [28, 29, 30, 314]
    for fields in ({}, {"temperature": 1, "seed": 3}, {"temperature": 1, "top_k": 2}, {"logprobs": 3}):
        body = answer_of(server, "completions", max_tokens=12, ignore_eos=True, allowed_token_ids=tokens,
                         return_token_ids=True, **fields)
        assert set(body["choices"][0]["token_ids"]) <= set(tokens)
        assert len(body["choices"][0]["token_ids"]) == 12


@pytest.mark.parametrize("route", GENERATING)
def test_token_ids_are_returned_alike_in_streams(server, route):
    whole = answer_of(server, route, return_token_ids=True, max_tokens=6)
    prompt_ids = (whole if route == "chat" else whole["choices"][0])["prompt_token_ids"]
    detokenized = server.request("POST", "/detokenize",
                                 json.dumps({"tokens": whole["choices"][0]["token_ids"]}).encode())[2]
    assert json.loads(detokenized)["prompt"].replace("<|im_end|>", "") == text_of(whole)
    assert len(prompt_ids) == whole["usage"]["prompt_tokens"]
    body = {**BODIES[route], "max_tokens": 6, "stream": True, "return_token_ids": True}
    events = server.request("POST", PATHS[route], json.dumps(body).encode())[2].decode().split("\n\n")
    chunks = [json.loads(event[len("data: "):]) for event in events if event.startswith("data: {")]
    ids = [token for chunk in chunks for token in chunk["choices"][0].get("token_ids", [])]
    assert ids == whole["choices"][0]["token_ids"]
    first = chunks[0] if route == "chat" else chunks[0]["choices"][0]
    assert first["prompt_token_ids"] == prompt_ids
    assert sum("prompt_token_ids" in chunk or "prompt_token_ids" in chunk["choices"][0] for chunk in chunks) == 1


def test_prompt_logprobs_are_those_of_echo(server):
    fields = {"max_tokens": 1, "return_token_ids": True}
    echoed = answer_of(server, "completions", echo=True, logprobs=2, **fields)["choices"][0]
    choice = answer_of(server, "completions", prompt_logprobs=2, **fields)["choices"][0]
    places = choice["prompt_logprobs"]
    ids = choice["prompt_token_ids"]
    assert len(places) == len(ids)
    assert places[0] is None
    for i in range(1, len(ids)):
        own = places[i][str(ids[i])]
        assert own["logprob"] == pytest.approx(echoed["logprobs"]["token_logprobs"][i], abs=1e-6)
        assert own["decoded_token"] == echoed["logprobs"]["tokens"][i]
        assert (own["rank"] <= 2) == (len(places[i]) == 2)
        assert sorted(entry["rank"] for entry in places[i].values())[:2] == [1, 2]
    chat = answer_of(server, "chat", prompt_logprobs=0, return_token_ids=True)
    assert len(chat["prompt_logprobs"]) == len(chat["prompt_token_ids"])
    assert ask(server, "completions", prompt_logprobs=1, stream=True)[0] == 400


def test_logprobs_may_be_booleans_and_name_token_ids(server):
    one = answer_of(server, "completions", logprobs=1)["choices"][0]["logprobs"]
    assert answer_of(server, "completions", logprobs=True)["choices"][0]["logprobs"] == one
    assert answer_of(server, "completions", logprobs=False)["choices"][0]["logprobs"] is None
    named = answer_of(server, "completions", logprobs=1, return_tokens_as_token_ids=True, return_token_ids=True)
    assert named["choices"][0]["logprobs"]["tokens"] == [f"token_id:{i}" for i in named["choices"][0]["token_ids"]]
    chat = answer_of(server, "chat", logprobs=True, return_tokens_as_token_ids=True, return_token_ids=True)
    tokens = [entry["token"] for entry in chat["choices"][0]["logprobs"]["content"]]
    assert tokens == [f"token_id:{i}" for i in chat["choices"][0]["token_ids"]][:len(tokens)]


def test_prompts_are_truncated(server):
    ids = answer_of(server, "completions", return_token_ids=True)["choices"][0]["prompt_token_ids"]
    for side, kept in (("left", ids[-2:]), ("right", ids[:2])):
        body = answer_of(server, "completions", return_token_ids=True, truncate_prompt_tokens=2, truncation_side=side)
        assert body["choices"][0]["prompt_token_ids"] == kept
        assert body["usage"]["prompt_tokens"] == 2
    long = "word " * 9000
    assert ask(server, "completions", prompt=long)[0] == 400
    body = answer_of(server, "completions", prompt=long, truncate_prompt_tokens=-1, max_tokens=1)
    assert body["usage"]["total_tokens"] <= 8192


def test_ids_penalties_and_echo(server, usual):
    assert answer_of(server, "chat", request_id="my-own.1")["id"] == "chatcmpl-my-own.1"
    assert answer_of(server, "completions", request_id="my-own.1")["id"] == "cmpl-my-own.1"
    long = {"max_tokens": 40, "ignore_eos": True}
    assert (text_of(answer_of(server, "completions", repeat_penalty=1.5, **long)) ==
            text_of(answer_of(server, "completions", repetition_penalty=1.5, **long)) !=
            text_of(answer_of(server, "completions", **long)))
    messages = [*BODIES["chat"]["messages"], {"role": "assistant", "content": "Hello, my"}]
    goes_on = {"messages": messages, "continue_final_message": True}
    assert (text_of(answer_of(server, "chat", echo=True, **goes_on)) ==
            "Hello, my" + text_of(answer_of(server, "chat", **goes_on)))
    assert text_of(answer_of(server, "chat", echo=True)) == usual["chat"]
