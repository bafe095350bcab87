// The Python program that runs an ONNX file in ONNX Runtime for `ulp export --check`. Internal.
#pragma once

namespace ulp::app {

/// Its argument is a JSON file: the model, and for each run the files of inputs and results. Exit code 4: something
/// is not installed.
inline constexpr const char* kOnnxJudge = R"py(import json
import sys

try:
    import numpy
    import onnxruntime
except ImportError:
    sys.exit(4)

TYPES = {"float": "float32", "half": "float16", "double": "float64", "long": "int64", "int": "int32",
         "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool"}


def tensor(entry):
    return numpy.fromfile(entry["file"], dtype=TYPES[entry["type"]]).reshape(entry["shape"])


with open(sys.argv[1]) as file:
    task = json.load(file)
session = onnxruntime.InferenceSession(task["model"], providers=["CPUExecutionProvider"])
largest = 0.0
for run in task["runs"]:
    names = [one.name for one in session.get_inputs()]
    theirs = session.run(None, dict(zip(names, map(tensor, run["inputs"]))))
    if len(theirs) != len(run["results"]):
        sys.exit(f"expected {len(run['results'])} results, got {len(theirs)}")
    for got, entry in zip(theirs, run["results"]):
        ours = tensor(entry)
        if got.shape != ours.shape:
            sys.exit(f"expected a result of {ours.shape}, got {got.shape}")
        ours, got = ours.astype("float64"), got.astype("float64")
        scale = max(numpy.abs(ours).max(initial=0.0), 1e-30)
        difference = float(numpy.abs(got - ours).max(initial=0.0) / scale)
        largest = difference if not largest >= difference else largest
result = {"runtime": "ONNX Runtime " + onnxruntime.__version__, "largest": largest if largest == largest else None}
print(json.dumps(result))
)py";

}  // namespace ulp::app
