#!/bin/sh
# onnx 1.23.2, onnxruntime 1.31.1: a border of zeros before a max pool is lost by default, and negative images come out wrong.
#
# Guess: Pad (constant, value 0) and then MaxPool without pads gives the same with and without ONNX Runtime's optimizations:
# a zero beside negative numbers is the largest. Pad_Fusion would join the two only where that is so.
# Seen: by default Pad_Fusion makes the border a pad of MaxPool, which is -infinity there: -1 comes out where 0 is right.
# The reference and ONNX Runtime without optimizations (or without Pad_Fusion) give 0. A border of -0.0, 1e-45 or any
# other number is left alone, and so is one before AveragePool.
#
# Ends with 0 where that is still so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.1 >/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
images = -1 - np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)


def file_of(border, pool):
    nodes = [helper.make_node("Pad", ["x", "pads", "border"], ["wide"], mode="constant"),
             helper.make_node(pool, ["wide"], ["y"], kernel_shape=[3, 3], strides=[1, 1])]
    graph = helper.make_graph(
        nodes, "border_then_pool", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor("pads", TensorProto.INT64, [8], [0, 0, 1, 1, 0, 0, 1, 1]),
         helper.make_tensor("border", TensorProto.FLOAT, [], [border])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model, disabled=None):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"],
                                           disabled_optimizers=disabled)
    return session.run(None, {"x": images})[0]


seen = True
for border, pool in ((0.0, "MaxPool"), (-0.0, "MaxPool"), (1.0, "MaxPool"), (0.0, "AveragePool")):
    model = file_of(border, pool)
    right = ReferenceEvaluator(model).run(None, {"x": images})[0]
    default, without = run(model), run(model, ["Pad_Fusion"])
    print(f"border {border:4} {pool:11} first result: reference {right.flat[0]:8.4f}, default {default.flat[0]:8.4f}, "
          f"without Pad_Fusion {without.flat[0]:8.4f}")
    is_lost = str(border) == "0.0" and pool == "MaxPool"
    seen = seen and np.allclose(without, right) and np.allclose(default, right) != is_lost
print("as described" if seen else "the behaviour has changed")
sys.exit(0 if seen else 1)
PYTHON
