"""What both ways to run vLLM share: a config.json of a shape, the words of its engine, its environment."""

import json
import math
import os
import tempfile
from pathlib import Path

from model_shapes import SHAPES

KV_BLOCK_TOKENS = 16
# The machine may have no network, and what is carried there no FlashInfer: its sampler is for top-k and top-p alone.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}


def set_environment(environment=os.environ):
    for name, value in ENVIRONMENT.items():
        environment.setdefault(name, value)


def model_config(name, max_model_len):
    """config.json of a shape. The rope is not stretched as Llama 3.1's is, which costs no time."""
    shape = dict(SHAPES[name])
    rope = shape.pop("rope_parameters")
    shape["max_position_embeddings"] = max(shape["max_position_embeddings"], max_model_len)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "rope_theta": rope["rope_theta"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        **shape,
    }


def write_model(name, max_model_len, folder=None):
    """The folder of a model without weights and tokenizer: always the same, so that what vLLM compiled is found."""
    config = model_config(name, max_model_len)
    path = (folder or Path(tempfile.gettempdir()) / "vllm_models") / f"{name}-{config['max_position_embeddings']}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return path


def engine_arguments(model, max_model_len, gpu_kv_tokens=None, kv_offload_gib=0, prefix_caching=False, more=None):
    """Arguments of vllm.LLM; more: any others, or other values. What is not named is vLLM's own default."""
    arguments = {
        "model": str(model),
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
