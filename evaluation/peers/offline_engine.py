"""What programs that run an engine offline share (vllm_offline.py, sglang_offline.py): random weights of a shape,
requests of given lengths.

One engine does everything that is asked for; loading, compiling, capturing graphs and warming up are in no figure.

  --work NAME=FILE.csv   prompt_tokens,output_tokens a line, all there at the start: the time of one call of the engine.
                         The first requests of each work run before, unmeasured.
  --decode-batches       time of a decode step: the difference of two runs of the same batch that differ only in
                         128 more steps of the whole batch, by these steps. Their mean context is --decode-context.

The file is written after every measurement: {"version", "settings", "start_s", "works": {name: result},
"decode": {batch: result}, "error" if one failed}.
"""

import argparse
import csv
import json
import os
import random
import statistics
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from model_shapes import SHAPES

SHORT_DECODE, LONG_DECODE = 32, 160
# Prompts have no token below: some are special.
FIRST_TOKEN = 16


def make_parser(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True, choices=SHAPES)
    parser.add_argument("--max-model-len", type=int, default=8192)
    parser.add_argument("--work", action="append", default=[], metavar="NAME=FILE.csv")
    parser.add_argument("--num-warmup", type=int, default=16, help="first requests of a work that run before it")
    parser.add_argument("--decode-batches", default="", metavar="B,B,...")
    parser.add_argument("--decode-context", type=int, default=1024)
    parser.add_argument("--decode-repeats", type=int, default=2)
    parser.add_argument("--gpu-kv-tokens", type=int, help="KV room; without it what the memory has")
    parser.add_argument("--prefix-caching", action="store_true")
    parser.add_argument("--engine-args", type=json.loads, default={}, metavar="JSON", help="more of the engine's own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--dry-run", action="store_true", help="print the arguments of the engine and stop")
    return parser


def parse_args(parser, words=None):
    args = parser.parse_args(words)
    for work in args.work:
        if "=" not in work:
            parser.error(f"--work '{work}': there is no NAME= before the file")
    args.batches = [int(word) for word in args.decode_batches.split(",") if word]
    return args


def read_lengths(path):
    with open(path, newline="") as file:
        return [(int(row["prompt_tokens"]), int(row["output_tokens"])) for row in csv.DictReader(file)]


class OfflineEngine(ABC):
    """A loaded engine. start() is called once; the rest asks it."""

    def __init__(self, args):
        begin = time.monotonic()
        self.start(args)
        self._random = random.Random(args.seed + 1)
        self._tokens = range(FIRST_TOKEN, SHAPES[args.model]["vocab_size"])
        self.generate([(64, 32)] * 8)
        self.generate([(min(512, args.max_model_len - 64), 64)] * 32)
        self.start_s = time.monotonic() - begin

    @abstractmethod
    def start(self, args): ...

    @abstractmethod
    def prepared(self, prompts, output_lengths):
        """A function that runs these token lists, greedily and to exactly these lengths, and returns what came out."""

    @abstractmethod
    def num_tokens(self, output): ...

    @abstractmethod
    def preemptions(self):
        """So far."""

    @abstractmethod
    def settings(self):
        """What a table names; gpu_kv_tokens is the room for KV."""

    def latencies(self, outputs):
        """Of a whole run in milliseconds, as far as the engine says."""
        return {}

    def end(self):
        """Stops what the engine started."""

    def generate(self, lengths):
        """(seconds, outputs); every request makes exactly its number of tokens, greedily."""
        prompts = [self._random.choices(self._tokens, k=prompt) for prompt, _ in lengths]
        run = self.prepared(prompts, [output for _, output in lengths])
        begin = time.perf_counter()
        outputs = run()
        wall_s = time.perf_counter() - begin
        wrong = sum(self.num_tokens(done) != output for done, (_, output) in zip(outputs, lengths, strict=True))
        if wrong:
            raise RuntimeError(f"{wrong} of {len(lengths)} requests have another number of tokens than asked for")
        return wall_s, outputs

    def run_work(self, lengths, num_warmup):
        self.generate(lengths[:num_warmup])
        preempted = self.preemptions()
        wall_s, outputs = self.generate(lengths)
        prompt_tokens, output_tokens = (sum(column) for column in zip(*lengths, strict=True))
        return {
            "duration": wall_s,
            "completed": len(lengths),
            "total_input_tokens": prompt_tokens,
            "total_output_tokens": output_tokens,
            "request_throughput": len(lengths) / wall_s,
            "output_throughput": output_tokens / wall_s,
            "total_token_throughput": (prompt_tokens + output_tokens) / wall_s,
            "preemptions": self.preemptions() - preempted,
            **self.latencies(outputs),
        }

    def run_decode(self, batch, context, count):
        prompt = max(1, context - (SHORT_DECODE + LONG_DECODE) // 2)
        preempted = self.preemptions()
        steps = []
        for _ in range(count):
            short_s, _ = self.generate([(prompt, SHORT_DECODE)] * batch)
            long_s, _ = self.generate([(prompt, LONG_DECODE)] * batch)
            steps.append(1e3 * (long_s - short_s) / (LONG_DECODE - SHORT_DECODE))
        return {
            "step_ms": statistics.median(steps),
            "step_ms_all": steps,
            "context": context,
            "preemptions": self.preemptions() - preempted,
        }


def save(path, content):
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(partial, path)


def versions(names):
    """Of what has been imported."""
    modules = {name: sys.modules.get(name) for name in names}
    return {name: str(module.__version__) for name, module in modules.items() if module}


def measure(args, engine, package):
    """Everything that the arguments ask for; package: what the engine's version is that of."""
    result = {"version": versions((package, "torch")), "start_s": engine.start_s, "settings": engine.settings()}
    result |= {"works": {}, "decode": {}}
    save(args.json, result)
    todo = []
    for work in args.work:
        name, _, path = work.partition("=")
        lengths = read_lengths(path)
        todo.append(("works", name, lambda lengths=lengths: engine.run_work(lengths, args.num_warmup)))
    for batch in args.batches:
        run = lambda batch=batch: engine.run_decode(batch, args.decode_context, args.decode_repeats)  # noqa: E731
        todo.append(("decode", str(batch), run))
    for kind, name, run in todo:
        begin = time.monotonic()
        try:
            result[kind][name] = run()
        except Exception as error:
            result["error"] = f"{kind}, {name}: {error!r}"
            save(args.json, result)
            raise
        result[kind][name]["wall_s"] = time.monotonic() - begin
        save(args.json, result)
    engine.end()
