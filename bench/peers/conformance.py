#!/usr/bin/env python3
"""Files of every kind: read and right, read and wrong, or refused, and why.

    cmake --build build/release --target conformance
    bench/peers/conformance.py build/release/bin/conformance [--only node|modules] [--json FILE]

Installs the judges (setup.sh) where this Python has not got them. Then:
- node: ONNX's own tests of its operators, plain and expanded into functions, and those of whole small models that come with the
  package onnx. Right is what the test says, within its tolerance, of our graph and of our engine with LibTorch for what it has not got.
- modules: small modules (small_modules.py) as torch.export writes them, drawn with a fixed seed. Each is read, compared with PyTorch,
  and written in every form: ONNX (opset 21, opset 17, fp16, QDQ) beside ONNX Runtime and read back, TensorFlow Lite (float, int8)
  beside LiteRT, Core ML as coremltools reads it, computed by MIL's rules (coreml_check.py). Float forms are compared with PyTorch,
  quantized ones with our quantized graph.

Prints one table and, with --list, each file that is not right. Ends with 1 where anything is wrong that KNOWN does not list.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(HERE, "../../.deps/peers-venv/bin/python")

# What is not right and stays so: a pattern of "SUITE NAME FORM", and why.
KNOWN = [
    ("modules interpolate*.int8.* qdq", "a number between two codes: the order of ONNX Runtime's sums decides which one is nearer"),
]

# Tests whose right values are not a function of their inputs.
BY_CHANCE = ["test_bernoulli*", "test_training_dropout*", "test_dropout_default_mask*", "test_random*"]


# Operators that make numbers of sizes.
OF_SIZES = {"Range", "ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"}


def ensure_judges():
    """Goes on in the environment of setup.sh where a judge is missing here."""
    try:
        import onnx, onnxruntime, torch, ai_edge_litert, coremltools  # noqa: F401
    except ImportError:
        if os.path.exists(VENV) and os.path.samefile(sys.executable, VENV):
            raise
        subprocess.run([os.path.join(HERE, "setup.sh")], check=True, stdout=sys.stderr)
        os.execv(VENV, [VENV, os.path.abspath(__file__), *sys.argv[1:]])


class Converter:
    """The program bench/conformance.cpp, started again where it ends."""

    def __init__(self, program):
        self.program = program
        self.process = None

    def ask(self, **request):
        """Its answer; {"failed": {"process": ...}} where it ends without one."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True)
        timer = threading.Timer(120, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if line:
            return json.loads(line)
        status = self.process.wait()
        return {"failed": {"process": f"the process ended with {status}"}}


def save(path, arrays):
    """A safetensors file; arrays of types that it has not got are left out."""
    import numpy as np
    types = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
             "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
             "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
    header, data, kept = {}, b"", {}
    for name, array in arrays.items():
        if not isinstance(array, (np.ndarray, np.generic)):
            continue
        array = np.asarray(array)
        if array.dtype.name in ("int4", "uint4", "int2", "uint2"):
            array = array.astype(np.int8 if array.dtype.name.startswith("i") else np.uint8)
        if array.dtype.name in ("float8_e4m3fnuz", "float8_e5m2fnuz"):  # the program makes them of floats
            array = array.astype(np.float32)
        if array.dtype.name in types:
            kept[name] = array
    for name, array in sorted(kept.items(), key=lambda one: -one[1].dtype.itemsize):  # so all of them are aligned
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": types[array.dtype.name], "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def load(path):
    """Arrays by name."""
    import ml_dtypes
    import numpy as np
    types = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64, "I32": np.int32,
             "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_,
             "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}
    with open(path, "rb") as file:
        raw = file.read()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(raw[end + one["data_offsets"][0]:end + one["data_offsets"][1]], types[one["dtype"]]).reshape(one["shape"])
            for name, one in header.items()}


def apart(ours, right, rtol, atol):
    """What is wrong with an array; empty where nothing is. Signs of infinity count, NaN is NaN."""
    import numpy as np
    ours, right = np.asarray(ours), np.asarray(right)
    if ours.shape != right.shape:
        return f"sizes {list(ours.shape)} for {list(right.shape)}"
    if right.size == 0:
        return ""
    a, b = ours.astype(np.float64), right.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return ""
    finite = np.isfinite(a) & np.isfinite(b)
    if not (same | finite).all():
        return "NaN or infinity for a number, or a number for it"
    off = np.where(same, 0, np.abs(np.where(finite, a - b, 0)))
    if right.dtype.kind == "f":  # sums are as exact as their largest number
        atol = max(atol, 2e-7 * np.abs(np.where(finite, b, 0)).max())
    if (off <= atol + rtol * np.abs(np.where(finite, b, 0))).all():
        return ""
    largest = np.abs(b[np.isfinite(b)]).max() if np.isfinite(b).any() else 0
    return f"off by {off.max():.3g}, the largest is {largest:.3g}"


class Table:
    """What became of each file, in each form."""

    def __init__(self):
        self.rows = collections.OrderedDict()
        self.lock = threading.Lock()

    def add(self, suite, name, form, verdict, why=""):
        """A verdict is right, wrong or refused."""
        with self.lock:
            self.rows[(suite, name, form)] = (verdict, why)

    def all_right(self, suite, name):
        with self.lock:
            return all(verdict == "right" for key, (verdict, _) in self.rows.items() if key[:2] == (suite, name))

    def unknown(self):
        """What is wrong and not listed."""
        return [key for key, (verdict, _) in self.rows.items() if verdict == "wrong" and not known(key)]

    def counts(self):
        counts = collections.OrderedDict()
        for (suite, _, form), (verdict, _) in sorted(self.rows.items()):
            counts.setdefault((suite, form), collections.Counter())[verdict] += 1
        return counts

    def text(self):
        lines = [f"{'files':28} {'all':>6} {'right':>6} {'wrong':>6} {'listed':>6} {'refused':>8}"]
        for (suite, form), counts in self.counts().items():
            listed = sum(one[0] == "wrong" and known(key) is not None for key, one in self.rows.items()
                         if (key[0], key[2]) == (suite, form))
            lines.append(f"{suite + ', ' + form:28} {sum(counts.values()):6} {counts['right']:6} {counts['wrong'] - listed:6} "
                         f"{listed:6} {counts['refused']:8}")
        for suite, form in self.counts():
            reasons = collections.Counter(reason_of(why) for (s, _, f), (verdict, why) in self.rows.items()
                                          if (s, f) == (suite, form) and verdict == "refused")
            if reasons:
                lines += ["", f"refused of {suite}, {form}:"]
                lines += [f"{count:6}  {reason}" for reason, count in reasons.most_common(40)]
        return "\n".join(lines)

    def listing(self):
        return [f"{verdict:8} {suite} {name} {form}: {why}" for (suite, name, form), (verdict, why) in sorted(self.rows.items())
                if verdict != "right"]

    def as_json(self):
        return {"counts": [{"suite": suite, "form": form, **counts} for (suite, form), counts in self.counts().items()],
                "files": [{"suite": suite, "name": name, "form": form, "verdict": verdict, "why": why}
                          for (suite, name, form), (verdict, why) in sorted(self.rows.items())]}


def known(key):
    text = " ".join(key)
    return next((why for pattern, why in KNOWN if fnmatch.fnmatchcase(text, pattern)), None)


def reason_of(why):
    """A message without the file's name, names of nodes and tensors, and numbers."""
    why = why.splitlines()[0] if why else ""
    why = re.sub(r"'[^']*[/.][^']*'", "FILE", why)
    why = re.sub(r"node '[^']*'", "node", why)
    why = re.sub(r"'[^']*'", "'..'", why)
    why = re.sub(r"\[[-\d, ]*\]", "[..]", why)
    why = re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "N", why)
    return why[:150]


# ONNX's tests -----------------------------------------------------------------------------------------------------------------------

def tensors_of(path):
    import onnx
    with open(path, "rb") as file:
        return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))


def node_cases():
    """(name, model, data sets of (inputs, outputs), rtol, atol)."""
    import numpy as np
    import onnx
    from onnx.backend.test import loader
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


def stored(case, floats):
    """The same test as a part of a network: its inputs are initializers, but for the first, or the first that has floats. Where none is
    left, another input goes through the network beside it. None where that is not another test."""
    import numpy as np
    import onnx
    suite, name, model, sets, rtol, atol = case
    have = {one.name for one in model.graph.initializer}
    free = [one.name for one in model.graph.input if one.name not in have]
    inputs = sets[0][0] if len(sets) == 1 else []
    if len(inputs) != len(free) or not all(isinstance(one, (np.ndarray, np.generic)) for one in inputs):
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
    return suite + " stored", name, made, [(given, sets[0][1])], rtol, atol


def judge_node(converter, folder, table, case):
    """Of a test that is refused as it is, the form with stored inputs, too."""
    if judge_form(converter, folder, table, case):
        return
    for floats in (False, True):
        other = stored(case, floats)
        if other is not None and judge_form(converter, folder, table, other):
            return


def judge_form(converter, folder, table, case):
    """Whether it was read."""
    import numpy as np
    import onnx
    suite, name, model, sets, rtol, atol = case
    path, given_path, made_path = (os.path.join(folder, f"{suite}.{name}.{one}") for one in ("onnx", "in", "out"))
    onnx.save(model, path)
    have = {one.name for one in model.graph.initializer}
    names = [one.name for one in model.graph.input if one.name not in have]
    for inputs, outputs in sets:
        save(given_path, dict(zip(names, inputs)))
        answer = converter.ask(model=path, inputs=given_path, outputs=made_path)
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


def fault(made, form, index, right, rtol, atol):
    """What is wrong with a result; empty where nothing is. Results of 16 bits may be two of their steps apart: tests round on the way."""
    import ml_dtypes
    import numpy as np
    ours = made.get(f"{form}.{index}")
    if ours is None:
        return f"result {index} is not there"
    if not isinstance(right, (np.ndarray, np.generic)):
        return f"result {index} is no tensor in the test"
    if right.dtype in (np.float16, ml_dtypes.bfloat16):
        rtol = max(rtol, 2 * float(ml_dtypes.finfo(right.dtype).eps))
    wrong = apart(ours, right, rtol, atol)
    kept_as = {"int4": "int8", "int2": "int8", "uint4": "uint8", "uint2": "uint8", "float8_e4m3fnuz": "float32", "float8_e5m2fnuz": "float32"}
    if not wrong and ours.dtype.name != kept_as.get(right.dtype.name, right.dtype.name):
        wrong = f"{ours.dtype} for {right.dtype}"
    return f"result {index}: {wrong}" if wrong else ""


def run_nodes(arguments, table, folder):
    cases = [case for case in node_cases() if fnmatch.fnmatchcase(case[1], arguments.match)
             and not any(fnmatch.fnmatchcase(case[1], one) for one in BY_CHANCE)]
    each(arguments, cases, lambda converter, case: judge_node(converter, folder, table, case))


def each(arguments, items, work):
    """Does the work for all items, each thread with a converter of its own."""
    local = threading.local()

    def one(item):
        if not hasattr(local, "converter"):
            local.converter = Converter(arguments.program)
        work(local.converter, item)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done in [pool.submit(one, item) for item in items]:
            done.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="build/release/bin/conformance")
    parser.add_argument("--only", choices=["node", "modules"])
    parser.add_argument("--match", default="*", help="a pattern of names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="each file that is not right")
    parser.add_argument("--json", help="a file for the verdicts")
    parser.add_argument("--keep", help="a folder for the files of what is not right")
    arguments = parser.parse_args()
    ensure_judges()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.keep:
            os.makedirs(arguments.keep, exist_ok=True)
            folder = arguments.keep
        if arguments.only != "modules":
            run_nodes(arguments, table, folder)
        if arguments.only != "node":
            import conformance_modules
            conformance_modules.run(arguments, table, folder, each, save, load)
    if arguments.list:
        print("\n".join(table.listing()))
    print(table.text())
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(table.as_json(), file, indent=1)
    unknown = table.unknown()
    for suite, name, form in unknown:
        print(f"wrong: {suite} {name} {form}: {table.rows[(suite, name, form)][1]}")
    sys.exit(1 if unknown else 0)


if __name__ == "__main__":
    main()
