#!/bin/sh
# torch 2.13: an antialiased resize to one column repeats its first row.
#
# Guess: F.interpolate(x, size=(5, 1), mode="bilinear", antialias=True) gives five rows, each the weighted mean of
# its own part of the image, as for two columns, and the same for every memory format and type.
# Seen: for dense float32 and float64 in NCHW order all five rows are the first one; bicubic alike. uint8, and
# three channels in NHWC order (torch.channels_last), give five rows. An export that is compared with such a result
# looks wrong where it is right, and thumbnails of one column are.
#
# Ends with 0 where that is still so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.1 >/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
import torch.nn.functional as F

print("torch", torch.__version__)
image = torch.arange(88, dtype=torch.float32).reshape(1, 1, 11, 8)  # rows differ by 8


def rows(x, columns, mode="bilinear"):
    y = F.interpolate(x, size=(5, columns), mode=mode, antialias=True, align_corners=False)
    return [round(float(value), 2) for value in y[0, 0, :, 0]]


dense = {kind: rows(image.to(kind), 1) for kind in (torch.float32, torch.float64, torch.uint8)}
for kind, seen in dense.items():
    print(f"one column, {kind}: {seen}")
print(f"one column, bicubic: {rows(image, 1, 'bicubic')}")
channels_last = image.expand(1, 3, 11, 8).contiguous(memory_format=torch.channels_last)
print(f"one column, channels_last: {rows(channels_last, 1)}")
print(f"two columns: {rows(image, 2)}")


def repeats(seen):
    return len(set(seen)) == 1


same = (
    repeats(dense[torch.float32])
    and repeats(dense[torch.float64])
    and repeats(rows(image, 1, "bicubic"))
    and not repeats(dense[torch.uint8])
    and not repeats(rows(channels_last, 1))
    and not repeats(rows(image, 2))
)
print("as found" if same else "changed")
sys.exit(0 if same else 1)
PYTHON
