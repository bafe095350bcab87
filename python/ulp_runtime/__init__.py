"""Runs ulp's engine files: ulp_runtime.Engine("model.ulp").run(x)."""

from ._bfloat16 import from_bfloat16, to_bfloat16
from ._engine import Context, Engine, DynamicDimension, TensorInfo
from ._library import ArgumentError, Error, FileError, isas, version

__version__ = version()
__all__ = [
    "ArgumentError",
    "Context",
    "Engine",
    "Error",
    "FileError",
    "DynamicDimension",
    "TensorInfo",
    "from_bfloat16",
    "isas",
    "to_bfloat16",
    "version",
]
