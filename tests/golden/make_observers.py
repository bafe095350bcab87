"""Writes observers.json: what PyTorch's observers answer for data that the test can make again bit for bit.

    python tests/golden/make_observers.py > tests/golden/observers.json

PyTorch's histogram search overflows from values of 1e15 on and gives up one side of the range. The answers for such data
are those for the same data times 2^-80, times 2^80.
"""
import json
import warnings

import numpy as np
import torch
from torch.ao.quantization import (HistogramObserver, MinMaxObserver, MovingAverageMinMaxObserver,
                                   MovingAveragePerChannelMinMaxObserver, PerChannelMinMaxObserver)

warnings.filterwarnings("ignore")
CHANNELS = 4
UNIT = 2.0**80  # of "huge" data in a histogram


def uniform(seed, count):
    """The high 24 bits of a 64-bit linear congruential generator, as floats in [0, 1)."""
    state, out = seed, np.empty(count, np.float32)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out[i] = np.float32(state >> 40) * np.float32(2.0**-24)
    return out


def make(kind, seed, count):
    u = uniform(seed, count)
    one, two = np.float32(1), np.float32(2)
    if kind == "uniform":
        return u
    if kind == "normal":  # sum of four
        total = u - np.float32(0.5)
        for k in range(1, 4):
            total = total + (uniform(seed + k, count) - np.float32(0.5))
        return total
    if kind == "heavy":
        v = two * u - one
        return v * v * v * v * v * v * v * np.float32(10)
    if kind == "cauchy":  # tails so heavy that the largest value is hundreds of times the usual one
        v = two * u - one
        return v / (one - np.abs(v) + np.float32(2.0**-10))
    if kind == "spike":  # one value among zeros
        out = np.zeros(count, np.float32)
        out[count // 3] = np.float32(5)
        return out
    if kind == "one_sided":
        return np.maximum(two * u - one, np.float32(0)) * np.float32(3)
    if kind == "negative":
        return -(u * u) - one
    if kind == "huge":
        return (two * u - one) * np.float32(1e30)
    if kind == "tiny":
        return (two * u - one) * np.float32(1e-12)
    if kind == "constant":
        return np.full(count, 0.75, np.float32)
    if kind == "zero":
        return np.zeros(count, np.float32)
    raise ValueError(kind)


# A case: batches of (distribution, seed, count, factor); counts are multiples of CHANNELS.
CASES = {
    "uniform": [("uniform", 1, 2000, 1.0)],
    "normal": [("normal", 11, 3000, 1.0)],
    "normal_three_batches": [("normal", 21, 1000, 1.0), ("normal", 31, 1000, 2.0), ("normal", 41, 1000, 0.5)],
    "heavy": [("heavy", 51, 4000, 1.0)],
    "heavy_growing": [("heavy", 61, 1000, 1.0), ("heavy", 62, 1000, 3.0), ("heavy", 63, 1000, 4.0)],
    "cauchy": [("cauchy", 131, 4000, 1.0), ("cauchy", 132, 2000, 1.0)],
    "spike": [("spike", 0, 1000, 1.0)],
    "one_sided": [("one_sided", 71, 4000, 1.0), ("one_sided", 72, 2000, 1.5)],
    "negative": [("negative", 81, 1000, 1.0)],
    "huge": [("huge", 91, 1000, 1.0)],
    "tiny": [("tiny", 101, 1000, 1.0)],
    "constant": [("constant", 0, 64, 1.0)],
    "zero": [("zero", 0, 64, 1.0)],
    "constant_then_normal": [("constant", 0, 64, 1.0), ("normal", 111, 1000, 1.0)],
    "single_value": [("uniform", 121, 4, 0.0), ("uniform", 122, 4, 1.0)],
    "huge_growing": [("huge", 141, 1000, 1.0), ("huge", 142, 1000, 50.0)],
    "tiny_growing": [("tiny", 151, 1000, 1.0), ("tiny", 152, 1000, 1e4)],
    "normal_shrinking": [("normal", 161, 2000, 8.0), ("normal", 162, 2000, 1.0), ("normal", 163, 2000, 0.125)],
}
OBSERVERS = {
    "min_max_u8_affine": lambda: MinMaxObserver(dtype=torch.quint8, qscheme=torch.per_tensor_affine),
    "min_max_s8_symmetric": lambda: MinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric),
    "min_max_s8_restricted": lambda: MinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric,
                                                    quant_min=-127, quant_max=127),
    "min_max_u8_symmetric": lambda: MinMaxObserver(dtype=torch.quint8, qscheme=torch.per_tensor_symmetric),
    "min_max_u4_affine": lambda: MinMaxObserver(dtype=torch.quint8, quant_min=0, quant_max=15),
    "moving_u8_affine": lambda: MovingAverageMinMaxObserver(dtype=torch.quint8),
    "moving_s8_symmetric": lambda: MovingAverageMinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric),
    "moving_s8_restricted": lambda: MovingAverageMinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric,
                                                                quant_min=-127, quant_max=127),
    "channel_s8_restricted": lambda: PerChannelMinMaxObserver(dtype=torch.qint8, qscheme=torch.per_channel_symmetric,
                                                              quant_min=-127, quant_max=127),
    "channel_moving_s8_symmetric": lambda: MovingAveragePerChannelMinMaxObserver(
        dtype=torch.qint8, qscheme=torch.per_channel_symmetric),
    "channel_moving_u8_affine": lambda: MovingAveragePerChannelMinMaxObserver(
        dtype=torch.quint8, qscheme=torch.per_channel_affine),
    "channel_s8_symmetric": lambda: PerChannelMinMaxObserver(dtype=torch.qint8, qscheme=torch.per_channel_symmetric),
    "channel_u8_affine": lambda: PerChannelMinMaxObserver(dtype=torch.quint8, qscheme=torch.per_channel_affine),
    "histogram_u8_affine": lambda: HistogramObserver(dtype=torch.quint8),
    "histogram_s8_restricted": lambda: HistogramObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric,
                                                         quant_min=-127, quant_max=127),
    "histogram_s8_symmetric": lambda: HistogramObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric),
}


def main():
    out = {"torch": torch.__version__, "channels": CHANNELS, "cases": {}}
    for name, batches in CASES.items():
        results = {}
        for kind, factory in OBSERVERS.items():
            observer = factory()
            unit = UNIT if kind.startswith("histogram") and name.startswith("huge") else 1.0
            for distribution, seed, count, factor in batches:
                values = make(distribution, seed, count) * np.float32(factor)
                observer(torch.from_numpy(values).reshape(CHANNELS, -1) / unit)
            scale, zero_point = observer.calculate_qparams()
            results[kind] = {"scale": [float(s) * unit for s in scale], "zero_point": [int(z) for z in zero_point]}
            if kind.startswith("histogram"):
                bins = observer.histogram.to(torch.float64)
                results[kind]["moment"] = float((bins * torch.arange(len(bins), dtype=torch.float64)).sum())
        out["cases"][name] = {"batches": batches, "results": results}
    text = json.dumps(out, separators=(",", ":"))
    print(text.replace('},"', '},\n"'))


if __name__ == "__main__":
    main()
