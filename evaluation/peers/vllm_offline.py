#!/usr/bin/env python3
"""Runs vLLM offline, with random weights of a shape, on requests of given lengths; compare_vllm.py starts it.

    python3 evaluation/peers/vllm_offline.py --model llama-3.1-8b --max-model-len 8192 --json vllm.json
        --work a=a.csv --decode-batches 1,8

One engine does everything that is asked for; loading, compiling, capturing graphs and warming up are in no figure.

  --work NAME=FILE.csv   prompt_tokens,output_tokens a line, all there at the start: the time of LLM.generate.
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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import vllm_model  # noqa: E402
from model_shapes import SHAPES  # noqa: E402

SHORT_DECODE, LONG_DECODE = 32, 160
# Prompts have no token below: some are special.
FIRST_TOKEN = 16


def parse_args(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True, choices=SHAPES)
    parser.add_argument("--max-model-len", type=int, default=8192)
    parser.add_argument("--work", action="append", default=[], metavar="NAME=FILE.csv")
    parser.add_argument("--num-warmup", type=int, default=16, help="first requests of a work that run before it")
    parser.add_argument("--decode-batches", default="", metavar="B,B,...")
    parser.add_argument("--decode-context", type=int, default=1024)
    parser.add_argument("--decode-repeats", type=int, default=2)
    parser.add_argument("--gpu-kv-tokens", type=int, help="KV room; without it what the memory has")
    parser.add_argument("--kv-offload-gib", type=float, default=0, help="host memory of its native KV offloading")
    parser.add_argument("--prefix-caching", action="store_true")
    parser.add_argument("--engine-args", default="{}", metavar="JSON", help="more arguments of vllm.LLM")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--dry-run", action="store_true", help="print the arguments of vllm.LLM and stop")
    args = parser.parse_args(words)
    for work in args.work:
        if "=" not in work:
            parser.error(f"--work '{work}': there is no NAME= before the file")
    args.batches = [int(word) for word in args.decode_batches.split(",") if word]
    return args


def read_lengths(path):
    with open(path, newline="") as file:
        return [(int(row["prompt_tokens"]), int(row["output_tokens"])) for row in csv.DictReader(file)]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def latencies(outputs):
    """Of the whole run in milliseconds, as far as the engine says."""
    metrics = [output.metrics for output in outputs if getattr(output, "metrics", None) is not None]
    if not metrics:
        return {}
    ttft = [1e3 * one.first_token_latency for one in metrics]
    tpot = [
        1e3 * (one.last_token_ts - one.first_token_ts) / (one.num_generation_tokens - 1)
        for one in metrics
        if one.num_generation_tokens > 1
    ]
    return {
        "mean_ttft_ms": statistics.fmean(ttft),
        "median_ttft_ms": percentile(ttft, 0.5),
        "p99_ttft_ms": percentile(ttft, 0.99),
        "median_tpot_ms": percentile(tpot, 0.5),
        "p99_tpot_ms": percentile(tpot, 0.99),
    }


class Engine:
    def __init__(self, args, arguments):
        begin = time.monotonic()
        from vllm import LLM, SamplingParams

        self._sampling = SamplingParams
        self._llm = LLM(seed=args.seed, disable_log_stats=False, **arguments)
        self._random = random.Random(args.seed + 1)
        self._tokens = range(FIRST_TOKEN, SHAPES[args.model]["vocab_size"])
        self.generate([(64, 32)] * 8)
        self.generate([(512, 64)] * 32)
        self.start_s = time.monotonic() - begin

    def generate(self, lengths):
        """(seconds, outputs); every request makes exactly its number of tokens, greedily."""
        prompts = [{"prompt_token_ids": self._random.choices(self._tokens, k=prompt)} for prompt, _ in lengths]
        sampling = [
            self._sampling(temperature=0.0, max_tokens=output, ignore_eos=True, detokenize=False)
            for _, output in lengths
        ]
        begin = time.perf_counter()
        outputs = self._llm.generate(prompts, sampling, use_tqdm=False)
        wall_s = time.perf_counter() - begin
        wrong = sum(
            len(done.outputs[0].token_ids) != output for done, (_, output) in zip(outputs, lengths, strict=True)
        )
        if wrong:
            raise RuntimeError(f"{wrong} of {len(lengths)} requests have another number of tokens than asked for")
        return wall_s, outputs

    def preemptions(self):
        counters = [one for one in self._llm.get_metrics() if one.name.endswith("num_preemptions")]
        return sum(one.value for one in counters)

    def settings(self):
        config = self._llm.llm_engine.vllm_config
        cache, scheduler, compilation = config.cache_config, config.scheduler_config, config.compilation_config
        blocks = cache.num_gpu_blocks or 0
        return {
            # One block holds nothing.
            "gpu_kv_tokens": max(0, blocks - 1) * cache.block_size,
            "max_num_seqs": scheduler.max_num_seqs,
            "max_num_batched_tokens": scheduler.max_num_batched_tokens,
            "async_scheduling": getattr(scheduler, "async_scheduling", None),
            "prefix_caching": cache.enable_prefix_caching,
            "compile_mode": str(compilation.mode),
            "cudagraph_mode": str(compilation.cudagraph_mode),
        }

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
            **latencies(outputs),
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


def versions():
    """Of what has been imported."""
    modules = {name: sys.modules.get(name) for name in ("vllm", "torch")}
    return {name: str(module.__version__) for name, module in modules.items() if module}


def measure(args, arguments):
    engine = Engine(args, arguments)
    result = {"version": versions(), "start_s": engine.start_s, "settings": engine.settings()}
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


def main():
    args = parse_args()
    vllm_model.set_environment()
    arguments = vllm_model.engine_arguments(
        vllm_model.write_model(args.model, args.max_model_len),
        args.max_model_len,
        args.gpu_kv_tokens,
        args.kv_offload_gib,
        args.prefix_caching,
        json.loads(args.engine_args),
    )
    if args.dry_run:
        print(json.dumps(arguments, indent=1))
        return 0
    measure(args, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
