"""Writes prune.json: masks of torch.nn.utils.prune for tests/prune/pytorch_test.cpp.

    python tests/golden/make_prune.py       needs torch; made with 2.13.0

Weights are 2 u - 1 of uniform(seed, count), which tests/quant/golden_data.h makes again. A mask is a string of 0 and 1 in
row-major order. "steps" are calls one after the other on the same layers.
"""

import json
import pathlib

import torch
from torch.nn.utils import prune

SIZES = {"fc1": [6, 5], "fc2": [4, 6], "conv": [3, 2, 3, 3]}


def uniform(seed, count):
    out = []
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((seed >> 40) / 2**24)
    return out


def layers():
    made = {}
    for seed, (name, sizes) in enumerate(SIZES.items()):
        layer = torch.nn.Linear(sizes[1], sizes[0]) if len(sizes) == 2 else torch.nn.Conv2d(sizes[1], sizes[0], 3)
        count = layer.weight.numel()
        layer.weight.data = 2 * torch.tensor(uniform(seed + 1, count)).view(sizes) - 1
        made[name] = layer
    return made


def bits(layer):
    return "".join(str(int(v)) for v in layer.weight_mask.flatten().tolist())


def per_layer(call, amounts, **more):
    made = layers()
    masks = []
    for amount in amounts:
        for layer in made.values():
            call(layer, "weight", amount=amount, **more)
        masks.append({name: bits(layer) for name, layer in made.items()})
    return masks


def together(amounts):
    made = layers()
    masks = []
    for amount in amounts:
        prune.global_unstructured([(layer, "weight") for layer in made.values()],
                                  pruning_method=prune.L1Unstructured, amount=amount)
        masks.append({name: bits(layer) for name, layer in made.items()})
    return masks


def main():
    cases = []
    # 0.25 of 30 and 54: 7.5 and 13.5, to even; twice 0.5: 75 %.
    for amounts in [[0.5, 0.5], [0.25, 0.25, 0.25], [3, 2], [0.0], [1.0]]:
        cases.append({"method": "l1_unstructured", "amounts": amounts,
                      "masks": per_layer(prune.l1_unstructured, amounts)})
        cases.append({"method": "global_unstructured", "amounts": amounts, "masks": together(amounts)})
    for n in [1, 2, "inf"]:
        for dim in [0, 1]:
            for amounts in [[0.5, 0.5], [1]]:
                masks = per_layer(prune.ln_structured, amounts, n=float(n), dim=dim)
                cases.append({"method": "ln_structured", "n": n, "dim": dim, "amounts": amounts, "masks": masks})
    path = pathlib.Path(__file__).with_name("prune.json")
    path.write_text('{"made with": "torch %s",\n"sizes": %s,\n"cases": [\n%s\n]}\n' % (
        torch.__version__.split("+")[0], json.dumps(SIZES), ",\n".join(json.dumps(case) for case in cases)))


main()
