"""What engines beside Tandem get in place of a model: a config.json of a shape, and an environment without network."""

import json
import os
import tempfile
from pathlib import Path

from model_shapes import SHAPES

# The machine may have no network.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}


def set_environment(more, environment=os.environ):
    """Of this process, before the engine is imported; what is set already stays."""
    for name, value in (ENVIRONMENT | more).items():
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
    """A folder of a model without weights and tokenizer: always the same, so that what an engine compiled is found."""
    config = model_config(name, max_model_len)
    path = (folder or Path(tempfile.gettempdir()) / "peer_models") / f"{name}-{config['max_position_embeddings']}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return path
