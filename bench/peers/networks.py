#!/usr/bin/env python3
"""Networks of usual size in ulp and in its peers: time of a call, batches of 1 and 16, the peers in turn.

    build/release/bin/peer_networks /tmp/peers
    .deps/peers-venv/bin/python bench/peers/networks.py /tmp/peers

Each measurement is a process of its own. All get the same weights and inputs through the ONNX file, and the result of each
is compared with LibTorch's first: by the largest difference as a share of the largest result, which is printed. Narrow
types of random weights differ by some percent; a variant that is off by more than a half ends the comparison.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

from compare import machine
from differences import largest_share
from peers import seconds_per_call

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOLERANCE = {"fp32": 1e-3, "bf16": 0.5, "int8": 0.6}


def input_of(folder, network, batch):
    return np.ascontiguousarray(np.load(os.path.join(folder, f"{network}.x.npy"))[:batch])


def onnxruntime_session(path, threads):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def folded(folder, network):
    """The network with its constants folded, which quantizers want: a transposed weight is a weight to them. Made once."""
    from onnxruntime.quantization.shape_inference import quant_pre_process
    target = os.path.join(folder, network + ".folded.onnx")
    if not os.path.exists(target):
        quant_pre_process(os.path.join(folder, network + ".onnx"), target, skip_symbolic_shape=True)
    return target


def onnxruntime_quantized(folder, network):
    """ONNX Runtime's own 8-bit file: static for images, dynamic for texts. Made once."""
    from onnxruntime import quantization as q
    target = os.path.join(folder, network + ".ort-int8.onnx")
    if os.path.exists(target):
        return target
    source, x = folded(folder, network), input_of(folder, network, 16)
    if x.dtype == np.int64:
        q.quantize_dynamic(source, target, weight_type=q.QuantType.QInt8, per_channel=True)
        return target
    name = onnxruntime_session(source, 1).get_inputs()[0].name

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.batches = iter([{name: x[i:i + 2]} for i in range(0, 8, 2)])

        def get_next(self):
            return next(self.batches, None)

    q.quantize_static(source, target, Reader(), quant_format=q.QuantFormat.QDQ, per_channel=True,
                      activation_type=q.QuantType.QUInt8, weight_type=q.QuantType.QInt8)
    return target


def onnxruntime_runner(args, quantized):
    path = onnxruntime_quantized(args.folder, args.network) if quantized else \
        os.path.join(args.folder, args.network + ".onnx")
    session = onnxruntime_session(path, args.threads)
    binding = session.io_binding()
    x = args.x
    binding.bind_input(session.get_inputs()[0].name, "cpu", 0, x.dtype.type, x.shape, x.ctypes.data)
    binding.bind_output(session.get_outputs()[0].name, "cpu")

    def run():
        session.run_with_iobinding(binding)
        return binding
    return run, lambda done: done.copy_outputs_to_cpu()[0]


def openvino_quantized(folder, network):
    """NNCF's 8-bit file, with its settings for transformers where the input is text. Made once."""
    import nncf
    import openvino as ov
    target = os.path.join(folder, network + ".nncf-int8.xml")
    if os.path.exists(target):
        return target
    model = ov.Core().read_model(folded(folder, network))
    x = input_of(folder, network, 8)
    text = x.dtype == np.int64
    quantized = nncf.quantize(model, nncf.Dataset([x[i:i + 1] for i in range(8)]), subset_size=8,
                              preset=nncf.QuantizationPreset.MIXED,
                              model_type=nncf.ModelType.TRANSFORMER if text and network != "lstm" else None)
    ov.save_model(quantized, target, compress_to_fp16=False)
    return target


def openvino_runner(args, precision, quantized=False):
    import openvino as ov
    core = ov.Core()
    path = openvino_quantized(args.folder, args.network) if quantized else \
        os.path.join(args.folder, args.network + ".onnx")
    model = core.read_model(path)
    model.reshape(list(args.x.shape))
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": args.threads,
        "INFERENCE_PRECISION_HINT": precision})
    request = compiled.create_infer_request()
    request.set_input_tensor(ov.Tensor(args.x, shared_memory=True))

    def run():
        request.infer()
        return request
    return run, lambda done: np.array(done.get_output_tensor(0).data)


def torch_runner(args, dtype, compiled):
    import onnx2torch
    import torch
    torch.set_num_threads(args.threads)
    model = onnx2torch.convert(os.path.join(args.folder, args.network + ".onnx")).eval()
    dtype = getattr(torch, dtype)
    x = torch.from_numpy(args.x)
    model = model.to(dtype)
    if x.is_floating_point():
        model, x = model.to(memory_format=torch.channels_last), x.to(dtype, memory_format=torch.channels_last)
    if compiled:
        import torch._inductor.config as inductor
        inductor.freezing = True
        model = torch.compile(model, dynamic=False)

    def run():
        with torch.no_grad() if compiled else torch.inference_mode():
            return model(x)
    return run, lambda y: y.float().numpy()


PEERS = {
    "PyTorch eager|fp32": lambda args: torch_runner(args, "float32", False),
    "PyTorch compile|fp32": lambda args: torch_runner(args, "float32", True),
    "ONNX Runtime|fp32": lambda args: onnxruntime_runner(args, False),
    "OpenVINO|fp32": lambda args: openvino_runner(args, "f32"),
    "PyTorch eager|bf16": lambda args: torch_runner(args, "bfloat16", False),
    "PyTorch compile|bf16": lambda args: torch_runner(args, "bfloat16", True),
    "OpenVINO|bf16": lambda args: openvino_runner(args, "bf16"),
    "ONNX Runtime|int8": lambda args: onnxruntime_runner(args, True),
    "OpenVINO|int8": lambda args: openvino_runner(args, "f32", True),
}
ENGINES = {"fp32": "fp32", "bf16": "bf16", "static": "int8", "dynamic": "int8"}


def measure_peer(args):
    """One peer, in this process: the seconds of a call, or the result for two inputs."""
    args.x = input_of(args.folder, args.network, args.batch)
    run, result = PEERS[args.peer](args)
    if args.result:
        np.save(args.result, result(run()))
    else:
        print(json.dumps(seconds_per_call(run, args.rounds, round_seconds=0.2)))


def write_safetensors(path, name, x):
    header = json.dumps({name: {"dtype": {"f": "F32", "i": "I64"}[x.dtype.kind], "shape": x.shape,
                                "data_offsets": [0, x.nbytes]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + x.tobytes())


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    [entry] = [value for name, value in header.items() if name != "__metadata__"]
    first, end = entry["data_offsets"]
    return np.frombuffer(data[first:end], np.float32).reshape(entry["shape"])


class Variant:
    def __init__(self, args, network, name, precision):
        self.args, self.network, self.name, self.precision = args, network, name, precision
        self.engine = os.path.join(args.folder, f"{network}.{name[4:]}.ulp") if name.startswith("ulp ") else None

    def call(self, command):
        done = subprocess.run(command, capture_output=True, text=True,
                              env=dict(os.environ, OMP_NUM_THREADS=str(self.args.threads)))
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message")
        return done.stdout

    def peer(self, batch, *more):
        return self.call([sys.executable, os.path.abspath(__file__), self.args.folder, "--peer",
                          f"{self.name}|{self.precision}", "--network", self.network, "--batch", str(batch),
                          "--threads", str(self.args.threads), "--rounds", str(self.args.rounds), *more])

    def result(self):
        """Of two inputs."""
        out = os.path.join(self.args.folder, "result")
        if self.engine is None:
            self.peer(2, "--result", out + ".npy")
            return np.load(out + ".npy")
        x = input_of(self.args.folder, self.network, 2)
        info = json.loads(self.call([self.args.ulp, "inspect", self.engine, "--json"]))
        write_safetensors(out + ".x", info["steps"][0]["reads"], x)
        self.call([self.args.ulp, "run", self.engine, "--input", out + ".x", "--count", "2", "--out", out + ".y"])
        return read_safetensors(out + ".y")

    def seconds(self, batch):
        if self.engine is None:
            return json.loads(self.peer(batch).strip().splitlines()[-1])
        rows = json.loads(self.call([self.args.ulp, "bench", self.engine, "--batch", str(batch), "--rounds",
                                     str(self.args.rounds + 1), "--threads", str(self.args.threads), "--json"]))
        return rows["Speed"][0]["median [ms]"] / 1e3


def variants(args, network):
    found = [Variant(args, network, f"ulp {kind}", precision) for kind, precision in ENGINES.items()
             if os.path.exists(os.path.join(args.folder, f"{network}.{kind}.ulp"))]
    found += [Variant(args, network, *key.split("|")) for key in PEERS]
    found = [v for v in found if any(only in f"{v.name}|{v.precision}" for only in args.only)]
    return sorted(found, key=lambda v: list(TOLERANCE).index(v.precision))


def checked(variant):
    """True if it computes what LibTorch does; a peer that cannot run the network is left out."""
    try:
        result = variant.result()
    except RuntimeError as error:
        print(f"{variant.network}: {variant.name} {variant.precision} is left out: {error}", file=sys.stderr)
        return False
    expected = np.load(os.path.join(variant.args.folder, f"{variant.network}.y.npy"))[:2]
    difference = largest_share(result, expected)
    print(f"{variant.network}: {variant.name} {variant.precision} is off by {100 * difference:.4f} %", file=sys.stderr)
    if not difference <= TOLERANCE[variant.precision]:
        sys.exit(f"{variant.name} {variant.precision} computes something else")
    return True


def measure(args, network):
    """Prints the rows of a network and returns them."""
    found = [v for v in variants(args, network) if checked(v)]
    times = {(v.name, v.precision, batch): [] for v in found for batch in args.batches}
    for _ in range(args.turns):
        for v in found:
            for batch in args.batches:
                times[v.name, v.precision, batch].append(v.seconds(batch))
    rows = []
    for v in found:
        row = {"network": network, "precision": v.precision, "runs on": v.name}
        for batch in args.batches:
            ours = [statistics.median(times[o.name, o.precision, batch]) for o in found
                    if o.engine and o.precision == v.precision]
            seconds = statistics.median(times[v.name, v.precision, batch])
            row[f"batch {batch} ms"] = 1e3 * seconds
            row[f"batch {batch} ulp is"] = None if v.engine or not ours else seconds / min(ours)
        rows.append(row)
        cells = [f"{row[f'batch {b} ms']:.2f} | " + ("" if row[f"batch {b} ulp is"] is None else
                                                     f"{row[f'batch {b} ulp is']:.2f}x") for b in args.batches]
        print(f"| {network} | {v.precision} | {v.name} | " + " | ".join(cells) + " |", flush=True)
    return rows


def draw(args, rows):
    """Bars of the peers' times over ours, a panel for each type of numbers."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    peers = sorted({row["runs on"] for row in rows if not row["runs on"].startswith("ulp ")})
    color = {peer: f"C{i}" for i, peer in enumerate(peers)}
    panels = [p for p in TOLERANCE if any(row["precision"] == p for row in rows)]
    bars = {p: [(f"{row['network']}, {batch}", row["runs on"], row[f"batch {batch} ulp is"]) for row in rows
                for batch in args.batches if row["precision"] == p and row[f"batch {batch} ulp is"]] for p in panels}
    height = max(len(found) for found in bars.values())
    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 1.5 + 0.24 * height), squeeze=False)
    for axis, precision in zip(axes[0], panels):
        found = bars[precision][::-1]
        axis.barh(range(len(found)), [ratio for _, _, ratio in found], color=[color[peer] for _, peer, _ in found])
        axis.set_yticks(range(len(found)), [label for label, _, _ in found], fontsize=7)
        for i, (_, _, ratio) in enumerate(found):
            axis.text(ratio, i, f" {ratio:.2f}", va="center", fontsize=7)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_xlim(0, 1.15 * max((ratio for _, _, ratio in found), default=1))
        axis.set_title(f"{precision}: time of the peer / time of ulp", fontsize=9)
    figure.legend([plt.Rectangle((0, 0), 1, 1, color=color[peer]) for peer in peers], peers, loc="lower center",
                  ncol=len(peers), fontsize=8)
    figure.text(0.01, 0.99, f"{machine()}; {args.threads} threads; network, batch", va="top", fontsize=7)
    figure.tight_layout(rect=(0, 0.05, 1, 0.97))
    figure.savefig(args.chart, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="what peer_networks wrote")
    parser.add_argument("--networks", nargs="+", default=[
        "resnet50", "mobilenet_v2", "mobilenet_v3", "efficientnet_b0", "vit_tiny", "unet", "bert", "gpt2", "lstm"])
    parser.add_argument("--only", nargs="+", default=[""], help="variants whose name or precision has one of these words")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="of 0.2 s in a measurement")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ulp", default=os.path.join(ROOT, "build/release/bin/ulp"), help="the tool")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--chart", help="picture of how many times as long each peer takes: .svg, .png or .pdf")
    for hidden in ("--peer", "--network", "--result"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return measure_peer(args)
    print(machine() + f"; {args.threads} threads, medians of {args.turns} turns\n")
    print("| network | precision | runs on | " + " | ".join(f"batch {b}, ms | ulp is" for b in args.batches) + " |")
    print("|---|---|---|" + "--:|--:|" * len(args.batches), flush=True)
    rows = [row for network in args.networks for row in measure(args, network)]
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"machine": machine(), "rows": rows}, file, indent=1)
    if args.chart:
        draw(args, rows)


if __name__ == "__main__":
    main()
