"""What both ways to run vLLM share: the words of its engine, its environment."""

import json
import math

import dummy_model

KV_BLOCK_TOKENS = 16
# What is carried where no network is has no FlashInfer: its sampler is for top-k and top-p alone.
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_HOST_IP": "127.0.0.1",
}


def engine_arguments(shape, max_model_len, gpu_kv_tokens=None, kv_offload_gib=0, prefix_caching=False, more=None):
    """Arguments of vllm.LLM; more: any others, or other values. What is not named is vLLM's own default."""
    arguments = {
        "model": str(dummy_model.write_model(shape, max_model_len)),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "dtype": "bfloat16",
        "max_model_len": max_model_len,
        "gpu_memory_utilization": 0.9,
        "block_size": KV_BLOCK_TOKENS,
        "enable_prefix_caching": prefix_caching,
    }
    if gpu_kv_tokens:
        # It keeps one block for itself.
        arguments["num_gpu_blocks_override"] = math.ceil(gpu_kv_tokens / KV_BLOCK_TOKENS) + 1
    if kv_offload_gib:
        arguments |= {"kv_offloading_size": kv_offload_gib, "kv_offloading_backend": "native"}
    return arguments | (more or {})


def server_words(arguments):
    """The same for the command line of its server: --max-model-len 8192, --skip-tokenizer-init, --no-enable-x."""
    words = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", json.dumps(value) if isinstance(value, (dict, list)) else str(value)]
    return words
