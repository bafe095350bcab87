"""Writes torchvision_names/<model>.txt: every entry of torchvision's state_dict in its order, as `name shape`.

Written from the architecture tables of the papers and torchvision's naming, independently of the C++ networks, so it
needs no torchvision. The parameter counts that torchvision documents are asserted: a slip here cannot go unseen.
"""
import math
import pathlib

DOCUMENTED = {"resnet18": 11_689_512, "resnet50": 25_557_032, "mobilenet_v2": 3_504_872}
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def batch_norm(name, channels):
    return [(f"{name}.{part}", (channels,)) for part in ("weight", "bias", "running_mean", "running_var")] + [
        (f"{name}.num_batches_tracked", ())]


def conv(name, inputs, outputs, kernel, groups=1):
    return [(f"{name}.weight", (outputs, inputs // groups, kernel, kernel))]


def linear(name, inputs, outputs):
    return [(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))]


def resnet(blocks, kernels, expansion):
    entries = conv("conv1", 3, 64, 7) + batch_norm("bn1", 64)
    channels = 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for block in range(count):
            prefix = f"layer{stage + 1}.{block}"
            start = channels
            for i, kernel in enumerate(kernels):
                outputs = width * expansion if i == len(kernels) - 1 else width
                entries += conv(f"{prefix}.conv{i + 1}", channels, outputs, kernel)
                entries += batch_norm(f"{prefix}.bn{i + 1}", outputs)
                channels = outputs
            if start != channels or (stage > 0 and block == 0):
                entries += conv(f"{prefix}.downsample.0", start, channels, 1)
                entries += batch_norm(f"{prefix}.downsample.1", channels)
    return entries + linear("fc", channels, 1000)


def mobilenet_v2():
    entries = conv("features.0.0", 3, 32, 3) + batch_norm("features.0.1", 32)
    channels, index = 32, 1
    for expand, outputs, count in ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1)):
        for _ in range(count):
            prefix, hidden, at = f"features.{index}.conv", channels * expand, 0
            if expand != 1:
                entries += conv(f"{prefix}.0.0", channels, hidden, 1) + batch_norm(f"{prefix}.0.1", hidden)
                at = 1
            entries += conv(f"{prefix}.{at}.0", hidden, hidden, 3, hidden) + batch_norm(f"{prefix}.{at}.1", hidden)
            entries += conv(f"{prefix}.{at + 1}", hidden, outputs, 1) + batch_norm(f"{prefix}.{at + 2}", outputs)
            channels, index = outputs, index + 1
    entries += conv("features.18.0", 320, 1280, 1) + batch_norm("features.18.1", 1280)
    return entries + linear("classifier.1", 1280, 1000)


def main():
    folder = pathlib.Path(__file__).with_name("torchvision_names")
    models = {
        "resnet18": resnet((2, 2, 2, 2), (3, 3), 1),
        "resnet50": resnet((3, 4, 6, 3), (1, 3, 1), 4),
        "mobilenet_v2": mobilenet_v2(),
    }
    for model, entries in models.items():
        count = sum(math.prod(shape) for name, shape in entries if not name.endswith(BUFFERS))
        assert count == DOCUMENTED[model], (model, count)
        lines = [f"{name} {'x'.join(map(str, shape)) or '-'}\n" for name, shape in entries]
        (folder / f"{model}.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
