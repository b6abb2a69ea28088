#!/usr/bin/env python3
"""One offline method of Hugging Face transformers on random weights; compare_transformers.py starts it.

    python transformers_offline.py --method static --model llama-3.1-8b --requests requests.json
                                   --seconds 120 --out result.json

A process for each method: what one of them breaks or leaves in GPU memory does not touch the next.

  continuous:IMPL  the continuous batching manager (paged KV cache) with the attention implementation
                   "paged|IMPL" (flash_attention_3, flash_attention_2, sdpa, eager)
  static           generate() with a static cache, whose decode steps torch.compile turns into CUDA graphs;
                   batches of one cache length, sorted by length; compilation is not counted
  dynamic          generate() with the growing cache, large batches sorted by length

Every request gets exactly its number of output tokens, greedily; tokens that a batch computes beyond that,
because another of its requests is longer, are not counted. The first requests are run for a warm-up and to see
how fast it goes, then as many of all requests, in their order, as the time allows.
"""

import argparse
import gc
import json
import random
import sys
import time
import traceback
from pathlib import Path

import torch
import transformers
from transformers import GenerationConfig, StaticCache

sys.path.insert(0, str(Path(__file__).parent))
from transformers_models import SHAPES, build_model  # noqa: E402

SHARE_OF_FREE_MEMORY = 0.8
CACHE_LENGTHS = [128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536, 131072]


class OutOfTime(Exception):
    """The time given to a method is over."""


def make_prompts(requests, vocab_size, seed):
    generator = random.Random(seed)
    return [generator.choices(range(vocab_size), k=r["prompt_tokens"]) for r in requests]


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def free_memory():
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Method:
    """run() does the first `count` requests and returns (seconds, completed requests' indices)."""

    def __init__(self, model, requests, prompts, args):
        self.model = model
        self.requests = requests
        self.prompts = prompts
        self.args = args
        self.deadline = None
        self.notes = {}

    def check_time(self):
        if self.deadline is not None and time.perf_counter() > self.deadline:
            raise OutOfTime

    def prepare(self):
        """Untimed work before the first run."""

    def run(self, count):
        raise NotImplementedError


class ContinuousBatching(Method):
    def workload_hints(self, count, longest_output):
        """What generate_batch() tells the manager of its requests, where this version has it."""
        try:
            from transformers.generation.continuous_batching.utils import WorkloadHints
        except ImportError:
            return {}
        hints = WorkloadHints(
            max_prompt_length=max(r["prompt_tokens"] for r in self.requests[:count]),
            max_generated_length=longest_output,
            num_requests=count,
        )
        return {"workload_hints": hints}

    def run(self, count):
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        # Random prompts share no prefix.
        options = {"allow_block_sharing": False}
        if self.args.max_batch_tokens:
            options["max_batch_tokens"] = self.args.max_batch_tokens
        if self.args.compile_level:
            options["default_compile_level"] = self.args.compile_level
        config = ContinuousBatchingConfig(**options)
        longest = max(r["output_tokens"] for r in self.requests[:count])
        generation = GenerationConfig(
            max_new_tokens=longest, do_sample=False, eos_token_id=-1, pad_token_id=0, use_cache=True
        )
        completed, failures = [], []
        manager_context = self.model.continuous_batching_context_manager(
            generation_config=generation,
            continuous_batching_config=config,
            block=True,
            timeout=5,
            warmup=True,
            **self.workload_hints(count, longest),
        )
        # Entering the context makes the cache and captures the CUDA graphs.
        with torch.no_grad(), manager_context as manager:
            config = getattr(manager, "continuous_batching_config", config)  # with what it has chosen
            begin = end = time.perf_counter()
            for i in range(count):
                manager.add_request(
                    self.prompts[i], request_id=str(i), max_new_tokens=self.requests[i]["output_tokens"]
                )
            while len(completed) + len(failures) < count:
                result = manager.get_result(timeout=1)
                if result is None:
                    if not manager.is_running():
                        raise RuntimeError("the generation thread ended; its error is in the log above")
                elif result.is_finished():
                    index = int(result.request_id)
                    wanted = self.requests[index]["output_tokens"]
                    if result.error is None and len(result.generated_tokens) == wanted:
                        completed.append(index)
                    else:
                        failures.append(result.error or f"{len(result.generated_tokens)} of {wanted} tokens")
                end = time.perf_counter()
                if self.deadline is not None and end > self.deadline:
                    self.notes["stopped"] = "the time was over; requests under way are not counted"
                    break
        if failures:
            self.notes["failures"] = {"count": len(failures), "first": str(failures[0])}
        self.notes["config"] = {
            key: str(getattr(config, key))
            for key in ("page_size", "block_size", "num_blocks", "max_batch_tokens", "max_requests_per_batch",
                        "max_blocks_per_request", "use_cuda_graph", "use_async_batching")
            if hasattr(config, key)
        }  # fmt: skip
        free_memory()
        return end - begin, completed


class Generate(Method):
    """What both kinds of generate() share: batches, left padding, halving when memory runs out."""

    def prepare(self):
        config = self.model.config
        element = torch.finfo(self.model.dtype).bits // 8
        head_dim = config.hidden_size // config.num_attention_heads
        self.kv_bytes = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim * element
        # A prefilled token also needs its row of the MLP, twice over, and of the residual.
        self.prefill_bytes = (3 * config.intermediate_size + 6 * config.hidden_size) * element
        if self.args.device == "cuda":
            self.free_bytes = torch.cuda.mem_get_info()[0] * SHARE_OF_FREE_MEMORY
        else:
            self.free_bytes = 1 << 30
        self.max_batch = self.args.max_batch

    def batch_limit(self, cache_len, prompt_len):
        fits = self.free_bytes / (cache_len * self.kv_bytes + prompt_len * self.prefill_bytes)
        return max(1, min(self.max_batch, int(fits)))

    def total(self, index):
        return self.requests[index]["prompt_tokens"] + self.requests[index]["output_tokens"]

    def inputs(self, indices, rows):
        """Left-padded ids and mask; rows beyond the batch repeat its first request."""
        indices = list(indices) + [indices[0]] * (rows - len(indices))
        length = max(len(self.prompts[i]) for i in indices)
        ids = torch.zeros((rows, length), dtype=torch.long)
        mask = torch.zeros((rows, length), dtype=torch.long)
        for row, i in enumerate(indices):
            prompt = self.prompts[i]
            ids[row, length - len(prompt) :] = torch.tensor(prompt)
            mask[row, length - len(prompt) :] = 1
        return ids.to(self.args.device), mask.to(self.args.device)

    @torch.no_grad()
    def generate(self, ids, mask, new_tokens, **kwargs):
        output = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=GenerationConfig(
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                **kwargs.pop("config", {}),
            ),
            **kwargs,
        )
        synchronize(self.args.device)
        if output.shape[1] != ids.shape[1] + new_tokens:
            raise RuntimeError(f"generate() gave {output.shape[1] - ids.shape[1]} of {new_tokens} tokens")


class DynamicGenerate(Generate):
    def run(self, count):
        # Longest first: what does not fit into memory shows at once.
        order = sorted(range(count), key=lambda i: (-self.requests[i]["output_tokens"], -self.total(i)))
        seconds, completed = 0.0, []
        position = 0
        while position < len(order):
            try:
                self.check_time()
            except OutOfTime:
                self.notes["stopped"] = "the time was over; the shortest requests are missing"
                break
            size = 1
            while position + size < len(order) and size < self.max_batch:
                batch = order[position : position + size + 1]
                if size + 1 > self.batch_limit(
                    max(map(self.total, batch)), max(self.requests[i]["prompt_tokens"] for i in batch)
                ):
                    break
                size += 1
            batch = order[position : position + size]
            try:
                begin = time.perf_counter()
                ids, mask = self.inputs(batch, len(batch))
                self.generate(ids, mask, max(self.requests[i]["output_tokens"] for i in batch))
                seconds += time.perf_counter() - begin
            except torch.cuda.OutOfMemoryError:
                if size == 1:
                    raise
                self.max_batch = size // 2
                self.notes["batch_after_out_of_memory"] = self.max_batch
                free_memory()
                continue
            completed += batch
            position += size
        return seconds, completed


class StaticGenerate(Generate):
    def prepare(self):
        super().prepare()
        self.caches = {}
        self.compile_seconds = 0.0

    def cache_for(self, cache_len, prompt_len):
        """The cache of a length with its number of rows; one of them is in memory at a time."""
        if cache_len not in self.caches:
            self.caches.clear()
            free_memory()
            rows = self.batch_limit(cache_len, prompt_len)
            cache = StaticCache(config=self.model.config, max_cache_len=cache_len)
            self.caches[cache_len] = (cache, rows)
            begin = time.perf_counter()
            ids, mask = self.inputs([0], rows)
            ids, mask = ids[:, -8:], mask[:, -8:]
            # Compilation, then the capture of the graph, then a step of it.
            for _ in range(2):
                cache.reset()
                self.generate(ids, mask, 6, past_key_values=cache)
            self.compile_seconds += time.perf_counter() - begin
            self.notes["compile_seconds"] = self.compile_seconds
        return self.caches[cache_len]

    def run(self, count):
        groups = {}
        for i in range(count):
            groups.setdefault(min(c for c in CACHE_LENGTHS if c >= self.total(i)), []).append(i)
        seconds, completed = 0.0, []
        try:
            for cache_len, members in sorted(groups.items(), reverse=True):
                members.sort(key=lambda i: -self.requests[i]["output_tokens"])
                longest_prompt = max(self.requests[i]["prompt_tokens"] for i in members)
                position = 0
                while position < len(members):
                    self.check_time()
                    try:
                        cache, rows = self.cache_for(cache_len, longest_prompt)
                        batch = members[position : position + rows]
                        longest = max(len(self.prompts[i]) for i in batch)
                        # Prompts and outputs that do not fit into the cache together wait for the next batch.
                        while longest + max(self.requests[i]["output_tokens"] for i in batch) > cache_len:
                            batch.remove(max(batch, key=lambda i: len(self.prompts[i])))
                            longest = max(len(self.prompts[i]) for i in batch)
                        begin = time.perf_counter()
                        cache.reset()
                        ids, mask = self.inputs(batch, rows)
                        new_tokens = max(self.requests[i]["output_tokens"] for i in batch)
                        self.generate(ids, mask, new_tokens, past_key_values=cache)
                        seconds += time.perf_counter() - begin
                    except torch.cuda.OutOfMemoryError:
                        if self.batch_limit(cache_len, longest_prompt) == 1:
                            raise
                        self.caches.clear()
                        free_memory()
                        self.free_bytes /= 2
                        self.notes["bytes_after_out_of_memory"] = self.free_bytes
                        continue
                    completed += batch
                    left = [i for i in members[position : position + rows] if i not in batch]
                    position += len(batch)
                    members[position : position + len(left)] = left
        except OutOfTime:
            self.notes["stopped"] = "the time was over; requests of the shorter cache lengths are missing"
        return seconds, completed


def measure(method, requests, seconds):
    """As many of the requests as the time allows, in order; the first ones twice."""
    begin = time.perf_counter()
    method.prepare()
    count = min(len(requests), method.args.first)
    method.deadline = begin + seconds
    method.run(min(count, 4))  # the first kernels of everything
    took, completed = method.run(count)
    while count < len(requests) and len(completed) == count:
        left = method.deadline - time.perf_counter()
        # More requests fill the batches better, so this is pessimistic.
        affordable = int(count * left * 0.9 / max(took, 1e-6))
        if affordable < 2 * count and affordable < len(requests):
            break
        count = min(len(requests), affordable)
        took, completed = method.run(count)
    tokens = [(requests[i]["prompt_tokens"], requests[i]["output_tokens"]) for i in completed]
    inputs, outputs = sum(p for p, _ in tokens), sum(o for _, o in tokens)
    return {
        "num_requests": count,
        "completed": len(completed),
        "duration": took,
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": len(completed) / took if took else None,
        "output_throughput": outputs / took if took else None,
        "total_token_throughput": (inputs + outputs) / took if took else None,
    }


def run_method(args):
    requests = json.loads(args.requests.read_text())["requests"]
    name, _, implementation = args.method.partition(":")
    attention = f"paged|{implementation}" if name == "continuous" else "sdpa"
    model = build_model(args.model, args.device, getattr(torch, args.dtype), attention)
    prompts = make_prompts(requests, model.config.vocab_size, args.seed)
    kind = {"continuous": ContinuousBatching, "static": StaticGenerate, "dynamic": DynamicGenerate}[name]
    method = kind(model, requests, prompts, args)
    result = measure(method, requests, args.seconds)
    if args.device == "cuda":
        result["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
    return result | {"notes": method.notes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", required=True)
    parser.add_argument("--model", required=True, choices=SHAPES)
    parser.add_argument("--requests", type=Path, required=True, help="what tandem bench --dump-workload wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=120, help="for the runs, preparation included")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--first", type=int, default=32, help="requests of the first run")
    parser.add_argument("--max-batch", type=int, default=256, help="rows of a generate() batch at most")
    parser.add_argument("--max-batch-tokens", type=int, help="tokens of a continuous batch at most")
    parser.add_argument("--compile-level", type=int, default=0, help="default_compile_level of continuous batching")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        result = run_method(args)
    except Exception as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    args.out.write_text(json.dumps({"method": args.method} | result | {"versions": versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
