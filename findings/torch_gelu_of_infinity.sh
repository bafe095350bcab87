#!/bin/sh
# torch 2.13: gelu of an infinite number is NaN in a tensor of two numbers, and infinite in a tensor of one.
#
# Guess: F.gelu(x) of a dense float32 tensor on the CPU depends on each number alone, and gelu(inf) is inf, gelu(3e38) is
# 3e38, as the formula x Phi(x) says.
# Seen: one number gives inf and 3e38, two or more give NaN and inf, whatever instruction set is chosen by
# ATEN_CPU_CAPABILITY; bfloat16 is alike, float64 and approximate="tanh" give inf for any size. -inf gives NaN in
# float32 for any size, where the limit is 0. A comparison of runtimes on single values does not show it, and one overflow before a gelu
# becomes NaN or stays infinite by the size of the batch.
#
# Ends with 0 where that is still so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.1 >/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import math
import sys

import torch
import torch.nn.functional as F

print("torch", torch.__version__, torch.backends.cpu.get_cpu_capability())


def first(value, count, kind=torch.float32, **how):
    return F.gelu(torch.full((count,), value, dtype=kind), **how)[0].item()


infinite, large = float("inf"), 3e38
for count in (1, 2, 3, 8, 17):
    print(f"{count} numbers: gelu(inf) = {first(infinite, count)}, gelu(3e38) = {first(large, count)}")
for kind in (torch.float64, torch.bfloat16):
    print(f"{kind}, 8 numbers: gelu(inf) = {first(infinite, 8, kind)}")
print(f"tanh, 8 numbers: gelu(inf) = {first(infinite, 8, approximate='tanh')}")
print(f"gelu(-inf), 1 and 8 numbers: {first(-infinite, 1)}, {first(-infinite, 8)}")

same = (
    first(infinite, 1) == infinite
    and first(large, 1) < infinite
    and all(math.isnan(first(infinite, count)) for count in (2, 3, 8, 17))
    and all(first(large, count) == infinite for count in (2, 8))
    and first(infinite, 8, torch.float64) == infinite
    and math.isnan(first(infinite, 8, torch.bfloat16))
    and first(infinite, 1, torch.bfloat16) == infinite
    and first(infinite, 8, approximate="tanh") == infinite
    and math.isnan(first(-infinite, 8))
)
print("as seen" if same else "the behaviour has changed")
sys.exit(0 if same else 1)
PYTHON
