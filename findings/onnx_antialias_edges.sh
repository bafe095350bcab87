#!/bin/sh
# onnx 1.23.2, onnxruntime 1.31.1, torch 2.13.0: Resize with antialias = 1 is PyTorch's antialias only with exclude_outside = 1.
#
# Guess: a Resize (opset 19, linear, half_pixel) with antialias = 1 gives what F.interpolate(mode="bilinear",
# antialias=True) gives, as both name the filter of Pillow.
# Seen: by default ONNX repeats the edge of the image under the part of the filter that lies outside, in ONNX Runtime
# and in the reference alike; PyTorch leaves that part out and divides by what is left. Results near the edges
# differ by up to 0.3 on normal numbers where a side shrinks. With exclude_outside = 1 all three agree.
#
# Ends with 0 where that is still so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.31.1 torch==2.13.0 numpy==2.4.1 >/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__, "torch", torch.__version__)


def resize(before, after, **attributes):
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1,
                            coordinate_transformation_mode="half_pixel", **attributes)
    graph = helper.make_graph(
        [node], "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, *before])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, *after])],
        [helper.make_tensor("sizes", TensorProto.INT64, [4], [1, 1, *after])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


draw = np.random.default_rng(0)
same = True
for before, after in [((8, 8), (4, 4)), ((8, 8), (4, 12)), ((6, 6), (6, 3)), ((7, 5), (3, 9)), ((8, 8), (12, 12))]:
    x = draw.standard_normal((1, 1, *before)).astype(np.float32)
    right = F.interpolate(torch.from_numpy(x), size=after, mode="bilinear", antialias=True).numpy()
    off = []
    for attributes in ({}, {"exclude_outside": 1}):
        model = resize(before, after, **attributes)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        off.append(float(np.abs(session.run(None, {"x": x})[0] - right).max()))
        off.append(float(np.abs(ReferenceEvaluator(model).run(None, {"x": x})[0] - right).max()))
    shrinks = any(a < b for a, b in zip(after, before))
    print(f"{before} to {after}: off torch by default {off[0]:.2g} (reference {off[1]:.2g}), "
          f"exclude_outside {off[2]:.2g} (reference {off[3]:.2g})")
    same = same and (min(off[:2]) > 0.05) == shrinks and max(off[2:]) < 1e-5
print("as found" if same else "changed")
sys.exit(0 if same else 1)
PYTHON
