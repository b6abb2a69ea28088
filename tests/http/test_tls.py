"""HTTPS: handshakes good and bad, certificates that change, and what HTTP does over it."""

import concurrent.futures
import contextlib
import http.client
import json
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time

import httpx2
import openai
import pytest
from certificates import Certificate
from tandem_server import MODEL_NAME, TandemServer, read_until

COMPLETION = json.dumps({"prompt": "Hello", "max_tokens": 2, "temperature": 0}).encode()
MESSAGES = [{"role": "user", "content": "Say hello in one short sentence."}]


def post(body, path="/v1/completions"):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate(tmp_path_factory.mktemp("certificates"), "first")


@pytest.fixture(scope="module")
def server(binary, model_path, certificate):
    with TandemServer(binary, model_path, "--dtype", "fp32", *certificate.flags(), tls=certificate.client()) as running:
        yield running
        assert running.process.poll() is None, f"the server died: {running.errors()}"


@pytest.fixture(scope="module")
def client(server, certificate):
    http_client = httpx2.Client(verify=ssl.create_default_context(cafile=str(certificate.certificate)))
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120,
                         http_client=http_client)


def test_openai_client_chats_and_streams(client):
    fields = {"model": MODEL_NAME, "messages": MESSAGES, "max_completion_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**fields).choices[0].message.content
    pieces = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**fields, stream=True)]
    assert whole and "".join(pieces) == whole
    assert len(pieces) > 3


def test_a_client_without_the_certificate_refuses(server):
    with pytest.raises(ssl.SSLCertVerificationError):
        TandemServer.connect(type("Untrusting", (), {"port": server.port, "tls": ssl.create_default_context()})
                             ).request("GET", "/health")


def test_a_connection_is_kept_alive(server):
    connection = server.connect()
    connection.request("GET", "/health")
    assert connection.getresponse().read() is not None
    kept = connection.sock
    for _ in range(3):
        connection.request("POST", "/v1/completions", COMPLETION)
        assert json.loads(connection.getresponse().read())["usage"]["completion_tokens"] == 2
        assert connection.sock is kept
    connection.close()


def test_versions_and_protocol(server, certificate):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = certificate.client()
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as stream:
                assert stream.selected_alpn_protocol() == "http/1.1"
                assert "GCM" in stream.cipher()[0] or "CHACHA20" in stream.cipher()[0]
                stream.sendall(post(COMPLETION))
                assert b"200 OK" in read_until(stream, b"usage")
    old = certificate.client()
    with pytest.warns(DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(("127.0.0.1", server.port)) as plain:
        with pytest.raises(ssl.SSLError, match="(?i)protocol.version"):
            old.wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed(server, certificate, version):
    context = certificate.client()
    context.minimum_version = context.maximum_version = version
    session = None
    for expected in (False, True, True):
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as stream:
                assert stream.session_reused == expected
                stream.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b"200 OK" in read_until(stream, b"\r\n\r\n")
                session = stream.session


def test_plain_http_is_told_to_speak_https(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as stream:
        stream.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = read_until(stream, b"never")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"https" in json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"].encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("POST", "/v1/completions", b"x" * 30000)
    with contextlib.suppress(OSError, http.client.HTTPException):
        assert connection.getresponse().status == 400
    assert server.complete()["choices"]


def handshake_bytes():
    """What a client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_malformed_handshakes_end_the_connection_alone(server):
    hello = handshake_bytes()
    choose = random.Random(7)
    cases = [b"\x00" * 100, b"\xff" * 100, b"\x16\x03\x01\xff\xff" + b"x" * 20000, b"\x16\x03\x01\x00\x00" * 50,
             b"\x15\x03\x01\x00\x02\x02\x28", b"\x80\x2e\x01\x00\x02" + bytes(60), b"SSH-2.0-x\r\n", hello * 3]
    for _ in range(200):
        broken = bytearray(hello)
        for _ in range(choose.randint(1, 4)):
            broken[choose.randrange(len(broken))] = choose.randrange(256)
        cases.append(bytes(broken[:choose.randint(1, len(broken))]))
        cases.append(choose.randbytes(choose.randint(1, 600)))
    for case in cases:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as stream:
            stream.sendall(case)
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                read_until(stream, b"never")  # to the end: a timeout is an error
    assert server.complete()["choices"]


def test_half_a_handshake_times_out_and_counts_as_a_connection(server):
    hello = handshake_bytes()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as half, \
            socket.create_connection(("127.0.0.1", server.port), timeout=30) as silent:
        half.sendall(hello[:100])
        begin = time.monotonic()
        assert server.complete()["choices"]  # nobody waits for it
        assert half.recv(100) == b"" and silent.recv(100) == b""
        assert 10 < time.monotonic() - begin < 20


def test_a_large_body_arrives_whole(server):
    text = "word " * 800_000  # 4 MB
    status, answer = server.post("/tokenize", {"prompt": text}, timeout=120)
    assert status == 200, answer
    status, answer = server.post("/detokenize", {"tokens": answer["tokens"]}, timeout=120)
    assert status == 200 and answer["prompt"].strip() == text.strip()
    status, _, _ = server.request("POST", "/v1/completions", b"x" * (33 << 20), timeout=120)
    assert status == 413


def test_pipelined_requests_are_answered_in_order(server):
    with server.open_socket() as stream:
        stream.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n" + post(COMPLETION) +
                       b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = read_until(stream, b"never")
    assert [answer.find(part) >= 0 for part in (b'"version"', b'"usage"', b"unknown_url")] == [True] * 3
    assert answer.find(b'"version"') < answer.find(b'"usage"') < answer.find(b"unknown_url")


def test_byte_by_byte_and_the_end_is_announced(server):
    request = b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    context = server.tls
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    with context.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as stream:
        for i in range(len(request)):
            stream.sendall(request[i:i + 1])
        assert b'"version"' in read_until(stream, b"never")  # a truncated end would raise SSLEOFError


def test_a_client_that_ends_its_sending_amid_a_request_gets_400(server):
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = server.tls.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")

    def pump(call):
        """The result of a call on the TLS object, with its bytes carried to and fro; b"" at the end."""
        while True:
            try:
                result = call()
                plain.sendall(outgoing.read())
                return result
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                data = plain.recv(65536)
                incoming.write(data) if data else incoming.write_eof()
            except ssl.SSLZeroReturnError:
                return b""

    pump(client.do_handshake)
    pump(lambda: client.write(post(COMPLETION)[:-5]))
    # A close_notify, with the TCP connection left open.
    with contextlib.suppress(ssl.SSLWantReadError):
        client.unwrap()
    plain.sendall(outgoing.read())
    received = b""
    with contextlib.suppress(ssl.SSLError):
        while data := plain.recv(65536):
            incoming.write(data)
        # Python's object reads nothing after its own close_notify; the bytes show that an answer came.
        received = incoming.read() if incoming.pending else b""
    assert len(received) > 200
    plain.close()
    assert server.complete()["choices"]


def test_a_client_that_leaves_frees_its_blocks(server):
    start = server.wait_idle()
    for how in ("close_notify", "fin", "reset"):
        stream = server.open_stream(prompt="word " * 100, max_tokens=900)
        read_until(stream, b"data: ")
        if how == "close_notify":
            stream.setblocking(False)
            with contextlib.suppress(ssl.SSLError):
                stream.unwrap()
        elif how == "reset":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        if how != "close_notify":
            stream.close()
        begin = time.monotonic()
        end = server.wait_idle()
        assert time.monotonic() - begin < 1
        assert end["tandem:kv_blocks_free"] == start["tandem:kv_blocks_free"]
        stream.close()


def one_disconnect(server, seed):
    """Goes away amid the handshake, the request or the answer."""
    choose = random.Random(seed)
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    stream = plain
    try:
        if choose.random() < 0.4:
            hello = handshake_bytes()
            plain.sendall(hello[:choose.choice([1, 5, 100, len(hello)])])
            if choose.random() < 0.5:
                plain.recv(choose.choice([1, 200, 5000])) if choose.random() < 0.3 else time.sleep(0.01)
        else:
            stream = server.tls.wrap_socket(plain, server_hostname="127.0.0.1")
            body = json.dumps({"prompt": "word " * choose.randint(1, 100), "max_tokens": 200, "ignore_eos": True,
                               "stream": choose.random() < 0.7, "n": choose.choice([1, 2])}).encode()
            request = post(body)
            stream.sendall(request[:choose.choice([20, len(request), len(request), len(request)])])
            time.sleep(choose.random() * 0.2)
            if choose.random() < 0.3:
                stream.settimeout(2)
                with contextlib.suppress(TimeoutError):
                    stream.recv(choose.choice([1, 300, 5000]))
        if choose.random() < 0.3:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    except TimeoutError:
        pass  # half a handshake is not answered
    finally:
        stream.close()


def test_disconnects_amid_handshakes_and_streams_free_every_block(server):
    server.complete()
    start = server.wait_idle()
    blocks = server.free_blocks(start)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda seed: one_disconnect(server, seed), range(300)))
    end = server.wait_idle(timeout=120)
    assert {name: end[name] for name in blocks} == blocks
    assert end["vllm:kv_cache_usage_perc"] == 0
    # Nor connections: those of these clients are closed.
    deadline = time.monotonic() + 20
    while server.metrics()["process_open_fds"] > start["process_open_fds"] + 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert server.complete()["choices"]


def test_the_benchmark_speaks_tls(server, binary, certificate, tmp_path):
    report = tmp_path / "report.json"

    def bench(*flags):
        command = [binary, "bench", "online", "--url", server.url, "--workload", "synthetic:in=16,out=8", "--rate", "inf",
                   "--num-requests", "20", "--max-concurrency", "8", "--json", str(report), *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    refused = bench()
    assert refused.returncode == 1 and "certificate is refused" in refused.stderr
    ended = bench("--ssl-ca-certs", str(certificate.certificate))
    assert ended.returncode == 0, ended.stderr
    assert json.loads(report.read_text())["completed"] == 20


def served_subject(server, context):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as stream:
            return dict(pair for part in stream.getpeercert()["subject"] for pair in part)["commonName"]


def test_sighup_takes_the_new_certificate_and_streams_go_on(start_server, tmp_path):
    first, second = Certificate(tmp_path, "first"), Certificate(tmp_path, "second", "rsa")
    used = Certificate(tmp_path, "used")
    trusting = ssl.create_default_context(cafile=str(first.certificate))
    trusting.load_verify_locations(str(second.certificate))

    def install(certificate):
        shutil.copy(certificate.certificate, used.certificate)
        shutil.copy(certificate.key, used.key)

    install(first)
    server = start_server(*used.flags(), "--log-level", "info", tls=trusting)
    stream = server.open_stream(max_tokens=300)
    received = read_until(stream, b"data: ")
    assert served_subject(server, trusting) == "first"
    install(second)
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while served_subject(server, trusting) != "second":
        assert time.monotonic() < deadline
        time.sleep(0.02)

    # What cannot be used leaves the one before, and says so once.
    used.certificate.write_text("no certificate")
    server.process.send_signal(signal.SIGHUP)
    while "stays the one before" not in server.errors():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert served_subject(server, trusting) == "second"
    shutil.copy(first.certificate, used.certificate)  # with the key of the second
    server.process.send_signal(signal.SIGHUP)
    while "does not fit" not in server.errors():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert served_subject(server, trusting) == "second"
    assert server.errors().count("stays the one before") == 2

    received += read_until(stream, b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert received.count(b'"finish_reason":"length"') == 1
    assert server.complete()["choices"]


def test_sighup_without_anything_to_reload_ends_it_as_a_closed_terminal_does(start_server):
    server = start_server()
    server.process.send_signal(signal.SIGHUP)
    assert server.process.wait(10) == -signal.SIGHUP


def test_sigterm_drains_over_tls(start_server, certificate):
    server = start_server(*certificate.flags(), tls=certificate.client())
    stream = server.open_stream(max_tokens=60)
    received = read_until(stream, b"data: ")
    server.terminate()
    received += read_until(stream, b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert received.count(b'"finish_reason":"length"') == 1
    assert server.process.wait(10) == 0


def test_one_file_may_hold_both_and_variables_name_it(binary, model_path, certificate, tmp_path, monkeypatch):
    both = tmp_path / "both.pem"
    both.write_text(certificate.key.read_text() + certificate.certificate.read_text())
    monkeypatch.setenv("TANDEM_SSL_CERTFILE", str(both))
    with TandemServer(binary, model_path, tls=certificate.client()) as server:
        assert server.complete()["choices"]


def failure(binary, model_path, *flags):
    ended = subprocess.run([binary, "serve", model_path, "--port", "0", *flags], capture_output=True, text=True,
                           timeout=30)
    assert ended.returncode in (1, 2) and ended.stdout == ""
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_what_is_wrong_with_the_files_is_one_sentence(binary, model_path, certificate, tmp_path):
    good, key = str(certificate.certificate), str(certificate.key)
    other = Certificate(tmp_path, "other")
    encrypted = tmp_path / "encrypted.key"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", str(encrypted)], check=True)
    text = tmp_path / "text"
    text.write_text("no certificate")
    torn = tmp_path / "torn"
    torn.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    missing = tmp_path / "missing"

    def says(flags, *parts):
        message = failure(binary, model_path, *flags)
        for part in parts:
            assert str(part) in message, message

    says(["--ssl-keyfile", key], "--ssl-certfile")
    says(["--ssl-certfile", good], good, "no private key", "--ssl-keyfile")
    says(["--ssl-certfile", str(missing), "--ssl-keyfile", key], missing, "No such file")
    says(["--ssl-certfile", good, "--ssl-keyfile", str(missing)], missing, "No such file")
    says(["--ssl-certfile", str(tmp_path), "--ssl-keyfile", key], tmp_path, "directory")
    says(["--ssl-certfile", str(text), "--ssl-keyfile", key], text, "no certificate in PEM form")
    says(["--ssl-certfile", str(torn), "--ssl-keyfile", key], torn, "cannot be understood")
    says(["--ssl-certfile", good, "--ssl-keyfile", str(text)], text, "no private key")
    says(["--ssl-certfile", good, "--ssl-keyfile", str(other.key)], other.key, "does not fit", good)
    says(["--ssl-certfile", good, "--ssl-keyfile", str(encrypted)], encrypted, "encrypted")


def test_an_expired_certificate_is_a_warning(start_server, tmp_path):
    expired = Certificate(tmp_path, "expired")
    expired.expire()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    server = start_server(*expired.flags(), tls=context)
    assert server.complete()["choices"]
    assert "expired" in server.errors() and str(expired.certificate) in server.errors()
