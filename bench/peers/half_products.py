"""Forward and backward of layers in fp32, in bf16 as PyTorch computes it, and in fp32 on operands in bf16, one thread.

    python3 half_products.py            # needs torch
"""
import time

import torch
from torch.nn import functional

RUNS = 5


def best_ms(run):
    run()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def three_ways(function, shapes):
    """Milliseconds: fp32, bf16, and bf16 operands widened for the op and its gradient."""
    made = [torch.randn(shape) for shape in shapes]
    columns = []
    for dtype, widens in ((torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in made]

        def run():
            operands = [leaf.float() for leaf in leaves] if widens else leaves
            result = function(*operands).to(dtype)
            result.backward(torch.ones_like(result))

        columns.append(best_ms(run))
    return columns


CASES = {
    "conv2d 16 to 16, 3x3, 32x32, batch 16": (
        lambda x, w: functional.conv2d(x, w, padding=1), [(16, 16, 32, 32), (16, 16, 3, 3)]),
    "conv2d 64 to 64, 3x3, 8x8, batch 16": (
        lambda x, w: functional.conv2d(x, w, padding=1), [(16, 64, 8, 8), (64, 64, 3, 3)]),
    "conv2d depthwise 64, 3x3, 16x16, batch 16": (
        lambda x, w: functional.conv2d(x, w, padding=1, groups=64), [(16, 64, 16, 16), (64, 1, 3, 3)]),
    "linear 768 to 768, 512 rows": (functional.linear, [(512, 768), (768, 768)]),
    "matmul 48 of 128x64 by 64x128": (torch.matmul, [(48, 128, 64), (48, 64, 128)]),
    "attention, 48 heads of 128x64": (
        functional.scaled_dot_product_attention, [(4, 12, 128, 64)] * 3),
}


def main():
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    print("| layer | fp32 | bf16 | bf16 operands in fp32 |\n|---|---:|---:|---:|")
    for name, (function, shapes) in CASES.items():
        print(f"| {name} | " + " | ".join(f"{ms:.2f}" for ms in three_ways(function, shapes)) + " |", flush=True)


if __name__ == "__main__":
    main()
