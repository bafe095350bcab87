#!/usr/bin/env python3
"""Signal to quantization noise of small ResNets in static int8: ulp beside torchao, with the same weights and images.

Each draw makes a network of random weights, its running statistics those of random images. `ulp quantize` makes
engines of its TorchScript file by three recipes; torchao quantizes the same module (PT2E, X86InductorQuantizer). All
calibrate with the same images; the signal is the float logits of others. "no average": the control, without it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata

import numpy as np
import torch
import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
from safetensors.torch import load_file, save_file
from torch import nn
from torch._inductor import config as inductor
from torch.nn import functional as F
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CALIBRATION, TRIED, BATCH, MEAN, STD = 64, 256, 64, 0.5, 0.25
# Kernel and stride of the stem, whether it pools, widths and blocks of the stages, pixels a side.
NETWORKS = {"resnet14": (3, 2, False, (32, 64, 128), (2, 2, 2), 32),
            "resnet20": (3, 1, False, (16, 32, 64), (3, 3, 3), 32),
            "resnet18": (7, 2, True, (64, 128, 256, 512), (2, 2, 2, 2), 64)}
# What differs from x86_int8. tflite_int8 changes the averages alone: its signed codes say what unsigned ones do.
RECIPES = {"ulp": {},
           "averages as their input": {"backend": "tflite_int8", "activation": {"scheme": {"signed": True}}},
           "weights in -128..127": {"weight": {"scheme": {"range": "full"}}}}


def conv_norm(channels, out, kernel, stride):
    conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out, momentum=None))  # None: statistics are the mean over all batches


class Block(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.first, self.second = conv_norm(channels, width, 3, stride), conv_norm(width, width, 3, 1)
        self.skip = nn.Identity() if (channels, stride) == (width, 1) else conv_norm(channels, width, 1, stride)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.skip(x))


class Network(nn.Module):
    """The network that ulp has under this name."""

    def __init__(self, name, average):
        super().__init__()
        kernel, stride, pool, widths, counts, self.side = NETWORKS[name]
        self.average = average
        self.stem = conv_norm(3, widths[0], kernel, stride)
        self.pool = nn.MaxPool2d(3, 2, 1) if pool else nn.Identity()
        blocks, channels = [], widths[0]
        for width, count in zip(widths, counts):
            for block in range(count):
                blocks.append(Block(channels, width, 2 if blocks and block == 0 else 1))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        last = self.side // stride // (2 if pool else 1) // 2 ** (len(widths) - 1)
        self.fc = nn.Linear(channels * (1 if average else last ** 2), 10)
        for conv in (module for module in self.modules() if isinstance(module, nn.Conv2d)):
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.blocks(self.pool(F.relu(self.stem(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1) if self.average else x, 1))


def batches(model, images):
    return torch.cat([model(part) for part in images.split(BATCH)]).double()


def normalized(pixels):
    return (pixels.float() / 255 - MEAN) / STD


def ulp_logits(args, model, pixels, tried, work):
    def ulp(*command):
        command = [os.path.abspath(args.ulp), *command, "--threads", str(args.threads)]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"failed: {' '.join(command)}\n{done.stderr[-2000:]}")

    torch.jit.trace(model, tried[:2]).save(f"{work}/model.pt")
    labels = np.arange(len(pixels)) % 10  # asked for, not used
    np.savez(f"{work}/data.npz", x_train=pixels.numpy(), y_train=labels, x_test=pixels.numpy(), y_test=labels)
    save_file({"images": tried}, f"{work}/images.safetensors")
    for recipe in RECIPES.values():
        with open(f"{work}/recipe.json", "w") as file:
            json.dump({"type": "ulp.quant.Recipe", "version": 3, **recipe}, file)
        ulp("quantize", "model.pt", "--recipe", "recipe.json", "--data", "data.npz", "--samples", str(len(pixels)),
            "--shape", f"3,{model.side},{model.side}", "--normalize", f"{MEAN},{STD}", "--test", "0", "--out", "q.ulp")
        ulp("run", "q.ulp", "--input", "images.safetensors", "--out", "logits.safetensors")
        yield next(iter(load_file(f"{work}/logits.safetensors").values())).double()


def torchao_logits(args, model, calibration, tried):
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, (calibration[:BATCH],)).module(), quantizer)
    batches(prepared, calibration)
    converted = convert_pt2e(prepared)
    return batches(torch.compile(converted) if args.compile else converted, tried)


def draw(args, name, average, seed, work):
    """Decibels of ulp by each recipe, and of torchao."""
    torch.manual_seed(seed)
    model = Network(name, average)
    noise = lambda count: torch.randint(256, (count, 3, model.side, model.side), dtype=torch.uint8)  # noqa: E731
    for _ in range(3):
        model(normalized(noise(BATCH)))
    model.eval()
    pixels, tried = noise(CALIBRATION), normalized(noise(TRIED))
    signal = batches(model, tried)
    found = [*ulp_logits(args, model, pixels, tried, work), torchao_logits(args, model, normalized(pixels), tried)]
    return [10 * torch.log10(signal.square().sum() / (x - signal).square().sum()).item() for x in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)} (default: all)")
    parser.add_argument("--ulp", default=os.path.join(ROOT, "build/release/bin/ulp"), help="the tool")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="run torchao's graph through torch.compile")
    args = parser.parse_args()
    inductor.freezing = args.compile
    torch.set_num_threads(args.threads)
    print(f"torch {metadata.version('torch')}, torchao {metadata.version('torchao')}, {args.draws} draws")
    print(f"| network | {' | '.join(RECIPES)} | torchao | ulp - torchao |\n|---|{'--:|' * (len(RECIPES) + 2)}")
    cell = lambda row: f"{statistics.mean(row):.1f} ({min(row):.1f} to {max(row):.1f})"  # noqa: E731
    with torch.no_grad(), tempfile.TemporaryDirectory() as work:
        for name, average in ((name, average) for name in args.networks for average in (True, False)):
            rows = [*zip(*(draw(args, name, average, seed, work) for seed in range(args.draws)))]
            rows.append([ours - theirs for ours, theirs in zip(rows[0], rows[-1])])
            print(f"| {name}{'' if average else ', no average'} | {' | '.join(map(cell, rows))} |", flush=True)


if __name__ == "__main__":
    main()
