"""Engines and contexts on NumPy arrays."""

from __future__ import annotations

import ctypes as c
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional, Sequence, TypedDict, Union, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _library as lib

if TYPE_CHECKING:
    from typing_extensions import Unpack

Array = NDArray[Any]

_OWN_THREADS = 1  # ULP_OWN_THREADS
_DTYPES = {
    "f32": np.float32,
    "bf16": np.uint16,
    "u8": np.uint8,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "i16": np.int16,
    "f64": np.float64,
}


class TensorInfo(NamedTuple):
    """An input or an output."""

    name: str
    type: str  #: the engine's word: "f32", "bf16", "u8", "i8", "i32", "i64"
    dtype: np.dtype[Any]  #: of its arrays; uint16 for bf16
    shape: tuple[Optional[int], ...]  #: None for the batch; free dimensions at their largest
    layout: str  #: "plain" or "nhwc", the channels of images innermost; the shape is in logical order in both
    scale: float  #: of u8: real = (code - zero_point) * scale
    zero_point: int
    times: int = 1  #: the size of the batch's dimension is so many times the batch
    outer: int = 1  #: of these so many stand before the batch: the dimension is [outer, batch, times // outer] in one


class DynamicDimension(NamedTuple):
    """A dimension beside the batch that follows the arrays of each run."""

    name: str
    min: int
    max: int
    multiple: int
    continued: bool  #: runs of a context continue each other along it


def _tensor_info(struct: lib.TensorInfoStruct) -> TensorInfo:
    word = lib.ask("ulp_dtype_name", c.c_char_p, struct.dtype).decode()
    shape = tuple(None if size == lib.BATCH else int(size) for size in struct.shape[: struct.rank])
    layout = "nhwc" if struct.layout == 1 else "plain"
    return TensorInfo(
        struct.name.decode(),
        word,
        np.dtype(_DTYPES[word]),
        shape,
        layout,
        struct.scale,
        struct.zero_point,
        max(struct.times, 1),  # 0: a library from before
        max(struct.outer, 1),
    )


def _describe(function: str, struct: type, handle: c.c_void_p, index: int) -> Any:
    made = struct()
    lib.call(function, handle, index, c.byref(made))
    return made


def _array(given: ArrayLike, info: TensorInfo) -> Array:
    """The input as the engine reads it: its own memory where that fits. Numbers are converted where none can change;
    Python's own floats may lose digits."""
    array = np.asarray(given)
    if info.type == "bf16" and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    casting = "safe" if isinstance(given, (np.ndarray, np.generic)) or hasattr(given, "__array__") else "same_kind"
    if not np.can_cast(array.dtype, info.dtype, casting) or (info.type == "bf16" and array.dtype != np.uint16):
        hint = "ulp_runtime.to_bfloat16(x)" if info.type == "bf16" else f"x.astype(numpy.{info.dtype.name})"
        raise lib.ArgumentError(
            f"expected {info.dtype.name} for input '{info.name}' ({info.type}), got {array.dtype}; {hint} converts it"
        )
    if array.dtype.kind in "iu" and info.dtype.kind in "iu" and array.size > 0:
        limits, least, most = np.iinfo(info.dtype), array.min(), array.max()
        if least < limits.min or most > limits.max:
            raise lib.ArgumentError(
                f"expected numbers from {limits.min} to {limits.max} for input '{info.name}' ({info.type}), "
                f"got some from {least} to {most}"
            )
    return np.require(array, info.dtype, ["C_CONTIGUOUS", "ALIGNED"])


def _pointers(arrays: Sequence[Array]) -> Any:
    return (lib.Buffer * len(arrays))(*[lib.Buffer(array.ctypes.data, array.nbytes) for array in arrays])


class Context:
    """Runs an engine with memory of its own, made by Engine.context(). Threads that share one take turns. In a child of
    fork() a context from before runs on the calling thread alone, unless another thread was using it then."""

    def __init__(self, engine: "Engine", threads: int, max_arena_bytes: int = 0, own_threads: bool = False) -> None:
        self._handle = c.c_void_p()
        options = lib.ContextOptions(
            threads=_number("threads", threads, 31),
            max_arena_bytes=_number("max_arena_bytes", max_arena_bytes, 64),
            flags=_OWN_THREADS if own_threads else 0,
        )
        with engine._lock:  # close() waits
            lib.call("ulp_context_create", engine._open(), c.byref(options), c.byref(self._handle))
        self._inputs, self._outputs = engine.inputs, engine.outputs
        self._lock = threading.Lock()
        self._lost = False
        self._process = os.getpid()
        _contexts.add(self)
        self._finalize = weakref.finalize(self, lib.library.ulp_context_destroy, self._handle)
        self._finalize.atexit = False  # daemon threads may still run it; the system takes the memory

    @overload
    def run(self, inputs: Mapping[str, ArrayLike], /) -> dict[str, Array]: ...
    @overload
    def run(self, *inputs: ArrayLike) -> Union[Array, tuple[Array, ...]]: ...
    def run(self, *inputs: Any) -> Any:
        """As Engine.run(), in this context."""
        by_name = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        arrays = self._by_name(inputs[0]) if by_name else self._by_place(inputs)
        with self._lock:
            outputs = self._run(arrays)
        if by_name:
            return {info.name: array for info, array in zip(self._outputs, outputs)}
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @property
    def position(self) -> int:
        """Rows that the runs so far have taken, of an engine whose runs continue each other; else 0."""
        return self._ask("ulp_context_position", c.c_int64)

    def rewind(self, position: int = 0) -> None:
        """Forgets the runs behind an earlier position."""
        with self._lock:
            lib.call("ulp_context_rewind", self._alive(), position)

    @property
    def arena_bytes(self) -> int:
        """Bytes held for intermediates and scratch."""
        return self._ask("ulp_context_arena_bytes", c.c_uint64)

    @property
    def threads(self) -> int:
        """The threads that a run uses."""
        return self._ask("ulp_context_threads", c.c_int32)

    def close(self) -> None:
        """Gives the memory back now."""
        with self._lock:
            self._finalize()

    def _ask(self, function: str, kind: Any) -> int:
        """A number of the context, when no run is going on."""
        with self._lock:
            return int(lib.ask(function, kind, self._alive()))

    def _alive(self) -> c.c_void_p:
        if not self._finalize.alive:
            raise lib.Error("expected an open context, got one that was closed")
        if self._lost:
            raise lib.Error("expected a context that was idle at fork(), got one that another thread was using: make one")
        return self._handle

    def _has_threads(self) -> bool:
        """False in a child of fork() of a context from before."""
        return os.getpid() == self._process

    def _after_fork(self) -> None:
        """In the child: the thread that held the lock is not there, and left the context in the middle of a call."""
        self._lost = self._lost or self._lock.locked()
        self._lock = threading.Lock()

    def _by_place(self, given: Sequence[Any]) -> list[Array]:
        if len(given) != len(self._inputs):
            names = ", ".join(info.name for info in self._inputs)
            raise lib.ArgumentError(f"expected {len(self._inputs)} inputs ({names}), got {len(given)}")
        return [_array(array, info) for array, info in zip(given, self._inputs)]

    def _by_name(self, given: Mapping[str, Any]) -> list[Array]:
        wanted = {info.name for info in self._inputs}
        if set(given) != wanted:
            raise lib.ArgumentError(f"expected the inputs {sorted(wanted)}, got {sorted(map(str, given))}")
        return [_array(given[info.name], info) for info in self._inputs]

    def _run(self, arrays: list[Array]) -> list[Array]:
        handle = self._alive()
        shapes = (lib.Shape * len(arrays))(
            *[lib.Shape((c.c_int64 * array.ndim)(*array.shape), array.ndim) for array in arrays]
        )
        batch = lib.ask("ulp_context_set_input_shapes", c.c_int64, handle, shapes, len(arrays))
        outputs = []
        for index, info in enumerate(self._outputs):
            struct = _describe("ulp_context_output", lib.TensorInfoStruct, handle, index)
            rows = batch * max(struct.times, 1)
            shape = [rows if size == lib.BATCH else size for size in struct.shape[: struct.rank]]
            outputs.append(np.empty(shape, info.dtype))
        lib.call(
            "ulp_context_run", handle, batch, _pointers(arrays), len(arrays), _pointers(outputs), len(outputs)
        )
        return outputs


class _Options(TypedDict, total=False):
    """What Engine and Engine.from_bytes take by keyword."""

    isa: Optional[str]
    max_constant_bytes: int
    max_arena_bytes: int
    sparse_weights: str
    sparse_table: Union[str, "os.PathLike[str]", None]
    blocks: str
    error_budget: float
    max_measuring_ms: Optional[int]


class Engine:
    """A loaded engine file. Any number of threads may use it: each run has a context of its own, and releases the GIL.

    threads: of each run; 0: one for each core. isa: a name of isas(); None: ULP_ISA, or the best one.
    sparse_weights, blocks: "measure", "never" or "always"; sparse_table: a file of what was measured. error_budget: above 0,
    layers in float32 run in bf16 where that is faster and their error is no larger, relative to the result. max_measuring_ms:
    after which no layer is timed any more; None: 5,000.
    Raises FileError for a file that is not right, ArgumentError for an option that is not.
    """

    def __init__(
        self, path: Union[str, "os.PathLike[str]"], *, threads: int = 0, **options: Unpack[_Options]
    ) -> None:
        made = _engine_options(**options)
        self._load("ulp_engine_load", threads, _path(path), c.byref(made))

    @classmethod
    def from_bytes(
        cls, data: Union[bytes, bytearray, memoryview], *, threads: int = 0, **options: Unpack[_Options]
    ) -> "Engine":
        """An engine of a file's bytes, with the same options. They are not needed afterwards."""
        engine = cls.__new__(cls)
        made = _engine_options(**options)
        content = bytes(data)
        engine._load("ulp_engine_load_memory", threads, content, len(content), c.byref(made))
        return engine

    @overload
    def run(self, inputs: Mapping[str, ArrayLike], /) -> dict[str, Array]: ...
    @overload
    def run(self, *inputs: ArrayLike) -> Union[Array, tuple[Array, ...]]: ...
    def run(self, *inputs: Any) -> Any:
        """Computes the outputs. Inputs stand in the engine's order, and give an array, or a tuple where there are several
        outputs; or they are a dict by name, and so are the outputs then. Batch and free dimensions follow the arrays.
        Runs do not continue each other: a context's do."""
        with self._lock:
            self._open()
            context = self._idle.pop() if self._idle else None
        if context is None or not context._has_threads():
            context = self.context()
        try:
            if self._continues:
                context.rewind()
            return context.run(*inputs)
        finally:
            with self._lock:
                if self._finalize.alive:
                    self._idle.append(context)

    def context(
        self, threads: Optional[int] = None, max_arena_bytes: int = 0, *, own_threads: bool = False
    ) -> Context:
        """A context for one caller; threads as the engine's where they are not given. own_threads: it shares none with
        other contexts of the process."""
        return Context(self, self._threads if threads is None else threads, max_arena_bytes, own_threads)

    @property
    def isa(self) -> str:
        """The instruction set of the kernels."""
        with self._lock:
            return str(lib.ask("ulp_engine_isa", c.c_char_p, self._open()).decode())

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants."""
        with self._lock:
            return int(lib.ask("ulp_engine_constant_bytes", c.c_uint64, self._open()))

    def close(self) -> None:
        """Gives the memory back now; contexts that are in use keep theirs."""
        with self._lock:
            self._idle.clear()
            self._finalize()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(info.name for info in tensors) for tensors in (self.inputs, self.outputs))
        return f"<ulp_runtime.Engine ({inputs}) -> ({outputs})>"

    def _load(self, function: str, threads: int, *arguments: Any) -> None:
        handle = c.c_void_p()
        lib.call(function, *arguments, c.byref(handle))
        self._handle = handle
        self._finalize = weakref.finalize(self, lib.library.ulp_engine_destroy, handle)
        self._finalize.atexit = False  # as that of a context
        self._threads = _number("threads", threads, 31)
        self._lock = threading.Lock()
        _engines.add(self)
        self._idle: list[Context] = []
        self.inputs: tuple[TensorInfo, ...] = self._tensors("input")  #: in the order of run()
        self.outputs: tuple[TensorInfo, ...] = self._tensors("output")
        self.free_dimensions: tuple[DynamicDimension, ...] = self._free()
        self._continues = any(free.continued for free in self.free_dimensions)

    def _open(self) -> c.c_void_p:
        if not self._finalize.alive:
            raise lib.Error("expected an open engine, got one that was closed")
        return self._handle

    def _tensors(self, kind: str) -> tuple[TensorInfo, ...]:
        count = lib.ask(f"ulp_engine_{kind}_count", c.c_size_t, self._handle)
        function = f"ulp_engine_{kind}"
        return tuple(_tensor_info(_describe(function, lib.TensorInfoStruct, self._handle, i)) for i in range(count))

    def _free(self) -> tuple[DynamicDimension, ...]:
        found = []
        for i in range(lib.ask("ulp_engine_free_dimension_count", c.c_size_t, self._handle)):
            free = _describe("ulp_engine_free_dimension", lib.FreeDimensionStruct, self._handle, i)
            found.append(DynamicDimension(free.name.decode(), free.min, free.max, free.multiple, bool(free.continued)))
        return tuple(found)


_contexts: "weakref.WeakSet[Context]" = weakref.WeakSet()
_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _after_fork() -> None:
    """A child has the locks as they were, and of the threads only the one that called fork()."""
    for engine in list(_engines):
        engine._lock = threading.Lock()
    for context in list(_contexts):
        context._after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _number(name: str, value: int, bits: int) -> int:
    if not 0 <= value < 2**bits:
        raise lib.ArgumentError(f"expected {name} from 0 to {2**bits - 1}, got {value}")
    return value


def _path(path: Union[str, "os.PathLike[str]"]) -> bytes:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise lib.ArgumentError(f"expected a path, got {path!r}")
    return encoded


def _engine_options(
    isa: Optional[str] = None,
    max_constant_bytes: int = 0,
    max_arena_bytes: int = 0,
    sparse_weights: str = "measure",
    sparse_table: Union[str, "os.PathLike[str]", None] = None,
    blocks: str = "measure",
    error_budget: float = 0.0,
    max_measuring_ms: Optional[int] = None,
) -> lib.EngineOptions:
    for name, word in (("sparse_weights", sparse_weights), ("blocks", blocks)):
        if word not in lib.WAYS:
            raise lib.ArgumentError(f"expected {name} to be one of {lib.WAYS}, got {word!r}")
    time = 0 if max_measuring_ms is None else _number("max_measuring_ms", max_measuring_ms, 31)
    return lib.EngineOptions(
        isa=None if isa is None else isa.encode(),
        max_constant_bytes=_number("max_constant_bytes", max_constant_bytes, 64),
        max_arena_bytes=_number("max_arena_bytes", max_arena_bytes, 64),
        sparse_table=None if sparse_table is None else _path(sparse_table),
        sparse_weights=lib.WAYS.index(sparse_weights),
        blocks=lib.WAYS.index(blocks),
        error_budget=error_budget,
        max_measuring_ms=lib.NO_TIME if max_measuring_ms == 0 else time,
    )
