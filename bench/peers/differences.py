"""How far arrays are apart, for the scripts that judge results."""

import numpy as np


def differences(ours, right):
    """Of two arrays of the same sizes: by how much the elements of each pair are apart, the largest finite number of `right` (0 where it
    has none), and whether NaN and infinities are in the same places with the same signs. A pair of NaN is 0 apart, and so is one of
    infinities of the same sign; a pair of anything else that is not finite is infinitely far apart."""
    a, b = np.asarray(ours).astype(np.float64), np.asarray(right).astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    apart = np.where(same, 0, np.where(finite, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)), np.inf))
    largest = np.abs(b[np.isfinite(b)]).max(initial=0)
    return apart, largest, bool((same | finite).all())


def largest_share(ours, right):
    """The largest difference as a share of the largest number of `right`; NaN where either has one, or where `right` is all 0 and so is `ours`."""
    a, b = np.asarray(ours).astype(np.float64), np.asarray(right).astype(np.float64)
    return np.abs(a - b).max() / np.abs(b).max()
