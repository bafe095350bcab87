#!/usr/bin/env python3
"""Reference data for 8-bit and 4-bit moments, from torchao's optimizers on the CPU.

    pip install torch==2.13.0 torchao==0.18.0 && TORCHDYNAMO_DISABLE=1 python3 make_block_moments.py > block_moments.json

Moments and gradients come from a generator of 32-bit numbers that the test has, too, so that only codes, scales and a
few weights are stored. bitsandbytes has torchao's 8-bit map and one rule more: a negative moment whose code would be that
of 0 gets the code below. `sign_kept` applies that rule to torchao's codes.

8-bit second moments have a map of their own: torchao's optimizers are given its values, and the rule that what is above 0
never gets code 0.
"""
import json
import sys

import torch
from torchao.optim import Adam4bit, Adam8bit, AdamW4bit, AdamW8bit, subclass_8bit
from torchao.optim.quant_utils import (create_dynamic_map, quantize_4bit_with_qmap, quantize_8bit_with_qmap,
                                       scale_tensor)


def octave_map():
    """0, and 255 values from 1 downwards: 16 equal parts of each of eight octaves, 8 of each of the others."""
    values = [1.0]
    for octave in range(32):
        parts = 16 if octave < 8 else 8
        values += [(1 + part / parts) * 2.0 ** (-octave - 1) for part in reversed(range(parts))]
    return [0.0] + sorted(values[:255])


def above_zero(scaled, qmap):
    codes = quantize_8bit_with_qmap(scaled, qmap)
    return torch.where((scaled > 0) & (codes == 0), codes + 1, codes) if qmap[0] == 0 else codes


subclass_8bit.get_qmap_unsigned = octave_map
subclass_8bit.quantize_8bit_with_qmap = above_zero


class Numbers:
    """A linear congruential generator; each number is exact in fp32."""

    def __init__(self, seed):
        self.state = seed

    def bits(self):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return self.state >> 8

    def number(self, octaves, signed):
        value = (self.bits() + 1) / 2**24 * 2.0 ** -(self.bits() % octaves)
        return -value if signed and self.bits() % 2 else value

    def tensor(self, size, octaves, signed):
        return torch.tensor([self.number(octaves, signed) for _ in range(size)], dtype=torch.float64).float()


def hexes(codes):
    return bytes(codes.to(torch.uint8).flatten().tolist()).hex()


def sign_kept(values, codes):
    return torch.where((values < 0) & (codes == 127), codes - 1, codes)


def quantized(bits, signed, size, seed):
    values = Numbers(seed).tensor(size, 26 if bits == 8 else 10, signed)
    block = 256 if bits == 8 else 128
    if not signed:
        qmap = torch.tensor(octave_map()) if bits == 8 else torch.linspace(0, 1, 17)[1:]
    else:
        qmap = torch.tensor(create_dynamic_map(signed, *((7, 8) if bits == 8 else (3, 4))))
    scaled, scale = scale_tensor(values, block)
    codes = (above_zero if bits == 8 else quantize_4bit_with_qmap)(scaled, qmap)
    made = {"seed": seed, "size": size, "map": qmap.tolist(), "codes": hexes(codes), "absmax": scale.tolist()}
    if bits == 8 and signed:
        made["sign_kept"] = hexes(sign_kept(values, codes))
    return made


def unpacked(state):
    if state.codes.numel() == state.numel():
        return state.codes
    return torch.stack([state.codes >> 4, state.codes & 15], dim=-1).flatten()


def trajectory(kind, options, size, seed, steps):
    numbers = Numbers(seed)
    weight = torch.nn.Parameter(numbers.tensor(size, 4, True))
    optimizer = kind([weight], **options)
    for _ in range(steps):
        weight.grad = numbers.tensor(size, 12, True)
        optimizer.step()
    state = optimizer.state[weight]
    return {"seed": seed, "size": size, "steps": steps, "options": options,
            "exp_avg": hexes(unpacked(state["exp_avg"])), "exp_avg_sq": hexes(unpacked(state["exp_avg_sq"])),
            "exp_avg_absmax": state["exp_avg"].scale.tolist(), "exp_avg_sq_absmax": state["exp_avg_sq"].scale.tolist(),
            "weights": weight.detach()[::64].tolist()}


def main():
    made = {
        "quantized": {f"int{bits}_{'mean' if signed else 'square'}": quantized(bits, signed, 4096, 7 * bits + signed)
                      for bits in (8, 4) for signed in (True, False)},
        "trajectories": {
            "int8_adam": trajectory(Adam8bit, {"lr": 0.01, "weight_decay": 0.1}, 4096, 11, 3),
            "int8_adamw": trajectory(AdamW8bit, {"lr": 0.01, "weight_decay": 0.1}, 4096, 12, 3),
            "int4_adam": trajectory(Adam4bit, {"lr": 0.01, "weight_decay": 0.0}, 4096, 13, 3),
            "int4_adamw": trajectory(AdamW4bit, {"lr": 0.01, "weight_decay": 0.1}, 4096, 14, 3),
        },
    }
    json.dump(made, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
