"""The tests that come with the package onnx, of its operators and of small models, for conformance.py."""

import fnmatch
import os

import ml_dtypes
import numpy as np
import onnx
from onnx.backend.test import loader

from conformance_files import each, load, save
from conformance_table import STORED, VALUES
from differences import differences

# The suites that node_cases() has.
SUITES = ("node", "simple", "pytorch-converted", "pytorch-operator")

# Tests whose right values are not a function of their inputs.
BY_CHANCE = ["test_bernoulli*", "test_training_dropout*", "test_dropout_default_mask*", "test_random*"]
# Operators that make numbers of sizes.
OF_SIZES = {"Range", "ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"}


def tensors_of(path):
    with open(path, "rb") as file:
        return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))


def node_cases():
    """(name, model, data sets of (inputs, outputs), rtol, atol)."""
    np.random.seed(0)
    def array(value):
        return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value

    for case in loader.load_model_tests(kind="node"):
        sets = [tuple([array(one) for one in part] for part in data) for data in case.data_sets]
        yield "node", case.name, case.model, sets, case.rtol, case.atol
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for case in sorted(loader.load_model_tests(kind=kind), key=lambda one: one.name):
            model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
            sets = []
            for folder in sorted(os.listdir(case.model_dir)):
                if not folder.startswith("test_data_set"):
                    continue
                folder = os.path.join(case.model_dir, folder)
                try:
                    sets.append(tuple([tensors_of(os.path.join(folder, f"{what}_{i}.pb")) for i in range(
                        sum(name.startswith(what + "_") for name in os.listdir(folder)))] for what in ("input", "output")))
                except Exception:  # sequences, strings
                    sets.append(([], []))
            yield kind, case.name, model, sets, case.rtol, case.atol


def given_inputs(case):
    """Names of the inputs and the numbers that the test has for them; none where it has others, or several sets of them."""
    _, _, model, sets, _, _ = case
    have = {one.name for one in model.graph.initializer}
    free = [one.name for one in model.graph.input if one.name not in have]
    inputs = sets[0][0] if len(sets) == 1 else []
    fits = len(inputs) == len(free) and all(isinstance(one, (np.ndarray, np.generic)) for one in inputs)
    return (free, inputs) if fits else ([], [])


def stored(case, floats):
    """The same test as a part of a network: its inputs are initializers, but for the first, or the first that has floats. Where none is
    left, another input goes through the network beside it. None where that is not another test."""
    suite, name, model, sets, rtol, atol = case
    free, inputs = given_inputs(case)
    if not free:
        return None
    sizes = len(model.graph.node) == 1 and model.graph.node[0].op_type in OF_SIZES or "test_range" in name
    data = [] if sizes else [i for i, one in enumerate(inputs) if not floats or np.asarray(one).dtype.kind not in "iub"][:1]
    if len(free) == len(data):
        return None
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for i, (free_name, value) in enumerate(zip(free, inputs)):
        if i in data:
            continue
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), free_name))
        kept = [one for one in made.graph.input if one.name != free_name]
        del made.graph.input[:]
        made.graph.input.extend(kept)
    given = [inputs[i] for i in data]
    if not given:
        made.graph.input.append(onnx.helper.make_tensor_value_info("beside", onnx.TensorProto.FLOAT, [1]))
        made.graph.node.append(onnx.helper.make_node("Neg", ["beside"], ["beside_too"]))
        made.graph.output.append(onnx.helper.make_tensor_value_info("beside_too", onnx.TensorProto.FLOAT, [1]))
        given = [np.ones(1, np.float32)]
    return suite + STORED, name, made, [(given, sets[0][1])], rtol, atol


def whole_inputs(case):
    """Names of the inputs that are whole numbers; empty where nothing else is left."""
    free, inputs = given_inputs(case)
    whole = [name for name, one in zip(free, inputs) if np.asarray(one).dtype.kind in "iub"]
    return whole if len(whole) < len(free) else whole[1:]


def judge_node(converter, folder, table, case):
    """Of a test that is refused as it is, the same file with values for its whole numbers, then the form with stored inputs."""
    if judge_form(converter, folder, table, case):
        return
    values = whole_inputs(case)
    if values and judge_form(converter, folder, table, (case[0] + VALUES, *case[1:]), values):
        return
    for floats in (False, True):
        other = stored(case, floats)
        if other is not None and judge_form(converter, folder, table, other):
            return


def judge_form(converter, folder, table, case, values=()):
    """Whether it was read; `values` are inputs whose numbers the import is given."""
    suite, name, model, sets, rtol, atol = case
    path, given_path, made_path = (os.path.join(folder, f"{suite}.{name}.{one}") for one in ("onnx", "in", "out"))
    onnx.save(model, path)
    have = {one.name for one in model.graph.initializer}
    names = [one.name for one in model.graph.input if one.name not in have]
    for inputs, outputs in sets:
        save(given_path, dict(zip(names, inputs)))
        answer = converter.ask(model=path, inputs=given_path, outputs=made_path, values=list(values))
        failed = answer["failed"]
        if any(one in failed for one in ("read", "run", "process")):
            why = next(iter(failed.values()))
            table.add(suite, name, "graph", "wrong" if "process" in failed else "refused", why)
            return False
        made = load(made_path)
        for form in ("graph", "pieces"):
            if form in failed:
                table.add(suite, name, form, "refused", failed[form])
                continue
            wrong = next(filter(None, (fault(made, form, i, right, rtol, atol) for i, right in enumerate(outputs))), "")
            table.add(suite, name, form, "wrong" if wrong else "right", wrong)
            if wrong:
                return True
    for one in (path, given_path, made_path):
        if os.path.exists(one):
            os.remove(one)
    return True


def apart(ours, right, rtol, atol):
    """What is wrong with an array; empty where nothing is. Signs of infinity count, NaN is NaN."""
    ours, right = np.asarray(ours), np.asarray(right)
    if ours.shape != right.shape:
        return f"sizes {list(ours.shape)} for {list(right.shape)}"
    off, largest, alike = differences(ours, right)
    if not alike:
        return "NaN or infinity for a number, or a number for it"
    if right.dtype.kind == "f":  # sums are as exact as their largest number
        atol = max(atol, 2e-7 * largest)
    wanted = right.astype(np.float64)
    if (off <= atol + rtol * np.abs(np.where(np.isfinite(wanted), wanted, 0))).all():
        return ""
    return f"off by {off.max():.3g}, the largest is {largest:.3g}"


def fault(made, form, index, right, rtol, atol):
    """What is wrong with a result; empty where nothing is. Results of 16 bits may be two of their steps apart: tests round on the way."""
    ours = made.get(f"{form}.{index}")
    if ours is None:
        return f"result {index} is not there"
    if not isinstance(right, (np.ndarray, np.generic)):
        return f"result {index} is no tensor in the test"
    if right.dtype in (np.float16, ml_dtypes.bfloat16):
        rtol = max(rtol, 2 * float(ml_dtypes.finfo(right.dtype).eps))
    wrong = apart(ours, right, rtol, atol)
    kept_as = {"int4": "int8", "int2": "int8", "uint4": "uint8", "uint2": "uint8", "float8_e4m3fnuz": "float32", "float8_e5m2fnuz": "float32",
               "float4_e2m1fn": "float32"}
    if not wrong and ours.dtype.name != kept_as.get(right.dtype.name, right.dtype.name):
        wrong = f"{ours.dtype} for {right.dtype}"
    return f"result {index}: {wrong}" if wrong else ""


def run(arguments, table, folder):
    """Judges the tests whose names match."""
    cases = [case for case in node_cases() if fnmatch.fnmatchcase(case[1], arguments.match)
             and not any(fnmatch.fnmatchcase(case[1], one) for one in BY_CHANCE)]
    each(arguments, cases, lambda converter, case: judge_node(converter, folder, table, case))
