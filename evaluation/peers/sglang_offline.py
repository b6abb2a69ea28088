#!/usr/bin/env python3
"""Runs SGLang offline, with random weights of a shape, on requests of given lengths; compare_engines.py starts it.

    python3 evaluation/peers/sglang_offline.py --model llama-3.1-8b --max-model-len 8192 --json sglang.json
        --work a=a.csv --decode-batches 1,8

What is measured how, and what the file has: offline_engine.py. SGLang says no latencies of requests that do not stream.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import dummy_model  # noqa: E402
import sglang_model  # noqa: E402
from offline_engine import OfflineEngine, make_parser, measure, parse_args  # noqa: E402

# As it says them; gpu_kv_tokens, max_num_seqs and prefix_caching in the words of the table.
SETTINGS = (
    "chunked_prefill_size",
    "max_prefill_tokens",
    "page_size",
    "mem_fraction_static",
    "attention_backend",
    "disable_overlap_schedule",
    "schedule_policy",
    "schedule_conservativeness",
    "disable_prefill_cuda_graph",
    "disable_decode_cuda_graph",
)


class Sglang(OfflineEngine):
    def __init__(self, args, arguments):
        self._arguments = arguments
        self._num_retractions = 0
        super().__init__(args)

    def start(self, args):
        from sglang.srt.entrypoints.engine import Engine

        self._engine = Engine(random_seed=args.seed, **self._arguments)

    def prepared(self, prompts, output_lengths):
        sampling = [{"temperature": 0.0, "max_new_tokens": output, "ignore_eos": True} for output in output_lengths]

        def run():
            outputs = self._engine.generate(input_ids=prompts, sampling_params=sampling)
            self._num_retractions += sum(done["meta_info"].get("num_retractions") or 0 for done in outputs)
            return outputs

        return run

    def num_tokens(self, output):
        return len(output["output_ids"])

    def preemptions(self):
        return self._num_retractions

    def settings(self):
        info = self._engine.get_server_info()
        state = (info.get("internal_states") or [{}])[0]
        settings = {name: info[name] for name in SETTINGS if name in info}
        return {
            "gpu_kv_tokens": info.get("max_total_num_tokens") or state.get("max_total_num_tokens"),
            "max_num_seqs": state.get("effective_max_running_requests_per_dp") or info.get("max_running_requests"),
            "prefix_caching": not info["disable_radix_cache"],
            **settings,
        }

    def end(self):
        self._engine.shutdown()


def main():
    args = parse_args(make_parser(__doc__))
    dummy_model.set_environment(sglang_model.ENVIRONMENT)
    arguments = sglang_model.engine_arguments(
        args.model, args.max_model_len, args.gpu_kv_tokens, args.prefix_caching, args.engine_args
    )
    if args.dry_run:
        print(json.dumps(arguments, indent=1))
        return 0
    measure(args, Sglang(args, arguments), "sglang")
    return 0


if __name__ == "__main__":
    sys.exit(main())
