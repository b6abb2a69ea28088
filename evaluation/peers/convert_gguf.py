#!/usr/bin/env python3
"""Rewrites a GGUF file with every matrix in one type; vectors become F32 and all other metadata is kept.

    python convert_gguf.py --type Q4_0 SOURCE.gguf OUTPUT.gguf

Needs the gguf package. Quantized tensors are dequantized first, so F16 holds the source's weights rounded to
F16, and the other types hold them quantized anew: two programs that read the result run the same model. With
Q4_0 the embedding is Q8_0, as llama.cpp's own files of 4 bits have it finer than the rest. Matrices whose
rows a type's blocks do not divide are refused.
"""

import argparse
import os
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

# Written by the writer itself, or no longer true of the result.
DROPPED_KEYS = {
    "general.architecture",
    "general.file_type",
    "general.quantization_version",
    "general.alignment",
}
FILE_TYPES = {
    "F16": gguf.LlamaFileType.MOSTLY_F16,
    "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}
EMBEDDINGS = {"token_embd.weight", "output.weight"}


def copy_metadata(reader, writer, is_wanted):
    for key, field in reader.fields.items():
        if not is_wanted(key):
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=element)


def finish(writer, partial, output):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, output)


def matrix_type(name, wanted):
    if wanted == "Q4_0" and name in EMBEDDINGS:
        return gguf.GGMLQuantizationType.Q8_0
    return gguf.GGMLQuantizationType[wanted]


def convert(source, output, wanted):
    reader = gguf.GGUFReader(source)
    partial = output.with_name(output.name + ".partial")
    writer = gguf.GGUFWriter(partial, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer, lambda key: key not in DROPPED_KEYS and not key.startswith("GGUF."))
    writer.add_file_type(FILE_TYPES[wanted])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, np.ascontiguousarray(values))
            continue
        kind = matrix_type(tensor.name, wanted)
        if wanted == "F16" and np.abs(values).max() > np.finfo(np.float16).max:
            raise SystemExit(f"{tensor.name} does not fit into F16")
        block = gguf.GGML_QUANT_SIZES[kind][0]
        if values.shape[-1] % block:
            raise SystemExit(f"{tensor.name}: rows of {values.shape[-1]} are no whole blocks of {block}")
        writer.add_tensor(tensor.name, quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
    finish(writer, partial, output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--type", choices=sorted(FILE_TYPES), default="F16")
    args = parser.parse_args()
    convert(args.source, args.output, args.type)
    print(args.output)


if __name__ == "__main__":
    main()
