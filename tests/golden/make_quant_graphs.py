"""Writes quant_graphs.json: 20 small random networks, and what PyTorch's observers and fake-quantizers answer in them.

    python tests/golden/make_quant_graphs.py > tests/golden/quant_graphs.json

The numbers of the networks are small multiples of powers of two, so that every sum is exact in float32 in any order
(checked here): the test can ask for the same bits of every build. What is not exact (gelu) is rounded, far
from ties, before anything is observed behind it.
"""
import functools
import json
import math
import random
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch.ao.quantization import (HistogramObserver, MinMaxObserver, MovingAverageMinMaxObserver,
                                   MovingAveragePerChannelMinMaxObserver, PerChannelMinMaxObserver)

warnings.filterwarnings("ignore")
GRAPHS, BATCH = 20, 4
FACTORS = [1.0, 2.0, 0.5]  # of the calibration batches
GELU_FACTOR = 15.875  # before rounding: values of few bits do not become ties
INPUT_BITS = 4  # behind the point: eighths, and halves of them


@functools.cache
def dyadic(seed, shape, levels, step):
    """((high 24 bits of a 64-bit LCG) mod levels - levels / 2) * step, as in golden_data.h."""
    state, out = seed, np.empty(math.prod(shape), np.float32)
    for i in range(len(out)):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out[i] = ((state >> 40) % levels - levels // 2) * step
    return torch.from_numpy(out).reshape(shape)


def parameters(node, shape):
    """The tensors of a node that reads values of this shape: [C, H, W] or [features]."""
    seed = node.get("seed")
    if node["op"] in ("conv2d", "linear"):
        rest = (shape[0],) if node["op"] == "linear" else (shape[0] // node["groups"],) + (node["kernel"],) * 2
        return {"weight": dyadic(seed, (node["out"],) + rest, 7, 0.25), "bias": dyadic(seed + 1, (node["out"],), 9, 0.25)}
    if node["op"] == "batch_norm":  # variance + 0.5 is 1 or 4, the weight 1/2, 1 or 2: all factors are powers of two
        power, spread = dyadic(seed, shape[:1], 3, 1.0), dyadic(seed + 3, shape[:1], 3, 1.0)
        return {"weight": 1 + 0.5 * power + 0.5 * power.clamp(min=0), "bias": dyadic(seed + 1, shape[:1], 9, 0.25),
                "mean": dyadic(seed + 2, shape[:1], 9, 0.25), "var": 0.5 + 3 * spread.clamp(min=0)}
    return {}


def layer(node, x, p):
    if node["op"] == "linear":
        return F.linear(x, p["weight"], p["bias"])
    return F.conv2d(x, p["weight"], p["bias"], node["stride"], node["kernel"] // 2, 1, node["groups"])


def apply(node, values):
    """The node's result. `values` holds the input and what came before."""
    op, x = node["op"], values[node["in"][0]]
    p = {name: t.to(x.dtype) for name, t in parameters(node, x.shape[1:]).items()}
    if op in ("conv2d", "linear"):
        return layer(node, x, p)
    if op == "batch_norm":
        return F.batch_norm(x, p["mean"], p["var"], p["weight"], p["bias"], False, 0.0, 0.5)
    if op == "add":
        return x + values[node["in"][1]]
    if op == "cat":
        return torch.cat([values[i] for i in node["in"]], 1)
    return {"relu": F.relu, "gelu": F.gelu, "round": torch.round, "relu6": lambda v: F.hardtanh(v, 0, 6),
            "leaky_relu": lambda v: F.leaky_relu(v, 0.125), "max_pool2d": lambda v: F.max_pool2d(v, 2),
            "avg_pool2d": lambda v: F.avg_pool2d(v, 2), "global_pool": lambda v: F.adaptive_avg_pool2d(v, 1),
            "flatten": lambda v: v.flatten(1), "scale": lambda v: v * node["by"]}[op](x)


class Inexact(Exception):
    pass


def fraction_bits(node, values, bits):
    """Bits behind the point that the node's result may have, None for rounded ones; Inexact if float32 might round."""
    op, x, before = node["op"], values[node["in"][0]].double().abs(), [bits[i] for i in node["in"]]
    if op == "gelu":
        scaled = F.gelu(values[node["in"][0]].double()) * GELU_FACTOR
        if ((scaled % 1 - 0.5).abs() < 1e-5 + 1e-6 * scaled.abs()).any():
            raise Inexact
        return None
    if op == "round":
        return 0
    if op == "scale":
        return None if before[0] is None else 4
    more = {"conv2d": 2, "linear": 2, "avg_pool2d": 2, "leaky_relu": 3, "batch_norm": 3,
            "global_pool": int(math.log2(math.prod(x.shape[2:])))}.get(op, 0)
    largest = x.sum((2, 3)) if op == "global_pool" else 4 * x
    if op in ("conv2d", "linear"):  # the same layer of magnitudes bounds every partial sum
        largest = layer(node, x, {name: t.double().abs() for name, t in parameters(node, x.shape[1:]).items()})
    if op == "batch_norm":
        largest = 2 * x + 4
    if largest.max() * 2.0 ** (max(before) + more) >= 2**24:
        raise Inexact
    return max(before) + more


class Network:
    """A network under construction, with its values for all batches."""

    def __init__(self, index, attempt):
        self.rng, self.seed = random.Random(100 * attempt + index), 1000 * (index + 1)
        rng = self.rng
        shape = [rng.choice([2, 3, 4]), 8, 8] if index % 3 < 2 else [rng.choice([8, 12])]
        self.input = {"shape": shape, "seed": self.seed, "offset": rng.randrange(-8, 9) / 8}
        batches = [dyadic(self.seed + 10 * b, (BATCH, *shape), 65, 0.125) * factor for b, factor in enumerate(FACTORS)]
        self.values, self.bits = [torch.cat(batches) + self.input["offset"]], [INPUT_BITS]
        self.nodes = []

    def add(self, op, *inputs, **fields):
        node = {"op": op, "in": list(inputs), **fields}
        if op in ("conv2d", "linear", "batch_norm"):
            node["seed"] = self.seed + 100 * (len(self.nodes) + 1)
        bits = fraction_bits(node, self.values, self.bits)
        value = apply(node, self.values)
        if bits is not None and not torch.equal(value.double(), apply(node, [v.double() for v in self.values])):
            raise AssertionError(f"{op} is not exact")
        self.nodes.append(node)
        self.values.append(value)
        self.bits.append(bits)
        return len(self.nodes)

    def shape(self, i):
        return tuple(self.values[i].shape[1:])

    def layer(self, x):
        rng, shape = self.rng, self.shape(x)
        if len(shape) == 1:
            x = self.add("linear", x, out=rng.choice([6, 6, 8]))
        else:
            groups = rng.choice([1, 1, 2, shape[0]])
            groups = groups if shape[0] % groups == 0 else 1
            out = shape[0] * 2 if groups == shape[0] else rng.choice([4, 4, 4, 8])
            stride = 2 if shape[1] > 4 and rng.random() < 0.2 else 1
            x = self.add("conv2d", x, out=out // groups * groups, kernel=rng.choice([1, 3]), stride=stride, groups=groups)
            if rng.random() < 0.4:
                x = self.add("batch_norm", x)
        activation = rng.choice(["relu", "relu", "relu6", "leaky_relu", "gelu", None])
        if activation == "gelu":
            for op, fields in (("gelu", {}), ("scale", {"by": GELU_FACTOR}), ("round", {}), ("scale", {"by": 0.0625})):
                x = self.add(op, x, **fields)
            return x
        return self.add(activation, x) if activation else x

    def step(self, ends):
        """Adds a layer, a pooling, or something that joins `ends`, values that layers have given."""
        rng, x, draw = self.rng, ends[-1], self.rng.random()
        alike = [i for i in ends[:-1] if self.shape(i) == self.shape(x)]
        beside = [i for i in ends[:-1] if self.shape(i)[1:] == self.shape(x)[1:] and len(self.shape(i)) == len(self.shape(x))]
        if alike and draw < 0.35:
            total = self.add("add", rng.choice(alike), x)
            return self.add("relu", total) if rng.random() < 0.5 else total
        if beside and draw < 0.6:
            return self.add("cat", *rng.sample(beside, min(len(beside), rng.choice([1, 1, 2]))), x)
        if len(self.shape(x)) == 3 and self.shape(x)[1] >= 4 and draw > 0.85:
            return self.add(rng.choice(["max_pool2d", "avg_pool2d"]), x)
        return self.layer(x if rng.random() < 0.7 else rng.choice(ends))

    def take_back(self, nodes):
        del self.nodes[nodes:], self.values[nodes + 1:], self.bits[nodes + 1:]

    def grow(self):
        ends, tries = [], 0
        while len(self.nodes) < 9 and tries < 40:
            before, tries = len(self.nodes), tries + 1
            try:
                ends.append(self.step(ends) if ends else self.layer(0))
            except Inexact:
                self.take_back(before)
        for x in reversed(ends):
            before = len(self.nodes)
            try:
                if len(self.shape(x)) == 3:
                    x = self.add("flatten", self.add("global_pool", x))
                self.add("linear", x, out=5)
                return
            except Inexact:
                self.take_back(before)
        raise Inexact

    def prune(self):
        """Leaves out what the result does not depend on."""
        used = {len(self.nodes)}
        for i in range(len(self.nodes), 0, -1):
            if i in used:
                used.update(self.nodes[i - 1]["in"])
        order = [0] + [i for i in range(1, len(self.nodes) + 1) if i in used]
        place = {old: new for new, old in enumerate(order)}
        self.nodes = [{**self.nodes[i - 1], "in": [place[j] for j in self.nodes[i - 1]["in"]]} for i in order[1:]]
        self.values, self.bits = [self.values[i] for i in order], [self.bits[i] for i in order]

    def folded_weight(self, i):
        """The weight of the layer that gives value i, with the batch norm behind it."""
        node, shape = self.nodes[i - 1], self.shape(self.nodes[i - 1]["in"][0])
        weight = parameters(node, shape)["weight"]
        for norm in self.nodes:
            if norm["op"] == "batch_norm" and norm["in"] == [i]:
                p = parameters(norm, self.shape(i))
                weight = weight * (p["weight"] / torch.sqrt(p["var"] + 0.5)).reshape(-1, 1, 1, 1)
        return weight


SCHEMES = {"u8_affine": (torch.quint8, "affine", 0, 255), "s8_symmetric": (torch.qint8, "symmetric", -128, 127),
           "s8_restricted": (torch.qint8, "symmetric", -127, 127), "u8_symmetric": (torch.quint8, "symmetric", 0, 255),
           "u4_affine": (torch.quint8, "affine", 0, 15), "s4_symmetric": (torch.qint8, "symmetric", -8, 7),
           "s4_restricted": (torch.qint8, "symmetric", -7, 7)}
ACTIVATIONS = {"min_max": MinMaxObserver, "moving": MovingAverageMinMaxObserver, "histogram": HistogramObserver}
WEIGHTS = {"min_max": MinMaxObserver, "channel": PerChannelMinMaxObserver,
           "channel_moving": MovingAveragePerChannelMinMaxObserver}
ACTIVATION_SCHEMES = ["u8_affine", "s8_symmetric", "s8_restricted", "u8_symmetric", "u4_affine"]
WEIGHT_SCHEMES = ["s8_symmetric", "s8_restricted", "u8_affine", "s4_symmetric", "s4_restricted"]


def hex32(x):
    return f"{np.float32(x).view(np.uint32):08x}"


def digest(x):
    """FNV-1a over the float32 words."""
    h = 0xCBF29CE484222325
    for word in x.contiguous().numpy().view(np.uint32).reshape(-1).tolist():
        h = (h ^ word) * 0x100000001B3 % 2**64
    return f"{h:016x}"


def answer(kind, scheme, batches):
    """"scales zero_points digest": of the fake-quantized last batch."""
    dtype, mapping, low, high = SCHEMES[scheme]
    factory = (ACTIVATIONS | WEIGHTS)[kind]
    channels = kind.startswith("channel")
    qscheme = getattr(torch, f"per_{'channel' if channels else 'tensor'}_{mapping}")
    # Asked for [0, 255] by name, symmetric observers take 127 for the middle; by themselves, and we, 128.
    own = {} if (low, high) in ((0, 255), (-128, 127)) else {"quant_min": low, "quant_max": high}
    observer = factory(dtype=dtype, qscheme=qscheme, **own)
    if kind == "histogram":  # its search is for 256 codes whatever quant_max is; ours for as many as there are
        observer.dst_nbins = 16 if high - low < 16 else 256
    for batch in batches:
        observer(batch)
    scale, zero = observer.calculate_qparams()
    x = batches[-1]
    fake = (torch.fake_quantize_per_channel_affine(x, scale, zero.int(), 0, low, high) if channels else
            torch.fake_quantize_per_tensor_affine(x, float(scale), int(zero), low, high))
    return " ".join([",".join(map(hex32, scale)), ",".join(str(int(z)) for z in zero), digest(fake)])


def make_network(index):
    for attempt in range(50):
        network = Network(index, attempt)
        try:
            network.grow()
        except Inexact:
            continue
        network.prune()
        if len(network.nodes) >= 5:
            return network
    raise AssertionError(f"no exact network of seed {index}")


def main():
    out = {"torch": torch.__version__, "batch": BATCH, "factors": FACTORS, "graphs": []}
    for index in range(GRAPHS):
        network = make_network(index)
        points, weights = {}, {}
        for i, value in enumerate(network.values):
            if network.bits[i] is None:
                continue
            batches = list(value.split(BATCH))
            points[str(i)] = {f"{kind} {scheme}": answer(kind, scheme, batches)
                              for kind in ACTIVATIONS for scheme in ACTIVATION_SCHEMES}
        for i, node in enumerate(network.nodes, 1):
            if node["op"] in ("conv2d", "linear"):
                weights[str(i)] = {f"{kind} {scheme}": answer(kind, scheme, [network.folded_weight(i)])
                                   for kind in WEIGHTS for scheme in WEIGHT_SCHEMES}
        out["graphs"].append({"input": network.input, "nodes": network.nodes, "points": points, "weights": weights})
    text = json.dumps(out, separators=(",", ":"))
    print(text.replace('},"', '},\n"'))


if __name__ == "__main__":
    main()
