"""Malformed requests, made systematically: each gets a clear error, and the next good request succeeds."""

import json
import socket

import pytest
from tandem_server import read_until

CHAT = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
COMPLETIONS = "/v1/completions"
MESSAGE = {"role": "user", "content": "Hi"}
VALID = {
    COMPLETIONS: {"prompt": "Hi", "max_tokens": 1},
    CHAT: {"messages": [MESSAGE], "max_completion_tokens": 1},
    "/tokenize": {"prompt": "Hi"},
    "/detokenize": {"tokens": [1]},
    EMBEDDINGS: {"input": "Hi"},
}

WRONG_FOR_NUMBER = ["1", True, [1], {"a": 1}]
WRONG_FOR_BOOL = ["true", 1, [True], {}]
WRONG_FOR_STRING = [5, True, ["x"], {"a": 1}]
HUGE = 10**30

# Field -> values that the common parameters must refuse.
SAMPLING = {
    "temperature": [*WRONG_FOR_NUMBER, -0.1, 2.01, 1e300],
    "top_p": [*WRONG_FOR_NUMBER, 0, -1, 1.5],
    "top_k": [*WRONG_FOR_NUMBER, -2, 1.5, HUGE],
    "min_p": [*WRONG_FOR_NUMBER, -0.1, 1.1],
    "presence_penalty": [*WRONG_FOR_NUMBER, -2.5, 2.5],
    "frequency_penalty": [*WRONG_FOR_NUMBER, -2.5, 2.5],
    "repetition_penalty": [*WRONG_FOR_NUMBER, 0, -1, 1e300],
    "seed": ["1", 1.5, [1], HUGE],
    "n": [*WRONG_FOR_NUMBER, 0, -1, 129, 1.5, HUGE],
    "best_of": ["2", 2, 0],
    "stop": [5, True, {}, [1], ["a", None], "", [""], ["x"] * 17, "x" * 2000],
    "stop_token_ids": ["x", 5, [-1], [10**9], ["a"], [1.5]],
    "logit_bias": ["x", [1], {"x": 1}, {"-1": 1}, {"1": "2"}, {"1": 101}, {"1": -101}, {"999999999": 1}, {"1.5": 1}],
    "ignore_eos": WRONG_FOR_BOOL,
    "min_tokens": [*WRONG_FOR_NUMBER, -1, 500],
    "skip_special_tokens": WRONG_FOR_BOOL,
    "include_stop_str_in_output": WRONG_FOR_BOOL,
    "add_special_tokens": WRONG_FOR_BOOL,
    "stream": WRONG_FOR_BOOL,
    "stream_options": ["x", 1, [1], {"include_usage": True}],
    "response_format": ["json", 5],
    "model": WRONG_FOR_STRING,
}
COMPLETION_FIELDS = {
    "prompt": [None, 5, True, {}, "", [], [""], [[]], [1, "a"], ["a", 1], ["a", [1]], [-1], [10**9], [1.5], [[1], [-1]],
               [None], [{}], [[[1]]], [HUGE]],
    "max_tokens": [*WRONG_FOR_NUMBER, -1, 0, 1.5, HUGE],
    "logprobs": ["1", "true", -1, 21, 1.5],
    "echo": WRONG_FOR_BOOL,
    "suffix": ["x"],
    "use_beam_search": [True],
}
CHAT_FIELDS = {
    "messages": [None, 5, "x", {}, []],
    "max_tokens": [*WRONG_FOR_NUMBER, -1, 0, 1.5],
    "max_completion_tokens": [*WRONG_FOR_NUMBER, -1, 0, 1.5],
    "logprobs": [1, "true", []],
    "top_logprobs": [1, 5],
    "tools": ["x", {}, 5],
    "tool_choice": ["required", {"type": "function", "function": {"name": "f"}}, 5],
    "chat_template_kwargs": ["x", [1], 5],
    "add_generation_prompt": WRONG_FOR_BOOL,
    "continue_final_message": [*WRONG_FOR_BOOL],
}
# Messages -> the param that the error names.
MESSAGES = [
    ([5], "messages[0]"),
    ([MESSAGE, "x"], "messages[1]"),
    ([{}], "messages[0].role"),
    ([{"content": "x"}], "messages[0].role"),
    ([{"role": 5, "content": "x"}], "messages[0].role"),
    ([{"role": "alien", "content": "x"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "user", "content": None}], "messages[0].content"),
    ([{"role": "user", "content": 5}], "messages[0].content"),
    ([{"role": "user", "content": {}}], "messages[0].content"),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]}],
     "messages[0].content[1].type"),
]
BROKEN_JSON = [
    b"", b" ", b"{", b"}", b"[", b"{]", b"nul", b"tru", b"{'a':1}", b"{\"prompt\":}", b"{\"prompt\":\"a\",}",
    b"{\"prompt\":\"a\"", b"{\"prompt\":\"a\"} x", b"{\"prompt\" \"a\"}", b"{prompt:1}", b"\"\\q\"", b"\"\\u12\"",
    b"{\"temperature\":NaN,\"prompt\":\"a\"}", b"{\"temperature\":Infinity}", b"{\"temperature\":-}",
    b"{\"temperature\":1e999}", b"{\"temperature\":01}", b"\xff\xfe", b"{\"prompt\":\"\xff\"}",
    b"{\"prompt\":\"\xc3\x28\"}", b"{\"prompt\":\"\xed\xa0\x80\"}", b"{\"prompt\":\"a\x00b\"}", b"{\"prompt\":\"a\nb\"}",
    b"{\"prompt\":\"\\ud800\"}", b"[" * 100, b"[" * 1000000, b"{\"a\":" * 1000 + b"1" + b"}" * 1000,
    b"{\"prompt\":" + b"[" * 70 + b"1" + b"]" * 70 + b"}", b"prompt=a&max_tokens=1", b"\x00\x01\x02",
    b"{" + b",".join(b"\"%d\":1" % i for i in range(20000)) + b"}",
]
NO_OBJECT = [b"5", b"\"x\"", b"[]", b"null", b"true", b"[{\"prompt\":\"a\"}]"]


def json_cases():
    """(path, body bytes, param or None)"""
    for path, fields in ((COMPLETIONS, SAMPLING | COMPLETION_FIELDS), (CHAT, SAMPLING | CHAT_FIELDS)):
        for field, values in fields.items():
            for value in values:
                body = {**VALID[path], field: value}
                if field == "max_tokens" and path == CHAT:
                    del body["max_completion_tokens"]
                param = field
                yield path, json.dumps(body).encode(), param
        missing = dict(VALID[path])
        field = "prompt" if path == COMPLETIONS else "messages"
        del missing[field]
        yield path, json.dumps(missing).encode(), field
    for messages, param in MESSAGES:
        yield CHAT, json.dumps({"messages": messages}).encode(), param
    for value in ("x", 1, [True]):
        body = {**VALID[CHAT], "stream": True, "stream_options": {"include_usage": value}}
        yield CHAT, json.dumps(body).encode(), "stream_options.include_usage"
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": value}
        yield CHAT, json.dumps(body).encode(), "stream_options.continuous_usage_stats"
    yield CHAT, json.dumps({**VALID[CHAT], "tools": [1]}).encode(), "tools[0]"
    yield CHAT, json.dumps({**VALID[CHAT], "logprobs": True, "top_logprobs": 21}).encode(), "top_logprobs"
    for body, param in (({}, "prompt"), ({"prompt": 5}, "prompt"), ({"prompt": ["a"]}, "prompt"),
                        ({"messages": 5}, "messages"), ({"prompt": "a", "messages": [MESSAGE]}, "prompt"),
                        ({"prompt": "a", "add_special_tokens": 1}, "add_special_tokens")):
        yield "/tokenize", json.dumps(body).encode(), param
    for body, param in (({}, "tokens"), ({"tokens": "x"}, "tokens"), ({"tokens": [-1]}, "tokens"),
                        ({"tokens": [10**9]}, "tokens"), ({"tokens": ["a"]}, "tokens"), ({"tokens": [1.5]}, "tokens")):
        yield "/detokenize", json.dumps(body).encode(), param
    for body in BROKEN_JSON + NO_OBJECT:
        yield COMPLETIONS, body, None
        if len(body) < 10000:
            yield CHAT, body, None
            yield EMBEDDINGS, body, None


CASES = list(json_cases())


def check_error(status, body, expected_status=400, param=None):
    assert status == expected_status, body[:300]
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert len(error["message"]) > 5
    assert "\n" not in error["message"]
    assert error["param"] == param, error
    return error


def check_good_request(connection):
    body = json.dumps({**VALID[COMPLETIONS], "temperature": 0})
    connection.request("POST", COMPLETIONS, body)
    response = connection.getresponse()
    answer = response.read()
    assert response.status == 200, answer


def test_there_are_enough_cases():
    assert len(CASES) >= 200


def test_malformed_json_requests(server):
    connection = server.connect()
    for index, (path, body, param) in enumerate(CASES):
        connection.request("POST", path, body)
        response = connection.getresponse()
        answer = response.read()
        try:
            check_error(response.status, answer, 400, param)
            check_good_request(connection)
        except AssertionError as error:
            raise AssertionError(f"case {index}: {path} {body[:200]}: {error}") from error
    connection.close()


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/completion", "/v1/completions/", "/V1/models", "//v1/models",
                                  "/v1/models/", "/v1/engines", "/../etc/passwd", "/%2e%2e/etc/passwd",
                                  "/index.html/../../x", "/" + "a" * 5000])
def test_unknown_paths(server, path):
    status, _, body = server.request("POST" if path == "/" else "GET", path)
    if path == "/":
        check_error(status, body, 405)
    else:
        check_error(status, body, 404)
    server.complete()


def test_unknown_models(server):
    for path in (COMPLETIONS, CHAT, EMBEDDINGS, "/tokenize", "/detokenize"):
        status, _, body = server.request("POST", path, {**VALID[path], "model": "gpt-nothing"})
        assert check_error(status, body, 404, "model")["code"] == "model_not_found"
    status, _, body = server.request("GET", "/v1/models/gpt%2Fnothing")
    assert "gpt/nothing" in check_error(status, body, 404, "model")["message"]


def test_context_length(server):
    for path, body, param in (
            (COMPLETIONS, {"prompt": [1] * 1024}, "prompt"),
            (COMPLETIONS, {"prompt": [1] * 20000}, "prompt"),
            (COMPLETIONS, {"prompt": [1] * 1000, "max_tokens": 25}, "max_tokens"),
            (COMPLETIONS, {"prompt": "Hi", "max_tokens": 2**62}, "max_tokens"),
            (COMPLETIONS, {"prompt": [[1], [1] * 1024]}, "prompt"),
            (CHAT, {"messages": [{"role": "user", "content": "word " * 2000}]}, "messages"),
            (CHAT, {"messages": [MESSAGE], "max_tokens": 1024}, "max_tokens"),
            (CHAT, {"messages": [MESSAGE], "max_completion_tokens": 1024}, "max_completion_tokens")):
        status, _, answer = server.request("POST", path, body)
        error = check_error(status, answer, 400, param)
        assert error["code"] == "context_length_exceeded"
        assert "1024" in error["message"]
    server.complete(prompt=[1] * 1000, max_tokens=24)


HTTP_CASES = [
    (b"rubbish\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    (b"GET\r\n\r\n", 400),
    (b"GET /health\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\n\r\n", 400),  # no Host
    (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    (b"GET /health HTTP/9.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /health HTTP/x\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /health FTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /he alth HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"G\x00T /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n: no name\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nBad Name: x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1 2\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}X\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100000 + b"\r\n\r\n", 431),
    (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40000000\r\n\r\n{}", 413),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2625A00\r\n", 413),
]


@pytest.mark.parametrize("index", range(len(HTTP_CASES)))
def test_malformed_http(server, index):
    request, expected_status = HTTP_CASES[index]
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        answer = read_until(client, b"\x00never")
    assert answer.startswith(b"HTTP/1.1 %d " % expected_status), answer[:200]
    check_error(expected_status, answer[answer.index(b"\r\n\r\n") + 4:], expected_status)
    server.complete()


@pytest.mark.parametrize("cut", [1, 20, 60, 90, 110])
def test_truncated_requests(server, cut):
    whole = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n"
             b'{"prompt": "Hi", "max_tokens": 1        }')
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(whole[:cut])
        client.shutdown(socket.SHUT_WR)
        answer = read_until(client, b"\x00never")
    assert answer.startswith(b"HTTP/1.1 400 ")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(whole[:cut])
    server.complete()


def test_body_larger_than_the_limit(server):
    """Sent whole: the answer must not be lost to a reset."""
    status, _, body = server.request("POST", COMPLETIONS, b" " * (33 << 20))
    assert check_error(status, body, 413)["code"] == "request_too_large"
    status, _, body = server.request("POST", COMPLETIONS, b" " * (31 << 20))
    check_error(status, body, 400)
    server.complete()


def test_no_body(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = read_until(client, b"\x00never")
    assert answer.startswith(b"HTTP/1.1 400 ")
    check_error(400, answer[answer.index(b"\r\n\r\n") + 4:])


def test_odd_but_good_requests(server):
    connection = server.connect()
    for body in (b'{"prompt":"a","prompt":"b","max_tokens":1}', b' \n{"prompt":"a","max_tokens":1}\n',
                 b'{"prompt":"\\ud83d\\ude00","max_tokens":1}', b'{"prompt":"\\u0000","max_tokens":1}',
                 b'{"prompt":"a","max_tokens":1,"temperature":0e0,"seed":-1}',
                 b'{"prompt":"a","max_tokens":1,"seed":18446744073709551615}'):
        connection.request("POST", COMPLETIONS, body)
        response = connection.getresponse()
        answer = response.read()
        assert response.status == 200, (body, answer)


def test_pipelined_requests(server):
    body = b'{"prompt":"Hi","max_tokens":2,"temperature":0}'
    one = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    last = b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(one * 3 + last)
        answer = read_until(client, b"\x00never")
    assert answer.count(b"HTTP/1.1 200 OK") == 4
    assert answer.count(b'"finish_reason":"length"') == 3
    assert b'"version"' in answer
