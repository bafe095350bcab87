"""A training step of BERT on a GPU in PyTorch, as bench/gpu_bench has it: python3 gpu_step.py [bert-base|bert-large [batch [length [turns [WAYS]]]]]

Needs torch with CUDA, and transformers. Eager and torch.compile, in fp32, tf32, bf16 and fp16 with loss scaling, or only those WAYS whose names
begin with one of these: "eager", "eager bf16,compiled bf16".
"""
import sys
import time

import torch
from transformers import BertConfig, BertForSequenceClassification

STEPS = 5


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "bert-base"
    batch, length, turns = (int(sys.argv[i]) if len(sys.argv) > i else other for i, other in ((2, 32), (3, 128), (4, 5)))
    large = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    torch.manual_seed(1)
    model = BertForSequenceClassification(BertConfig(**(large if name == "bert-large" else {}))).cuda().train()
    tokens = torch.randint(1, 30522, (batch, length), device="cuda")
    targets = torch.randint(0, 2, (batch,), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    fused = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ways = [(kind, precision) for kind in ("eager", "compiled") for precision in ("fp32", "tf32", "bf16", "fp16")]
    wanted = tuple(sys.argv[5].split(",")) if len(sys.argv) > 5 else ("",)
    ways = [way for way in ways if " ".join(way).startswith(wanted)]
    compiled = torch.compile(model)
    seconds = {way: [] for way in ways}
    peak = dict.fromkeys(ways, 0)
    scaler = torch.amp.GradScaler("cuda")

    def step(kind, precision):
        run, opt = (model, optimizer) if kind == "eager" else (compiled, fused)
        opt.zero_grad()
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            logits = run(input_ids=tokens).logits
            loss = torch.nn.functional.cross_entropy(logits.float(), targets)
        if precision == "fp16":
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        else:
            loss.backward()
            opt.step()

    for turn in range(-1, turns):
        for way in ways:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = way[1] == "tf32"
            step(*way)
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(STEPS):
                step(*way)
            torch.cuda.synchronize()
            if turn >= 0:
                seconds[way].append((time.perf_counter() - start) / STEPS)
                peak[way] = max(peak[way], torch.cuda.max_memory_allocated())
    print(f"{name}, {batch} texts of {length} tokens, torch {torch.__version__}")
    for way in ways:
        print(f"{' '.join(way):24} {sorted(seconds[way])[turns // 2] * 1e3:10.2f} ms {peak[way] / 2**20:10.0f} MiB")


if __name__ == "__main__":
    main()
