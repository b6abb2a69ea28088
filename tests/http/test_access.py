"""Who may use the server: keys, hosts, origins, and what it says of requests."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest
from tandem_server import MODEL_NAME, TandemServer, read_until

COMPLETION = {"prompt": "Hello", "max_tokens": 2, "temperature": 0}
SECRET = "sk-the-secret-of-this-test"
KEY = {"Authorization": f"Bearer {SECRET}"}
EVIL = "http://evil.test"
PAGE_FILES = ("/", "/index.html", "/main.js", "/api_key.js", "/markdown.js", "/style.css", "/favicon.ico")


def error_code(body):
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "\n" not in error["message"]
    return error["code"]


def raw(server, data, until=b"\x00never", timeout=10):
    """What comes back for these bytes, without the end of anything being sent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as client:
        client.sendall(data)
        return read_until(client, until)


def head(method, path, length=None, **headers):
    lines = [f"{method} {path} HTTP/1.1"]
    headers = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if length is not None:
        headers["Content-Length"] = length
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


@pytest.fixture(scope="module")
def keyed(binary, model_path):
    with TandemServer(binary, model_path, "--api-key", SECRET) as running:
        yield running


# Keys


@pytest.mark.parametrize("flags", [("--api-key", ""), ("--api-key=",), ("--api-key-file", ""), ("--api-key", "a b"),
                                   ("--api-key", "ä"), ("--api-key-file", "/no/such/file")])
def test_a_bad_key_does_not_open_the_server(binary, flags):
    ended = subprocess.run([binary, "serve", "--dummy", "tiny", "--port", "0", *flags], capture_output=True, text=True,
                           timeout=30)
    assert ended.returncode == 2
    assert ended.stderr.startswith("tandem: --api-key")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["TANDEM_API_KEY", "TANDEM_API_KEY_FILE"])
def test_an_empty_variable_does_not_open_the_server(binary, name):
    ended = subprocess.run([binary, "serve", "--dummy", "tiny", "--port", "0"], capture_output=True, text=True, timeout=30,
                           env={**os.environ, name: ""})
    assert ended.returncode == 2
    assert name in ended.stderr


def test_a_key_covers_all_but_probes_and_the_page(keyed):
    metrics_before = keyed.metrics(headers=KEY)
    for method, path in (("GET", "/v1/models"), ("GET", f"/v1/models/{MODEL_NAME}"), ("POST", "/v1/completions"),
                         ("POST", "/v1/chat/completions"), ("POST", "/v1/embeddings"), ("POST", "/tokenize"),
                         ("POST", "/detokenize"), ("GET", "/tokenizer_info"),
                         ("GET", "/metrics"), ("GET", "/version"), ("GET", "/nothing"), ("DELETE", "/v1/models"),
                         ("OPTIONS", "/v1/models"), ("HEAD", "/metrics")):
        body = json.dumps(COMPLETION) if method == "POST" else None
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": SECRET}, {"x-api-key": SECRET + "x"},
                        {"x-api-key": ""}, {"Authorization": "Bearer "}):
            status, answer_headers, answer = keyed.request(method, path, body, headers)
            assert status == 401, (method, path, headers)
            assert answer_headers["WWW-Authenticate"] == "Bearer"
            assert method == "HEAD" or error_code(answer) == "invalid_api_key"
        assert keyed.request(method, path, body, KEY)[0] != 401
    for headers in (KEY, {"authorization": f"bearer {SECRET}"}, {"X-Api-Key": SECRET}):
        status, _, answer = keyed.request("POST", "/v1/completions", COMPLETION, headers)
        assert status == 200, answer
    for path in ("/health", "/ready", *PAGE_FILES):
        assert keyed.request("GET", path)[0] == 200, path
    assert keyed.metrics(headers=KEY)["vllm:request_success_total"] == metrics_before["vllm:request_success_total"] + 4


def test_metrics_can_be_open(start_server):
    server = start_server("--api-key", SECRET, "--open-metrics")
    assert server.request("GET", "/metrics")[0] == 200
    assert server.request("GET", "/v1/models")[0] == 401


def test_a_wrong_key_is_refused_before_the_body(keyed):
    request = head("POST", "/v1/completions", 1000, Authorization="Bearer wrong", Expect="100-continue")
    begin = time.monotonic()
    answer = raw(keyed, request, b"invalid_api_key")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert time.monotonic() - begin < 2
    # Too large is for those who may ask.
    answer = raw(keyed, head("POST", "/v1/completions", 99999999), b"invalid_api_key")
    assert answer.startswith(b"HTTP/1.1 401 ")
    answer = raw(keyed, head("POST", "/v1/completions", 99999999, **KEY), b"request_too_large")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_named_keys_and_no_key_in_sight(binary, model_path, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# who\nalice sk-of-alice\n\nsk-of-nobody\r\nbob sk-of-bob")
    log = tmp_path / "access.log"
    with TandemServer(binary, model_path, "--api-key-file", str(keys), "--api-key", SECRET, f"--api-key={SECRET}2",
                      "--access-log", str(log), "--log-level", "debug") as server:
        command_line = open(f"/proc/{server.process.pid}/cmdline", "rb").read()
        assert b"--api-key\0" in command_line and b"sk-" not in command_line
        shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(server.process.pid)], capture_output=True).stdout
        assert b"--port" in shown and b"sk-" not in shown
        for key in ("sk-of-alice", "sk-of-nobody", "sk-of-bob", SECRET, SECRET + "2"):
            assert server.request("POST", "/v1/completions", COMPLETION, {"x-api-key": key})[0] == 200
            assert server.request("GET", f"/v1/models?key={key}", None, {"x-api-key": key})[0] == 200
        assert server.request("GET", "/v1/models", None, {"x-api-key": "sk-of-none"})[0] == 401
        server.close()
        said = server.errors()
    text = log.read_text()
    assert "sk-" not in text + said, "keys belong into no log"
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line.get("key") for line in lines] == [name for name in ("alice", "line4", "bob", "default", "default2")
                                                   for _ in range(2)] + [None]
    assert lines[-1]["status"] == 401


def test_a_key_from_the_environment(binary, model_path, monkeypatch):
    monkeypatch.setenv("TANDEM_API_KEY", SECRET)
    with TandemServer(binary, model_path) as server:
        assert server.request("GET", "/v1/models")[0] == 401
        assert server.request("GET", "/v1/models", headers=KEY)[0] == 200


def test_the_benchmark_hides_its_key(binary, keyed, tmp_path):
    report = tmp_path / "report.json"
    running = subprocess.Popen(
        [binary, "bench", "online", "--url", keyed.url, "--api-key", SECRET, "--workload", "synthetic:in=8,out=8",
         "--num-requests", "20", "--rate", "20", "--json", str(report)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    time.sleep(0.5)
    command_line = open(f"/proc/{running.pid}/cmdline", "rb").read()
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 0, said
    assert b"--api-key\0" in command_line and SECRET.encode() not in command_line
    assert SECRET.encode() not in said
    assert SECRET not in report.read_text() and "--api-key" in report.read_text()


# Hosts


@pytest.mark.parametrize("host,expected", [
    ("localhost", 200), ("LOCALHOST:8000", 200), ("localhost.", 200), ("app.localhost:1", 200), ("127.0.0.1:1", 200),
    ("[::1]:8000", 200), ("10.1.2.3", 200), ("evil.test", 403), ("evil.test:8000", 403), ("localhost.evil.test", 403),
    ("127.0.0.1.evil.test", 403), ("", 400), ("a b", 400), ("user@localhost", 400), ("localhost:port", 400), ("[::1", 400)])
def test_hosts(server, host, expected):
    for path in ("/v1/models", "/health", "/ready", "/metrics", "/", "/nothing"):
        wanted = 404 if expected == 200 and path == "/nothing" else expected
        answer = raw(server, head("GET", path, Host=host, Connection="close"))
        assert answer.startswith(b"HTTP/1.1 %d " % wanted), (path, answer[:200])
    if expected != 200:
        for path in ("/v1/completions", "/v1/embeddings"):
            answer = raw(server, head("POST", path, 1000, Host=host), b"}}")
            assert answer.startswith(b"HTTP/1.1 %d " % expected), "before the body"


def test_the_authority_of_the_target_counts(server):
    port = server.port
    assert raw(server, head("GET", f"http://localhost:{port}/v1/models", Connection="close")).startswith(b"HTTP/1.1 200 ")
    assert raw(server, head("GET", "http://evil.test/v1/models", Connection="close")).startswith(b"HTTP/1.1 403 ")
    assert raw(server, head("GET", "http://localhost/v1/models", Host="evil.test")
               , b"}}").startswith(b"HTTP/1.1 403 ")


def test_hosts_that_are_named(start_server):
    server = start_server("--allowed-hosts", "chat.example,*.lan", "--api-key", SECRET)
    for host, expected in (("chat.example", 200), ("a.lan:80", 200), ("localhost", 200), ("evil.test", 403), ("lan", 403)):
        answer = raw(server, head("GET", "/v1/models", Host=host, Connection="close", **KEY))
        assert answer.startswith(b"HTTP/1.1 %d " % expected), host


def test_behind_a_key_any_host_will_do(keyed):
    assert raw(keyed, head("GET", "/v1/models", Host="chat.example", Connection="close", **KEY)).startswith(b"HTTP/1.1 200 ")
    assert raw(keyed, head("GET", "/v1/models", Host="a b", Connection="close", **KEY)).startswith(b"HTTP/1.1 400 ")


# Origins


def test_a_foreign_origin_is_refused_before_the_body(server):
    before = server.metrics()
    body = json.dumps(COMPLETION)
    for origin in (EVIL, "null", "https://evil.test", "http://localhost.evil.test", "http://10.0.0.1"):
        for content_type in ("text/plain", "application/json"):
            answer = raw(server, head("POST", "/v1/completions", 1000, Origin=origin, Content_Type=content_type), b"}}")
            assert answer.startswith(b"HTTP/1.1 403 "), answer[:200]
            assert b"Access-Control" not in answer
            status, headers, answer = server.request("POST", "/v1/completions", body,
                                                     {"Origin": origin, "Content-Type": content_type})
            assert (status, error_code(answer)) == (403, "origin_not_allowed")
            assert headers["Vary"] == "Origin"
        for method, path in (("GET", "/v1/models"), ("GET", "/health"), ("GET", "/metrics"), ("GET", "/"),
                             ("OPTIONS", "/v1/completions"), ("POST", "/tokenize"), ("POST", "/v1/embeddings")):
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            status, headers, _ = server.request(method, path, None, headers)
            assert status == 403, (method, path)
            assert not [name for name in headers if name.startswith("Access-Control")]
    after = server.metrics()
    for name in ("vllm:request_success_total", "vllm:prompt_tokens_total", "tandem:iterations_total"):
        assert after[name] == before[name]


def test_its_own_and_loopback_origins_may_use_it(server):
    for origin in (server.url, f"http://localhost:{server.port}", "http://localhost:3000", "https://127.0.0.1",
                   "http://[::1]:5173"):
        status, headers, _ = server.request("POST", "/v1/completions", COMPLETION, {"Origin": origin})
        assert status == 200
        assert headers["Access-Control-Allow-Origin"] == origin
        assert "Origin" in headers["Vary"]
        for exposed in ("X-Request-Id", "X-Tandem-Ignored-Fields"):
            assert exposed in headers["Access-Control-Expose-Headers"]
    # An address that is not loopback: only its own pages.
    for origin, expected in (("http://10.9.8.7:8000", 200), ("http://10.9.8.6:8000", 403)):
        answer = raw(server, head("GET", "/v1/models", Host="10.9.8.7:8000", Origin=origin, Connection="close"))
        assert answer.startswith(b"HTTP/1.1 %d " % expected)
    assert server.request("GET", "/health")[1]["Vary"] == "Origin"


def test_preflights(start_server):
    server = start_server("--allowed-origins", "https://chat.example", "--api-key", SECRET)
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Private-Network": "true",
             "Access-Control-Request-Headers": "authorization,content-type,x-api-key,x-request-id,x-stainless-os"}
    status, headers, body = server.request("OPTIONS", "/v1/chat/completions", None, {"Origin": "https://chat.example", **asked})
    assert (status, body) == (204, b"")
    assert headers["Access-Control-Allow-Origin"] == "https://chat.example"
    assert "POST" in headers["Access-Control-Allow-Methods"]
    assert headers["Access-Control-Allow-Headers"] == asked["Access-Control-Request-Headers"]
    assert headers["Access-Control-Allow-Private-Network"] == "true"
    assert server.request("OPTIONS", "/v1/chat/completions", None, {"Origin": EVIL, **asked})[0] == 403
    # Errors too can be read by who may ask.
    status, headers, _ = server.request("POST", "/v1/completions", COMPLETION, {"Origin": "https://chat.example"})
    assert (status, headers["Access-Control-Allow-Origin"]) == (401, "https://chat.example")
    assert server.request("POST", "/v1/completions", COMPLETION, {"Origin": EVIL, **KEY})[0] == 403


def test_every_origin_if_that_is_said(start_server):
    server = start_server("--allowed-origins", "*")
    for origin in (EVIL, "null"):
        status, headers, _ = server.request("POST", "/v1/completions", COMPLETION, {"Origin": origin})
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, origin)


def test_what_another_site_loads_is_refused(server):
    for mode, dest in (("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe")):
        fetch = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        assert server.request("GET", "/v1/models", None, fetch)[0] == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in ("/", "/metrics"):
        assert server.request("GET", path, None, link)[0] == 200


# What else is said by a head


def test_encoded_bodies_are_415(server):
    for encoding in ("gzip", "br", "zstd", "deflate, gzip"):
        answer = raw(server, head("POST", "/v1/completions", 1000, Content_Encoding=encoding), b"}}")
        assert answer.startswith(b"HTTP/1.1 415 ")
        assert b"unsupported_content_encoding" in answer
    status, _, _ = server.request("POST", "/v1/completions", COMPLETION, {"Content-Encoding": "identity"})
    assert status == 200


def test_request_ids(server):
    for path in ("/health", "/nothing", "/"):
        assert server.request("GET", path, headers={"X-Request-Id": "mine 1~"})[1]["X-Request-Id"] == "mine 1~"
        made = [server.request("GET", path)[1]["X-Request-Id"] for _ in range(3)]
        assert len(set(made)) == 3 and all(re.fullmatch(r"req-[0-9a-f]+", name) for name in made)
        assert server.request("GET", path, headers={"X-Request-Id": "x" * 129})[1]["X-Request-Id"] != "x" * 129
    assert server.request("GET", "/", headers={"X-Request-Id": "a\tb"})[1]["X-Request-Id"].startswith("req-")
    assert b"\r\nX-Request-Id: req-" in raw(server, b"rubbish\r\n\r\n")
    assert b"\r\nX-Request-Id: mine\r\n" in raw(server, head("GET", "/", Host="evil.test", X_Request_Id="mine"), b"}}")
    stream = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    body = json.dumps({**COMPLETION, "stream": True}).encode()
    stream.sendall(head("POST", "/v1/completions", len(body), X_Request_Id="streamed") + body)
    assert b"\r\nX-Request-Id: streamed\r\n" in read_until(stream, b"\r\n\r\n")
    stream.close()


# Ready, the warning, the access log, a proxy's prefix


def test_ready_while_loading_serving_and_draining(start_server):
    server = start_server(wait=False)
    deadline = time.monotonic() + 30
    while True:
        try:
            status, headers, body = server.request("GET", "/ready")
            break
        except OSError:
            assert time.monotonic() < deadline and server.process.poll() is None, server.errors()
            time.sleep(0.001)
    assert (status, error_code(body)) == (503, "loading")
    assert int(headers["Retry-After"]) >= 1
    server.wait_ready()
    assert server.request("GET", "/ready")[0] == 200
    stream = server.open_stream(max_tokens=200)
    read_until(stream, b"data: ")
    server.terminate()
    time.sleep(0.2)
    status, headers, body = server.request("GET", "/ready")
    assert (status, error_code(body)) == (503, "draining")
    assert int(headers["Retry-After"]) >= 1
    stream.close()


@pytest.mark.parametrize("flags,warned", [(("--host", "0.0.0.0"), True), (("--host", "0.0.0.0", "--api-key", SECRET), False),
                                          (("--host", "127.0.0.1"), False)])
def test_an_open_door_is_a_warning(start_server, flags, warned):
    server = start_server(*flags, wait=False)
    server.process.stdout.readline()
    lines = [line for line in server.errors().splitlines() if "may use this server" in line]
    assert len(lines) == (1 if warned else 0), server.errors()
    assert not warned or "--api-key-file" in lines[0]
    host = head("GET", "/v1/models", Host="chat.example", Connection="close", **KEY)
    assert raw(server, host).startswith(b"HTTP/1.1 %d " % (403 if flags[1] == "127.0.0.1" else 200))


def wait_lines(path, count, timeout=10):
    deadline = time.monotonic() + timeout
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return [json.loads(line) for line in lines]
        assert time.monotonic() < deadline, lines
        time.sleep(0.01)


def test_the_access_log(start_server, tmp_path):
    log = tmp_path / "access.log"
    server = start_server("--access-log", str(log))
    status, _, body = server.request("POST", "/v1/completions?token=hidden", COMPLETION, {"X-Request-Id": "one"})
    assert status == 200
    usage = json.loads(body)["usage"]
    (line,) = wait_lines(log, 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert line["client"] == "127.0.0.1"
    assert (line["method"], line["path"], line["status"], line["complete"]) == ("POST", "/v1/completions", 200, True)
    assert line["request_id"] == "one"
    assert (line["prompt_tokens"], line["completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert line["bytes_in"] > len(json.dumps(COMPLETION)) and line["bytes_out"] > len(body)
    assert line["duration_ms"] > 0
    stream = server.open_stream(max_tokens=800)
    read_until(stream, b"data: ")
    stream.close()
    line = wait_lines(log, 2)[1]
    assert (line["status"], line["complete"]) == (200, False)
    assert line["completion_tokens"] < 800
    assert server.request("POST", "/v1/embeddings", {"input": [[1, 2], [3]]})[0] == 200
    line = wait_lines(log, 3)[2]
    assert (line["path"], line["prompt_tokens"], line["completion_tokens"]) == ("/v1/embeddings", 3, 0)
    raw(server, b"rubbish\r\n\r\n")
    raw(server, b"GET /\"\\\xff\xfe HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: \"\\\r\nConnection: close\r\n\r\n")
    raw(server, head("POST", "/v1/completions", 100, Origin=EVIL), b"}}")
    lines = wait_lines(log, 6)
    assert [line["status"] for line in lines[3:]] == [400, lines[4]["status"], 403]
    # Moved away, then opened again.
    log.rename(tmp_path / "access.log.1")
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while not log.exists():
        assert time.monotonic() < deadline and server.process.poll() is None
        time.sleep(0.01)
    server.request("GET", "/health")
    assert wait_lines(log, 1)[0]["path"] == "/health"
    assert "hidden" not in (tmp_path / "access.log.1").read_text()


def test_an_access_log_on_standard_output(binary, model_path):
    with TandemServer(binary, model_path, "--access-log", "-") as server:
        server.request("GET", "/health")
        assert json.loads(server.process.stdout.readline())["path"] == "/health"


def test_an_access_log_that_cannot_be_written_is_one_sentence(binary):
    ended = subprocess.run([binary, "serve", "--dummy", "tiny", "--port", "0", "--access-log", "/no/such/folder/log"],
                           capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1 and "/no/such/folder/log" in ended.stderr


def test_a_path_before_all_paths(start_server):
    server = start_server("--root-path", "/models/a", "--api-key", SECRET)
    for prefix in ("", "/models/a"):
        assert server.request("GET", prefix + "/health")[0] == 200
        assert server.request("GET", prefix + "/v1/models")[0] == 401
        assert server.request("GET", prefix + f"/v1/models/{MODEL_NAME}", headers=KEY)[0] == 200
        assert server.request("POST", prefix + "/v1/completions?x=1", COMPLETION, KEY)[0] == 200
        for path in PAGE_FILES:
            assert server.request("GET", prefix + path)[0] == 200, path
    status, headers, _ = server.request("GET", "/models/a")
    assert (status, headers["Location"]) == (308, "/models/a/")
    for path in ("/models/ab/health", "/models/health", "/models/a/models/a/health", "/models/a/nothing"):
        assert server.request("GET", path, headers=KEY)[0] == 404, path


def test_the_page_may_not_be_framed(server):
    for path in PAGE_FILES:
        _, headers, _ = server.request("GET", path)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "default-src 'self'" in headers["Content-Security-Policy"]
