#!/usr/bin/env python3
"""Writes a GGUF file of a Llama's shape with random weights, quantized as llama.cpp's mixtures are.

    python make_shape_gguf.py --shape tinyllama --type Q4_K --tokenizer MODEL.gguf OUTPUT.gguf

Needs the gguf package. For measuring speed where no such model can be had: tokenizer and vocabulary are those of
MODEL.gguf, codes are uniform, scales are such that values have the spread of a trained model's. As in llama.cpp's
files of 4 bits, the output matrix is Q6_K, and so are V and the down projection of some layers (--more-bits).
"""

import argparse
from pathlib import Path

import gguf
import numpy as np
from convert_gguf import copy_metadata, finish

SHAPES = {
    "tinyllama": {"layers": 22, "hidden": 2048, "heads": 32, "kv_heads": 4, "ffn": 5632, "context": 2048},
    "wide": {"layers": 12, "hidden": 1024, "heads": 16, "kv_heads": 4, "ffn": 2816, "context": 2048},
}
TYPES = gguf.GGMLQuantizationType
SEED = 20261126


def fp16_bytes(values):
    return np.asarray(values, np.float16).view(np.uint8).reshape(len(values), 2)


def random_blocks(rng, kind, count, spread):
    """Blocks of 256 weights whose standard deviation is about `spread`. Layouts: ggml's block_q4_K, block_q6_K."""
    uniform = rng.uniform(0.7, 1.3, count)
    if kind == TYPES.Q4_K:
        # d and dmin, twelve bytes of scales and minimums of 6 bits, then codes. Scales of 32 at d * scale.
        scales = np.zeros((count, 12), np.uint8)
        scales[:, 0:4] = 32  # scales of groups 0 to 3
        scales[:, 4:8] = 32  # minimums
        scales[:, 8:12] = 0  # low halves of groups 4 to 7, whose two high bits are those of the first eight bytes
        scales[:, 0:8] |= 0x80
        step = uniform * spread / 4.6 / 32
        codes = rng.integers(0, 256, (count, 128), np.uint8)
        return np.concatenate([fp16_bytes(step), fp16_bytes(7.5 * step), scales, codes], axis=1)
    if kind == TYPES.Q6_K:
        step = uniform * spread / 18.5 / 32
        low = rng.integers(0, 256, (count, 128), np.uint8)
        high = rng.integers(0, 256, (count, 64), np.uint8)
        scales = np.full((count, 16), 32, np.uint8)
        return np.concatenate([low, high, scales, fp16_bytes(step)], axis=1)
    raise SystemExit(f"no random blocks of {kind.name}")


def add_matrix(writer, rng, name, rows, cols, kind):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if cols % block:
        raise SystemExit(f"{name}: rows of {cols} are no whole blocks of {block}")
    data = random_blocks(rng, kind, rows * cols // block, 0.7 * cols**-0.5)
    assert data.shape[1] == size
    writer.add_tensor(name, np.ascontiguousarray(data.reshape(rows, -1)), raw_dtype=kind)


def write(shape, kind, tokenizer, more_bits, output):
    rng = np.random.default_rng(SEED)
    reader = gguf.GGUFReader(tokenizer)
    vocab = len(reader.fields["tokenizer.ggml.tokens"].contents())
    partial = output.with_name(output.name + ".partial")
    writer = gguf.GGUFWriter(partial, "llama")
    hidden, ffn = shape["hidden"], shape["ffn"]
    head = hidden // shape["heads"]
    writer.add_name("random weights")
    writer.add_context_length(shape["context"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    copy_metadata(reader, writer, lambda key: key.startswith("tokenizer."))
    ones = np.ones(hidden, np.float32)
    add_matrix(writer, rng, "token_embd.weight", vocab, hidden, kind)
    add_matrix(writer, rng, "output.weight", vocab, hidden, TYPES.Q6_K)
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(shape["layers"]):
        name = f"blk.{layer}."
        finer = TYPES.Q6_K if layer < more_bits else kind
        kv = shape["kv_heads"] * head
        writer.add_tensor(name + "attn_norm.weight", ones)
        writer.add_tensor(name + "ffn_norm.weight", ones)
        add_matrix(writer, rng, name + "attn_q.weight", hidden, hidden, kind)
        add_matrix(writer, rng, name + "attn_k.weight", kv, hidden, kind)
        add_matrix(writer, rng, name + "attn_v.weight", kv, hidden, finer)
        add_matrix(writer, rng, name + "attn_output.weight", hidden, hidden, kind)
        add_matrix(writer, rng, name + "ffn_gate.weight", ffn, hidden, kind)
        add_matrix(writer, rng, name + "ffn_up.weight", ffn, hidden, kind)
        add_matrix(writer, rng, name + "ffn_down.weight", hidden, ffn, finer)
    finish(writer, partial, output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="tinyllama")
    parser.add_argument("--type", choices=["Q4_K", "Q6_K"], default="Q4_K")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--more-bits", type=int, default=11, help="layers whose V and down projection are Q6_K")
    args = parser.parse_args()
    write(SHAPES[args.shape], TYPES[args.type], args.tokenizer, args.more_bits, args.output)
    print(args.output)


if __name__ == "__main__":
    main()
