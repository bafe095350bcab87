// The Python programs of `ulp export --check`: one that runs an ONNX file in ONNX Runtime, and one that reads a Core ML package with
// coremltools. Internal.
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
print(json.dumps({"runtime": "coremltools " + coremltools.__version__, "operations": len(operations)}))
)py";

}  // namespace ulp::app
