"""TensorFlow Lite files of the reference networks in LiteRT, beside what ulp computed.

    build/release/bin/tflite_networks FOLDER float
    .deps/peers-venv/bin/python bench/peers/tflite_check.py FOLDER

Prints for each file, with and without LiteRT's XNNPACK kernels, the largest difference: of float networks as a share of the
largest result, of int8 ones in steps of the result's codes, with the share of codes that differ and the operators that compute in
float. Inputs and results of four dimensions are [N, C, H, W] here and [N, H, W, C] in the file.
"""

import argparse
import glob
import os

import ai_edge_litert
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from differences import largest_share

RESOLVERS = {"XNNPACK": OpResolverType.AUTO, "no XNNPACK": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}


def operators(path):
    """How many operators write float numbers, and how many there are, by name."""
    with open(path, "rb") as file:
        model = schema.Model.GetRootAs(file.read(), 0)
    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    graph, floats, counts = model.Subgraphs(0), [], {}
    for i in range(graph.OperatorsLength()):
        one = graph.Operators(i)
        name = names[model.OperatorCodes(one.OpcodeIndex()).BuiltinCode()]
        counts[name] = counts.get(name, 0) + 1
        if graph.Tensors(one.Outputs(0)).Type() == schema.TensorType.FLOAT32:
            floats.append(name)
    return floats, counts


def last(x):
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x


def first(x):
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def to_codes(x, detail):
    scale, zero = detail["quantization"]
    return np.clip(np.rint(x * np.float32(1 / np.float32(scale))) + zero, -128, 127).astype(np.int8)


def run(interpreter, x):
    """The first result, in numbers or codes."""
    given = interpreter.get_input_details()[0]
    x = last(x)
    if given["dtype"] == np.int8:
        x = to_codes(x, given)
    interpreter.resize_tensor_input(given["index"], x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], x.astype(given["dtype"]))
    interpreter.invoke()
    return first(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def check(path, kernels, resolver):
    interpreter = Interpreter(model_path=path, experimental_op_resolver_type=resolver)
    relative, steps, different, elements = 0.0, 0, 0, 0
    for x_path in sorted(glob.glob(glob.escape(path[:-len("tflite")]) + "*.x.npy")):
        ours, theirs = np.load(x_path.replace(".x.npy", ".y.npy")), run(interpreter, np.load(x_path))
        if theirs.shape != ours.shape:
            raise SystemExit(f"{path}: expected a result of {ours.shape}, got {theirs.shape}")
        if theirs.dtype == np.int8:
            codes = to_codes(ours, interpreter.get_output_details()[0])
            apart = np.abs(theirs.astype(int) - codes.astype(int))
            steps, different, elements = max(steps, apart.max()), different + (apart > 0).sum(), elements + apart.size
        else:
            difference = largest_share(theirs, ours)
            relative = difference if not relative >= difference else relative
    line = f"{os.path.basename(path)[:-7]:22} LiteRT {ai_edge_litert.__version__}, {kernels}: "
    floats, counts = operators(path)
    if elements:
        line += f"codes differ by up to {steps} in {100 * different / elements:.3f} %, float operators: {' '.join(floats) or 'none'}"
    else:
        line += f"{relative:.1e}"
    print(f"{line}, {counts.get('TRANSPOSE', 0)} transposes of {sum(counts.values())} operators", flush=True)
    return steps if elements else relative


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default="*", help="a pattern of the files' names")
    arguments = parser.parse_args()
    paths = sorted(glob.glob(os.path.join(arguments.folder, arguments.only + ".tflite")))
    if not paths:
        raise SystemExit(f"expected TensorFlow Lite files in {arguments.folder}")
    worst = 0.0
    for path in paths:
        for kernels, resolver in RESOLVERS.items():
            worst = max(worst, check(path, kernels, resolver))
    print(f"{len(paths)} files, largest difference {worst:.1e}")


if __name__ == "__main__":
    main()
