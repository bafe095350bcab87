"""Writes tests/golden/pt2: small networks as torch.export of PyTorch 2.13 writes them, and what PyTorch computes.

    python make_pt2.py

Each archive is written again without the places of the source that its nodes name, and without example inputs, which are pickles.
NAME.BATCH.npz holds inputs x0.., results y0.., gradients of the sum of the squared results' means, and buffers after the run.
"""

import copy
import io
import json
import os
import zipfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SEED = 3


class Images(nn.Module):
    """Layers that know modes; a dictionary; a constant and a buffer that is not saved."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Dropout(0.25)
        self.head = nn.Linear(3, 4)
        self.shift = torch.tensor([0.5, -0.25, 0.125])
        self.register_buffer("places", torch.arange(3.0), persistent=False)

    def forward(self, x):
        y = self.drop(F.relu(self.norm(self.conv(x)))).mean((2, 3)) * 2 + self.shift
        return {"logits": self.head(y + self.places), "features": y.view(x.shape[0] * 3)}


class Texts(nn.Module):
    """A tied weight, a free length, sizes that are computed, a part without gradients."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(8, 4), nn.Embedding(12, 4)
        self.qkv = nn.Linear(4, 12)

    def forward(self, ids):
        n, t = ids.shape
        with torch.no_grad():
            scale = self.words.weight.abs().mean()
        x = self.words(ids) + self.places(torch.arange(t)) + scale
        q, k, v = (y.reshape(n, t, 2, 2).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, 4)
        return F.linear(y, self.words.weight)


def save(program, path):
    """The archive without metadata of nodes."""
    def plain(graph):
        for node in graph["nodes"]:
            node["metadata"] = {}
            for one in node["inputs"]:
                if "as_graph" in one["arg"]:
                    plain(one["arg"]["as_graph"]["graph"])
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename.endswith(".pt"):
                continue
            if entry.filename.endswith("models/model.json"):
                model = json.loads(content)
                plain(model["graph_module"]["graph"])
                content = json.dumps(model, separators=(",", ":")).encode()
            target.writestr(zipfile.ZipInfo(entry.filename), content)


def record(model, inputs, path):
    model = copy.deepcopy(model)
    torch.manual_seed(SEED)
    result = model(*inputs)
    results = list(result.values()) if isinstance(result, dict) else [result]
    sum(y.square().mean() for y in results).backward()
    arrays = {f"x{i}": x.numpy() for i, x in enumerate(inputs)}
    arrays.update({f"y{i}": y.detach().numpy() for i, y in enumerate(results)})
    arrays.update({f"g.{name}": p.grad.numpy() for name, p in model.named_parameters()})
    arrays.update({f"b.{name}": b.numpy() for name, b in model.named_buffers()})
    np.savez_compressed(path, **arrays)


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pt2"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time", min=2, max=12)
    cases = {"images": (Images(), lambda n: torch.randn(n, 2, 4, 4), {0: batch}),
             "texts": (Texts(), lambda n: torch.randint(0, 8, (n, 12 if n == 1 else 5)), {0: batch, 1: time})}
    for name, (model, make, free) in cases.items():
        for training in [False, True] if name == "images" else [False]:
            model.train(training)
            stem = f"{name}.train" if training else name
            save(torch.export.export(model, (make(2),), dynamic_shapes=(free,)), stem + ".pt2")
            for n in (1, 7, 64):
                record(model, (make(n),), f"{stem}.{n}.npz")


if __name__ == "__main__":
    main()
