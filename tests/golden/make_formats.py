# Values and casts of small formats as ml_dtypes (the NumPy types of JAX) has them: an independent implementation.
# Needs: pip install ml_dtypes numpy. Writes formats.json beside this script.
import json
import pathlib

import ml_dtypes
import numpy as np

NAMES = {
    "fp6_e2m3": "float6_e2m3fn", "fp6_e3m2": "float6_e3m2fn", "fp4_e2m1": "float4_e2m1fn", "fp8_e4m3": "float8_e4m3",
    "fp8_e4m3fn": "float8_e4m3fn", "fp8_e4m3fnuz": "float8_e4m3fnuz", "fp8_e5m2": "float8_e5m2",
    "fp8_e5m2fnuz": "float8_e5m2fnuz", "bf16": "bfloat16",
}
random = np.random.default_rng(3)
out = {}
for name, theirs in NAMES.items():
    dtype = np.dtype(getattr(ml_dtypes, theirs))
    info = ml_dtypes.finfo(dtype)
    low, high = np.log2(float(info.smallest_subnormal)) - 3, np.log2(float(info.max))
    x = np.exp2(random.uniform(low, high, 300)).astype(np.float32) * random.choice([-1, 1], 300).astype(np.float32)
    x = np.unique(np.concatenate([x, np.float32([0, 1, 1.5, float(info.max), -float(info.max)])]))
    bits = x.astype(dtype).view(np.uint16 if dtype.itemsize == 2 else np.uint8)
    entry = {"input": x.view(np.uint32).tolist(), "code": bits.tolist()}
    if dtype.itemsize == 1:
        count = 2 ** int(info.bits)
        values = np.arange(count, dtype=np.uint8).view(dtype).astype(np.float64)
        entry["value"] = [repr(v) for v in values.tolist()]
    out[name] = entry
path = pathlib.Path(__file__).with_name("formats.json")
path.write_text(json.dumps({"ml_dtypes": ml_dtypes.__version__, "formats": out}, separators=(",", ":")) + "\n")
