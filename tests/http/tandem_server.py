"""Runs the program and talks to it with as little between as possible."""

import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

READY_TIMEOUT_S = 120
DEFAULT_FLAGS = {"--max-model-len": "1024", "--gpu-kv-cache": "16384tok", "--log-level": "warn"}
MODEL_NAME = "test-model"
# Knows conversations by heart, tools and all: transcripts.py in the folder above has them.
BY_HEART = str(pathlib.Path(__file__).resolve().parents[1] / "fixtures/by_heart/model")
BY_HEART_FLAGS = ("--max-model-len", "32768", "--gpu-kv-cache", "65536tok")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

# Bounds a hang, not the speed: a sanitizer's build reads a long prompt for more than a minute on a busy machine.
ANSWER_S = 240


class TandemServer:
    def __init__(self, binary, model, *flags, wait=True, port=None, tls=None, launcher=()):
        """tls: the client's ssl.SSLContext, where the flags have the server speak HTTPS. launcher: the command that
        starts the program, and gets the signals."""
        self.port = port or free_port()
        self.tls = tls
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._errors = tempfile.TemporaryFile()
        command = [*launcher, binary, "serve", model, "--port", str(self.port), "--served-model-name", MODEL_NAME]
        for name, value in DEFAULT_FLAGS.items():
            if name not in flags:
                command += [name, value]
        self.process = subprocess.Popen(
            [*command, *flags], stdout=subprocess.PIPE, stderr=self._errors, text=True)
        if wait:
            self.wait_ready()

    def wait_ready(self):
        line = self.process.stdout.readline()
        assert "is ready at" in line, f"no ready line but {line!r}: {self.errors()}"
        assert self.url in line
        return line

    def errors(self):
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def connect(self, timeout=ANSWER_S):
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def open_socket(self, timeout=ANSWER_S):
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        return self.tls.wrap_socket(plain, server_hostname="127.0.0.1") if self.tls else plain

    def request(self, method, path, body=None, headers=None, timeout=ANSWER_S):
        """Status, headers and body bytes of one request on a connection of its own."""
        connection = self.connect(timeout)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def post(self, path, body, **options):
        """Status and parsed JSON."""
        status, _, answer = self.request("POST", path, body, **options)
        return status, json.loads(answer)

    def complete(self, **fields):
        status, answer = self.post("/v1/completions", {"prompt": "Hello", "max_tokens": 4, "temperature": 0, **fields})
        assert status == 200, answer
        return answer

    def open_stream(self, **fields):
        """A socket on which a streamed completion is coming, its headers read."""
        body = json.dumps({"prompt": "Once upon a time", "stream": True, "ignore_eos": True, **fields}).encode()
        stream = self.open_socket()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        stream.sendall(head.encode() + body)
        return stream

    def metrics(self, headers=None):
        """Metric values summed over their label sets, and those of each label set by full name."""
        _, _, text = self.request("GET", "/metrics", headers=headers)
        values = {}
        for line in text.decode().splitlines():
            if line.startswith("#") or not line:
                continue
            full_name, value = line.rsplit(" ", 1)
            name = re.split("[{ ]", full_name, maxsplit=1)[0]
            values[name] = values.get(name, 0.0) + float(value)
            if full_name != name:
                values[full_name] = float(value)
        return values

    @staticmethod
    def free_blocks(metrics):
        """Of each tier, by the metric's full name."""
        return {name: value for name, value in metrics.items() if name.startswith("tandem:kv_blocks_free{")}

    def wait_idle(self, timeout=ANSWER_S):
        """Metrics once nothing runs or waits."""
        deadline = time.monotonic() + timeout
        while True:
            values = self.metrics()
            if values["vllm:num_requests_running"] == 0 and values["vllm:num_requests_waiting"] == 0:
                return values
            assert time.monotonic() < deadline, "the server does not get idle"
            time.sleep(0.005)


def read_until(stream, text):
    """Reads from a socket until text has come or the other side closed."""
    received = b""
    while text not in received:
        data = stream.recv(65536)
        if not data:
            break
        received += data
    return received
