"""Small engine files, written by hand: a safetensors container with the plan as JSON in its metadata."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

_STORED = {"float32": "F32", "uint16": "BF16", "int64": "I64", "uint8": "U8"}


def tensor(name: str, *shape: Any, type: str = "f32", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "shape": list(shape), **more}


def step(op: str, inputs: list[int], output: int, **more: Any) -> dict[str, Any]:
    return {"op": op, "name": f"{op}{output}", "inputs": inputs, "output": output, **more}


def engine_file(
    tensors: list[Any], steps: list[Any], inputs: list[int], outputs: list[int], constants: dict[str, Any] = {}, **more: Any
) -> bytes:
    plan = {"tensors": tensors, "steps": steps, "inputs": inputs, "outputs": outputs, **more}
    version = "2" if "free" in plan else "1"
    header: dict[str, Any] = {"__metadata__": {"ulp.format": "engine", "ulp.version": version, "ulp.plan": json.dumps(plan)}}
    body = b""
    for name, array in constants.items():
        content = array.tobytes()
        header[name] = {
            "dtype": _STORED[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(content)],
        }
        body += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def linear(weight: np.ndarray, bias: np.ndarray) -> bytes:
    """y = x weight^T + bias, for any batch."""
    return engine_file(
        [tensor("x", "batch", weight.shape[1]), tensor("y", "batch", weight.shape[0])],
        [step("linear", [0], 1, constants={"weight": "w", "bias": "b"})],
        [0],
        [1],
        {"w": weight, "b": bias},
    )


def sum_and_relu() -> bytes:
    """(a + b, relu(a + b)) of two inputs."""
    return engine_file(
        [tensor(name, "batch", 3) for name in ("a", "b", "sum", "positive")],
        [step("add", [0, 1], 2), step("relu", [2], 3, activation="relu")],
        [0, 1],
        [2, 3],
    )


def time_by_batch() -> bytes:
    """[batch, 3, 2] as rows [3 * batch, 2]."""
    return engine_file(
        [
            tensor("x", "batch", 3, 2),
            tensor("turned", 3, "batch", 2),
            tensor("rows", "batch", 2, times=3, outer=3),
        ],
        [step("move_batch", [0], 1, to=1), step("regroup", [1], 2)],
        [0],
        [2],
    )


def lookup(table: np.ndarray, ids: str = "i64") -> bytes:
    """The rows of a table by id."""
    return engine_file(
        [tensor("ids", "batch", 4, type=ids), tensor("rows", "batch", 4, table.shape[1])],
        [step("embedding", [0], 1, constants={"weight": "t"})],
        [0],
        [1],
        {"t": table},
    )


def relu_along(free: dict[str, Any], **more: Any) -> bytes:
    """relu of [batch, time] for every time from 1 to 8."""
    tensors = [tensor("x", "batch", 8), tensor("y", "batch", 8)]
    following = [{"path": f"/tensors/{i}/shape/1", "value": [[1, 1, 1]]} for i in range(2)]
    return engine_file(
        tensors,
        [step("relu", [0], 1, activation="relu")],
        [0],
        [1],
        free=[free],
        following=following,
        corners={},
        **more,
    )


def bf16_relu() -> bytes:
    return engine_file(
        [tensor("x", "batch", 4, type="bf16"), tensor("y", "batch", 4, type="bf16")],
        [step("relu", [0], 1, activation="relu")],
        [0],
        [1],
    )


def heavy(size: int) -> bytes:
    """Some hundred products of [batch, size] with a matrix, one after the other."""
    count = 200
    return engine_file(
        [tensor(f"x{i}", "batch", size) for i in range(count + 1)],
        [step("linear", [i], i + 1, constants={"weight": "w"}) for i in range(count)],
        [0],
        [count],
        {"w": np.full((size, size), 1 / size, np.float32)},
    )
