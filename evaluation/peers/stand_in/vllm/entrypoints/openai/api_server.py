"""Stands in for vLLM's server in tests: /health, /v1/models, streams of /v1/completions with a token an event.

STAND_IN_STEP_S is what a token takes while one request is there; more take in proportion. STAND_IN_FAIL=server ends it
at once.
"""

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STEP_S = float(os.environ.get("STAND_IN_STEP_S", "0.001"))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = ""
    lock = threading.Lock()
    num_present = 0

    def log_message(self, *args):
        pass

    def do_GET(self):
        models = {"object": "list", "data": [{"id": self.model, "object": "model", "max_model_len": 8192}]}
        body = json.dumps(models).encode() if self.path == "/v1/models" else b""
        self.send_response(200 if self.path in ("/health", "/v1/models") else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert request["ignore_eos"] and request["temperature"] == 0 and request["min_tokens"] == 0, request
        assert all(isinstance(token, int) for token in request["prompt"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with self.lock:
            Handler.num_present += 1
        try:
            self.stream(len(request["prompt"]), request["max_tokens"])
        finally:
            with self.lock:
                Handler.num_present -= 1

    def stream(self, prompt_tokens, max_tokens):
        for count in range(1, max_tokens + 1):
            time.sleep(STEP_S * Handler.num_present)
            reason = "length" if count == max_tokens else None
            choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": reason, "stop_reason": None}
            self.event([choice], prompt_tokens, count)
        self.event([], prompt_tokens, max_tokens)
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, choices, prompt_tokens, count):
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count, "total_tokens": prompt_tokens + count}
        event = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": self.model, "choices": choices}
        self.chunk(b"data: " + json.dumps({**event, "usage": usage}).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--load-format", choices=["dummy"], required=True)
    parser.add_argument("--skip-tokenizer-init", action="store_true", required=True)
    parser.add_argument("--max-model-len", type=int, required=True)
    args, _ = parser.parse_known_args()
    assert os.path.exists(os.path.join(args.model, "config.json"))
    if os.environ.get("STAND_IN_FAIL") == "server":
        sys.exit("there is no memory for the KV cache")
    Handler.model = args.served_model_name
    ThreadingHTTPServer((args.host, args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
