#!/usr/bin/env python3
"""Runs vLLM offline, with random weights of a shape, on requests of given lengths; compare_engines.py starts it.

    python3 evaluation/peers/vllm_offline.py --model llama-3.1-8b --max-model-len 8192 --json vllm.json
        --work a=a.csv --decode-batches 1,8

What is measured how, and what the file has: offline_engine.py.
"""

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import dummy_model  # noqa: E402
import vllm_model  # noqa: E402
from offline_engine import OfflineEngine, make_parser, measure, parse_args  # noqa: E402


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


class Vllm(OfflineEngine):
    def __init__(self, args, arguments):
        self._arguments = arguments
        super().__init__(args)

    def start(self, args):
        from vllm import LLM, SamplingParams

        self._sampling = SamplingParams
        self._llm = LLM(seed=args.seed, disable_log_stats=False, **self._arguments)

    def prepared(self, prompts, output_lengths):
        prompts = [{"prompt_token_ids": prompt} for prompt in prompts]
        sampling = [
            self._sampling(temperature=0.0, max_tokens=output, ignore_eos=True, detokenize=False)
            for output in output_lengths
        ]
        return lambda: self._llm.generate(prompts, sampling, use_tqdm=False)

    def num_tokens(self, output):
        return len(output.outputs[0].token_ids)

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

    def latencies(self, outputs):
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


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--kv-offload-gib", type=float, default=0, help="host memory of its native KV offloading")
    args = parse_args(parser)
    dummy_model.set_environment(vllm_model.ENVIRONMENT)
    arguments = vllm_model.engine_arguments(
        args.model, args.max_model_len, args.gpu_kv_tokens, args.kv_offload_gib, args.prefix_caching, args.engine_args
    )
    if args.dry_run:
        print(json.dumps(arguments, indent=1))
        return 0
    measure(args, Vllm(args, arguments), "vllm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
