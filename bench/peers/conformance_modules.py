"""The small modules of small_modules.py through every reader and writer, for conformance.py."""

import fnmatch
import inspect
import os
import shutil
import threading
import warnings

import numpy as np
import torch

import small_modules
from conformance_files import each, load, save
from differences import differences

SUITES = ("modules",)

FLOAT_FORMS = {"onnx": "onnx", "onnx17": "onnx", "fp16": "onnx", "tflite": "tflite", "coreml": "mlpackage"}
INT8_FORMS = {"qdq": "onnx", "tflite_int8": "tflite"}
# Functions with jumps, where a rounded operand may give another number.
JUMPS = ("round", "floor", "ceil", "trunc", "frac", "remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge", "to_int", "to_bool", "int_div", "arg",
         "sorting", "logical", "heaviside", "sign", "reduce_any", "reduce_all", "div_", "where", "hardshrink", "isinf", "nearest", "max_both",
         "copysign", "interpolate", "grid_sample", "buckets")


def off(theirs, right):
    """By how much of the largest number an array is off, and which share of its elements is off by more than a thousandth; infinite for
    other sizes, and for NaN and infinity elsewhere."""
    theirs, right = np.asarray(theirs), np.asarray(right)
    if theirs.shape != right.shape:
        return np.inf, 1.0
    if right.size == 0:
        return 0.0, 0.0
    apart, largest, alike = differences(theirs, right)
    if not alike:
        return np.inf, 1.0
    largest = max(largest, 1e-3)
    return apart.max() / largest, (apart > 1e-3 * largest).mean()


def verdict(theirs, right, most, share=0.0):
    """Right or wrong, and why. `share`: this part of the elements may be off by anything finite."""
    if len(theirs) < len(right):
        return "wrong", f"{len(theirs)} results for {len(right)}"
    for i, one in enumerate(right):
        relative, part = off(theirs[i], one)
        if relative > most and not (relative < np.inf and part <= share):
            if np.shape(theirs[i]) != np.shape(one):
                return "wrong", f"result {i}: sizes {list(np.shape(theirs[i]))} for {list(np.shape(one))}"
            return "wrong", f"result {i}: off by {relative:.2g} of the largest, {100 * part:.0f} % of the elements"
    return "right", ""


def by_onnx_runtime(path, inputs, _):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: x for one, x in zip(session.get_inputs(), inputs)})


def by_litert(path, inputs, right):
    """Images lie as [N, H, W, C] in the file, and so do results of operators on images: those are turned where sizes say so, or where
    that is what agrees."""
    from ai_edge_litert.interpreter import Interpreter
    interpreter = Interpreter(model_path=path)
    interpreter.allocate_tensors()
    for one, x in zip(interpreter.get_input_details(), inputs):
        x = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
        interpreter.set_tensor(one["index"], np.ascontiguousarray(x.astype(one["dtype"])))
    interpreter.invoke()
    results = []
    for one, wanted in zip(interpreter.get_output_details(), right):
        result = interpreter.get_tensor(one["index"])
        if one["dtype"] == np.int8 and one["quantization"][0]:
            scale, zero = one["quantization"]
            result = (result.astype(np.float32) - zero) * np.float32(scale)
        if result.ndim == 4:
            turned = result.transpose(0, 3, 1, 2)
            result = min((result, turned), key=lambda r: off(r, wanted)[0])
        results.append(result)
    return results


READS_MIL = threading.Lock()  # coremltools counts names in one place


def by_mil(path, inputs, _):
    import coreml_check
    with READS_MIL, torch.no_grad():
        spec, function = coreml_check.parsed(path)
        return coreml_check.evaluate(function, dict(zip([one.name for one in spec.description.input], inputs)))


JUDGES = {"onnx": by_onnx_runtime, "tflite": by_litert, "mlpackage": by_mil}


def exported(module, inputs, path):
    """Writes the archive of torch.export; with a free batch where the inputs have more than one item."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch, sizes = inputs[0].shape[0], None
        if batch > 1 and all(x.shape[0] == batch for x in inputs):
            sizes = tuple({0: torch.export.Dim("batch", max=64)} for _ in inputs)
            if any(one.kind is one.VAR_POSITIONAL for one in inspect.signature(module.forward).parameters.values()):
                sizes = (sizes,)  # forward(*inputs): one argument that holds all
        torch.export.save(torch.export.export(module, inputs, dynamic_shapes=sizes), path)


def results_of(module, inputs):
    with torch.no_grad():
        made = module(*inputs)
    return [one.numpy() for one in (made if isinstance(made, (tuple, list)) else [made])]


def judge(converter, folder, table, case):
    name, inputs, right, quantized = case
    stem = os.path.join(folder, name)
    arrays = [x.numpy() for x in inputs]
    save(stem + ".in", {str(i): x for i, x in enumerate(arrays)})
    forms = {**FLOAT_FORMS, **(INT8_FORMS if quantized else {})}
    paths = {form: f"{stem}.{form}.{end}" for form, end in forms.items()}
    answer = converter.ask(model=stem + ".pt2", inputs=stem + ".in", outputs=stem + ".out", export=paths)
    failed = answer["failed"]
    jumps = any(word in name for word in JUMPS)
    stage = next((one for one in ("read", "run", "process") if one in failed), None)
    if stage:
        table.add("modules", name, "pt2", "wrong" if stage == "process" else "refused", failed[stage])
        return
    made = load(stem + ".out")

    def kept(form):
        return [made[f"{form}.{i}"] for i in range(len(right)) if f"{form}.{i}" in made]

    table.add("modules", name, "pt2", *verdict(kept("graph"), right, 1e-6))
    if "pieces" in failed:
        table.add("modules", name, "engine", "refused", failed["pieces"])
    else:
        table.add("modules", name, "engine", *verdict(kept("pieces"), right, 2e-5))
    for form, end in forms.items():
        if form in failed:
            table.add("modules", name, form, "refused", failed[form])
            continue
        wanted = kept(form) if form in INT8_FORMS else right
        most, share = {"fp16": (1e-2, 0.2 if jumps else 0.0), "qdq": (1e-2, 0.0), "tflite_int8": (1e-2, 0.0)}.get(form, (2e-5, 0.0))
        try:
            theirs = JUDGES[end](paths[form], arrays, wanted)
            table.add("modules", name, form, *verdict(theirs, wanted, most, share))
        except (Exception, SystemExit) as error:
            table.add("modules", name, form, "wrong", f"not loaded: {type(error).__name__}: {error}"[:300].replace("\n", " "))
        if end == "onnx":
            if form + ".read" in failed:
                table.add("modules", name, form + " back", "refused", failed[form + ".read"])
            else:
                again = verdict(kept(form + ".read"), wanted, 1e-2 if form == "fp16" else 1e-6, share)
                table.add("modules", name, form + " back", *again)
    if table.all_right("modules", name):
        for path in [stem + end for end in (".in", ".out", ".pt2")] + list(paths.values()):
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.path.exists(path) and os.remove(path)


def run(arguments, table, folder):
    """Draws, exports and judges; exports are made one after the other, as PyTorch wants it."""
    torch.set_num_threads(1)

    def cases():
        for name, module, inputs, quantized in small_modules.drawn():
            if not fnmatch.fnmatchcase(name, arguments.match):
                continue
            right = results_of(module, inputs)
            try:
                exported(module, inputs, os.path.join(folder, name + ".pt2"))
            except Exception as error:
                table.add("modules", name, "torch.export", "refused", f"{type(error).__name__}: {error}".splitlines()[0])
                continue
            yield name, inputs, right, quantized

    each(arguments, cases(), lambda converter, case: judge(converter, folder, table, case))
