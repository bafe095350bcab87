#!/bin/sh
# onnx 1.23.2, onnxruntime 1.31.1: Resize with a keep_aspect_ratio_policy and axes counted from the end leaves the image as it is.
#
# Guess: axes = [-2, -1] of an image [1, 1, 4, 6] mean the same as [2, 3], as the specification says; with
# sizes = [8, 24] and not_larger, and with sizes = [8, 6] and not_smaller, both give [1, 1, 8, 12].
# Seen: with these policies ONNX Runtime gives [1, 1, 4, 6] for axes [-2, -1], with a line in the log and no error, though it has found the
# right sizes before it runs. With the policy stretch, and with axes [2, 3] in either order, it gives what the specification says.
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

print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
image = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)


def shape_of(policy, axes, sizes):
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", keep_aspect_ratio_policy=policy, axes=axes)
    graph = helper.make_graph([node], "resize", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 6])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b", "c", "d"])],
                              [helper.make_tensor("sizes", TensorProto.INT64, [2], sizes)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": image})[0].shape)


# Heights and widths that the specification gives: one factor for both, the smaller or the larger of the two.
right = {("stretch", 8, 9): [1, 1, 8, 9], ("not_larger", 8, 24): [1, 1, 8, 12], ("not_smaller", 8, 6): [1, 1, 8, 12]}
seen = True
for (policy, height, width), wanted in right.items():
    for axes, sizes in (([2, 3], [height, width]), ([3, 2], [width, height]), ([-2, -1], [height, width])):
        got = shape_of(policy, axes, sizes)
        print(f"{policy:11} axes {str(axes):8} sizes {str(sizes):7}: {got}, right {wanted}")
        untouched = policy != "stretch" and axes[0] < 0
        seen = seen and got == ([1, 1, 4, 6] if untouched else wanted)
print("as described" if seen else "the behaviour has changed")
sys.exit(0 if seen else 1)
PYTHON
