// The Python programs of `ulp export --check`: they run an ONNX file in ONNX Runtime, and a TensorFlow Lite file in LiteRT. Internal.
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

/// The same with a TensorFlow Lite file. Images are [N, C, H, W] here and [N, H, W, C] in the file.
inline constexpr const char* kTfliteJudge = R"py(import json
import sys

try:
    import ai_edge_litert
    import numpy
    from ai_edge_litert.interpreter import Interpreter
except ImportError:
    sys.exit(4)

TYPES = {"float": "float32", "long": "int64", "int": "int32", "char": "int8", "bool": "bool"}


def tensor(entry):
    return numpy.fromfile(entry["file"], dtype=TYPES[entry["type"]]).reshape(entry["shape"])


def given(x, detail):
    """An input as the file has it."""
    if x.ndim == 4:
        x = x.transpose(0, 2, 3, 1)
    if detail["dtype"] == numpy.int8 and x.dtype != numpy.int8:
        scale, zero = detail["quantization"]
        x = numpy.clip(numpy.rint(x / scale) + zero, -128, 127)
    return numpy.ascontiguousarray(x.astype(detail["dtype"]))


def got(interpreter, detail, shape):
    """A result as we have it."""
    y = interpreter.get_tensor(detail["index"])
    if y.dtype == numpy.int8:
        scale, zero = detail["quantization"]
        y = (y.astype("float32") - zero) * numpy.float32(scale)
    return y.transpose(0, 3, 1, 2) if y.ndim == 4 and y.shape != shape else y


with open(sys.argv[1]) as file:
    task = json.load(file)
interpreter = Interpreter(model_path=task["model"])
largest = 0.0
for run in task["runs"]:
    inputs = [given(tensor(entry), detail) for entry, detail in zip(run["inputs"], interpreter.get_input_details())]
    for x, detail in zip(inputs, interpreter.get_input_details()):
        interpreter.resize_tensor_input(detail["index"], x.shape)
    interpreter.allocate_tensors()
    for x, detail in zip(inputs, interpreter.get_input_details()):
        interpreter.set_tensor(detail["index"], x)
    interpreter.invoke()
    details = interpreter.get_output_details()
    if len(details) != len(run["results"]):
        sys.exit(f"expected {len(run['results'])} results, got {len(details)}")
    for entry, detail in zip(run["results"], details):
        ours = tensor(entry)
        theirs = got(interpreter, detail, ours.shape)
        if theirs.shape != ours.shape:
            sys.exit(f"expected a result of {ours.shape}, got {theirs.shape}")
        ours, theirs = ours.astype("float64"), theirs.astype("float64")
        scale = max(numpy.abs(ours).max(initial=0.0), 1e-30)
        difference = float(numpy.abs(theirs - ours).max(initial=0.0) / scale)
        largest = difference if not largest >= difference else largest
result = {"runtime": "LiteRT " + ai_edge_litert.__version__, "largest": largest if largest == largest else None}
print(json.dumps(result))
)py";

}  // namespace ulp::app
