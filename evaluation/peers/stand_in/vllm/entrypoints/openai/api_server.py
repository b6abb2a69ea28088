"""Stands in for vLLM's server in tests: /health, /metrics, /v1/models, streams of /v1/completions with a token an event.
Where prefix caching is on, the whole blocks of 16 tokens that any request of the same cache_salt began with are found.

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
    # Of blocks: their salt and all tokens up to their end. None: nothing is kept.
    blocks = None
    queried_tokens = 0
    hit_tokens = 0

    def log_message(self, *args):
        pass

    def do_GET(self):
        models = {"object": "list", "data": [{"id": self.model, "object": "model", "max_model_len": 8192}]}
        bodies = {"/health": b"", "/metrics": self.metrics(), "/v1/models": json.dumps(models).encode()}
        body = bodies.get(self.path, b"")
        self.send_response(200 if self.path in bodies else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def metrics(self):
        counts = (("queries", self.queried_tokens), ("hits", self.hit_tokens))
        lines = [f'vllm:prefix_cache_{name}_total{{engine="0"}} {count:.1f}\n' for name, count in counts]
        return "".join(lines).encode()

    def find(self, prompt, salt):
        """How many of its tokens were kept; all of it is kept from now on."""
        if self.blocks is None:
            return 0
        with self.lock:
            keys = [(salt, *prompt[:end]) for end in range(16, len(prompt), 16)]
            found = sum(key in self.blocks for key in keys)
            self.blocks.update(keys)
            Handler.queried_tokens += len(prompt)
            Handler.hit_tokens += 16 * found
        return 16 * found

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
            self.stream(request, self.find(request["prompt"], request.get("cache_salt")))
        finally:
            with self.lock:
                Handler.num_present -= 1

    def stream(self, request, cached_tokens):
        usage = {"prompt_tokens": len(request["prompt"]), "prompt_tokens_details": {"cached_tokens": cached_tokens}}
        max_tokens = request["max_tokens"]
        for count in range(1, max_tokens + 1):
            time.sleep(STEP_S * Handler.num_present)
            reason = "length" if count == max_tokens else None
            choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": reason, "stop_reason": None}
            choice["token_ids"] = [count] if request.get("return_token_ids") else None
            self.event([choice], usage, count)
        self.event([], usage, max_tokens)
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, choices, usage, count):
        usage = {**usage, "completion_tokens": count, "total_tokens": usage["prompt_tokens"] + count}
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
    parser.add_argument("--enable-prefix-caching", action="store_true")
    args, _ = parser.parse_known_args()
    assert os.path.exists(os.path.join(args.model, "config.json"))
    if os.environ.get("STAND_IN_FAIL") == "server":
        sys.exit("there is no memory for the KV cache")
    Handler.model = args.served_model_name
    Handler.blocks = set() if args.enable_prefix_caching else None
    ThreadingHTTPServer((args.host, args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
