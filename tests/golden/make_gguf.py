#!/usr/bin/env python3
"""Writes gguf/types.gguf, a file of every type of codes that is read, and gguf.json: what `gguf` makes of it, and codes that it chooses.

    .deps/peers-venv/bin/python tests/golden/make_gguf.py      (with `pip install gguf`)
"""
import json
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFReader, GGUFWriter, quants

BLOCKS = {Type.Q4_K: (256, 144), Type.Q6_K: (256, 210)}


def random_blocks(rng, kind, rows, columns):
    """Blocks of random codes whose scales are finite halves."""
    elements, size = BLOCKS[kind]
    blocks = rng.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    scales = rng.normal(0, 0.01, (len(blocks), 2)).astype(np.float16).view(np.uint8)
    if kind == Type.Q4_K:
        blocks[:, :4] = scales
    else:
        blocks[:, -2:] = scales[:, :2]
    return blocks.reshape(rows, -1)


def main():
    rng = np.random.default_rng(5)
    folder = pathlib.Path(__file__).parent
    (folder / "gguf").mkdir(exist_ok=True)
    writer = GGUFWriter(folder / "gguf" / "types.gguf", "gpt2")
    writer.add_context_length(7)
    writer.add_array("test.words", ["one", "tw\u00f6"])
    writer.add_bool("test.flag", True)
    values = rng.normal(0, 1, (3, 64)).astype(np.float32)
    values[0, :32] = 0
    values[1, 40] = -9
    writer.add_tensor("f32", values)
    writer.add_tensor("f16", values.astype(np.float16))
    writer.add_tensor("bf16", quants.quantize(values, Type.BF16), raw_dtype=Type.BF16)
    for kind in (Type.Q4_0, Type.Q8_0):
        writer.add_tensor(kind.name.lower(), quants.quantize(values, kind), raw_dtype=kind)
    for kind in BLOCKS:
        writer.add_tensor(kind.name.lower(), random_blocks(rng, kind, 2, 512), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = {"decoded": {}, "encoded": []}
    for tensor in GGUFReader(folder / "gguf" / "types.gguf").tensors:
        if tensor.tensor_type in (Type.F32, Type.F16):
            decoded = np.asarray(tensor.data, np.float32)
        else:
            decoded = quants.dequantize(tensor.data, tensor.tensor_type)
        found["decoded"][tensor.name] = {"type": tensor.tensor_type.name, "shape": [int(n) for n in reversed(tensor.shape)],
                                         "bits": decoded.astype(np.float32).view(np.uint32).ravel().tolist()}
    special = [np.zeros(32), np.full(32, 0.5), np.linspace(-1, 1, 32), np.linspace(1, -1, 32), np.arange(32) - 16.0,
               np.r_[1e-7, np.zeros(31)], np.r_[np.full(16, 4.0), np.full(16, -4.0)], np.r_[127.0, np.arange(31) + 0.5],
               *rng.normal(0, 1, (24, 32)), *rng.normal(0, 1e-3, (8, 32)), *np.exp(rng.normal(0, 4, (8, 32)))]
    for block in special:
        block = np.asarray(block, np.float32)
        found["encoded"].append({"bits": block.view(np.uint32).tolist(),
                                 "Q4_0": quants.quantize(block, Type.Q4_0).ravel().tolist(),
                                 "Q8_0": quants.quantize(block, Type.Q8_0).ravel().tolist()})
    path = folder / "gguf.json"
    path.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
