"""Writes hqq.json: half-quadratic quantization for tests/quant/hqq_test.cpp.

    python tests/golden/make_hqq.py              by its definition, with plain loops in float64
    python tests/golden/make_hqq.py --package    beside the package hqq (made with 0.2.8.post1 and torch 2.13.0), too

Weights are those of tests/quant/golden_data.h: sums of four uniform numbers, every 11th times 6. "codes" are of [rows, columns], "scale" and
"minimum" of [rows, groups]. "error" is sum |w - q|^0.7; "package" is that error of the package's own
zero points, of the same range of codes.
"""

import json
import pathlib
import struct
import sys

P, BETA, KAPPA, ROUNDS = 0.7, 10.0, 1.01, 20
CASES = [(2, 16, True), (3, 8, True), (4, 16, True), (4, -1, True), (3, 20, True), (2, 12, True), (2, 16, False), (3, 8, False), (4, -1, False), (8, -1, False)]
ROWS, COLUMNS = 5, 48


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def uniform(seed, count):
    out = []
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((seed >> 40) / 2**24)
    return out


def weights():
    parts = [uniform(seed, ROWS * COLUMNS) for seed in (1, 2, 3, 4)]
    made = [f32(sum(p[i] - 0.5 for p in parts) * (6 if i % 11 == 0 else 1)) for i in range(ROWS * COLUMNS)]
    return [made[r * COLUMNS : (r + 1) * COLUMNS] for r in range(ROWS)]


def shrink(x, beta):
    if x == 0:
        return 0.0
    size = abs(x) - abs(x) ** (P - 1) / beta
    return (size if size > 0 else 0.0) * (1 if x > 0 else -1)


def solve(w, bits, affine):
    """One group: the best of all rounds."""
    low, high = (0, 2**bits - 1) if affine else ((-127, 127) if bits == 8 else (-7, 7) if bits == 4 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    if affine:
        scale, minimum = f32((max(w) - min(w)) / high), f32(-min(w))
    else:
        span = max(abs(v) for v in w)
        half = 127 if bits == 8 else 7 if bits == 4 else (high - low) / 2
        scale, minimum = f32(span / half), 0.0
    best, beta = None, BETA
    for step in range(ROUNDS + 1):
        codes = [min(max(round((v + minimum) / scale), low), high) for v in w]
        diff = [v - (scale * c - minimum) for v, c in zip(w, codes)]
        error = sum(abs(d) ** P for d in diff)
        if best is None or error < best[0]:
            best = (error, codes, scale, minimum)
        target = [v - shrink(d, beta) for v, d in zip(w, diff)]
        if affine:
            minimum = f32(sum(scale * c - t for c, t in zip(codes, target)) / len(w))
        else:
            squares = sum(c * c for c in codes)
            wanted = f32(sum(c * t for c, t in zip(codes, target)) / squares) if squares else 0
            scale = wanted if wanted > 0 else scale
        beta *= KAPPA
    return best


def package_error(w, bits, group):
    import torch
    from hqq.core.quantize import Quantizer

    codes, meta = Quantizer.quantize(
        torch.tensor(w), nbits=bits, group_size=group if group > 0 else COLUMNS, optimize=True, axis=1, device="cpu",
        compute_dtype=torch.float32, bitpack=False)
    back = Quantizer.dequantize(codes, meta)
    return (torch.tensor(w) - back).double().abs().pow(P).sum().item()


def main():
    w = weights()
    cases = []
    for bits, group, affine in CASES:
        size = COLUMNS if group < 0 else group
        case = {"bits": bits, "group": group, "affine": affine, "codes": [], "scale": [], "minimum": [], "error": 0.0}
        for row in w:
            codes = []
            for begin in range(0, COLUMNS, size):
                error, own, scale, minimum = solve(row[begin : begin + size], bits, affine)
                codes += own
                case["scale"].append(scale)
                case["minimum"].append(minimum)
                case["error"] += error
            case["codes"].append(codes)
        if affine and "--package" in sys.argv and COLUMNS % size == 0:
            case["package"] = package_error(w, bits, group)
        cases.append(case)
    path = pathlib.Path(__file__).parent / "hqq.json"
    path.write_text(json.dumps({"rows": ROWS, "columns": COLUMNS, "cases": cases}) + "\n")


main()
