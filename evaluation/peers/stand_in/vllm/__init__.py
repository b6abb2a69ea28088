"""Stands in for vLLM in tests: the same calls, tokens out of nothing, time as STAND_IN_TOKEN_S says.

STAND_IN_FAIL names what fails: load, or generate (from the third time on).
"""

import os
import time
from types import SimpleNamespace

__version__ = "0.0-stand-in"
FAIL = os.environ.get("STAND_IN_FAIL", "")
TOKEN_S = float(os.environ.get("STAND_IN_TOKEN_S", "0.00001"))


class SamplingParams:
    def __init__(self, temperature, max_tokens, ignore_eos, detokenize):
        assert temperature == 0 and ignore_eos and not detokenize
        self.max_tokens = max_tokens


class LLM:
    def __init__(self, **arguments):
        if FAIL == "load":
            raise RuntimeError("there is no memory for the KV cache")
        assert arguments["load_format"] == "dummy" and arguments["skip_tokenizer_init"]
        blocks = arguments.get("num_gpu_blocks_override", 1001)
        cache = SimpleNamespace(
            num_gpu_blocks=blocks,
            block_size=arguments["block_size"],
            enable_prefix_caching=arguments["enable_prefix_caching"],
        )
        scheduler = SimpleNamespace(max_num_seqs=1024, max_num_batched_tokens=8192, async_scheduling=True)
        compilation = SimpleNamespace(mode=3, cudagraph_mode="FULL_AND_PIECEWISE")
        config = SimpleNamespace(cache_config=cache, scheduler_config=scheduler, compilation_config=compilation)
        self.llm_engine = SimpleNamespace(vllm_config=config)
        self._num_generated = 0

    def get_metrics(self):
        return [SimpleNamespace(name="vllm:num_preemptions", value=0)]

    def generate(self, prompts, sampling, use_tqdm):
        assert not use_tqdm
        self._num_generated += 1
        if FAIL == "generate" and self._num_generated >= 3:
            raise RuntimeError("the engine is dead")
        most = max(one.max_tokens for one in sampling)
        time.sleep(TOKEN_S * (sum(len(prompt["prompt_token_ids"]) for prompt in prompts) / 100 + 100 * most))
        return [self._output(one.max_tokens) for one in sampling]

    def _output(self, count):
        metrics = SimpleNamespace(
            first_token_latency=0.1,
            first_token_ts=10.0,
            last_token_ts=10.0 + 0.01 * (count - 1),
            num_generation_tokens=count,
        )
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=[7] * count)], metrics=metrics)
