"""How each peer is given the network and run, with the settings its documentation recommends for this work.

`prepare` writes the files the peers load; each function in RUNNERS returns a callable that computes one batch of
fixed size, from an input that it keeps to logits. Run as a program, it measures one of them in this process.
"""

import argparse
import json
import os
import statistics
import time

import numpy as np

import network

CALIBRATION_IMAGES = 1000


def prepare(weights, data, work):
    """Writes fp32.onnx, int8.onnx (ONNX Runtime) and int8.xml (OpenVINO) into `work`."""
    import nncf
    import onnx
    import openvino as ov
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    fp32, inferred = os.path.join(work, "fp32.onnx"), os.path.join(work, "inferred.onnx")
    onnx.save(network.onnx_network(weights), fp32)
    images, _ = network.load_images(data, "train", weights.spec)
    images = images[:CALIBRATION_IMAGES]

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.batches = iter([{"images": images[i:i + 100]} for i in range(0, len(images), 100)])

        def get_next(self):
            return next(self.batches, None)

    quant_pre_process(fp32, inferred)
    # Unsigned activations and signed weights per channel: the combination ONNX Runtime documents for x86 with VNNI.
    q.quantize_static(inferred, os.path.join(work, "int8.onnx"), Reader(), quant_format=q.QuantFormat.QDQ,
                      per_channel=True, activation_type=q.QuantType.QUInt8, weight_type=q.QuantType.QInt8)

    model = ov.Core().read_model(fp32)
    calibration = nncf.Dataset([images[i:i + 1] for i in range(len(images))])
    quantized = nncf.quantize(model, calibration, preset=nncf.QuantizationPreset.MIXED, subset_size=len(images))
    ov.save_model(quantized, os.path.join(work, "int8.xml"), compress_to_fp16=False)


def torch_runner(args, dtype="float32", compiled=False):
    import torch
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, dtype)
    model = network.torch_network(network.Weights(args.model)).to(dtype, memory_format=torch.channels_last)
    if compiled:
        import torch._inductor.config as inductor
        inductor.freezing = True
        model = torch.compile(model, dynamic=False)
    kept = torch.empty(args.image_shape).to(dtype, memory_format=torch.channels_last)

    def run():
        with torch.inference_mode() if not compiled else torch.no_grad():
            return model(kept)

    def load(images):
        kept.copy_(torch.from_numpy(images))
        return run

    return load, lambda logits: logits.float().numpy()


def onnxruntime_runner(args, file):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    options.add_free_dimension_override_by_name("N", args.batch)
    session = ort.InferenceSession(os.path.join(args.work, file), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    logits = np.empty([args.batch, session.get_outputs()[0].shape[1]], np.float32)
    binding.bind_output("logits", "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
    kept = np.empty(args.image_shape, np.float32)
    binding.bind_input("images", "cpu", 0, np.float32, kept.shape, kept.ctypes.data)

    def run():
        session.run_with_iobinding(binding)
        return logits

    def load(images):
        kept[:] = images
        return run

    return load, np.copy


def openvino_runner(args, file, precision="f32"):
    import openvino as ov
    core = ov.Core()
    model = core.read_model(os.path.join(args.work, file))
    model.reshape(list(args.image_shape))
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": args.threads,
        "INFERENCE_PRECISION_HINT": precision})
    request = compiled.create_infer_request()
    kept = np.empty(args.image_shape, np.float32)
    request.set_input_tensor(ov.Tensor(kept, shared_memory=True))
    logits = request.get_output_tensor().data

    def run():
        request.infer()
        return logits

    def load(images):
        kept[:] = images
        return run

    return load, np.copy


RUNNERS = {
    "PyTorch eager|fp32": torch_runner,
    "PyTorch compile|fp32": lambda args: torch_runner(args, compiled=True),
    "ONNX Runtime|fp32": lambda args: onnxruntime_runner(args, "fp32.onnx"),
    "OpenVINO|fp32": lambda args: openvino_runner(args, "fp32.onnx"),
    "PyTorch eager|bf16": lambda args: torch_runner(args, "bfloat16"),
    "PyTorch compile|bf16": lambda args: torch_runner(args, "bfloat16", compiled=True),
    "OpenVINO|bf16": lambda args: openvino_runner(args, "fp32.onnx", "bf16"),
    "ONNX Runtime|int8": lambda args: onnxruntime_runner(args, "int8.onnx"),
    "OpenVINO|int8": lambda args: openvino_runner(args, "int8.xml"),
}


def accuracy(load, result, args, spec):
    """Percent of the test images whose largest logit is their label's."""
    images, labels = network.load_images(args.data, "t10k", spec)
    correct = 0
    for first in range(0, len(images), args.batch):
        logits = result(load(images[first:first + args.batch])())
        correct += int((logits.argmax(1) == labels[first:first + args.batch]).sum())
    return 100 * correct / len(images)


def seconds_per_call(run, rounds, round_seconds):
    """Median over rounds of the mean time of a call, after a warm-up as long as a round."""
    def one_round():
        calls, start, elapsed = 0, time.perf_counter(), 0.0
        while elapsed < round_seconds:
            run()
            calls += 1
            elapsed = time.perf_counter() - start
        return elapsed / calls

    run()
    one_round()
    return statistics.median(one_round() for _ in range(rounds))


def main():
    parser = argparse.ArgumentParser(description="Measures one peer in this process; compare.py starts it.")
    parser.add_argument("runner", choices=RUNNERS)
    parser.add_argument("--model", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batches", type=int, nargs="+", required=True, help="measured one after the other")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--accuracy", action="store_true")
    args = parser.parse_args()
    spec = network.Weights(args.model).spec
    values = []
    for args.batch in args.batches:
        args.image_shape = (args.batch, spec["in_channels"], spec["image_size"], spec["image_size"])
        load, result = RUNNERS[args.runner](args)
        if args.accuracy:
            values.append(accuracy(load, result, args, spec))
        else:
            images = np.random.default_rng(0).standard_normal(args.image_shape, np.float32)
            values.append(seconds_per_call(load(images), args.rounds, round_seconds=0.2))
        del load, result  # and with them the threads of this batch size
    print(json.dumps(values))


if __name__ == "__main__":
    main()
