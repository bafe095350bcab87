#!/usr/bin/env python3
"""Writes nf4.safetensors: weights as bitsandbytes quantizes them to NF4, with and without double quantization.

    python3 make_nf4.py        needs bitsandbytes (0.50.2 made the file that is here) and torch
"""
import pathlib

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

torch.manual_seed(0)
tensors = {}
for name, shape in {"even": (40, 64), "odd": (35, 97), "many": (300, 56)}.items():
    w = torch.randn(shape) * 0.02 * (0.25 + torch.rand(shape[0], 1))
    codes, state = bnb.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=False)
    twice, nested = bnb.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=True)
    assert torch.equal(codes, twice)
    tensors |= {f"{name}.w": w, f"{name}.codes": codes.flatten(), f"{name}.absmax": state.absmax,
                f"{name}.values": bnb.dequantize_4bit(codes, state),
                f"{name}.absmax_codes": nested.absmax, f"{name}.scale_absmax": nested.state2.absmax,
                f"{name}.offset": nested.offset.reshape(1), f"{name}.double_values": bnb.dequantize_4bit(twice, nested)}
    tensors["table"] = state.code
    tensors["dynamic"] = nested.state2.code
save_file({k: v.contiguous() for k, v in tensors.items()}, pathlib.Path(__file__).parent / "nf4.safetensors")
