"""Writes fp8.json: codes and scales of the fp8 recipes for tests/amp/fp8_golden_test.cpp, from their definitions in
plain numpy arithmetic (casts to 8 bits are PyTorch's), and the results of torchao's layers.

    pip install torch==2.13.0 torchao==0.18.0 numpy
    python tests/golden/make_fp8.py

Inputs are not stored: element i of a tensor of seed s is ((i * 2654435761 + s * 40503) mod 2^32 >> 8) / 2^24 - 0.5,
times 2^((i mod 13) - 6), in fp32.
"""

import json
import pathlib

import numpy as np
import torch

E4M3, E5M2, FP4 = 448.0, 57344.0, 6.0
F = np.float32
FLT_MAX = np.finfo(F).max


def values(seed, *sizes):
    i = np.arange(int(np.prod(sizes)), dtype=np.uint64)
    bits = ((i * np.uint64(2654435761) + np.uint64(seed * 40503)) & np.uint64(0xFFFFFFFF)) >> np.uint64(8)
    x = bits.astype(F) / F(2**24) - F(0.5)
    return (x * np.exp2((i % np.uint64(13)).astype(F) - 6)).astype(F).reshape(sizes)


def cast(x, largest):
    """Codes of 8 bits; saturating."""
    with np.errstate(invalid="ignore"):
        clipped = np.clip(x, -largest, largest)
    kind = torch.float8_e4m3fn if largest == E4M3 else torch.float8_e5m2
    return torch.from_numpy(np.ascontiguousarray(clipped, F)).to(kind).view(torch.uint8).numpy()


def cast_fp4(x):
    """Codes of e2m1 by search: nearest, ties to the even code."""
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    size = np.minimum(np.abs(x.astype(np.float64)), 6)[..., None]
    distance = np.abs(size - numbers)
    near = distance == distance.min(-1, keepdims=True)
    codes = np.where(near & (np.arange(8) % 2 == 0), np.arange(8), -1).max(-1)
    codes = np.where(codes < 0, np.where(near, np.arange(8), -1).max(-1), codes)
    return (codes + 8 * np.signbit(x)).astype(np.uint8)


def power_of_2_below(x):
    return (np.asarray(x, F).view(np.uint32) & np.uint32(0x7F800000)).view(F)


def padded(x, rows, columns):
    return np.pad(x, ((0, -x.shape[0] % rows), (0, -x.shape[1] % columns)))


def block_amax(x, rows, columns):
    p = padded(x, rows, columns)
    return np.abs(p).reshape(p.shape[0] // rows, rows, p.shape[1] // columns, columns).max((1, 3))


def spread(scale, rows, columns, shape):
    return scale.repeat(rows, 0).repeat(columns, 1)[: shape[0], : shape[1]]


def current(x, largest, power_of_2):
    amax = np.abs(x).max()
    scale = F(1) if amax == 0 or not np.isfinite(amax) else min(F(largest) / F(amax), FLT_MAX)
    if power_of_2:
        scale = power_of_2_below(scale)
    return cast(x * scale, largest), F(1) / scale


def rowwise(x):
    scale = power_of_2_below((E4M3 / np.maximum(np.abs(x).max(1, keepdims=True).astype(np.float64), 1e-12)).astype(F))
    return cast(x * scale, E4M3), F(1) / scale


def block(x, rows):
    amax = block_amax(x, rows, 128)
    with np.errstate(divide="ignore"):
        scale = np.where(amax > 0, power_of_2_below(np.minimum(F(E4M3) / amax, FLT_MAX)), F(1))
    return cast(x * spread(scale, rows, 128, x.shape), E4M3), F(1) / scale


def mxfp8(x, up):
    amax = block_amax(x, 1, 32)
    with np.errstate(divide="ignore"):
        if up:
            exponent = np.ceil(np.log2((amax / F(E4M3)).astype(np.float64)))
        else:
            exponent = np.floor(np.log2(amax.astype(np.float64))) - 8
    exponent = np.clip(exponent, -127, 127)
    scale = np.exp2(exponent).astype(F)
    return cast(x / spread(scale, 1, 32, x.shape), E4M3), scale, (exponent + 127).astype(np.uint8)


def nvfp4(x, rows):
    tensor_scale = F(np.abs(x).max() / F(E4M3 * FP4))
    wanted = block_amax(x, rows, 16) / F(FP4) / tensor_scale
    codes = np.maximum(cast(wanted, E4M3), 1)
    scale = torch.from_numpy(codes).view(torch.float8_e4m3fn).float().numpy() * tensor_scale
    return cast_fp4(x / spread(scale, rows, 16, x.shape)), scale, codes, tensor_scale


def hexed(codes):
    return np.ascontiguousarray(codes, np.uint8).tobytes().hex()


def exact(x):
    return [float(v) for v in np.asarray(x, F).reshape(-1)]


def quantizations():
    out = []

    def add(recipe, role, seed, x, codes, scale_inv, **more):
        out.append({"recipe": recipe, "role": role, "seed": seed, "sizes": list(x.shape), "codes": hexed(codes),
                    "scale_inv": exact(scale_inv), **more})

    for role, largest in (("input", E4M3), ("gradient", E5M2)):
        for power in (False, True):
            x = values(1, 7, 37)
            add({"scaling": "current", "power_of_2": power}, role, 1, x, *current(x, largest, power))
    x = values(2, 5, 300)
    add({"scaling": "rowwise"}, "input", 2, x, *rowwise(x))
    add({"scaling": "block"}, "gradient", 2, x, *block(x, 1))
    w = values(3, 130, 150)
    add({"scaling": "block"}, "weight", 3, w, *block(w, 128))
    x = values(4, 6, 100)
    for rounding in ("up", "floor"):
        codes, scale, scale_codes = mxfp8(x, rounding == "up")
        add({"scaling": "mxfp8", "mx_rounding": rounding}, "input", 4, x, codes, scale,
            scale_codes=hexed(scale_codes))
    for role, rows in (("input", 1), ("weight", 16)):
        x = values(5, 20, 52)
        codes, scale, scale_codes, tensor_scale = nvfp4(x, rows)
        add({"scaling": "nvfp4"}, role, 5, x, codes, scale, scale_codes=hexed(scale_codes),
            tensor_scale=float(tensor_scale))
    return out


def delayed(history_length, margin, most_recent, amaxes):
    """Transformer Engine's update of one tensor's scale, with what ulp does where an amax is not finite."""
    scale, history, scales = F(1), np.zeros(history_length, F), []
    for amax in amaxes:
        amax = F(float(amax))
        history[0] = amax if np.isfinite(amax) else 0
        if history[0] > 0:
            largest = history[0] if most_recent else history.max()
            scale = min(F(F(E4M3) / largest / F(2.0**margin)), FLT_MAX)
            history = np.roll(history, -1)
            history[0] = 0
        scales.append(float(scale))
    return scales


def trajectories():
    out = []
    amaxes = ["3.5", "0.25", "inf", "0.125", "0", "7", "nan", "0.0625", "0.03125", "1e-42", "2", "1", "0.5", "0.25"]
    for history, margin, algorithm in ((1024, 0, "max"), (3, 0, "max"), (1, 0, "max"), (4, 1, "max"),
                                       (4, 0.5, "most_recent")):
        out.append({"recipe": {"history": history, "margin": margin, "amax": algorithm}, "amaxes": amaxes,
                    "scales": delayed(history, margin, algorithm == "most_recent", amaxes)})
    return out


def torchao_linear(name, rounded):
    """One forward and backward of torchao's Float8Linear in emulation, of 8 samples, 32 to 16."""
    from torchao.float8.config import Float8LinearConfig, Float8LinearRecipeName
    from torchao.float8.float8_linear import Float8Linear

    config = Float8LinearConfig.from_recipe_name(Float8LinearRecipeName(name))
    object.__setattr__(config, "emulate", True)
    object.__setattr__(config, "round_scales_to_power_of_2", rounded)
    linear = torch.nn.Linear(32, 16, bias=True)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(values(7, 16, 32)))
        linear.bias.copy_(torch.from_numpy(values(8, 16)))
    layer = Float8Linear.from_float(linear, config=config)
    x = torch.from_numpy(values(6, 8, 32)).requires_grad_()
    y = layer(x)
    y.backward(torch.from_numpy(values(9, 8, 16)))
    return {"y": exact(y.detach()), "dx": exact(x.grad), "dw": exact(layer.weight.grad),
            "db": exact(layer.bias.grad)}


def torchao_blocks():
    """Codes and scales of torchao's MX and NVFP4 tensors."""
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize

    out = {}
    x = torch.from_numpy(values(10, 4, 96))
    for rounding, mode in (("up", ScaleCalculationMode.RCEIL), ("floor", ScaleCalculationMode.FLOOR)):
        scale, codes = to_mx(x, torch.float8_e4m3fn, 32, mode)
        out["mx_" + rounding] = {"codes": hexed(codes.view(torch.uint8).numpy()),
                                 "scale_codes": hexed(scale.view(torch.uint8).numpy())}
    scale, packed = nvfp4_quantize(x, 16, x.abs().max() / (E4M3 * FP4))
    packed = packed.view(torch.uint8).numpy()
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(4, 96)
    out["nvfp4"] = {"codes": hexed(codes), "scale_codes": hexed(scale.view(torch.uint8).numpy())}
    return out


def main():
    data = {"made_with": f"torch {torch.__version__}, torchao 0.18.0",
            "quantizations": quantizations(),
            "trajectories": trajectories(),
            "torchao": {"tensorwise": torchao_linear("tensorwise", False),
                        "tensorwise_power_of_2": torchao_linear("tensorwise", True),
                        "rowwise": torchao_linear("rowwise", True),
                        "blocks": torchao_blocks()}}
    path = pathlib.Path(__file__).parent / "fp8.json"
    path.write_text(json.dumps(data, indent=None, separators=(",", ":")) + "\n")
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
