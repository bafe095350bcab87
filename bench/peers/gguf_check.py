#!/usr/bin/env python3
"""GGUF files of ulp beside the Python package `gguf`, bit for bit, in both directions.

    .deps/peers-venv/bin/python bench/peers/gguf_check.py build/release/bin/gguf_values

In: random tensors in each type that ulp reads; its values, and what its weight-only codes stand for, equal `gguf`'s values. Out: the blocks of a GPT-2
that ulp wrote are those that `gguf` makes of the same weights, and every tensor, name and key is read there. Weights are random; nothing is downloaded.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFReader, GGUFWriter, quants
from safetensors.numpy import load_file

ROWS, COLUMNS = 64, 1024
BYTES = {Type.Q4_0: (32, 18), Type.Q8_0: (32, 34), Type.Q4_K: (256, 144), Type.Q6_K: (256, 210)}
HALVES = {Type.Q4_0: [0], Type.Q8_0: [0], Type.Q4_K: [0, 2], Type.Q6_K: [208]}  # bytes of a block where fp16 numbers stand
TURNED = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")
NAMES = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "attn_norm": "ln_1", "attn_qkv": "attn.c_attn",
         "attn_output": "attn.c_proj", "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr}")


def random_blocks(rng, kind):
    """Every code and scale that a block can have; the fp16 numbers are finite."""
    elements, size = BYTES[kind]
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=np.uint8)
    for place in HALVES[kind]:
        scales = rng.normal(0, 1, len(blocks)) * 10.0 ** rng.integers(-6, 3, len(blocks))
        blocks[:, place:place + 2] = scales.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, -1)


def different(ours, theirs):
    return int((ours.view(np.uint32) != theirs.astype(np.float32).view(np.uint32)).sum())


def check_in(program, rng, folder):
    path = folder / "in.gguf"
    writer = GGUFWriter(path, "gpt2")
    values = (rng.normal(0, 1, (ROWS, COLUMNS)) * 10.0 ** rng.integers(-4, 4, (ROWS, 1))).astype(np.float32)
    writer.add_tensor("F32", values)
    writer.add_tensor("F16", values.astype(np.float16))
    writer.add_tensor("BF16", quants.quantize(values, Type.BF16), raw_dtype=Type.BF16)
    for kind in BYTES:
        writer.add_tensor(kind.name, random_blocks(rng, kind), raw_dtype=kind)
    for kind in (Type.Q4_0, Type.Q8_0):
        writer.add_tensor("chosen_" + kind.name, quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    run(program, "read", path, folder / "in.safetensors")
    ours, faults = load_file(folder / "in.safetensors"), 0
    for tensor in GGUFReader(path).tensors:
        plain = tensor.tensor_type in (Type.F32, Type.F16)
        right = np.asarray(tensor.data, np.float32) if plain else quants.dequantize(tensor.data, tensor.tensor_type)
        wrong = {"values": different(ours[tensor.name], right)}
        if tensor.tensor_type in BYTES:
            wrong["codes"] = different(ours[tensor.name + ".codes"], right)
        faults += sum(wrong.values()) + (tensor.name + ".codes" in ours) - (tensor.tensor_type in BYTES)
        print(f"in, {tensor.name}: {right.size} elements, different bits of " +
              ", ".join(f"{what}: {count}" for what, count in wrong.items()))
    return faults


def own_name(name):
    parts = name.split(".")
    block = ["h", parts[1]] if parts[0] == "blk" else []
    return ".".join(block + [NAMES[parts[-2]], parts[-1]])


def check_out(program, kind, folder):
    path = folder / "out.gguf"
    run(program, "write", kind, path, folder / "out.safetensors")
    weights, faults, blocks = load_file(folder / "out.safetensors"), 0, 0
    reader = GGUFReader(path)
    for tensor in reader.tensors:
        own = weights.pop(own_name(tensor.name))
        own = np.ascontiguousarray(own.T) if tensor.name.endswith(TURNED) else own
        if tensor.tensor_type == Type.F32:
            same = np.array_equal(np.asarray(tensor.data), own)
        else:
            blocks += 1
            same = np.array_equal(tensor.data, quants.quantize(own, tensor.tensor_type))
        faults += not same
        if not same:
            print(f"out, {kind}, {tensor.name}: DIFFERENT")
    heads = int(reader.get_field("gpt2.attention.head_count").parts[-1][0])
    faults += len(weights) + (heads != 4)
    print(f"out, {kind}: {len(reader.tensors)} tensors, {blocks} of blocks, {len(weights)} missing, {faults} different")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="gguf_values of the benchmarks")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        faults = check_in(flags.program, np.random.default_rng(11), folder)
        for kind in ("f32", "q8_0", "q4_0"):
            faults += check_out(flags.program, kind, folder)
    print("equal" if faults == 0 else f"{faults} DIFFERENT")
    sys.exit(faults != 0)


if __name__ == "__main__":
    main()
