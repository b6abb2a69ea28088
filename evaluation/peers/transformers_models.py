"""Random-weight Llama models for transformers, in the shapes that `tandem --dummy` has."""

import torch
from model_shapes import SHAPES
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM


def build_model(name, device, dtype, attention):
    """Random weights, made where they stay."""
    config = LlamaConfig(**SHAPES[name], bos_token_id=None, eos_token_id=None, pad_token_id=None)
    config._attn_implementation = attention
    torch.manual_seed(0)
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(previous)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.fill_(1.0) if "norm" in key else parameter.normal_(0.0, 0.02)
    model.eval()
    model.generation_config = GenerationConfig(do_sample=False, eos_token_id=None, pad_token_id=0)
    return model
