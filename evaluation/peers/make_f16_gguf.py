#!/usr/bin/env python3
"""Rewrites a GGUF file with every matrix as F16; vectors become F32 and all other metadata is kept.

    python make_f16_gguf.py SOURCE.gguf OUTPUT.gguf

Needs the gguf package. Quantized tensors are dequantized, so the result holds the source's weights rounded
to F16: two programs that read it run the same model.
"""

import argparse
import os
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize

# Written by the writer itself, or no longer true of the result.
DROPPED_KEYS = {
    "general.architecture",
    "general.file_type",
    "general.quantization_version",
    "general.alignment",
}


def copy_metadata(reader, writer):
    for key, field in reader.fields.items():
        if key in DROPPED_KEYS or key.startswith("GGUF."):
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=element)


def convert(source, output):
    reader = gguf.GGUFReader(source)
    partial = output.with_name(output.name + ".partial")
    writer = gguf.GGUFWriter(partial, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if values.ndim > 1:
            if np.abs(values).max() > np.finfo(np.float16).max:
                raise SystemExit(f"{tensor.name} does not fit into F16")
            values = values.astype(np.float16)
        else:
            values = values.astype(np.float32)
        writer.add_tensor(tensor.name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    convert(args.source, args.output)
    print(args.output)


if __name__ == "__main__":
    main()
