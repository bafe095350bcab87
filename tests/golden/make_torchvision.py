"""Writes what the C++ networks are compared with, from torchvision itself.

torchvision_names/<model>.txt: every entry of the state_dict in its order, as `name shape`.
torchvision_logits.json: for each model with ten classes, the logits of small images in eval mode, and for the two that
have them the auxiliary logits in train mode (without dropout). Parameters, buffers and images are filled by fill(), which
the test repeats in C++.
"""
import json
import pathlib

import numpy
import torch
import torchvision

MODELS = {"resnet18": 64, "resnet50": 64, "resnext50_32x4d": 64, "mobilenet_v2": 64, "googlenet": 64, "inception_v3": 80,
          "shufflenet_v2_x1_0": 64}
# Sides of the images in train mode; the second needs 17 x 17 pixels where its auxiliary classifier starts.
AUXILIARY = {"googlenet": 64, "inception_v3": 299}


def uniform(count, key):
    """`count` numbers in [-1, 1) that any language computes alike: the digits far behind the point of a sine."""
    x = numpy.sin(numpy.arange(count, dtype=numpy.float64) * 12.9898 + key * 78.233) * 43758.5453
    return 2 * (x - numpy.floor(x)) - 1


def fill(tensors):
    for key, (name, tensor) in enumerate(tensors):
        if not tensor.is_floating_point():
            continue
        values = uniform(tensor.numel(), key)
        if tensor.dim() > 1:
            values *= (6 / (tensor.numel() // tensor.shape[0])) ** 0.5
        elif name.endswith(("running_var", "weight")):
            values = 1 + 0.2 * values
        else:
            values *= 0.1
        tensor.copy_(torch.from_numpy(values).reshape(tensor.shape))


def make(name, **options):
    return getattr(torchvision.models, name)(weights=None, **({"init_weights": False} if name in AUXILIARY else {}),
                                             **options)


def filled(name, **options):
    model = make(name, num_classes=10, **options)
    fill([*model.named_parameters(), *model.named_buffers()])
    return model


def images(batch, size):
    return torch.from_numpy(uniform(batch * 3 * size * size, 0.5)).float().reshape(batch, 3, size, size)


def rows(tensor):
    return [[float(f"{value:.7g}") for value in row] for row in tensor.tolist()]


def main():
    here = pathlib.Path(__file__).parent
    logits = {}
    with torch.no_grad():
        for name, size in MODELS.items():
            lines = [f"{entry} {'x'.join(map(str, tensor.shape)) or '-'}\n" for entry, tensor in
                     make(name).state_dict().items()]
            (here / "torchvision_names" / f"{name}.txt").write_text("".join(lines))
            logits[name] = {"size": size, "eval": rows(filled(name).eval()(images(1, size)))}
        for name, size in AUXILIARY.items():
            dropout = {"dropout": 0.0} | ({"dropout_aux": 0.0} if name == "googlenet" else {})
            result = filled(name, **dropout).train()(images(2, size))
            auxiliary = [result.aux_logits1, result.aux_logits2] if name == "googlenet" else [result.aux_logits]
            logits[name]["train"] = {"size": size, "logits": rows(result.logits), "auxiliary": [*map(rows, auxiliary)]}
    (here / "torchvision_logits.json").write_text(json.dumps(logits, indent=1) + "\n")


if __name__ == "__main__":
    main()
