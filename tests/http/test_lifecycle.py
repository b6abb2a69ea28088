"""Loading, a full queue, draining and stopping."""

import json
import re
import subprocess
import threading
import time

import pytest
from tandem_server import TandemServer, read_until

COMPLETION = {"prompt": "Hello", "max_tokens": 4, "temperature": 0}


def error_of(body):
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def wait_listening(server, timeout=30):
    deadline = time.monotonic() + timeout
    while True:
        try:
            return server.request("GET", "/health")
        except OSError:
            assert time.monotonic() < deadline and server.process.poll() is None, server.errors()
            time.sleep(0.001)


def test_loading_is_503(start_server):
    server = start_server(wait=False)
    status, headers, body = wait_listening(server)
    assert status == 503
    assert error_of(body)["code"] == "loading"
    assert headers["Retry-After"]
    status, answer = server.post("/v1/completions", COMPLETION)
    if status != 200:  # it may have got ready in between
        assert (status, answer["error"]["code"]) == (503, "loading")
    assert server.request("GET", "/version")[0] == 200
    server.wait_ready()
    assert server.request("GET", "/health")[0] == 200
    assert server.complete()["choices"][0]["text"]


def test_terminating_while_loading_ends_at_once(start_server):
    server = start_server(wait=False)
    wait_listening(server)
    server.terminate()
    server.process.wait(5)


def test_a_model_that_cannot_be_loaded_never_looks_ready(binary, tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(60))
    ended = subprocess.run([binary, "serve", path, "--port", "0"], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    said = ended.stdout + ended.stderr
    assert "listening" not in said and "ready" not in said
    lines = said.strip().splitlines()
    assert "loading" in lines[0] and "503" in lines[0]
    assert "broken.gguf" in lines[-1]


def test_the_server_has_the_version_of_the_program(server, binary):
    printed = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    status, _, body = server.request("GET", "/version")
    assert status == 200
    assert printed.splitlines()[0] == f"tandem {json.loads(body)['version']}"


def test_browsers_find_an_icon(start_server):
    status, headers, body = start_server().request("GET", "/favicon.ico")
    assert (status, headers["Content-Type"]) == (200, "image/x-icon")
    assert body[:4] == b"\0\0\1\0"  # an icon file


def test_full_queue_is_503_with_retry_after(start_server):
    server = start_server("--max-num-seqs", "1", "--max-num-queued-reqs", "2")
    streams = [server.open_stream(max_tokens=900)]
    read_until(streams[0], b"data: ")
    streams += [server.open_stream(max_tokens=900) for _ in range(2)]
    deadline = time.monotonic() + 20
    while server.metrics()["vllm:num_requests_waiting"] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    status, headers, body = server.request("POST", "/v1/completions", COMPLETION)
    assert status == 503
    assert int(headers["Retry-After"]) >= 1
    assert error_of(body)["code"] == "queue_full"
    # Several sequences of which some do not fit: all or nothing.
    status, _, body = server.request("POST", "/v1/completions", {**COMPLETION, "n": 8})
    assert (status, error_of(body)["code"]) == (503, "queue_full")
    assert server.metrics()["vllm:num_requests_waiting"] == 2
    assert server.metrics()["tandem:rejected_requests_total"] >= 2
    for stream in streams:
        stream.close()
    server.wait_idle()
    assert server.complete()["choices"]


def test_sigterm_drains(start_server):
    server = start_server()
    stream = server.open_stream(max_tokens=60)
    received = read_until(stream, b"data: ")
    plain = {}
    waiting = threading.Thread(
        target=lambda: plain.update(answer=server.complete(max_tokens=60, ignore_eos=True)))
    waiting.start()
    deadline = time.monotonic() + 20
    while server.metrics()["vllm:num_requests_running"] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    server.terminate()
    time.sleep(0.15)
    status, headers, body = server.request("POST", "/v1/completions", COMPLETION)
    assert status == 503
    assert error_of(body)["code"] == "draining"
    assert headers["Retry-After"]
    assert server.request("GET", "/health")[0] == 503
    received += read_until(stream, b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert received.count(b'"finish_reason":"length"') == 1
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    waiting.join(60)
    assert plain["answer"]["usage"]["completion_tokens"] == 60
    assert server.process.wait(10) == 0


def test_second_sigterm_stops_at_once(start_server):
    server = start_server()
    stream = server.open_stream(max_tokens=1000)
    received = read_until(stream, b"data: ")
    server.terminate()
    time.sleep(0.3)
    assert server.process.poll() is None
    begin = time.monotonic()
    server.terminate()
    assert server.process.wait(5) == 0
    assert time.monotonic() - begin < 3
    received += read_until(stream, b"[DONE]")
    assert b'"code":"cancelled"' in received
    assert b"[DONE]" not in received


def test_port_in_use_is_one_sentence(start_server, binary, model_path):
    server = start_server()
    second = TandemServer(binary, model_path, wait=False, port=server.port)
    assert second.process.wait(20) == 1
    message = second.errors().strip()
    second.close()
    assert message.startswith("tandem: ")
    assert str(server.port) in message
    assert "\n" not in message


@pytest.mark.parametrize("method,path,allow", [("GET", "/v1/completions", "POST"), ("POST", "/health", "GET"),
                                               ("DELETE", "/v1/models", "GET"), ("PUT", "/tokenize", "POST")])
def test_wrong_method(server, method, path, allow):
    status, headers, body = server.request(method, path, "{}")
    assert status == 405
    assert allow in headers["Allow"]
    assert error_of(body)["code"] == "method_not_allowed"


def test_head_options_and_web_page(server):
    status, headers, body = server.request("OPTIONS", "/v1/completions")
    assert (status, body, headers["Allow"]) == (204, b"", "POST, OPTIONS")
    status, headers, body = server.request("HEAD", "/health")
    assert (status, body) == (200, b"")
    status, headers, page = server.request("GET", "/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    named = set(re.findall(r'(?:src|href)="([a-z_.]+)"', page.decode()))
    assert {"style.css", "main.js"} <= named
    while named:
        name = named.pop()
        status, headers, content = server.request("GET", f"/{name}")
        assert status == 200, name
        if name.endswith(".js"):
            assert headers["Content-Type"].startswith("text/javascript")
            named.update(re.findall(r'from "\./([a-z_]+\.js)"', content.decode()))
    assert b"http://" not in page and b"https://" not in page
