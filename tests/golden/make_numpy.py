"""Writes arrays.npz, stored.npz and fortran.npy with NumPy, and nothing but NumPy: what io.load_npz must read."""
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent / "numpy"


def main():
    FOLDER.mkdir(exist_ok=True)
    counting = np.arange(24)
    arrays = {name: counting.reshape(2, 3, 4).astype(name) for name in ("u1", "i1", "i2", "i4", "i8")}
    arrays |= {name: (counting.reshape(4, 6) / 8 - 1).astype(name) for name in ("f2", "f4", "f8")}
    arrays["b1"] = counting % 3 == 0
    arrays["scalar"] = np.float32(2.5)
    arrays["empty"] = np.zeros((0, 3), np.float32)
    arrays["one"] = np.array([7], np.int64)
    arrays["fortran"] = np.asfortranarray(counting.reshape(2, 3, 4).astype("f4"))
    np.savez_compressed(FOLDER / "arrays.npz", **arrays)
    np.savez(FOLDER / "stored.npz", x_train=arrays["u1"], y_train=arrays["i8"])
    np.save(FOLDER / "fortran.npy", arrays["fortran"])


if __name__ == "__main__":
    main()
