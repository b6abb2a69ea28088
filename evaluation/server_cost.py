#!/usr/bin/env python3
"""Measures what `tandem serve` costs beside the engine, and prints it as JSON.

overhead: output tokens a second of --streams clients over HTTP, against `tandem bench offline` of the same requests with as
many sequences at a time; overhead is the share of the offline throughput that is lost, of the medians.

structured: time per output token of --streams clients whose answers follow a JSON schema, against the same without; cost is
the ratio of the medians. The schema's list is longer than the answers, so that both have the same number of tokens.

Both alternate what is compared. The words behind -- are the model's and the engine's, of every command.

    evaluation/server_cost.py overhead --streams 512 --json FILE -- --dummy llama-3.1-8b --device cuda --gpu-kv-cache 40GiB
    evaluation/server_cost.py structured --streams 32 -- MODEL
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cost_report import publish, summary, version_lines

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.append(str(REPOSITORY / "evaluation/peers"))
from server_process import Server, ServerCommand  # noqa: E402

# Prompts have token ids below: any model has so many.
PROMPT_VOCAB_SIZE = 1000
NUM_PEOPLE = 100
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "people": {
            "type": "array",
            "minItems": NUM_PEOPLE,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "age": {"type": "integer", "minimum": 0, "maximum": 120},
                    "role": {"enum": ["reader", "writer", "editor"]},
                    "score": {"type": "number"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "active": {"type": "boolean"},
                },
                "required": ["name", "age", "role", "score", "tags", "active"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["title", "people"],
    "additionalProperties": False,
}


class Program:
    def __init__(self, options, folder):
        self._options = options
        self._folder = folder

    def server(self):
        words = [self._options.tandem, "serve", *self._options.engine, "--port", "{port}", "--log-level", "error",
                 "--max-num-seqs", str(self._options.streams), "--no-enable-prefix-caching",
                 "--max-num-queued-reqs", str(self._options.requests + self._options.streams)]
        return Server(ServerCommand(words), os.cpu_count(), self._folder / "server.log")

    def bench(self, words):
        path = self._folder / "report.json"
        command = [self._options.tandem, "bench", *words, "--workload", self._options.workload,
                   "--num-requests", str(self._options.requests), "--json", str(path)]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode != 0:
            log = self._folder / "server.log"
            said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise SystemExit(f"{' '.join(command)}:\n{ended.stderr[-2000:]}\nthe server: {said}")
        report = json.loads(path.read_text())
        print(f"{words[0]}: {report['completed']} requests, {report['output_throughput']:.1f} tok/s, "
              f"median TPOT {report['median_tpot_ms']:.3f} ms", file=sys.stderr)
        return report

    def online(self, url, extra_body=None):
        words = ["online", "--url", url, "--rate", "inf", "--max-concurrency", str(self._options.streams),
                 "--num-warmup", str(self._options.warmup), "--vocab-size", str(PROMPT_VOCAB_SIZE)]
        if extra_body:
            words += ["--extra-body", json.dumps(extra_body)]
        report = self.bench(words)
        if report["completed"] < self._options.requests or report["rejected"] or report["failed"]:
            raise SystemExit(f"not all requests were completed: {report['errors']}")
        return report

    def offline(self):
        return self.bench(["offline", *self._options.engine, "--log-level", "error",
                           "--max-num-seqs", str(self._options.streams), "--num-warmup", str(self._options.warmup),
                           "--max-num-queued-reqs", str(self._options.requests + self._options.streams)])


def overhead(options, program):
    figures = {"offline": [], "served": []}
    reports = {}

    def served():
        # Started for each run: a GPU has no room for the weights twice.
        with program.server() as server:
            return program.online(server.url)

    runs = {"offline": program.offline, "served": served}
    for i in range(options.repeats):
        for name in sorted(runs, reverse=i % 2 == 1):
            reports[name] = runs[name]()
            figures[name].append(reports[name]["output_throughput"])
    offline, served = summary(figures["offline"]), summary(figures["served"])
    return {
        "offline_tokens_per_s": offline,
        "served_tokens_per_s": served,
        "overhead": 1 - served["median"] / offline["median"],
        "served_latency": {key: value for key, value in reports["served"].items() if key.endswith("_ms")},
        "client_cpu_share": reports["served"]["client_cpu_share"],
        "peak_concurrency": reports["served"]["peak_concurrency"],
    }


def structured(options, program):
    # Whatever a model with random weights draws: not one text again and again.
    bodies = {"without": {"temperature": 1}, "with_schema": {"temperature": 1, "response_format": {
        "type": "json_schema", "json_schema": {"name": "people", "schema": SCHEMA, "strict": True}}}}
    figures = {name: [] for name in bodies}
    with program.server() as server:
        for i in range(options.repeats):
            for name in sorted(bodies, reverse=i % 2 == 1):
                figures[name].append(program.online(server.url, bodies[name])["median_tpot_ms"])
    found = {name: summary(values) for name, values in figures.items()}
    pairs = [schema / plain for schema, plain in zip(figures["with_schema"], figures["without"])]
    return {
        **{f"tpot_ms_{name}": value for name, value in found.items()},
        "cost": found["with_schema"]["median"] / found["without"]["median"],
        "cost_of_pairs": summary(pairs),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["overhead", "structured"])
    parser.add_argument("--tandem", default=os.environ.get("TANDEM_BINARY", str(REPOSITORY / "build/host-release/tandem")))
    parser.add_argument("--workload", default="synthetic:in=128,out=256")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--requests", type=int, help="of a run (default: four times the streams; structured: the streams)")
    parser.add_argument("--warmup", type=int, help="requests before each run, unmeasured (default: the streams)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="file for the result besides standard output")
    parser.add_argument("engine", nargs="+", help="behind --: model and flags of the engine")
    options = parser.parse_args()
    options.requests = options.requests or options.streams * (4 if options.what == "overhead" else 1)
    if options.warmup is None:
        options.warmup = options.streams
    with tempfile.TemporaryDirectory() as temporary:
        program = Program(options, Path(temporary))
        measured = {"overhead": overhead, "structured": structured}[options.what](options, program)
    result = {"measured": options.what, "date": time.strftime("%Y-%m-%d"),
              "version": version_lines(options.tandem),
              # Where the files lay says nothing.
              "engine": [Path(word).name if "/" in word else word for word in options.engine],
              "workload": options.workload, "streams": options.streams,
              "requests": options.requests, **measured}
    publish(result, options.json)


if __name__ == "__main__":
    main()
