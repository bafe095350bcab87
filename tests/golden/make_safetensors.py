"""Writes reference.safetensors with the reference implementation (pip install safetensors==0.5.3 numpy).

The values are chosen so that the test can state them without reading anything else.
"""
import pathlib

import numpy
from safetensors.numpy import save_file

tensors = {
    "weight": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
    "steps": numpy.array([1, -2], dtype=numpy.int64),
    "half": numpy.array([0.5], dtype=numpy.float16),
    "scalar": numpy.array(7, dtype=numpy.uint8),
    "none": numpy.zeros((0, 3), dtype=numpy.float64),
}
save_file(tensors, pathlib.Path(__file__).with_name("reference.safetensors"), metadata={"made_by": "reference"})
