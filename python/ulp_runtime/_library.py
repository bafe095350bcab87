"""libulp_runtime by ctypes: the functions and structs of ulp/ulp_runtime.h that this package uses, and its errors."""

from __future__ import annotations

import ctypes as c
import os
from pathlib import Path
from typing import Any


class Error(Exception):
    """What the library refused to do."""


class ArgumentError(Error, ValueError):
    """An array, a name or a number that does not fit the engine."""


class FileError(Error):
    """An engine file that is missing, damaged, of another kind or of a newer version."""


MAX_RANK = 8
BATCH = -1
WAYS = ("measure", "never", "always")  # of sparse weights, and of blocks
NO_TIME = -1


class Sized(c.Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=c.sizeof(self), **fields)


class EngineOptions(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("isa", c.c_char_p),
        ("max_constant_bytes", c.c_uint64),
        ("max_arena_bytes", c.c_uint64),
        ("sparse_table", c.c_char_p),
        ("sparse_weights", c.c_int32),
        ("reserved", c.c_int32),
        ("error_budget", c.c_double),
        ("blocks", c.c_int32),
        ("max_measuring_ms", c.c_int32),
    ]


class ContextOptions(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("threads", c.c_int32),
        ("reserved", c.c_int32),
        ("max_arena_bytes", c.c_uint64),
        ("flags", c.c_uint64),
    ]


class TensorInfoStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("dtype", c.c_int32),
        ("layout", c.c_int32),
        ("rank", c.c_int32),
        ("zero_point", c.c_int32),
        ("scale", c.c_double),
        ("shape", c.c_int64 * MAX_RANK),
        ("times", c.c_int64),
        ("outer", c.c_int64),
    ]


class FreeDimensionStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("min", c.c_int64),
        ("max", c.c_int64),
        ("multiple", c.c_int64),
        ("continued", c.c_int32),
        ("reserved", c.c_int32),
    ]


class Buffer(c.Structure):
    """ulp_buffer and ulp_const_buffer."""

    _fields_ = [("data", c.c_void_p), ("bytes", c.c_size_t)]


class Shape(c.Structure):
    _fields_ = [("sizes", c.POINTER(c.c_int64)), ("rank", c.c_size_t)]


_HANDLE = c.c_void_p
_COUNT = c.POINTER(c.c_size_t)
_TEXT = c.POINTER(c.c_char_p)
_INFO = c.POINTER(TensorInfoStruct)
_SIZE = c.POINTER(c.c_int64)

# Functions that give a status, with the types of what they take.
_FUNCTIONS: dict[str, list[Any]] = {
    "ulp_dtype_name": [c.c_int32, _TEXT],
    "ulp_isa_count": [_COUNT],
    "ulp_isa_name": [c.c_size_t, _TEXT],
    "ulp_engine_load": [c.c_char_p, c.POINTER(EngineOptions), c.POINTER(_HANDLE)],
    "ulp_engine_load_memory": [c.c_void_p, c.c_size_t, c.POINTER(EngineOptions), c.POINTER(_HANDLE)],
    "ulp_engine_input_count": [_HANDLE, _COUNT],
    "ulp_engine_output_count": [_HANDLE, _COUNT],
    "ulp_engine_input": [_HANDLE, c.c_size_t, _INFO],
    "ulp_engine_output": [_HANDLE, c.c_size_t, _INFO],
    "ulp_engine_free_dimension_count": [_HANDLE, _COUNT],
    "ulp_engine_free_dimension": [_HANDLE, c.c_size_t, c.POINTER(FreeDimensionStruct)],
    "ulp_engine_isa": [_HANDLE, _TEXT],
    "ulp_engine_constant_bytes": [_HANDLE, c.POINTER(c.c_uint64)],
    "ulp_context_create": [_HANDLE, c.POINTER(ContextOptions), c.POINTER(_HANDLE)],
    "ulp_context_set_input_shapes": [_HANDLE, c.POINTER(Shape), c.c_size_t, _SIZE],
    "ulp_context_output": [_HANDLE, c.c_size_t, _INFO],
    "ulp_context_run": [_HANDLE, c.c_int64, c.POINTER(Buffer), c.c_size_t, c.POINTER(Buffer), c.c_size_t],
    "ulp_context_position": [_HANDLE, _SIZE],
    "ulp_context_rewind": [_HANDLE, c.c_int64],
    "ulp_context_arena_bytes": [_HANDLE, c.POINTER(c.c_uint64)],
    "ulp_context_threads": [_HANDLE, c.POINTER(c.c_int32)],
}


def _load() -> c.CDLL:
    """The library of this package, or that which ULP_RUNTIME_LIBRARY names. Its calls release the GIL."""
    path = os.environ.get("ULP_RUNTIME_LIBRARY") or str(Path(__file__).with_name("libulp_runtime.so"))
    try:
        library = c.CDLL(path)
    except OSError as error:
        raise ImportError(f"could not load libulp_runtime: {error}") from error
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = c.c_int
    for name in ("ulp_version", "ulp_last_error"):
        getattr(library, name).argtypes = []
        getattr(library, name).restype = c.c_char_p
    for name in ("ulp_engine_destroy", "ulp_context_destroy"):
        getattr(library, name).argtypes = [_HANDLE]
        getattr(library, name).restype = None
    return library


library = _load()
_EXCEPTIONS: dict[int, type[BaseException]] = {1: ArgumentError, 2: FileError, 4: MemoryError}


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the table; raises what its status says."""
    status = getattr(library, name)(*arguments)
    if status != 0:
        raise _EXCEPTIONS.get(status, Error)(library.ulp_last_error().decode("utf-8", "replace"))


def ask(name: str, kind: Any, *arguments: Any) -> Any:
    """The value that a function writes to its last argument."""
    result = kind()
    call(name, *arguments, c.byref(result))
    return result.value


def version() -> str:
    """The version of the library."""
    return library.ulp_version().decode()


def isas() -> list[str]:
    """The instruction sets of the kernels that this machine can run, the best one first."""
    return [ask("ulp_isa_name", c.c_char_p, i).decode() for i in range(ask("ulp_isa_count", c.c_size_t))]
