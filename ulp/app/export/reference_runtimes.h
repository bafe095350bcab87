// The Python programs of `ulp export --check`: one that runs an ONNX file in other runtimes, one that runs a
// TensorFlow Lite file in LiteRT, one that runs a .pt2 archive in PyTorch, and one that reads a Core ML
// package with coremltools. Each prints one line of JSON, {"results": [...], "missing": [...]}. Internal.
#pragma once

namespace ulp::app {

/// Its argument is a JSON file: the model, and for each run the files of inputs and results. It prints a line
/// of JSON: {"results": [{"runtime", "largest"}, ...], "missing": [...]}. Exit code 4: NumPy or both runtimes
/// are missing.
inline constexpr const char* kOnnxJudge = R"py(import importlib.util
import json
import sys

if importlib.util.find_spec("numpy") is None:
    sys.exit(4)
import numpy

TYPES = {"float": "float32", "half": "float16", "double": "float64", "long": "int64", "int": "int32",
         "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool"}


def tensor(entry):
    return numpy.fromfile(entry["file"], dtype=TYPES[entry["type"]]).reshape(entry["shape"])


def onnx_runtime(path):
    import onnxruntime

    def opened(exact_sums):
        options = onnxruntime.SessionOptions()
        # Its own rounding off: of activations before weights in blocks, of sums that saturate on processors without VNNI.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        options.add_session_config_entry("session.x64quantprecision", exact_sums)
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    try:
        session = opened("1")
    except Exception:  # with this option it does not load int8 weights that two layers read
        session = opened("0")
    names = [one.name for one in session.get_inputs()]
    return "ONNX Runtime " + onnxruntime.__version__, lambda inputs: session.run(None, dict(zip(names, inputs)))


def openvino(path):
    import openvino
    settings = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    model = openvino.Core().compile_model(path, "CPU", settings)

    def run(inputs):
        results = model(inputs)
        return [results[i] for i in range(len(model.outputs))]

    return "OpenVINO " + openvino.__version__.split("-")[0], run


def largest_difference(name, run, task):
    largest = 0.0
    for one in task["runs"]:
        theirs = run([tensor(entry) for entry in one["inputs"]])
        if len(theirs) != len(one["results"]):
            sys.exit(f"{name}: expected {len(one['results'])} results, got {len(theirs)}")
        for got, entry in zip(theirs, one["results"]):
            ours = tensor(entry)
            if got.shape != ours.shape:
                sys.exit(f"{name}: expected a result of {ours.shape}, got {got.shape}")
            ours, got = ours.astype("float64"), got.astype("float64")
            scale = max(numpy.abs(ours).max(initial=0.0), 1e-30)
            difference = float(numpy.abs(got - ours).max(initial=0.0) / scale)
            largest = difference if difference != difference or difference > largest else largest
    return largest if largest == largest else None


with open(sys.argv[1]) as file:
    task = json.load(file)
results, missing = [], []
for module, name, load in (("onnxruntime", "ONNX Runtime", onnx_runtime), ("openvino", "OpenVINO", openvino)):
    if importlib.util.find_spec(module) is None:
        missing.append(f"{name} is not installed: pip install {module}")
        continue
    try:
        version, run = load(task["model"])
        results.append({"runtime": version, "largest": largest_difference(name, run, task)})
    except Exception as error:
        sys.exit(f"{name}: {error}")
if not results:
    sys.exit(4)
print(json.dumps({"results": results, "missing": missing}))
)py";

/// Its argument is a JSON file that names the package. Exit code 4: coremltools is not installed.
inline constexpr const char* kCoreMlJudge = R"py(import json
import logging
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
try:
    import coremltools
    from coremltools.converters.mil.frontend.milproto import load
    from coremltools.converters.mil.mil import types
except ImportError:
    sys.exit(4)

with open(sys.argv[1]) as file:
    path = json.load(file)["model"]
model = coremltools.models.MLModel(path, skip_model_load=True)
spec = model.get_spec()
program = load.load(spec, spec.specificationVersion, model.weights_dir)
function = program.functions["main"]
inferred = {value.name: value for operation in function.operations for value in operation.outputs}
said = spec.mlProgram.functions["main"]
for operation in said.block_specializations[said.opset].operations:
    for output in operation.outputs:
        tensor, value = output.type.tensorType, inferred[output.name]
        shape = tuple(dim.constant.size for dim in tensor.dimensions)
        if shape != tuple(value.shape) or types.PROTO_TO_BUILTIN_TYPE[tensor.dataType] != value.dtype:
            sys.exit(f"expected {output.name} to be {value.shape} {value.dtype}, got {shape}")
operations = [operation for operation in function.operations if operation.op_type != "const"]
result = {"runtime": "coremltools " + coremltools.__version__, "operations": len(operations)}
print(json.dumps({"results": [result], "missing": []}))
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

TYPES = {"float": "float32", "half": "float16", "double": "float64", "long": "int64", "int": "int32",
         "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool"}


def tensor(entry):
    return numpy.fromfile(entry["file"], dtype=TYPES[entry["type"]]).reshape(entry["shape"])


def given(x, detail):
    """An input as the file has it."""
    if x.ndim == 4:
        x = x.transpose(0, 2, 3, 1)
    scale, zero = detail["quantization"]  # 0, 0: its numbers are no codes
    if scale and x.dtype != numpy.int8:
        x = numpy.clip(numpy.rint(x / scale) + zero, -128, 127)
    return numpy.ascontiguousarray(x.astype(detail["dtype"]))


def distance(theirs, ours):
    ours, theirs = ours.astype("float64"), theirs.astype("float64")
    return float(numpy.abs(theirs - ours).max(initial=0.0) / max(numpy.abs(ours).max(initial=0.0), 1e-30))


def got(interpreter, detail, ours):
    """A result as we have it: its images may lie either way, and sizes alone do not tell where they are equal."""
    y = interpreter.get_tensor(detail["index"])
    scale, zero = detail["quantization"]
    if scale:
        y = (y.astype("float32") - zero) * numpy.float32(scale)
    ways = [y, y.transpose(0, 3, 1, 2)] if y.ndim == 4 else [y]
    ways = [way for way in ways if way.shape == ours.shape] or [y]
    return min(ways, key=lambda way: distance(way, ours)) if len(ways) > 1 else ways[0]


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
        theirs = got(interpreter, detail, ours)
        if theirs.shape != ours.shape:
            sys.exit(f"expected a result of {ours.shape}, got {theirs.shape}")
        difference = distance(theirs, ours)
        largest = difference if difference != difference or difference > largest else largest
result = {"runtime": "LiteRT " + ai_edge_litert.__version__, "largest": largest if largest == largest else None}
print(json.dumps({"results": [result], "missing": []}))
)py";

/// Runs a .pt2 archive in PyTorch as the judges above run their files; the task names the number of threads,
/// too. Equal numbers differ by nothing, infinities and NaN among them. It imports torch alone.
inline constexpr const char* kPt2Judge = R"py(import json
import sys

try:
    import torch
except ImportError:
    sys.exit(4)

TYPES = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64,
         "long": torch.int64, "int": torch.int32, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
         "bool": torch.bool}


def tensor(entry):
    with open(entry["file"], "rb") as file:
        data = bytearray(file.read())
    kind = TYPES[entry["type"]]
    return (torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)).reshape(entry["shape"])


def difference(got, ours):
    """The largest one, as a share of the largest number of ours."""
    same = (got == ours) | (got.isnan() & ours.isnan())
    apart = (got.double() - ours.double()).abs().masked_fill(same, 0)
    scale = ours.double().abs().nan_to_num(0, 0, 0)
    return float(apart.max() / scale.max().clamp_min(1e-30)) if ours.numel() else 0.0


with open(sys.argv[1]) as file:
    task = json.load(file)
torch.set_num_threads(task["threads"])
program = torch.export.load(task["model"]).module()
largest = 0.0
for run in task["runs"]:
    with torch.no_grad():
        results = torch.utils._pytree.tree_leaves(program(*[tensor(entry) for entry in run["inputs"]]))
    if len(results) != len(run["results"]):
        sys.exit(f"expected {len(run['results'])} results, got {len(results)}")
    for got, entry in zip(results, run["results"]):
        ours = tensor(entry)
        if got.shape != ours.shape or got.dtype != ours.dtype:
            sys.exit(f"expected a result of {ours.dtype} {tuple(ours.shape)}, got {got.dtype} {tuple(got.shape)}")
        one = difference(got, ours)
        largest = one if one != one or one > largest else largest
result = {"runtime": "PyTorch " + torch.__version__, "largest": largest if largest == largest else None}
print(json.dumps({"results": [result], "missing": []}))
)py";

}  // namespace ulp::app
