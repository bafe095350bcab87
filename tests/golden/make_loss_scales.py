"""Writes one peer's part of loss_scales.json: what its loss scaler does, step by step, for
tests/amp/loss_scale_golden_test.cpp.

    python tests/golden/make_loss_scales.py keras       needs keras 3 and torch; made with 3.15.1
    python tests/golden/make_loss_scales.py keras2      needs tf_keras and tensorflow-cpu; made with 2.21.0
    python tests/golden/make_loss_scales.py deepspeed --version 0.16.9 --source deepspeed/runtime/fp16/loss_scaler.py
    python tests/golden/make_loss_scales.py deepspeed --version 0.19.8 --source deepspeed/runtime/fp16/loss_scaler.py
    python tests/golden/make_loss_scales.py apex --version b82c6bd --source apex/amp/scaler.py     (NVIDIA/apex)

DeepSpeed's and Apex's scaler is one file each of theirs, taken as it is; what it imports from its package but does
not need for the scale (logging, ranks, CUDA kernels) is replaced by empty modules here. torch is needed for both.

A gradient has two elements. A letter stands for the unscaled one:
  a..h  ordinary values    B  1e34: overflows only while the scale is large    i  +inf    j  -inf    n  NaN    z  zero
or, S, for the scaled one: 3e38, which overflows on unscaling while the scale is below 1.
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import random
import sys
import types

import numpy

VALUES = {"B": 1e34, "i": math.inf, "j": -math.inf, "n": math.nan, "z": 0.0}


def scaled_gradient(letter, scale):
    if letter == "S":
        return numpy.array([0.5, 3e38], numpy.float32)
    value = VALUES.get(letter)
    pair = [0.5, value] if letter in VALUES else [(ord(letter) - 96) / 7, -0.25 * (ord(letter) - 96) / 7]
    with numpy.errstate(over="ignore", invalid="ignore"):
        return numpy.array(pair, numpy.float32) * numpy.float32(scale)


class Keras3:
    """keras.optimizers.LossScaleOptimizer around SGD, on the torch backend."""

    def __init__(self, init_scale, options):
        os.environ["KERAS_BACKEND"] = "torch"
        import keras

        self.keras = keras
        self.version = "keras " + keras.__version__
        self.variable = keras.Variable([1.0, -1.0])
        self.optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(1e-3), initial_scale=init_scale, **options)
        self.optimizer.build([self.variable])

    def scale(self):
        return float(self.optimizer.dynamic_scale)

    def counter(self):
        return int(self.optimizer.step_counter)

    def step(self, scaled):
        before = int(self.optimizer.iterations)
        self.optimizer.apply([self.keras.ops.convert_to_tensor(scaled)], [self.variable])
        return int(self.optimizer.iterations) > before


class Keras2:
    """tf_keras.mixed_precision.LossScaleOptimizer around SGD."""

    def __init__(self, init_scale, options):
        import tensorflow
        import tf_keras

        self.version = "tf_keras " + tf_keras.__version__
        self.tf = tensorflow
        self.variable = tensorflow.Variable([1.0, -1.0])
        self.optimizer = tf_keras.mixed_precision.LossScaleOptimizer(
            tf_keras.optimizers.SGD(1e-3), initial_scale=init_scale, **options)
        self.optimizer.get_scaled_loss(tensorflow.constant(1.0))  # else it warns

    def scale(self):
        return float(self.optimizer.loss_scale)

    def counter(self):
        return int(self.optimizer.dynamic_counter)

    def step(self, scaled):
        self.variable.assign([1.0, -1.0])
        unscaled = self.optimizer.get_unscaled_gradients([self.tf.constant(scaled)])
        self.optimizer.apply_gradients(zip(unscaled, [self.variable]))
        return bool((self.variable.numpy() != [1.0, -1.0]).any())


def load_alone(name, path, modules):
    """The module in the file, with `modules` in place of what it imports from its own package."""
    for module, members in modules.items():
        sys.modules[module] = types.ModuleType(module)
        sys.modules[module].__path__ = []
        vars(sys.modules[module]).update(members)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class DeepSpeed:
    """DynamicLossScaler, told of an overflow when a scaled gradient is not finite, as DeepSpeed's optimizers do."""

    def __init__(self, init_scale, options):
        logger = types.SimpleNamespace(info=lambda *_: None, warning=lambda *_: None)
        module = load_alone("deepspeed.runtime.fp16.loss_scaler", Peer.source, {
            "deepspeed": {"comm": types.SimpleNamespace(get_rank=lambda: 0)},
            "deepspeed.utils": {"logger": logger, "log_dist": lambda *_, **__: None},
            "deepspeed.runtime": {},
            "deepspeed.runtime.config_utils": {"DeepSpeedConfigObject": object},
            "deepspeed.runtime.utils": {"has_inf_or_nan": None},
        })
        self.version = "deepspeed " + Peer.version
        chosen = {"scale_window": 1000, "min_scale": 1, "delayed_shift": 2, "consecutive_hysteresis": False}
        self.scaler = module.DynamicLossScaler(init_scale=init_scale, **{**chosen, **options})

    def scale(self):
        return float(self.scaler.cur_scale)

    def counter(self):
        return self.scaler.cur_iter - self.scaler.last_overflow_iter - 1

    def step(self, scaled):
        finite = bool(numpy.isfinite(scaled).all())
        self.scaler.update_scale(not finite)
        return finite


class Apex:
    """amp's LossScaler as amp.scale_loss drives it, with its Python path in place of the CUDA kernels."""

    def __init__(self, init_scale, options):
        import torch

        torch.cuda.IntTensor = torch.IntTensor
        applier = types.SimpleNamespace(available=False, import_err=ImportError("no CUDA here"))
        module = load_alone("apex.amp.scaler", Peer.source, {
            "apex": {},
            "apex.amp": {},
            "apex.multi_tensor_apply": {"multi_tensor_applier": applier},
            "apex.amp._amp_state": {"_amp_state": None, "master_params": None, "maybe_print": lambda *_: None},
        })
        self.torch = torch
        self.version = "apex " + Peer.version
        self.scaler = module.LossScaler("dynamic", init_scale=init_scale, **options)

    def scale(self):
        return float(self.scaler.loss_scale())

    def counter(self):
        return self.scaler._unskipped

    def step(self, scaled):
        model = [self.torch.from_numpy(scaled)]
        self.scaler.clear_overflow_state()
        self.scaler.unscale(model, [model[0].clone()], None)
        return not self.scaler.update_scale()


class Peer:
    name = source = version = None
    kinds = {"keras": Keras3, "keras2": Keras2, "deepspeed": DeepSpeed, "apex": Apex}


def run(name, letters, init_scale, options):
    peer = Peer.kinds[Peer.name](init_scale, options)
    scales, stepped, counters, error_at = [[-1, peer.scale()]], "", [], -1
    for i, letter in enumerate(letters):
        try:
            stepped += "01"[peer.step(scaled_gradient(letter, peer.scale()))]
        except Exception as error:  # DeepSpeed at its minimum raises a bare Exception
            assert "already at minimum" in str(error), error
            error_at = i
            break
        if peer.scale() != scales[-1][1]:
            scales.append([i, peer.scale()])
        if i % 37 == 0:
            counters.append([i, peer.counter()])
    print(f"{peer.version}: {name}: {len(stepped)} steps, {stepped.count('0')} skipped, "
          f"{len(scales)} scales from {min(s for _, s in scales)} to {max(s for _, s in scales)}, error at {error_at}")
    return {"dialect": Peer.name, "peer": peer.version, "name": name, "options": options, "init_scale": init_scale,
            "letters": letters, "stepped": stepped, "scales": scales, "counters": counters, "error_at": error_at}


def draw(rng, steps, bad, alphabet="iijnB"):
    return "".join(rng.choice(alphabet if rng.random() < bad else "abcdefghz") for _ in range(steps))


def scenarios():
    rng = random.Random(11)
    name = Peer.name
    interval = "dynamic_growth_steps" if name.startswith("keras") else "scale_window"
    first = 2.0**15 if name.startswith("keras") else 2.0**16
    patient = {"raise_error_at_min_scale": False} if name == "deepspeed" else {}
    yield "defaults", draw(rng, 2100, 0) + draw(rng, 300, 0.04) + draw(rng, 2200, 0), first, {}
    yield "short interval", draw(rng, 2500, 0.15, "ijnBBBBB"), first, {interval: 7, **patient}
    down = 140 if name == "apex" else 500  # Apex counts in double, with room below where fp32 ends
    yield "down to the end", draw(rng, down, 0.97, "ijn"), first, {interval: 5, **patient}
    yield "up to the end", "z" * 110, first, {interval: 1}
    yield "below 1", draw(rng, 300, 0.5, "SSSi"), 0.25, {interval: 4, **patient}
    if name == "apex":
        yield "own bounds", draw(rng, 1500, 0.1), 1000.0, {interval: 5, "min_loss_scale": 3.0, "max_loss_scale": 50000.0}
        yield "from above the ceiling", draw(rng, 60, 0.03), 2.0**30, {interval: 9}
    if name == "deepspeed":
        yield "every overflow shrinks", draw(rng, 1500, 0.08), 2.0**32, {interval: 7, "delayed_shift": 1, **patient}
        yield "hysteresis 3", draw(rng, 2000, 0.08), 2.0**20, {interval: 20, "delayed_shift": 3, **patient}
        yield "refilled by every success", draw(rng, 2000, 0.3), 2.0**20, {
            interval: 6, "delayed_shift": 3, "consecutive_hysteresis": True, **patient}
        yield "error at the minimum", draw(rng, 800, 0.5, "ijn"), 2.0**20, {interval: 50}
        yield "a minimum below 1", draw(rng, 800, 0.4, "Sijn"), 8.0, {interval: 5, "min_scale": 0.25, **patient}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=Peer.kinds)
    parser.add_argument("--source")
    parser.add_argument("--version")
    arguments = parser.parse_args()
    Peer.name, Peer.source, Peer.version = arguments.peer, arguments.source, arguments.version
    path = pathlib.Path(__file__).with_name("loss_scales.json")
    kept = json.loads(path.read_text())["scenarios"] if path.exists() else []
    made = [run(*scenario) for scenario in scenarios()]
    peers = {scenario["peer"] for scenario in made}
    kept = [scenario for scenario in kept if scenario["peer"] not in peers] + made
    lines = ",\n".join(json.dumps(scenario, separators=(",", ":")) for scenario in kept)
    path.write_text('{"scenarios":[\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
