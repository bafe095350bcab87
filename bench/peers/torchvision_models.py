#!/usr/bin/env python3
"""Which of torchvision's classification models run in the engine, as TorchScript, traced and scripted.

Each model is made with random weights, its batch norms see some images, it is written as TorchScript files, and
the program torchscript_check (built from bench/) says what works. Prints a Markdown table and every failure:

    .deps/torchvision-venv/bin/python bench/peers/torchvision_models.py build/release/bin/torchscript_check

The environment is made by

    python3 -m venv .deps/torchvision-venv
    .deps/torchvision-venv/bin/pip install torch==2.13.0 torchvision --extra-index-url https://download.pytorch.org/whl/cpu
"""

import argparse
import os
import subprocess
import sys
import tempfile
import types
import warnings

import torch
from torch import nn

# What describes torchvision's own operators; a build for CUDA has none beside a torch without, and no model calls them.
sys.modules["torchvision._meta_registrations"] = types.ModuleType("torchvision._meta_registrations")
import torchvision.models as zoo  # noqa: E402
from torchvision.models import regnet  # noqa: E402

KINDS = ("traced", "scripted")
SIZES = {"maxvit_t": 224, "inception_v3": 299}  # these take no smaller images, inception in train mode


def short_vit_h_14(size):
    return zoo.VisionTransformer(size, 14, num_layers=4, num_heads=16, hidden_dim=1280, mlp_dim=5120)


def short_regnet_y_128gf(_):
    blocks = regnet.BlockParams.from_init_params(depth=9, w_0=456, w_a=320.0, w_m=2.52, group_width=264, se_ratio=0.25)
    return zoo.RegNet(blocks)


# Models of 600 million weights and more: blocks of the same kind, fewer of them.
SHORTER = {"vit_h_14": short_vit_h_14, "regnet_y_128gf": short_regnet_y_128gf}


def image_size(name, wanted):
    """The size of images that the model takes: a multiple of its patches."""
    if name in SIZES:
        return SIZES[name]
    patch = int(name.rsplit("_", 1)[1]) if name.startswith("vit_") else 1
    return wanted // patch * patch


def make(name, size):
    options = {"weights": None}
    if name.startswith("vit_"):
        options["image_size"] = size
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = True
    model = SHORTER[name](size) if name in SHORTER else zoo.get_model(name, **options)
    for layer in model.modules():  # vision transformers begin with a last layer of zeros, whose results say nothing
        if isinstance(layer, nn.Linear) and not layer.weight.any():
            nn.init.normal_(layer.weight, std=0.02)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    momentum = [m.momentum for m in norms]
    with torch.no_grad():
        for norm in norms:
            norm.momentum = None  # the plain average of what it sees
        for _ in range(2 if norms else 0):
            model.train()(torch.randn(8, 3, size, size))
    for norm, kept in zip(norms, momentum):
        norm.momentum = kept
    return model.eval()


def write(model, kind, size, path):
    if kind == "traced":
        script = torch.jit.trace(model, torch.randn(2, 3, size, size), check_trace=False)
    else:
        script = torch.jit.script(model)
    torch.jit.save(script, path)


def check(program, name, size):
    """The rows of the table and the failures of one model."""
    torch.manual_seed(0)
    size = image_size(name, size)
    model = make(name, size)
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            path = os.path.join(folder, f"{name} {kind}")
            write(model, kind, size, path)
            run = subprocess.run([program, "--size", str(size), path], capture_output=True, text=True, check=False)
            os.remove(path)
            rows += run.stdout.splitlines() or [f"| {name} {kind} | **ends with {run.returncode}** | | | |"]
            failures += run.stderr.splitlines()
    return rows, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="torchscript_check")
    parser.add_argument("models", nargs="*", help="by default all")
    parser.add_argument("--size", type=int, default=96, help="of images, in pixels (96)")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    failures = []
    print("| model | capture | fp32 engine, error | bf16 engine, dB | int8 engine, dB |\n|---|---|---|---|---|")
    for name in args.models or zoo.list_models(module=zoo):
        rows, own = check(args.program, name, args.size)
        print("\n".join(rows), flush=True)
        failures += own
    print("\n" + "\n".join(failures))


if __name__ == "__main__":
    sys.exit(main())
