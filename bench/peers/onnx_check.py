"""ONNX files of the reference networks in ONNX Runtime and OpenVINO, beside what ulp computed.

    build/release/bin/onnx_networks FOLDER float
    .deps/peers-venv/bin/python bench/peers/onnx_check.py FOLDER

Prints for each file and runtime the largest difference as a share of the largest result, over batches of 1 and 7. Files of int8
networks (`onnx_networks FOLDER int8`) have a second result, the last quantized activation: it is compared in steps of its scale, and
the float products that a runtime's optimized graph still has are counted. With `--layers` each layer of them is run by itself, too, on
the codes that our engine has before it: what makes the codes of an activation is cut out of the file as a model of its own. Of weights
alone (`weights8`, `weights4`) the numbers that ONNX Runtime makes of each tensor of codes are compared bit by bit. The runtimes' own
rounding is off: of activations before weights in blocks, and of sums of 8-bit products on processors that saturate, where the runtime
has an option for it: OpenVINO has none, use `onnx_networks FOLDER int7` on processors without VNNI. Each file goes through
onnx.checker first.
"""

import argparse
import collections
import glob
import os
import tempfile

import numpy as np
import onnx

from differences import largest_share

INTEGER = {"MatMulNBits", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulInteger", "GatherBlockQuantized"}
PRODUCTS = {"Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "ConvTranspose"}


def is_large(path):
    return os.path.exists(path + ".data") and os.path.getsize(path + ".data") >= 2**31


class OnnxRuntime:
    """ONNX Runtime with all of its optimizations."""

    name = "ONNX Runtime"

    def __init__(self, path, directory):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        options.add_session_config_entry("session.x64quantprecision", "1")
        optimized = os.path.join(directory, "optimized.onnx")
        if not is_large(path):  # one file would not hold it
            options.optimized_model_filepath = optimized
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.version = onnxruntime.__version__
        graph = onnx.load(path if is_large(path) else optimized, load_external_data=False).graph
        self.float_products = sorted(node.op_type for node in graph.node if node.op_type in PRODUCTS)
        self.integer_products = collections.Counter(node.op_type for node in graph.node if node.op_type in INTEGER)

    def run(self, *xs):
        return self.session.run(None, {one.name: x for one, x in zip(self.session.get_inputs(), xs)})


class OpenVino:
    """OpenVINO in fp32, without its own rounding to bf16."""

    name = "OpenVINO"
    integer_products = {}
    products = {"Convolution", "Deconvolution", "FullyConnected", "MatMul"}

    def __init__(self, path, _):
        import openvino
        self.version = openvino.__version__.split("-")[0]
        config = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
        self.model = openvino.Core().compile_model(path, "CPU", config)
        self.float_products = sorted(kind for kind, primitive in self.layers() if kind in self.products and not primitive.endswith("_I8"))

    def layers(self):
        """Kind and implementation ("jit_avx2_I8") of each layer that it runs."""
        for op in self.model.get_runtime_model().get_ops():
            info = op.get_rt_info()
            yield tuple(str(info[key].astype(str)) for key in ("layerType", "primitiveType"))

    def run(self, *xs):
        result = self.model(list(xs))
        return [result[i] for i in range(len(self.model.outputs))]


def step_of(model):
    """The scale of the second result, which a DequantizeLinear makes."""
    values = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    for node in model.graph.node:
        if model.graph.output[1].name in node.output:
            return float(values[node.input[1]])
    raise SystemExit("expected a second result that is dequantized")


def check_weights(path):
    """How many weights ONNX Runtime dequantizes to the bits that ulp has, of how many."""
    import onnxruntime
    model = onnx.load(path, load_external_data=not is_large(path))
    values = {one.name: one for one in model.graph.initializer}
    same, all_weights = 0, 0
    for node in model.graph.node:
        recorded = [glob.glob(glob.escape(f"{path[:-5]}.w.{name}.npy")) for name in (node.input[0], node.input[0].rpartition("_")[0])
                    ] if node.op_type == "DequantizeLinear" else []
        found = next((files[0] for files in recorded if files), None)
        if found is None:
            continue
        result = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None)
        graph = onnx.helper.make_graph([node], "weight", [], [result], [values[name] for name in node.input])
        one = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        session = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
        theirs, ours = session.run(None, {})[0], np.load(found)
        all_weights += 1
        same += any(np.array_equal(theirs.view(np.uint32), np.ascontiguousarray(o).view(np.uint32)) for o in (ours, ours.T)
                    if o.shape == theirs.shape)
    return same, all_weights


def recorded(path, name, batch):
    """What ulp has for an activation, or for the input."""
    return f"{path[:-len('onnx')]}{batch}.{'x' if name == 'input' else 'q.' + name}.npy"


def info_of(path, name):
    values = np.load(recorded(path, name, 7), mmap_mode="r")
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(values.dtype), ["batch", *values.shape[1:]])


def cut_layers(path):
    """What makes the codes of each activation, as (its name, its ops, its inputs, a model)."""
    model = onnx.load(path)
    stored = {one.name: one for one in model.graph.initializer}
    maker = {output: node for node in model.graph.node for output in node.output}
    coded = {os.path.basename(one).split(".q.", 1)[1][:-len(".npy")] for one in glob.glob(path[:-len("onnx")] + "1.q.*.npy")}
    for name in [output for node in model.graph.node for output in node.output if output in coded]:
        nodes, inputs, constants, open_names = [], [], {}, [name]
        while open_names:
            at = open_names.pop()
            node = maker.get(at)
            if at in stored:
                constants[at] = stored[at]
            elif node is None or (at in coded and at != name):
                inputs += [at] * (at not in inputs)
            elif node not in nodes:
                nodes.append(node)
                open_names += node.input
        nodes.sort(key=list(model.graph.node).index)
        graph = onnx.helper.make_graph(nodes, name, [info_of(path, one) for one in inputs], [info_of(path, name)], list(constants.values()))
        ops = " ".join(node.op_type for node in nodes if not node.op_type.endswith("Linear")) or "QuantizeLinear"
        yield name, ops, inputs, onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def check_layers(path, runtime_class):
    """Lines of the layers by what they compute, each given our codes: elements in all, how many differ, by how much at most."""
    found = collections.defaultdict(lambda: [0, 0, 0, 0])
    with tempfile.TemporaryDirectory() as directory:
        for name, ops, inputs, model in cut_layers(path):
            cut = os.path.join(directory, "layer.onnx")
            onnx.save(model, cut)
            runtime = runtime_class(cut, directory)
            counts = found[ops + " in float" * bool(runtime.float_products)]
            counts[0] += 1
            for batch in (1, 7):
                results = runtime.run(*[np.load(recorded(path, one, batch)) for one in inputs])
                apart = np.abs(results[0].astype(np.int32) - np.load(recorded(path, name, batch)))
                counts[1] += apart.size
                counts[2] += int((apart > 0).sum())
                counts[3] = max(counts[3], int(apart.max()))
    for ops, (layers, elements, different, steps) in sorted(found.items()):
        print(f"{os.path.basename(path)[:-5]:22} {runtime.name} {layers:3} x {ops}: {different} of {elements} codes differ "
              f"({100 * different / elements:.4f} %), by up to {steps}", flush=True)
    return [sum(one[i] for one in found.values()) for i in (1, 2)] + [max(one[3] for one in found.values())]


def check(path, runtime_class):
    """One line of the table."""
    with tempfile.TemporaryDirectory() as directory:
        runtime = runtime_class(path, directory)
        model = onnx.load(path, load_external_data=not is_large(path))
        step = step_of(model) if len(model.graph.output) > 1 else None
        relative, steps, different, elements = 0.0, 0.0, 0, 0
        for x_path in sorted(glob.glob(path[:-len("onnx")] + "*.x.npy")):
            results = runtime.run(np.load(x_path))
            ours = np.load(x_path.replace(".x.npy", ".y.npy"))
            difference = largest_share(results[0], ours)
            relative = max(relative, difference) if difference == difference else float("nan")
            if step is not None:
                apart = np.rint(np.abs(results[1].astype(np.float64) - np.load(x_path.replace(".x.", ".z."))) / step)
                steps, different = max(steps, apart.max()), different + int((apart > 0).sum())
                elements += apart.size
    line = f"{os.path.basename(path)[:-5]:22} {runtime.name} {runtime.version}: {relative:.1e}"
    if step is not None:
        line += f", codes differ by up to {steps:.0f} in {100 * different / elements:.3f} %"
        line += f", float products left: {len(runtime.float_products)} {' '.join(runtime.float_products)}"
    if runtime.integer_products:
        line += ", " + ", ".join(f"{count} {op}" for op, count in sorted(runtime.integer_products.items()))
    print(line, flush=True)
    return relative


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--openvino", action="store_true", help="run OpenVINO, too")
    parser.add_argument("--layers", action="store_true", help="run each layer of static int8 by itself, too")
    parser.add_argument("--only", default="*", help="a pattern of the files' names")
    arguments = parser.parse_args()
    paths = sorted(glob.glob(os.path.join(arguments.folder, arguments.only + ".onnx")))
    if not paths:
        raise SystemExit(f"expected ONNX files in {arguments.folder}")
    worst = 0.0
    for path in paths:
        onnx.checker.check_model(path, full_check=True)
        for runtime in [OnnxRuntime] + [OpenVino] * arguments.openvino:
            try:
                worst = max(worst, check(path, runtime))
            except RuntimeError as error:
                print(f"{os.path.basename(path)[:-5]:22} {runtime.name} refuses it: {error}", flush=True)
                worst = float("inf")
                continue
            if arguments.layers:
                elements, different, steps = check_layers(path, runtime)
                print(f"{os.path.basename(path)[:-5]:22} {runtime.name}, each layer given our codes: codes differ by up to {steps} in "
                      f"{100 * different / elements:.4f} % of {elements}", flush=True)
        same, weights = check_weights(path)
        if weights:
            print(f"{os.path.basename(path)[:-5]:22} {same} of {weights} weights have the same bits", flush=True)
            worst = worst if same == weights else float("inf")
    print(f"{len(paths)} files, largest difference {worst:.1e}")


if __name__ == "__main__":
    main()
