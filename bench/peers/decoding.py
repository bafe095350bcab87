#!/usr/bin/env python3
"""GPT-2 writing a text: the time of one more token in ulp and in its peers, which take turns.

    build/release/bin/peer_networks /tmp/peers gpt2_decode
    .deps/peers-venv/bin/python bench/peers/decoding.py /tmp/peers

Each measurement is a process of its own. The peers compute the token behind 96 others, whose keys and values they are
given in buffers that stay; ulp writes the tokens 64 to 127. All have the same weights, and the logits of the token behind
the 96 are compared with LibTorch's first: by the largest difference as a share of the largest logit.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import numpy as np

from compare import machine
from differences import largest_share
from networks import Variant, onnxruntime_session, read_safetensors, write_safetensors
from peers import seconds_per_call

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NETWORK, LAYERS, HEADS, WIDTH, PAST = "gpt2_decode", 12, 12, 768, 96
DEPTH = WIDTH // HEADS
TOLERANCE = {"fp32": 1e-3, "bf16": 0.1, "int8": 0.2, "8-bit weights": 0.2, "4-bit weights": 0.5}
ENGINES = {"fp32": "fp32", "bf16": "bf16", "static": "int8", "dynamic": "int8", "weights8": "8-bit weights",
           "weights4": "4-bit weights"}


def in_folder(args, ending):
    return os.path.join(args.folder, NETWORK + ending)


def write_onnx(weights, path):
    """One token behind any number of others: their keys and values are inputs, those of the token are outputs."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    nodes, constants = [], {}

    def constant(name, value):
        constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def node(op, *inputs, count=1, **attributes):
        outputs = [f"{op}_{len(nodes)}_{i}" for i in range(count)]
        nodes.append(helper.make_node(op, list(inputs), outputs, **attributes))
        return outputs[0] if count == 1 else outputs

    def linear(x, name):
        product = node("MatMul", x, constant(name + ".weight", weights[name + ".weight"]))
        return node("Add", product, constant(name + ".bias", weights[name + ".bias"]))

    def norm(x, name):
        return node("LayerNormalization", x, constant(name + ".weight", weights[name + ".weight"]),
                    constant(name + ".bias", weights[name + ".bias"]), axis=-1, epsilon=1e-5)

    def ints(*values):
        return constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def cache(i, kind):
        return helper.make_tensor_value_info(f"past.{i}.{kind}", TensorProto.FLOAT, [1, HEADS, "past", DEPTH])

    token = helper.make_tensor_value_info("token", TensorProto.INT64, [1, 1])
    position = helper.make_tensor_value_info("position", TensorProto.INT64, [1, 1])
    inputs, outputs = [token, position], [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, weights["wte.weight"].shape[0]])]
    x = node("Add", node("Gather", constant("wte", weights["wte.weight"]), "token"),
             node("Gather", constant("wpe", weights["wpe.weight"]), "position"))
    scale = constant("scale", np.array(DEPTH ** -0.5, np.float32))
    for i in range(LAYERS):
        inputs += [cache(i, "key"), cache(i, "value")]
        qkv = node("Split", linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), ints(WIDTH, WIDTH, WIDTH),
                   count=3, axis=2)
        query, key, value = (node("Reshape", part, ints(1, HEADS, 1, DEPTH)) for part in qkv)
        for kind, new in (("key", key), ("value", value)):
            nodes.append(helper.make_node("Identity", [new], [f"new.{i}.{kind}"]))
            outputs.append(helper.make_tensor_value_info(f"new.{i}.{kind}", TensorProto.FLOAT, [1, HEADS, 1, DEPTH]))
        # Keys times the query as a column: no key has to be moved.
        column = node("Reshape", node("Mul", query, scale), ints(1, HEADS, DEPTH, 1))
        scores = node("Concat", node("MatMul", f"past.{i}.key", column), node("MatMul", key, column), axis=2)
        shares = node("Softmax", scores, axis=2)
        before = node("Reshape", node("Slice", shares, ints(0), ints(-1), ints(2)), ints(1, HEADS, 1, -1))
        last = node("Slice", shares, ints(-1), ints(2**62), ints(2))
        found = node("Add", node("MatMul", before, f"past.{i}.value"), node("Mul", last, value))
        x = node("Add", x, linear(node("Reshape", found, ints(1, 1, WIDTH)), f"h.{i}.attn.c_proj"))
        wide = node("Gelu", linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        x = node("Add", x, linear(wide, f"h.{i}.mlp.c_proj"))
    nodes.append(helper.make_node("MatMul", [norm(x, "ln_f"), constant("head", weights["wte.weight"].T)], ["logits"]))
    graph = helper.make_graph(nodes, "gpt2", inputs, outputs, list(constants.values()))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


def prepare(args):
    """Writes, where they are not there yet: the ONNX file, the inputs at the token behind the others, the logits there."""
    if os.path.exists(in_folder(args, ".expected.npy")):
        return
    from safetensors.numpy import load_file
    write_onnx(load_file(in_folder(args, ".safetensors")), in_folder(args, ".onnx"))
    text = np.load(in_folder(args, ".x.npy"))[:1]
    session = onnxruntime_session(in_folder(args, ".onnx"), args.threads)
    names = [x.name for x in session.get_inputs()][2:]
    past = {name: np.zeros((1, HEADS, 0, DEPTH), np.float32) for name in names}
    for i in range(PAST):
        _, *new = session.run(None, {"token": text[:, i:i + 1], "position": np.array([[i]]), **past})
        past = {name: np.concatenate([past[name], more], 2) for name, more in zip(names, new)}
    np.savez(in_folder(args, ".inputs.npz"), token=text[:, PAST:PAST + 1], position=np.array([[PAST]]), **past)
    np.save(in_folder(args, ".expected.npy"), np.load(in_folder(args, ".y.npy"))[0, PAST])


def once(path, make):
    if not os.path.exists(path):
        make(path)
    return path


def onnxruntime_file(args, precision):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    source = in_folder(args, ".onnx")

    def coded(bits):
        def make(path):
            # accuracy_level 4: inputs in 8 bits, its fastest.
            quantizer = MatMulNBitsQuantizer(source, bits=bits, block_size=32, is_symmetric=True, accuracy_level=4)
            quantizer.process()
            quantizer.model.save_model_to_file(path)
        return make
    if precision == "int8":
        return once(in_folder(args, ".ort-int8.onnx"), lambda path: quantize_dynamic(
            source, path, weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul"]))
    if precision == "8-bit weights":
        return once(in_folder(args, ".ort-8.onnx"), coded(8))
    if precision == "4-bit weights":
        return once(in_folder(args, ".ort-4.onnx"), coded(4))
    return source


def onnxruntime_runner(args, precision):
    session = onnxruntime_session(onnxruntime_file(args, precision), args.threads)
    binding = session.io_binding()
    for name, x in args.inputs.items():
        binding.bind_input(name, "cpu", 0, x.dtype.type, x.shape, x.ctypes.data)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")

    def run():
        session.run_with_iobinding(binding)
        return binding
    return run, lambda done: done.copy_outputs_to_cpu()[0].ravel()


def openvino_file(args, precision):
    import nncf
    import openvino as ov
    source = in_folder(args, ".onnx")

    def compressed(**settings):
        def make(path):
            ov.save_model(nncf.compress_weights(ov.Core().read_model(source), **settings), path, compress_to_fp16=False)
        return make
    if precision == "8-bit weights":
        return once(in_folder(args, ".nncf-8.xml"), compressed(mode=nncf.CompressWeightsMode.INT8_ASYM))
    if precision == "4-bit weights":
        return once(in_folder(args, ".nncf-4.xml"), compressed(
            mode=nncf.CompressWeightsMode.INT4_SYM, ratio=1.0, group_size=32, all_layers=True))
    return source


def openvino_runner(args, precision):
    import openvino as ov
    core = ov.Core()
    model = core.read_model(openvino_file(args, precision))
    model.reshape({name: list(x.shape) for name, x in args.inputs.items()})
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": args.threads,
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32"})
    request = compiled.create_infer_request()
    for name, x in args.inputs.items():
        request.set_tensor(name, ov.Tensor(x, shared_memory=True))

    def run():
        request.infer()
        return request
    return run, lambda done: np.array(done.get_tensor("logits").data).ravel()


def torch_runner(args, precision, compiled=False):
    import torch
    from safetensors.torch import load_file
    from torch.nn import functional
    torch.set_num_threads(args.threads)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    weights = {name: value.to(dtype) for name, value in load_file(in_folder(args, ".safetensors")).items()}
    weights = {name: value.t().contiguous() if ".c_" in name and value.dim() == 2 else value
               for name, value in weights.items()}
    # Buffers with room for the token.
    past = {name: functional.pad(torch.from_numpy(x).to(dtype), (0, 0, 0, 1))
            for name, x in args.inputs.items() if name.startswith("past")}

    def linear(x, name):
        return functional.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(x, name):
        return functional.layer_norm(x, [WIDTH], weights[name + ".weight"], weights[name + ".bias"])

    def forward(token, position):
        x = functional.embedding(token, weights["wte.weight"]) + functional.embedding(position, weights["wpe.weight"])
        for i in range(LAYERS):
            query, key, value = (part.view(1, 1, HEADS, DEPTH).transpose(1, 2)
                                 for part in linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(WIDTH, 2))
            keys, values = past[f"past.{i}.key"], past[f"past.{i}.value"]
            keys[:, :, PAST:] = key
            values[:, :, PAST:] = value
            found = functional.scaled_dot_product_attention(query, keys, values)
            x = x + linear(found.transpose(1, 2).reshape(1, 1, WIDTH), f"h.{i}.attn.c_proj")
            wide = functional.gelu(linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
            x = x + linear(wide, f"h.{i}.mlp.c_proj")
        return functional.linear(norm(x, "ln_f"), weights["wte.weight"])

    if compiled:
        import torch._inductor.config as inductor
        inductor.freezing = True
        forward = torch.compile(forward, dynamic=False)
    token, position = (torch.from_numpy(args.inputs[name]) for name in ("token", "position"))

    def run():
        with torch.no_grad() if compiled else torch.inference_mode():
            return forward(token, position)
    return run, lambda y: y.float().numpy().ravel()


RUNNERS = {"ONNX Runtime": (onnxruntime_runner, ["fp32", "int8", "8-bit weights", "4-bit weights"]),
           "OpenVINO": (openvino_runner, ["fp32", "bf16", "8-bit weights", "4-bit weights"]),
           "PyTorch eager": (torch_runner, ["fp32", "bf16"]),
           "PyTorch compile": (lambda *how: torch_runner(*how, compiled=True), ["fp32", "bf16"])}


def measure_peer(args):
    """One peer, in this process: the seconds of a token, or its logits."""
    args.inputs = dict(np.load(in_folder(args, ".inputs.npz")))
    name, precision = args.peer.split("|")
    run, result = RUNNERS[name][0](args, precision)
    if args.result:
        np.save(args.result, result(run()))
    else:
        print(json.dumps(seconds_per_call(run, args.rounds, round_seconds=0.2)))


class Decoder(Variant):
    def peer(self, *more):
        return self.call([sys.executable, os.path.abspath(__file__), self.args.folder, "--peer",
                          f"{self.name}|{self.precision}", "--threads", str(self.args.threads), "--rounds",
                          str(self.args.rounds), *more])

    def result(self):
        """Logits behind the 96 tokens."""
        out = os.path.join(self.args.folder, "result")
        if self.engine is None:
            self.peer("--result", out + ".npy")
            return np.load(out + ".npy")
        info = json.loads(self.call([self.args.ulp, "inspect", self.engine, "--json"]))
        write_safetensors(out + ".x", info["steps"][0]["reads"], np.load(in_folder(self.args, ".x.npy"))[:1])
        self.call([self.args.ulp, "run", self.engine, "--input", out + ".x", "--count", "1", "--out", out + ".y"])
        return read_safetensors(out + ".y")[0, PAST]

    def seconds(self):
        if self.engine is None:
            return json.loads(self.peer().strip().splitlines()[-1])
        bench = os.path.join(os.path.dirname(self.args.ulp), "engine_bench")
        return float(re.search(r"median ([\d.]+) ms", self.call([bench, "decode", self.engine, "192"])).group(1)) / 1e3


def checked(variant, expected):
    difference = largest_share(variant.result(), expected)
    print(f"{variant.name} {variant.precision} is off by {100 * difference:.4f} %", file=sys.stderr)
    if not difference <= TOLERANCE[variant.precision]:
        sys.exit(f"{variant.name} {variant.precision} computes something else")


def measure(args):
    found = [Decoder(args, NETWORK, f"ulp {kind}", precision) for kind, precision in ENGINES.items()]
    found += [Decoder(args, NETWORK, name, p) for name, (_, precisions) in RUNNERS.items() for p in precisions]
    found = [v for v in found if any(only in f"{v.name}|{v.precision}" for only in args.only)]
    found.sort(key=lambda v: list(TOLERANCE).index(v.precision))
    expected = np.load(in_folder(args, ".expected.npy")).astype(np.float64)
    for v in found:
        checked(v, expected)
    times = {(v.name, v.precision): [] for v in found}
    for _ in range(args.turns):
        for v in found:
            times[v.name, v.precision].append(v.seconds())
    print(machine() + f"; {args.threads} threads, medians of {args.turns} turns\n")
    print("| network | precision | runs on | a token, ms | ulp is |\n|---|---|---|--:|--:|")
    rows = []
    for v in found:
        seconds = statistics.median(times[v.name, v.precision])
        ours = [statistics.median(times[o.name, o.precision]) for o in found if o.engine and o.precision == v.precision]
        ratio = None if v.engine or not ours else seconds / min(ours)
        rows.append({"precision": v.precision, "runs on": v.name, "ms": 1e3 * seconds, "ulp is": ratio,
                     "turns": times[v.name, v.precision]})
        print(f"| gpt2, one token | {v.precision} | {v.name} | {1e3 * seconds:.2f} | "
              + ("" if ratio is None else f"{ratio:.2f}x") + " |")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"machine": machine(), "rows": rows}, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="what peer_networks wrote")
    parser.add_argument("--only", nargs="+", default=[""], help="variants whose name or precision has one of these words")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="of 0.2 s in a measurement of a peer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ulp", default=os.path.join(ROOT, "build/release/bin/ulp"),
                        help="the tool; engine_bench lies beside it")
    parser.add_argument("--json", help="file for the figures")
    for hidden in ("--peer", "--result"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return measure_peer(args)
    prepare(args)
    measure(args)


if __name__ == "__main__":
    main()
