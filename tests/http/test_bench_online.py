"""tandem bench online --url against the real server: counts, rejections, and servers that go away."""

import json
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from tandem_server import MODEL_NAME, free_port

NUM_STREAMS = 64


@pytest.fixture
def bench(binary, tmp_path):
    """Runs the benchmark: exit code, report (None if there is none), standard output and standard error."""

    def run(url, *flags, timeout=120, during=None):
        path = tmp_path / "online.json"
        workload = [] if "--workload" in flags else ["--workload", "synthetic:in=16,out=12"]
        command = [binary, "bench", "online", "--url", url, *workload, *flags, "--json", str(path)]
        with subprocess.Popen(command, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                if during:
                    during()
                out, err = process.communicate(timeout=timeout)
            finally:
                process.kill()
        text = path.read_text() if path.exists() else ""
        return process.returncode, json.loads(text) if text else None, out, err

    return run


class FakeServer:
    """One connection at a time: reads a request whole, answers with given bytes, perhaps closes."""

    MODELS = b'{"data":[{"id":"m","meta":{"n_vocab":500}}]}'

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def models_answer(self):
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.MODELS)}\r\n\r\n".encode() + self.MODELS

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                while (request := self.read_request(connection)) is not None:
                    if request.startswith(b"GET"):
                        connection.sendall(self.models_answer())
                        continue
                    self.requests.append(request)
                    answer = self.answers.pop(0)
                    for piece in answer if isinstance(answer, list) else [answer]:
                        connection.sendall(piece)
                        time.sleep(0.002)
                    if b"Content-Length" not in b"".join(answer) and b"chunked" not in b"".join(answer):
                        break

    @staticmethod
    def read_request(connection):
        received = b""
        while b"\r\n\r\n" not in received:
            data = connection.recv(65536)
            if not data:
                return None
            received += data
        length = int(match[1]) if (match := re.search(rb"Content-Length: (\d+)", received)) else 0
        while len(received.split(b"\r\n\r\n", 1)[1]) < length:
            received += connection.recv(65536)
        return received

    def close(self):
        self.listener.close()


def event(text, finish_reason=None, **fields):
    choice = {"index": 0, "text": text, "finish_reason": finish_reason}
    return f"data: {json.dumps({'choices': [choice], **fields})}\n\n".encode()


def body_answer(body, status="200 OK"):
    return [f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body]


def messages(report):
    return {error["message"]: error["count"] for error in report["errors"]}


def test_many_streams_all_complete(server, bench):
    before = server.wait_idle()
    code, report, out, err = bench(server.url, "--num-requests", str(NUM_STREAMS))
    assert code == 0, err
    assert (report["completed"], report["failed"], report["rejected"], report["errors"]) == (NUM_STREAMS, 0, 0, [])
    assert report["peak_concurrency"] == NUM_STREAMS
    assert (report["mode"], report["rate"], report["url"]) == ("online", "inf", server.url)
    assert (report["model"], report["server_model"]) == (MODEL_NAME, MODEL_NAME)
    assert report["device"] is None and report["iterations"] is None and report["strategy"] is None
    after = server.wait_idle()
    # The server counted the same tokens.
    for field, metric in (("total_input_tokens", "vllm:prompt_tokens_total"),
                          ("total_output_tokens", "vllm:generation_tokens_total")):
        assert report[field] == after[metric] - before[metric]
    assert report["mean_ttft_ms"] > 0 and report["median_itl_ms"] > 0
    assert 0 < report["client_cpu_share"] < 1
    assert "0 requests" in out and "us a token" in out


def test_an_open_loop_with_a_window(server, bench):
    code, report, _, err = bench(server.url, "--rate", "20", "--arrivals", "constant", "--duration", "3",
                                 "--warm-up", "1", "--cool-down", "0.5", "--num-warmup", "2")
    assert code == 0, err
    assert report["num_requests"] == 60
    assert report["counted_requests"] == report["completed"] == 30
    assert report["window_s"] == pytest.approx(1.5)
    assert report["send_delay_ms"]["mean"] >= 0


def test_a_limit_of_concurrency(server, bench):
    code, report, _, err = bench(server.url, "--num-requests", "30", "--max-concurrency", "4")
    assert code == 0, err
    assert (report["peak_concurrency"], report["max_concurrency"], report["completed"]) == (4, 4, 30)


def test_rejections_are_no_failures(start_server, bench):
    server = start_server("--max-num-seqs", "2", "--max-num-queued-reqs", "4")
    code, report, out, err = bench(server.url, "--num-requests", "40")
    assert code == 0, err
    assert report["failed"] == 0
    assert report["rejected"] > 0 and report["completed"] > 0
    assert report["rejected"] + report["completed"] == 40
    assert [error["rejected"] for error in report["errors"]] == [True]
    assert report["errors"][0]["message"].startswith("HTTP 503: ")
    assert f"{report['rejected']} rejected: HTTP 503" in out


def test_a_killed_server_gives_failures_and_no_hang(start_server, bench):
    server = start_server("--max-num-seqs", "4")

    def kill_when_two_are_done():
        deadline = time.monotonic() + 60
        while server.metrics().get('vllm:request_success_total', 0) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server.process.send_signal(signal.SIGKILL)

    code, report, _, err = bench(server.url, "--rate", "20", "--arrivals", "constant", "--num-requests", "160",
                                 timeout=60, during=kill_when_two_are_done)
    assert code == 1
    assert "requests failed" in err
    assert report["completed"] >= 2 and report["failed"] > 0
    assert report["completed"] + report["failed"] == 160
    said = " | ".join(messages(report))
    assert "Connection refused" in said
    assert "the connection ended amid the answer" in said or "Connection reset" in said


def test_a_deadline_cancels(start_server, bench):
    server = start_server("--max-num-seqs", "1")
    # Enough for the fastest machine not to be done, and a deadline at which a busy one has done some.
    code, report, _, err = bench(server.url, "--num-requests", "200", "--workload", "synthetic:in=16,out=40",
                                 "--deadline", "8")
    assert code == 1
    assert report["completed"] > 0 and report["failed"] > 0
    assert messages(report) == {"not done 8 s after it was due": report["failed"]}
    # The server learns of it.
    server.wait_idle()


def test_keys(start_server, bench):
    server = start_server("--api-key", "secret")
    code, report, _, err = bench(server.url, "--num-requests", "2")
    assert code == 1 and report is None
    assert "HTTP 401: The API key is missing or wrong." in err
    assert bench(server.url, "--num-requests", "2", "--api-key", "secret")[0] == 0


def test_a_server_that_is_not_there(bench):
    code, report, _, err = bench(f"http://127.0.0.1:{free_port()}", "--num-requests", "2")
    assert code == 1 and report is None
    assert "does not answer: cannot connect to 127.0.0.1" in err and "Connection refused" in err


def test_other_servers_streams(bench, tmp_path):
    """Streams as other servers frame them: CRLF, comments, several tokens an event, a last event without text."""
    twelve = [event("a\"}],\"usage\":") for _ in range(3)] + [event("b" * 9), event("", "length")]
    usage = b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
    counted = [event("x", None if n < 12 else "length", usage={"completion_tokens": n}) for n in (1, 2, 7, 12)]
    until_closed = b"HTTP/1.0 200 OK\r\n\r\n"
    bytewise = until_closed + b": hi\r\n\r\n" + b"".join(twelve).replace(b"\n", b"\r\n") + usage % 12
    server = FakeServer(
        [until_closed, *twelve, usage % 12],
        [bytes([byte]) for byte in bytewise],
        body_answer(b"".join(counted) + usage % 12),
        body_answer(b"".join(twelve) + usage % 9),
        body_answer(b"".join(twelve[:3])),
        [until_closed, twelve[0], b'data: {"error":{"message":"out of memory"}}\n\n'],
        body_answer(b'{"detail":"slow down"}', "429 Too Many Requests"),
        body_answer(b'{"error":"no such thing"}', "400 Bad Request"),
        body_answer(b"data: {\"choices\"\n\n"),
        body_answer(event("a", "stop") + usage % 1),
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:"],
    )
    workload = tmp_path / "twelve.csv"
    workload.write_text("prompt_tokens,output_tokens\n3,12\n")
    # In order, on one connection at a time.
    code, report, _, err = bench(server.url, "--workload", str(workload), "--num-requests", "11",
                                 "--max-concurrency", "1", "--deadline", "10")
    server.close()
    assert code == 1, err
    assert (report["completed"], report["rejected"], report["failed"]) == (3, 1, 7), report["errors"]
    assert report["total_output_tokens"] == 36
    assert messages(report) == {
        "9 output tokens instead of 12": 1,
        "the stream ended without a finish reason": 1,
        "the server said: out of memory": 1,
        "HTTP 429: slow down": 1,
        "HTTP 400: no such thing": 1,
        'an event is no JSON object: {"choices"': 1,
        "ended with finish reason stop": 1,
        "not done 10 s after it was sent": 1,
    }
    assert report["vocab_size"] == 500, "as the server says"
    body = json.loads(server.requests[0].split(b"\r\n\r\n", 1)[1])
    assert len(body["prompt"]) == 3 and max(body["prompt"]) < 500
    assert (body["model"], body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == ("m", 12, 12, True)


def test_further_fields_of_every_request(bench, tmp_path):
    usage = event("a", "length", usage={"completion_tokens": 5})
    server = FakeServer(body_answer(usage + b"data: [DONE]\n\n"))
    fields = {"temperature": 0.5, "min_tokens": 2, "response_format": {"type": "json_object"}}
    code, _, _, err = bench(server.url, "--workload", "synthetic:in=3,out=5", "--num-requests", "1",
                            "--extra-body", json.dumps(fields))
    server.close()
    assert code == 0, err
    body = json.loads(server.requests[0].split(b"\r\n\r\n", 1)[1])
    assert body == {**body, **fields, "max_tokens": 5, "stream": True}


def test_a_connection_that_the_server_closed_is_opened_again(bench):
    answer = body_answer(event("a", "length", usage={"completion_tokens": 1}) + b"data: [DONE]\n\n")

    class ClosesAfterEach(FakeServer):
        def serve(self):
            while True:
                try:
                    connection, _ = self.listener.accept()
                except OSError:
                    return
                with connection:
                    request = self.read_request(connection)
                    if request is None:
                        continue
                    if request.startswith(b"GET"):
                        connection.sendall(self.models_answer())
                        continue
                    self.requests.append(request)
                    # It says nothing of closing, as a server whose patience ends between two requests.
                    connection.sendall(answer[0])

    server = ClosesAfterEach()
    code, report, _, err = bench(server.url, "--workload", "synthetic:in=3,out=1", "--num-requests", "6",
                                 "--rate", "20", "--arrivals", "constant")
    server.close()
    assert code == 0, err
    assert report["completed"] == 6 == len(server.requests)


SESSIONS = "agents:sessions=5,system=96,turns=3,user=20,tool=20,out=8,pause=0.05"


def test_sessions_find_what_their_turns_before_computed(start_server, bench):
    server = start_server("--max-model-len", "512", "--gpu-kv-cache", "8192tok")
    code, report, out, err = bench(server.url, "--workload", SESSIONS, "--rate", "20", "--seed", "3")
    assert code == 0, err
    assert (report["completed"], report["sessions"]["begun"], report["sessions"]["finished"]) == (15, 5, 5)
    assert report["sessions"]["turn_ms"]["p99"] >= report["sessions"]["later_turn_ttft_ms"]["median"] > 0
    hits = report["prefix_hits"]
    # The answers in the histories are those that the server generated: their blocks are found, too.
    assert hits["possible_tokens"] > 5 * (96 + 128)
    assert hits["share_of_possible"] >= 0.94
    after = server.wait_idle()
    assert after["vllm:prefix_cache_hits_total"] == hits["tokens"]
    assert "of the possible" in out
    # Another run of the same seed says the same of what is possible.
    assert server.request("POST", "/reset_prefix_cache")[0] == 200
    again = bench(server.url, "--workload", SESSIONS, "--rate", "20", "--seed", "3")[1]
    assert again["prefix_hits"] == hits


def test_sessions_need_the_ids_of_what_was_generated(bench):
    # The server takes return_token_ids, and does not know it.
    two = event("a", usage={"completion_tokens": 1}) + event("b", "length", usage={"completion_tokens": 2})
    answer = body_answer(two + b"data: [DONE]\n\n")
    server = FakeServer(*[answer] * 7)
    flags = ["--workload", "agents:sessions=2,system=4,turns=3,user=3,tool=3,out=2,pause=0", "--max-concurrency", "1"]
    code, report, _, err = bench(server.url, *flags)
    assert code == 1 and report is None
    assert "does not return the ids of the tokens that it generates (return_token_ids)" in err
    assert len(server.requests) == 1 and b'"return_token_ids":true' in server.requests[0]
    flags[1] += ",answers=seeded"
    code, report, _, err = bench(server.url, *flags)
    server.close()
    assert code == 0, err
    assert (report["sessions"]["finished"], report["completed"]) == (2, 6)
    assert b"return_token_ids" not in server.requests[1]
    assert report["prefix_hits"]["tokens"] is None, "it says nothing of them"


def test_prompts_of_a_trace_share_what_it_says(start_server, bench, tmp_path):
    server = start_server("--max-model-len", "2048", "--gpu-kv-cache", "8192tok")
    trace = tmp_path / "trace.jsonl"
    rows = [(0, 600, [1, 2]), (1500, 1100, [1, 3, 4]), (3000, 1100, [1, 3, 5])]
    trace.write_text("".join(json.dumps({"timestamp": ms, "input_length": length, "output_length": 2,
                                         "hash_ids": ids}) + "\n" for ms, length, ids in rows))
    code, report, _, err = bench(server.url, "--workload", f"trace:{trace}", "--num-requests", "3",
                                 "--arrivals", "trace")
    assert code == 0, err
    assert report["prefix_hits"] == {"prompt_tokens": 2800, "possible_tokens": 512 + 1024, "tokens": 512 + 1024,
                                     "share_of_possible": 1.0}
    assert report["sessions"] is None
