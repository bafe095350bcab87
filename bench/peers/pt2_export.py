"""Networks as torch.export writes them, for ulp to read.

    .deps/peers-venv/bin/python bench/peers/pt2_export.py FOLDER
    build/release/bin/pt2_import FOLDER

The twelve networks of onnx_export.py with random weights, each exported in eval mode (NAME.eval.pt2) and in train mode
(NAME.train.pt2), with a free batch and, of texts, a free length. Beside each file lie inputs, results, gradients of the mean of the
squared results and, of train mode, buffers after the run, as PyTorch computes them without export, on one thread:
FILE.BATCH.npz. Needs torch and numpy.
"""

import argparse
import copy
import os
import warnings

import numpy as np
import torch

from onnx_export import LONGEST, networks, settle

SEED = 3


def export(model, inputs, path, recurrent):
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time", min=2, max=LONGEST)
    free = {0: batch, 1: time} if inputs[0].dim() == 2 and not recurrent else {0: batch}
    torch.export.save(torch.export.export(model, inputs, dynamic_shapes=tuple(free for _ in inputs)), path)


def record(model, inputs, path):
    """One run of a copy, whose buffers may change."""
    model = copy.deepcopy(model)
    torch.manual_seed(SEED)
    result = model(*inputs)
    result.square().mean().backward()
    arrays = {f"x{i}": x.numpy() for i, x in enumerate(inputs)}
    arrays["y"] = result.detach().numpy()
    arrays.update({f"g.{name}": p.grad.numpy() for name, p in model.named_parameters()})
    arrays.update({f"b.{name}": b.numpy() for name, b in model.named_buffers()})
    np.savez(path, **arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, (model, make) in networks().items():
        torch.manual_seed(0)
        settle(model)
        recurrent = name in ("lstm", "gru")  # their length is fixed by the export
        for training, batches in [(False, (1, 7, 64)), (True, (7, 64))]:
            model.train(training)
            path = os.path.join(folder, f"{name}.{'train' if training else 'eval'}.pt2")
            export(model, make(2, 24), path, recurrent)
            for batch in batches:
                record(model, make(batch, 24 if recurrent or batch == 1 else 17), f"{path[:-4]}.{batch}.npz")
        print(name, flush=True)


if __name__ == "__main__":
    main()
