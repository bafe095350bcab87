"""Networks as other programs write them to ONNX, for ulp to read.

    .deps/peers-venv/bin/python bench/peers/onnx_export.py FOLDER
    build/release/bin/onnx_import FOLDER

Twelve networks with random weights. Each is written by both exporters of PyTorch (NAME.torchscript.onnx, by torch.export
NAME.dynamo.onnx) and, from the first file, by ONNX Runtime's quantizer with QuantizeLinear and DequantizeLinear
(NAME.qdq.onnx). Beside each file lie two sets of inputs and what ONNX Runtime computes from them: FILE.0.x0.npy,
FILE.0.y0.npy. Needs torch, onnx, onnxscript and onnxruntime.
"""

import argparse
import os
import tempfile
import warnings

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn
from torch.nn import functional as F

WORDS, LONGEST = 96, 32


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class Inverted(nn.Module):
    def __init__(self, inputs, outputs, stride, wide):
        super().__init__()
        inner = inputs * wide
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


class Shuffle(nn.Module):
    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
            nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU())

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        y = torch.cat([a, self.branch(b)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
        self.down1, self.down2, self.middle = block(3, 8), block(8, 16), block(16, 16)
        self.up1, self.join1 = nn.ConvTranspose2d(16, 16, 2, 2), block(32, 8)
        self.join2, self.head = block(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        d = self.join1(torch.cat([self.up1(c), b], 1))
        e = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.join2(torch.cat([e, a], 1)))


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x, mask=None):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, c))


class Layer(nn.Module):
    def __init__(self, width, heads, causal=False, approximate="none"):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.approximate = approximate

    def forward(self, x, mask=None):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.approximate))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.cls_token, self.pos_embed = nn.Parameter(torch.randn(1, 1, 32) * 0.02), nn.Parameter(torch.randn(1, 17, 32))
        self.layers, self.norm, self.head = nn.ModuleList([Layer(32, 4), Layer(32, 4)]), nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x):
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.cls_token.expand(y.shape[0], -1, -1), y], 1) + self.pos_embed
        for layer in self.layers:
            y = layer(y)
        return self.head(self.norm(y)[:, 0])


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 32), nn.Embedding(LONGEST, 32)
        self.norm, self.layers, self.head = nn.LayerNorm(32), nn.ModuleList([Layer(32, 4), Layer(32, 4)]), nn.Linear(32, 3)

    def forward(self, ids, mask):
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        wide = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for layer in self.layers:
            x = layer(x, wide)
        return self.head(torch.tanh(x[:, 0]))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, 32), nn.Embedding(LONGEST, 32)
        self.layers, self.norm = nn.ModuleList([Layer(32, 4, True, "tanh"), Layer(32, 4, True, "tanh")]), nn.LayerNorm(32)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.wte.weight)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words, self.rnn = nn.Embedding(WORDS, 16), kind(16, 24, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 4)

    def forward(self, ids):
        return self.head(self.rnn(self.words(ids))[0].mean(1))


class ConvNext(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 4, 4)
        self.depthwise, self.norm = nn.Conv2d(16, 16, 7, padding=3, groups=16), nn.LayerNorm(16)
        self.up, self.down, self.gamma = nn.Linear(16, 64), nn.Linear(64, 16), nn.Parameter(torch.ones(16))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = (self.gamma * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)
        return self.head((x + y).mean([2, 3]))


def images(batch, _):
    return (torch.randn(batch, 3, 32, 32),)


def texts(batch, length):
    return (torch.randint(0, WORDS, (batch, length)),)


def masked(batch, length):
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length - 3:] = 0
    return texts(batch, length) + (mask,)


def networks():
    stem = lambda c: [nn.Conv2d(3, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU()]
    end = lambda c: [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10)]
    return {
        "mlp": (nn.Sequential(nn.Flatten(), nn.Linear(3072, 64), nn.ReLU(), nn.Linear(64, 10)), images),
        "lenet": (nn.Sequential(nn.Conv2d(3, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(),
                                nn.MaxPool2d(2), nn.Flatten(), nn.Linear(576, 84), nn.Tanh(), nn.Linear(84, 10)), images),
        "resnet": (nn.Sequential(*stem(16), Residual(16, 16, 1), Residual(16, 32, 2), *end(32)), images),
        "mobilenet": (nn.Sequential(*stem(8), Inverted(8, 8, 1, 4), Inverted(8, 16, 2, 4), nn.Conv2d(16, 16, 1),
                                    nn.Hardswish(), nn.Dropout(0.2), *end(16)), images),
        "shufflenet": (nn.Sequential(*stem(16), Shuffle(16), Shuffle(16), nn.MaxPool2d(3, 2, 1), *end(16)), images),
        "unet": (UNet(), images),
        "vit": (ViT(), images),
        "convnext": (ConvNext(), images),
        "bert": (Bert(), masked),
        "gpt2": (Gpt2(), texts),
        "lstm": (Recurrent(nn.LSTM), texts),
        "gru": (Recurrent(nn.GRU), texts),
    }


def settle(model):
    """Statistics that batch norms would have after some training."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.6, 1.2)
            nn.init.uniform_(module.bias, -0.2, 0.2)
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)


def export(model, inputs, path, dynamo):
    names = ["x", "mask"][:len(inputs)]
    is_text = inputs[0].dim() == 2
    if dynamo:
        batch, time = torch.export.Dim("batch"), torch.export.Dim("time", min=2, max=LONGEST)
        shapes = tuple({0: batch, 1: time} if is_text else {0: batch} for _ in names)
        torch.onnx.export(model, inputs, path, input_names=names, output_names=["y"], dynamic_shapes=shapes, dynamo=True,
                          external_data=False, verbose=False)
        return
    axes = {name: {0: "batch", 1: "time"} if is_text else {0: "batch"} for name in names}
    torch.onnx.export(model, inputs, path, input_names=names, output_names=["y"], dynamic_axes=axes, dynamo=False,
                      opset_version=17)


class Calibration(CalibrationDataReader):
    def __init__(self, make):
        self.left = [make(4, 24) for _ in range(8)]

    def get_next(self):
        if not self.left:
            return None
        return {name: x.numpy() for name, x in zip(["x", "mask"], self.left.pop())}


def quantize(source, make, path):
    with tempfile.TemporaryDirectory() as directory:
        ready = os.path.join(directory, "ready.onnx")
        quant_pre_process(source, ready, skip_symbolic_shape=True)
        quantize_static(ready, path, Calibration(make), quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)


def record(path, make):
    """Inputs and what ONNX Runtime makes of them, without its rewriting of QDQ to integer kernels."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for run, (batch, length) in enumerate([(1, 24), (7, 17)]):
        inputs = make(batch, length)
        for i, x in enumerate(inputs):
            np.save(f"{path[:-5]}.{run}.x{i}.npy", x.numpy())
        given = {one.name: x.numpy() for one, x in zip(session.get_inputs(), inputs)}
        for i, y in enumerate(session.run(None, given)):
            np.save(f"{path[:-5]}.{run}.y{i}.npy", y)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    warnings.simplefilter("ignore")
    for name, (model, make) in networks().items():
        torch.manual_seed(0)
        settle(model)
        model.eval()
        paths = {kind: os.path.join(folder, f"{name}.{kind}.onnx") for kind in ("torchscript", "dynamo", "qdq")}
        export(model, make(2, 24), paths["torchscript"], dynamo=False)
        export(model, make(2, 24), paths["dynamo"], dynamo=True)
        quantize(paths["torchscript"], make, paths["qdq"])
        for path in paths.values():
            record(path, make)
        print(name, flush=True)


if __name__ == "__main__":
    main()
