"""bfloat16, which NumPy does not have: the upper half of a float32, in arrays of uint16."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def to_bfloat16(values: ArrayLike) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each number, ties to even. NaN stays NaN."""
    floats = np.atleast_1d(np.asarray(values, np.float32))
    bits = floats.view(np.uint32).astype(np.uint64)
    upper = bits >> np.uint64(16)
    rounded = (bits + np.uint64(0x7FFF) + (upper & np.uint64(1))) >> np.uint64(16)
    quiet = upper | np.uint64(0x40)
    return np.where(np.isnan(floats), quiet, rounded).astype(np.uint16).reshape(np.shape(values))


def from_bfloat16(bits: ArrayLike) -> NDArray[np.float32]:
    """The same numbers as float32."""
    wide = np.atleast_1d(np.asarray(bits, np.uint16)).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(np.shape(bits))
