"""The demo's network from its weights alone: in PyTorch, and as an ONNX graph with batch norm folded."""

import gzip
import json
import os

import numpy as np
from safetensors import safe_open

STEM_STRIDE = {"resnet14": 2, "resnet20": 1}
EPSILON = 1e-5


class Weights:
    """What a file of `ulp train` holds: the tensors, and in `spec` the network's name and image format."""

    def __init__(self, path):
        with safe_open(path, "np") as file:
            self.spec = json.loads(file.metadata()["ulp.model"])
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}
        if self.spec["name"] not in STEM_STRIDE:
            raise SystemExit(f"expected a file of one of {', '.join(STEM_STRIDE)}, got '{self.spec['name']}'")
        self.stem_stride = STEM_STRIDE[self.spec["name"]]

    def blocks(self):
        """(prefix, stride, has a projection) of each residual block in order."""
        stage = 1
        while f"layer{stage}.0.conv1.weight" in self.tensors:
            block = 0
            while f"layer{stage}.{block}.conv1.weight" in self.tensors:
                prefix = f"layer{stage}.{block}"
                yield prefix, 2 if stage > 1 and block == 0 else 1, f"{prefix}.downsample.0.weight" in self.tensors
                block += 1
            stage += 1

    def folded(self, conv, norm):
        """Weight and bias of a convolution with the batch norm that follows it folded in, as float32."""
        weight = self.tensors[f"{conv}.weight"].astype(np.float64)
        gamma, beta, mean, var = (self.tensors[f"{norm}.{part}"].astype(np.float64)
                                  for part in ("weight", "bias", "running_mean", "running_var"))
        scale = gamma / np.sqrt(var + EPSILON)
        return (weight * scale[:, None, None, None]).astype(np.float32), (beta - mean * scale).astype(np.float32)


def torch_network(weights):
    """The network as plain PyTorch modules, batch norm unfolded, in eval mode."""
    import torch
    from torch import nn

    def conv_norm(weight, stride):
        out, channels, kernel, _ = weight.shape
        conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
        return conv, nn.BatchNorm2d(out, eps=EPSILON)

    class Block(nn.Module):
        def __init__(self, prefix, stride, projects):
            super().__init__()
            tensors = weights.tensors
            self.conv1, self.bn1 = conv_norm(tensors[f"{prefix}.conv1.weight"], stride)
            self.conv2, self.bn2 = conv_norm(tensors[f"{prefix}.conv2.weight"], 1)
            self.downsample = None
            if projects:
                self.downsample = nn.Sequential(*conv_norm(tensors[f"{prefix}.downsample.0.weight"], stride))

        def forward(self, x):
            y = self.bn1(self.conv1(x)).relu_()
            y = self.bn2(self.conv2(y))
            y += x if self.downsample is None else self.downsample(x)
            return y.relu_()

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = conv_norm(weights.tensors["conv1.weight"], weights.stem_stride)
            stages = {}
            for prefix, stride, projects in weights.blocks():
                stages.setdefault(prefix.split(".")[0], []).append(Block(prefix, stride, projects))
            self.stages = list(stages)
            for name, blocks in stages.items():
                self.add_module(name, nn.Sequential(*blocks))
            classes, features = weights.tensors["fc.weight"].shape
            self.fc = nn.Linear(features, classes)

        def forward(self, x):
            x = self.bn1(self.conv1(x)).relu_()
            for name in self.stages:
                x = getattr(self, name)(x)
            return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))

    network = Network()
    network.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.tensors.items()})
    return network.eval()


def onnx_network(weights):
    """The network as an ONNX model with a free batch dimension `N`, input `images`, output `logits`."""
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes, constants = [], []

    def constant(name, value):
        constants.append(numpy_helper.from_array(value, name))
        return name

    def node(op, name, *inputs, **attributes):
        nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def conv(x, name, norm, stride):
        weight, bias = weights.folded(name, norm)
        kernel = weight.shape[2]
        return node("Conv", f"{name}.out", x, constant(f"{name}.weight", weight), constant(f"{name}.bias", bias),
                    kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)

    x = node("Relu", "relu", conv("images", "conv1", "bn1", weights.stem_stride))
    for prefix, stride, projects in weights.blocks():
        y = node("Relu", f"{prefix}.relu1", conv(x, f"{prefix}.conv1", f"{prefix}.bn1", stride))
        y = conv(y, f"{prefix}.conv2", f"{prefix}.bn2", 1)
        if projects:
            x = conv(x, f"{prefix}.downsample.0", f"{prefix}.downsample.1", stride)
        x = node("Relu", f"{prefix}.relu2", node("Add", f"{prefix}.sum", y, x))
    x = node("Flatten", "features", node("GlobalAveragePool", "pooled", x))
    node("Gemm", "logits", x, constant("fc.weight", weights.tensors["fc.weight"]),
         constant("fc.bias", weights.tensors["fc.bias"]), transB=1)

    size, channels = weights.spec["image_size"], weights.spec["in_channels"]
    graph = helper.make_graph(
        nodes, weights.spec["name"],
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", channels, size, size])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", weights.spec["num_classes"]])], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model, full_check=True)
    return model


def read_idx(folder, name):
    path = os.path.join(folder, name)
    opened = gzip.open(path + ".gz", "rb") if os.path.exists(path + ".gz") else open(path, "rb")
    with opened as file:
        data = file.read()
    dims = data[3]
    shape = np.frombuffer(data, ">u4", dims, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(shape)


def load_images(folder, part, spec):
    """Normalized float32 images [N, 1, H, W] and labels [N] of the part `train` or `t10k`."""
    pixels = read_idx(folder, f"{part}-images-idx3-ubyte").astype(np.float32) / 255
    images = (pixels - np.float32(spec["mean"][0])) / np.float32(spec["std"][0])
    return images[:, None], read_idx(folder, f"{part}-labels-idx1-ubyte")
