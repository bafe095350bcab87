"""Writes tests/golden/onnx_types.json: the element types of whole numbers of which ONNX Runtime has an operator.

    python make_onnx_types.py

A model of one node is loaded for each operator, type and opset; onnx 1.23.2 and onnxruntime 1.31.1 were there.
"""

import json
import os

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16, "int32": TensorProto.INT32,
         "int64": TensorProto.INT64, "bool": TensorProto.BOOL}
OPSETS = (17, 21)
BOOL, LONG = TensorProto.BOOL, TensorProto.INT64
S = (2, 3)


def cases(t, opset):
    """(operator, (shape, type) of the inputs, types of the results, attributes, (value, type) of stored inputs)."""
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod"):
        yield op, [(S, t), (S, t)], [t], {}, []
    for op in ("Neg", "Abs", "Sign", "Relu", "Trilu", "Identity", "Flatten"):
        yield op, [(S, t)], [t], {}, []
    yield "Where", [(S, BOOL), (S, t), (S, t)], [t], {}, []
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"):
        yield op, [(S, t), (S, t)], [BOOL], {}, []
    yield "Not", [(S, t)], [BOOL], {}, []
    for op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd", "ReduceMean"):
        if opset >= 18 or op == "ReduceSum":
            yield op, [(S, t)], [t], {}, [([1], LONG)]
        else:
            yield op, [(S, t)], [t], {"axes": [1]}, []
    for op in ("ArgMax", "ArgMin"):
        yield op, [(S, t)], [LONG], {"axis": 1}, []
    yield "TopK", [(S, t)], [t, LONG], {"axis": 1}, [([2], LONG)]
    yield "CumSum", [(S, t)], [t], {}, [(1, LONG)]
    yield "Clip", [(S, t)], [t], {}, [(0, t), (1, t)]
    yield "Pad", [(S, t)], [t], {}, [([0, 1, 0, 1], LONG), (1, t)]
    for op in ("MatMul", "Gemm"):
        yield op, [(S, t), ((3, 2), t)], [t], {}, []
    for op in ("MaxPool", "AveragePool"):
        yield op, [((1, 1, 4, 4), t)], [t], {"kernel_shape": [2, 2]}, []
    yield "DepthToSpace", [((1, 4, 2, 2), t)], [t], {"blocksize": 2}, []
    yield "Gather", [(S, t), ((1,), LONG)], [t], {}, []
    yield "GatherElements", [(S, t), ((1, 1), LONG)], [t], {}, []
    yield "Concat", [(S, t), (S, t)], [t], {"axis": 0}, []
    yield "Slice", [(S, t)], [t], {}, [([0], LONG), ([1], LONG), ([1], LONG), ([1], LONG)]
    yield "Transpose", [(S, t)], [t], {"perm": [1, 0]}, []
    yield "Reshape", [(S, t)], [t], {}, [([3, 2], LONG)]
    yield "Expand", [(S, t)], [t], {}, [([4, 2, 3], LONG)]
    yield "Tile", [(S, t)], [t], {}, [([2, 1], LONG)]
    yield "Squeeze", [((1, 3), t)], [t], {}, [([0], LONG)]
    yield "Unsqueeze", [(S, t)], [t], {}, [([0], LONG)]
    yield "Cast", [(S, t)], [TensorProto.FLOAT], {"to": TensorProto.FLOAT}, []


def loads(op, inputs, results, attributes, stored, opset):
    values = [helper.make_tensor_value_info(f"x{i}", t, shape) for i, (shape, t) in enumerate(inputs)]
    tensors = [helper.make_tensor(f"c{i}", t, np.shape(value), np.ravel(value)) for i, (value, t) in enumerate(stored)]
    names = [f"y{i}" for i in range(len(results))]
    node = helper.make_node(op, [one.name for one in values + tensors], names, **attributes)
    outputs = [helper.make_tensor_value_info(name, t, None) for name, t in zip(names, results)]
    graph = helper.make_graph([node], "graph", values, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # of several classes: no such kernel, or a type that the operator has not
        return False
    return True


def main():
    onnxruntime.set_default_logger_severity(4)
    table = {}
    for opset in OPSETS:
        rows = table[str(opset)] = {}
        for name, t in TYPES.items():
            for op, *case in cases(t, opset):
                rows.setdefault(op, [])
                if loads(op, *case, opset):
                    rows[op].append(name)
    lines = [f' "{opset}": {{\n' + ",\n".join(f"  {json.dumps(op)}: {json.dumps(types)}" for op, types in rows.items()) + "}"
             for opset, rows in table.items()]
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "onnx_types.json"), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
