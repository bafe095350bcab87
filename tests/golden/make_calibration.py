"""Writes calibration.json: the bounds that plain numpy code finds by percentile, entropy and mean squared error on the
data of make_observers.py. Each search is written out from its definition, one candidate at a time.

    python tests/golden/make_calibration.py > tests/golden/calibration.json
"""
import json

import numpy as np

from make_observers import make

SIDE = 4096  # bins on each side of zero

# Batches of (distribution, seed, count, factor), as in make_observers.py.
CASES = {
    "normal": [("normal", 11, 4000, 1.0), ("normal", 21, 4000, 2.0)],
    "heavy": [("heavy", 51, 8000, 1.0)],
    "cauchy": [("cauchy", 131, 8000, 1.0)],
    "one_sided": [("one_sided", 71, 8000, 1.0), ("normal", 31, 2000, 0.0)],
    "negative": [("negative", 81, 2000, 1.0), ("negative", 82, 2000, 3.0)],
    "huge": [("huge", 91, 4000, 1.0)],
    "tiny": [("tiny", 101, 4000, 1.0)],
    "constant": [("constant", 0, 64, 1.0)],
    "zero": [("zero", 0, 64, 1.0)],
    "spike": [("spike", 0, 1000, 1.0)],
    "single_value": [("uniform", 122, 1, 1.0)],
}
# name: bits, signed, symmetric, restricted
SCHEMES = {"u8_affine": (8, False, False, False), "s8_symmetric": (8, True, True, False),
           "s8_restricted": (8, True, True, True), "s4_affine": (4, True, False, False),
           "s4_restricted": (4, True, True, True)}
PERCENTILES = (99.99, 99.0, 80.0)


def codes_of(scheme):
    bits, signed, _, restricted = SCHEMES[scheme]
    low = -(1 << (bits - 1)) + restricted if signed else 0
    return low, (1 << (bits - 1 if signed else bits)) - 1


def histogram(x):
    """Counts over [-2^e, 2^e), the smallest such range, and the bins' width."""
    largest = float(np.abs(x).max())
    exponent = int(np.frexp(largest)[1]) if largest > 0 else -148
    width = 2.0**exponent / SIDE
    bins = np.floor(x.astype(np.float64) / width).astype(np.int64)
    return np.bincount(bins + SIDE, minlength=2 * SIDE), width


def quantile(counts, edges, width, q):
    rank, below = q * counts.sum(), 0
    for edge, count in zip(edges, counts):
        if count and below + count >= rank:
            return edge + (rank - below) / count * width
        below += count
    raise AssertionError


def percentile(x, counts, width, percent, symmetric):
    if symmetric:
        magnitudes = counts[SIDE:] + counts[:SIDE][::-1]
        bound = min(quantile(magnitudes, np.arange(SIDE) * width, width, percent / 100), float(np.abs(x).max()))
        return -bound, bound
    edges = np.arange(-SIDE, SIDE) * width
    return [float(np.clip(quantile(counts, edges, width, q), x.min(), x.max())) for q in ((100 - percent) / 200, (100 + percent) / 200)]


def divergence(counts, begin, end, codes):
    """KL(P || Q) of the window [begin, end): P with the outliers in its outermost bins, Q after quantization."""
    inside = counts[begin:end].astype(np.float64)
    p = inside.copy()
    p[0] += counts[:begin].sum()
    p[-1] += counts[end:].sum()
    code = np.arange(end - begin) * codes // (end - begin)
    q = np.zeros_like(p)
    for c in range(codes):
        mine = (code == c) & (inside > 0)
        if mine.any():
            q[mine] = inside[mine].sum() / mine.sum()
    if ((p > 0) & (q == 0)).any():
        return np.inf
    used = p > 0
    p, q = p / p.sum(), q / q.sum()
    return float((p[used] * np.log(p[used] / q[used])).sum())


def entropy(x, counts, width, scheme):
    """The bounds, and the divergence of the best and of the second best threshold."""
    symmetric = SCHEMES[scheme][2]
    low, high = codes_of(scheme)
    codes = high - low + 1
    occupied = np.nonzero(counts)[0] - SIDE
    counts = counts.copy()
    counts[SIDE] = min(counts[SIDE], max(counts[SIDE - 1], counts[SIDE + 1]))  # the peak of zeros is always exact
    first, end = min(occupied[0], 0), max(occupied[-1] + 1, 0)
    widest = max(-first, end)
    best, least, second = widest, np.inf, np.inf
    for t in range(widest, 0, -1):
        begin, stop = (-t, t) if symmetric else (max(-t, first), min(t, end))
        kept = counts[begin + SIDE:stop + SIDE].sum()
        if stop - begin < codes or kept == 0 or kept < 0.9 * counts.sum():
            break
        found = divergence(counts, begin + SIDE, stop + SIDE, codes)
        if found < least:
            best, least, second = t, found, least
        else:
            second = min(second, found)
    largest = float(np.abs(x).max())
    bound = largest if best == widest else best * width
    if symmetric:
        return -bound, bound, least, second
    return max(float(x.min()), -bound), min(float(x.max()), bound), least, second


def quantized(values, low, high, scheme):
    qmin, qmax = codes_of(scheme)
    low, high = np.float32(min(low, 0)), np.float32(max(high, 0))
    if SCHEMES[scheme][2]:
        scale, zero = max(max(-low, high) / np.float32((qmax - qmin) / 2), np.float32(2.0**-23)), 0
    else:
        scale = max((high - low) / np.float32(qmax - qmin), np.float32(2.0**-23))
        zero = int(np.clip(qmin - np.rint(low / scale), qmin, qmax))
    scale = float(scale)
    return (np.clip(np.rint(values / scale) + zero, qmin, qmax) - zero) * scale


def mse(x, counts, width, scheme):
    index = np.nonzero(counts)[0]
    values = np.clip((index - SIDE + 0.5) * width, x.min(), x.max())
    weights = counts[index].astype(np.float64)

    def error(low, high):
        return float((weights * (values - quantized(values, low, high, scheme)) ** 2).sum())

    full = [min(float(x.min()), 0.0), max(float(x.max()), 0.0)]
    if SCHEMES[scheme][2]:
        bound = float(np.abs(x).max())
        full = [-bound, bound]
    best = [error(*full), *full]

    def consider(low, high):
        low, high = float(np.float32(low)), float(np.float32(high))
        found = error(low, high)
        if found < best[0]:
            best[:] = found, low, high

    def coarse(sides):
        base = best[1:]
        for i in range(97):
            f = 2.0 ** (-i / 8)
            consider(full[0] * f if "low" in sides else base[0], full[1] * f if "high" in sides else base[1])

    def fine(sides):
        base = best[1:]
        for k in range(8, -9, -1):
            f = 2.0 ** (k / 64)
            consider(max(base[0] * f, full[0]) if "low" in sides else base[0],
                     min(base[1] * f, full[1]) if "high" in sides else base[1])

    two_sided = not SCHEMES[scheme][2] and full[0] < 0 < full[1]
    for step in (coarse, fine):
        step("low high")
        if two_sided:
            step("high")
            step("low")
    return best[1], best[2], best[0] / weights.sum()


def main():
    out = {"cases": {}}
    for name, batches in CASES.items():
        x = np.concatenate([make(kind, seed, count) * np.float32(factor) for kind, seed, count, factor in batches])
        counts, width = histogram(x)
        results = {}
        for scheme, (_, _, symmetric, _) in SCHEMES.items():
            low, high, best_error = mse(x, counts, width, scheme)
            results[f"mse {scheme}"] = {"min": low, "max": high, "mse": best_error}
            low, high, least, second = entropy(x, counts, width, scheme)
            assert not np.isfinite(second) or second - least > 1e-12 * (1 + least), f"a tie in {name} {scheme}"
            results[f"entropy {scheme}"] = {"min": low, "max": high}
        for percent in PERCENTILES:
            for scheme in ("u8_affine", "s8_symmetric"):
                low, high = percentile(x, counts, width, percent, SCHEMES[scheme][2])
                results[f"percentile {scheme} {percent}"] = {"min": low, "max": high}
        for q in (0.005, 0.1, 0.9, 0.995):
            results[f"exact {q}"] = float(np.quantile(x, q, method="inverted_cdf"))
        out["cases"][name] = {"batches": batches, "width": width, "results": results}
    print(json.dumps(out, separators=(",", ":")).replace("},", "},\n"))


if __name__ == "__main__":
    main()
