"""Tests of ONNX's operators that come with the package onnx: for each operator the smallest ones, as files to read and their results.

    .deps/peers-venv/bin/python tests/golden/make_node_tests.py build/release/bin/conformance

Those that the program reads right are taken (bench/peers/conformance_nodes.py).
"""

import base64
import collections
import fnmatch
import json
import os
import sys
import tempfile
import warnings

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench/peers"))
import conformance_nodes as onnx_tests  # noqa: E402
from conformance_files import Converter  # noqa: E402
from conformance_table import Table  # noqa: E402

EACH, LONGEST = 2, 800  # tests of an operator; bytes of one


def array(value):
    value = np.asarray(value)
    return {"type": value.dtype.name, "sizes": list(value.shape), "data": base64.b64encode(value.tobytes()).decode()}


def is_right(converter, folder, form):
    table = Table()
    onnx_tests.judge_form(converter, folder, table, form)
    return table.rows.get((form[0], form[1], "pieces"), ("", ""))[0] == "right"


def main():
    warnings.filterwarnings("ignore")
    taken, count = [], collections.Counter()
    types = {"float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"}
    converter, folder = Converter(sys.argv[1]), tempfile.mkdtemp()
    forms = []
    for case in onnx_tests.node_cases():
        if case[0] == "node" and not any(fnmatch.fnmatchcase(case[1], one) for one in onnx_tests.BY_CHANCE):
            forms += [form for form in (case, onnx_tests.stored(case, False), onnx_tests.stored(case, True)) if form is not None]
    names_taken = set()
    for form in sorted(forms, key=lambda one: (one[2].ByteSize(), one[1])):
        suite, name, model, sets, rtol, atol = form
        inputs, outputs = sets[0]
        kinds = {node.op_type for node in model.graph.node}
        plain = all(isinstance(one, (np.ndarray, np.generic)) and np.asarray(one).dtype.name in types for one in [*inputs, *outputs])
        size = model.ByteSize() + sum(np.asarray(one).nbytes for one in [*inputs, *outputs]) if plain else LONGEST + 1
        if size > LONGEST or name in names_taken or all(count[kind] >= EACH for kind in kinds):
            continue
        if not is_right(converter, folder, form):
            continue
        names_taken.add(name)
        count.update(kinds)
        have = {one.name for one in model.graph.initializer}
        names = [one.name for one in model.graph.input if one.name not in have]
        taken.append({"name": name, "model": base64.b64encode(model.SerializeToString()).decode(),
                      "inputs": [{"name": n, **array(x)} for n, x in zip(names, inputs)], "outputs": [array(x) for x in outputs],
                      "rtol": rtol, "atol": max(atol, 2e-7 * max((np.abs(np.nan_to_num(np.asarray(x, np.float64), posinf=0, neginf=0)).max()
                                                                  if np.asarray(x).size else 0) for x in outputs))})
    with open(os.path.join(HERE, "node_tests.json"), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(one) for one in sorted(taken, key=lambda one: one["name"])) + "\n]\n")
    print(f"{len(taken)} tests of {len(count)} operators")


if __name__ == "__main__":
    main()
