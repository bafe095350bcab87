#!/usr/bin/env python3
"""Writes gguf/types.gguf, a file of every type of codes that is read, and gguf.json: what `gguf` makes of it, and codes that it chooses.

    .deps/peers-venv/bin/python tests/golden/make_gguf.py      (with `pip install gguf`)
"""
import json
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFReader, GGUFWriter, quants

# Elements and bytes of a block, and where its halves begin.
BLOCKS = {Type.Q4_K: (256, 144, (0, 2)), Type.Q6_K: (256, 210, (208,))}
MORE_BLOCKS = {Type.Q4_1: (32, 20, (0, 2)), Type.Q5_0: (32, 22, (0,)),
               Type.Q5_1: (32, 24, (0, 2)), Type.Q2_K: (256, 84, (80, 82)), Type.Q3_K: (256, 110, (108,)), Type.Q5_K: (256, 176, (0, 2)),
               Type.IQ4_NL: (32, 18, (0,)), Type.MXFP4: (32, 17, ()), Type.NVFP4: (64, 36, ())}


def random_blocks(rng, kind, rows, columns):
    """Blocks of random codes whose scales are finite halves, or any byte of MXFP4 below 255 and of NVFP4."""
    elements, size, halves = (BLOCKS | MORE_BLOCKS)[kind]
    blocks = rng.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    scales = rng.normal(0, 0.01, (len(blocks), 2)).astype(np.float16).view(np.uint8)
    for i, at in enumerate(halves):
        blocks[:, at:at + 2] = scales[:, 2 * i:2 * i + 2]
    if kind == Type.MXFP4:
        blocks[:, 0] = np.r_[0, 1, 2, 251, rng.integers(90, 160, len(blocks) - 4)]
    if kind == Type.NVFP4:
        blocks[:, :4] &= 127
        blocks[0, :4] = 0, 1, 127, 126
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
    more = np.random.default_rng(6)
    for kind, (elements, _, _) in MORE_BLOCKS.items():
        columns = 512 if elements == 256 else 128
        writer.add_tensor(kind.name.lower(), random_blocks(more, kind, 2, columns), raw_dtype=kind)
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
