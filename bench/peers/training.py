#!/usr/bin/env python3
"""One training step of a text network in PyTorch, eager and by torch.compile: forward, cross-entropy, backward, fused AdamW.

  OMP_NUM_THREADS=2 .deps/peers-venv/bin/python bench/peers/training.py [--network bert|gpt2] [--batch 4] [--length 128]
      [--precision fp32|bf16] [--steps 5]

The networks are those of transformers (BERT-base, GPT-2 with 124 M parameters) with random weights and without dropout; bf16
is autocast. Prints the median of the steps after two that are not counted, and the last loss. ulp's figures of the same
steps: build/release/bin/training_products_bench --benchmark_filter=step
"""
import argparse
import contextlib
import os
import statistics
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch


def network(name):
    """The network, what it makes of tokens, and how many classes its labels have."""
    if name == "bert":
        from transformers import BertConfig, BertForSequenceClassification

        model = BertForSequenceClassification(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
        return model, 2
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)), 30000


def measure(forward, model, tokens, labels, precision, steps):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    seconds = []
    for number in range(steps + 2):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            logits = forward(tokens).logits.flatten(0, -2)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last = loss.item()
        if number >= 2:
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), last


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=["bert", "gpt2"], default="bert")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int, default=5)
    flags = parser.parse_args()
    torch.manual_seed(1)
    model, classes = network(flags.network)
    model.train()
    tokens = torch.randint(0, 30000, (flags.batch, flags.length))
    rows = flags.batch if flags.network == "bert" else flags.batch * flags.length
    labels = torch.randint(0, classes, (rows,))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {flags.network}, {flags.batch} x {flags.length}, "
          f"{flags.precision}")
    for name, forward in (("eager", model), ("torch.compile", torch.compile(model))):
        seconds, loss = measure(forward, model, tokens, labels, flags.precision, flags.steps)
        print(f"{name:14} {seconds * 1e3:8.0f} ms a step, loss {loss:.4f}")


if __name__ == "__main__":
    main()
