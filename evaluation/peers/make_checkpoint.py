#!/usr/bin/env python3
"""Writes a checkpoint of random bf16 weights in the shape of Llama-3.1-8B, to measure loading.

    python evaluation/peers/make_checkpoint.py FOLDER [--layers 32]

Needs torch and safetensors. The tokenizer is that of a small fixture: enough to start, not to talk.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

FIXTURES = Path(__file__).resolve().parents[2] / "tests/fixtures"
HIDDEN, INTERMEDIATE, VOCAB, KV_WIDTH = 4096, 14336, 128256, 1024
LAYERS_A_FILE = 8


def layer_tensors(index, make):
    prefix = f"model.layers.{index}."
    shapes = {
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.k_proj": (KV_WIDTH, HIDDEN),
        "self_attn.v_proj": (KV_WIDTH, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    tensors = {f"{prefix}{name}.weight": make(*shape) for name, shape in shapes.items()}
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{prefix}{name}.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=32)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def make(rows, cols):
        return (torch.randn(rows, cols, device=device, dtype=torch.bfloat16) * 0.02).cpu()

    args.folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((FIXTURES / "families/llama3/config.json").read_text())
    config.update(
        hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, vocab_size=VOCAB, num_hidden_layers=args.layers,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=8192,
        tie_word_embeddings=False, torch_dtype="bfloat16")  # fmt: skip
    (args.folder / "config.json").write_text(json.dumps(config, indent=1))
    shutil.copy(FIXTURES / "text/llama3.tokenizer.json", args.folder / "tokenizer.json")

    parts = [[("rest", None)]] + [
        [("layer", i) for i in range(begin, min(begin + LAYERS_A_FILE, args.layers))]
        for begin in range(0, args.layers, LAYERS_A_FILE)
    ]
    index = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        tensors = {}
        for kind, layer in part:
            if kind == "layer":
                tensors.update(layer_tensors(layer, make))
            else:
                tensors["model.embed_tokens.weight"] = make(VOCAB, HIDDEN)
                tensors["lm_head.weight"] = make(VOCAB, HIDDEN)
                tensors["model.norm.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
        save_file(tensors, args.folder / file)
        index.update(dict.fromkeys(tensors, file))
    (args.folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


if __name__ == "__main__":
    main()
