#!/usr/bin/env python3
"""Whether the kernels of the bundle are there and right, on the GPU machine, against the same in float32 by torch.

    (. "${TMPDIR:-/tmp}/sglang_env.sh" && python3 evaluation/peers/sglang_bundle/check_kernels.py)

Half a minute. A line for each kernel that a Llama model with heads of 128 uses, each alone: what was cut wrongly shows
here, and not amid a measurement. Exit code 1 where one failed.
"""

import math
import sys
import time

import torch
from torch.nn import functional

BF16 = torch.bfloat16
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
HIDDEN, INTERMEDIATE = 4096, 14336
# Of the largest value: bf16 has 8 bits, and sums of some hundred terms are in other orders.
TOLERANCE = 0.03


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=BF16)


def error(found, expected):
    return ((found.float() - expected.float()).abs().max() / expected.float().abs().max()).item()


def normalized(rows, weight):
    rows = rows.float()
    return rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-5) * weight.float()


def norm():
    import sgl_kernel

    rows, weight = random(64, HIDDEN), random(HIDDEN)
    return error(sgl_kernel.rmsnorm(rows, weight, 1e-5), normalized(rows, weight))


def norm_with_addition():
    import sgl_kernel

    rows, residual, weight = random(64, HIDDEN), random(64, HIDDEN), random(HIDDEN)
    total = rows.float() + residual.float()
    sgl_kernel.fused_add_rmsnorm(rows, residual, weight, 1e-5)
    return max(error(rows, normalized(total, weight)), error(residual, total))


def activation():
    from sglang.jit_kernel.activation import silu_and_mul

    rows = random(33, 2 * INTERMEDIATE)
    found = torch.empty(33, INTERMEDIATE, device="cuda", dtype=BF16)
    silu_and_mul(rows, found)
    gate, up = rows.float().chunk(2, -1)
    return error(found, functional.silu(gate) * up)


def kv_rows():
    from sglang.jit_kernel.kvcache import store_cache

    width = KV_HEADS * HEAD_DIM
    keys, values = random(100, width), random(100, width)
    key_pool, value_pool = (torch.zeros(1000, width, device="cuda", dtype=BF16) for _ in range(2))
    places = torch.randperm(999, device="cuda")[:100] + 1
    store_cache(keys, values, key_pool, value_pool, places)
    return max(error(key_pool[places], keys), error(value_pool[places], values))


def rope():
    from sglang.jit_kernel.rope import apply_rope_with_cos_sin_cache_inplace

    queries, keys = random(50, HEADS, HEAD_DIM), random(50, KV_HEADS, HEAD_DIM)
    positions = torch.randint(0, 4000, (50,), device="cuda")
    frequencies = 500000.0 ** -(torch.arange(0, HEAD_DIM, 2, device="cuda").float() / HEAD_DIM)
    angles = torch.arange(4096, device="cuda").float()[:, None] * frequencies
    cos, sin = (part[positions][:, None] for part in (angles.cos(), angles.sin()))

    def turned(rows):
        first, second = rows.float().chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    expected = turned(queries), turned(keys)
    apply_rope_with_cos_sin_cache_inplace(
        positions=positions,
        q=queries,
        k=keys,
        cos_sin_cache=torch.cat([angles.cos(), angles.sin()], -1),
        is_neox=True,
    )
    return max(error(queries, expected[0]), error(keys, expected[1]))


def weak_reference():
    """Graphs of prefill use it."""
    from sgl_kernel import weak_ref_tensor

    rows = random(10, 16)
    return error(weak_ref_tensor(rows), rows)


def attention(num_queries, context_lengths):
    """FlashAttention 3 on pages of one token, the last num_queries of each context asking."""
    from sgl_kernel.flash_attn import flash_attn_with_kvcache

    count, places = len(context_lengths), sum(context_lengths)
    # Place 0 is nobody's.
    keys, values = (random(places + 1, 1, KV_HEADS, HEAD_DIM) for _ in range(2))
    order = torch.randperm(places, device="cuda").int() + 1
    pages = torch.zeros(count, max(context_lengths), dtype=torch.int32, device="cuda")
    for row, part in zip(pages, order.split(context_lengths), strict=True):
        row[: len(part)] = part
    queries = random(count * num_queries, HEADS, HEAD_DIM)
    lengths = torch.tensor(context_lengths, dtype=torch.int32, device="cuda")
    found = flash_attn_with_kvcache(
        q=queries,
        k_cache=keys,
        v_cache=values,
        page_table=pages,
        cache_seqlens=lengths,
        cu_seqlens_q=torch.arange(0, len(queries) + 1, num_queries, dtype=torch.int32, device="cuda"),
        cu_seqlens_k_new=functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)),
        max_seqlen_q=num_queries,
        softmax_scale=1 / math.sqrt(HEAD_DIM),
        causal=True,
    )
    worst = 0.0
    for index, (length, places_of) in enumerate(zip(context_lengths, order.split(context_lengths), strict=True)):
        rows = slice(index * num_queries, (index + 1) * num_queries)
        key, value = (
            pool[places_of.long(), 0].float().transpose(0, 1).repeat_interleave(HEADS // KV_HEADS, 0)
            for pool in (keys, values)
        )
        mask = torch.ones(num_queries, length, device="cuda", dtype=torch.bool).tril(length - num_queries)
        asked = queries[rows].float().transpose(0, 1)
        expected = functional.scaled_dot_product_attention(asked, key, value, attn_mask=mask).transpose(0, 1)
        worst = max(worst, error(found[rows], expected))
    return worst


CHECKS = {
    "norm": norm,
    "norm with addition": norm_with_addition,
    "activation": activation,
    "KV rows": kv_rows,
    "rope": rope,
    "weak reference": weak_reference,
    "attention, prefill": lambda: attention(200, [200, 333, 1000]),
    "attention, decode, batch 3": lambda: attention(1, [17, 4000, 1023]),
    "attention, decode, batch 160": lambda: attention(1, [100 + 7 * index for index in range(160)]),
}


def main():
    import sgl_kernel
    import sglang

    print(f"sglang {sglang.__version__}, sgl_kernel {sgl_kernel.__version__}, torch {torch.__version__}", flush=True)
    print(torch.cuda.get_device_name(), flush=True)
    torch.manual_seed(0)
    num_failed = 0
    for name, check in CHECKS.items():
        begin = time.monotonic()
        try:
            found = check()
            torch.cuda.synchronize()
            said = f"off by {found:.5f}"
            # A NaN fails too.
            failed = not found <= TOLERANCE
        except Exception as reason:
            said, failed = repr(reason)[:600], True
        num_failed += failed
        print(f"{'FAIL' if failed else 'ok':4} {name}: {said} ({time.monotonic() - begin:.1f} s)", flush=True)
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
