#!/usr/bin/env python3
"""Compiles the kernels that SGLang would compile while it starts; make_bundle.py starts it in the bundle's environment.

No GPU is needed: torch is told that there is one, for what SGLang asks when it is imported. The modules go to
$TVM_FFI_CACHE_DIR, where SGLang finds them by the hash of their sources.
"""

import sys
import types

import torch

CAPABILITY = (9, 0)


def pretend_gpu():
    major, minor = CAPABILITY
    properties = types.SimpleNamespace(major=major, minor=minor, name="H100", total_memory=80 << 30)
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": CAPABILITY,
        "get_device_properties": properties,
        "get_device_name": properties.name,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)


def modules():
    """(what, a function that compiles and loads it): those of dense Llama and Qwen in bf16 with heads of 128."""
    from sglang.jit_kernel import (
        activation,
        clamp_position,
        kvcache,
        norm,
        per_tensor_quant_fp8,
        resolve_future_token_ids,
        rope,
    )

    bf16 = torch.bfloat16
    # Bytes of K of a token and layer: 8 and 32 heads.
    for row_bytes in (2048, 8192):
        yield f"KV rows of {row_bytes} bytes", lambda row_bytes=row_bytes: kvcache._jit_kvcache_module(row_bytes)
    yield "activation", lambda: activation._jit_activation_module(bf16)
    yield "rope, fused", lambda: rope._jit_fused_rope_module(True, 128, bf16)
    yield "rope", rope._jit_rotary_embedding_module
    for index in (torch.int32, torch.int64):
        yield f"positions, {index}", lambda index=index: clamp_position._jit_clamp_position_module(index)
        make = resolve_future_token_ids._jit_resolve_future_token_ids_module
        yield f"future tokens, {index}", lambda make=make, index=index: make(index)
    yield "norm", lambda: norm._jit_rmsnorm_module(4096, bf16)
    yield "norm with addition", lambda: norm._jit_fused_add_rmsnorm_module(bf16, False)
    for is_static in (False, True):
        make = per_tensor_quant_fp8._jit_per_tensor_quant_fp8_module
        yield f"fp8, static {is_static}", lambda make=make, is_static=is_static: make(is_static, bf16)


def main():
    pretend_gpu()
    for what, build in modules():
        build()
        print(f"compiled {what}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
