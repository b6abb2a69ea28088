#!/usr/bin/env python3
"""Writes a model of the Llama family with random weights and a tokenizer whose tokens are bytes and pieces of JSON.

    make_random_model.py FOLDER [--seed S]

Needs nothing but Python. Small enough that masks are most of what a token costs.
"""

import argparse
import array
import json
import math
import pathlib
import random
import sys

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, LAYERS, CONTEXT = 128, 2, 1, 64, 256, 2, 8192
END = "<|end|>"
# Beginnings of each become tokens too: the merges lead through them. Half of them close what is open, or answers of
# random weights would hardly end.
PIECES = [
    '": "', '": ', '", "', '"}', '"]', '"},', '"],', '"}}', '"}]', '"}\n', '" ', '",', '":', '"\n', '" }', '" ]',
    "}", "]", "}}", "]]", "]}", "}]", "},", "],", "}\n", "]\n", '{"', '["', "[[", "[{", '{"a', ", ", ': "', ': {', ": [",
    "true", "false", "null", "123", "007", "-1", "0.5", "e+1", "1e9", "000", "99", "-0", "2026-11-", "T12:", "the", " the",
    "name", "foo", "bar", "baz", "abc", "quux", "http://", "example", ".com", "@a.", "\\u00e9", "\\n", '\\"', "\\\\", "  ", "\n\n",
    "é", "€", "😀", "日本", "ab\"", 'a"', 'o"', 'r"', 'e"', 's"', '1"', '0"', ' "', ',"', '("', ')"', '."', '-"', 'é"',
]  # fmt: skip


def byte_alphabet():
    """What byte-level BPE writes for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


def tokenizer():
    alphabet = byte_alphabet()
    vocabulary = {alphabet[byte]: byte for byte in range(256)}
    merges = []
    for piece in PIECES:
        symbols = [alphabet[byte] for byte in piece.encode()]
        for length in range(2, len(symbols) + 1):
            text = "".join(symbols[:length])
            if text not in vocabulary:
                merges.append(["".join(symbols[: length - 1]), symbols[length - 1]])
                vocabulary[text] = len(vocabulary)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    end = {"id": len(vocabulary), "content": END, "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}  # fmt: skip
    return {
        "version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": byte_level,
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "vocab": vocabulary, "merges": merges},
    }  # fmt: skip


def tensors(vocab_size):
    """Names, shapes, and how far from 0 the values are."""
    yield "model.embed_tokens.weight", (vocab_size, HIDDEN), 1.0
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (HIDDEN,), None
        yield prefix + "post_attention_layernorm.weight", (HIDDEN,), None
        for name, rows, columns in (
            ("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
            ("mlp.gate_proj", INTERMEDIATE, HIDDEN),
            ("mlp.up_proj", INTERMEDIATE, HIDDEN),
            ("mlp.down_proj", HIDDEN, INTERMEDIATE),
        ):
            yield f"{prefix}{name}.weight", (rows, columns), 1.5 / math.sqrt(columns)
    yield "model.norm.weight", (HIDDEN,), None
    # Logits with a standard deviation of about 1: some tokens are likelier than others.
    yield "lm_head.weight", (vocab_size, HIDDEN), 1.0 / math.sqrt(HIDDEN)


def write_model(folder, seed):
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    text = tokenizer()
    end = text["added_tokens"][0]["id"]
    (folder / "tokenizer.json").write_text(json.dumps(text))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "head_dim": HEAD_DIM,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "num_hidden_layers": LAYERS,
        "intermediate_size": INTERMEDIATE, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "vocab_size": end + 1, "eos_token_id": end,
        "torch_dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, array.array("f")
    for name, shape, deviation in tensors(end + 1):
        begin = 4 * len(data)
        count = math.prod(shape)
        data.extend([1.0] * count if deviation is None else [draw.gauss(0, deviation) for _ in range(count)])
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, 4 * len(data)]}
    if sys.byteorder == "big":
        data.byteswap()
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_model(arguments.folder, arguments.seed)


if __name__ == "__main__":
    main()
