#!/usr/bin/env python3
"""One training step of a text network in PyTorch, eager and by torch.compile: forward, cross-entropy, backward, fused AdamW.

  OMP_NUM_THREADS=2 .deps/peers-venv/bin/python bench/peers/training.py [--network bert|gpt2|lstm] [--batch 4] [--length 128]
      [--precision fp32|bf16] [--dropout 0] [--steps 5]

The networks are those of transformers (BERT-base, GPT-2 with 124 M parameters) with random weights, and a classifier on two
LSTM layers of 512; bf16 is autocast. Prints the median of the steps after two that are not counted, and the last loss. ulp's
figures of the same steps: build/release/bin/compiled_networks_bench bert-base|gpt2|lstm, and without compiling
build/release/bin/training_products_bench --benchmark_filter=step
"""
import argparse
import contextlib
import os
import statistics
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch


class LstmClassifier(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = torch.nn.LSTM(width, width, 2, batch_first=True)
        self.head = torch.nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def network(name, p):
    """The network, and how many classes its labels have."""
    if name == "lstm":
        return LstmClassifier(512), 10
    if name == "bert":
        from transformers import BertConfig, BertForSequenceClassification

        return BertForSequenceClassification(BertConfig(hidden_dropout_prob=p, attention_probs_dropout_prob=p)), 2
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(attn_pdrop=p, embd_pdrop=p, resid_pdrop=p)), 30000


def measure(forward, model, tokens, labels, precision, steps):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    seconds = []
    for number in range(steps + 2):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            made = forward(tokens)
            logits = getattr(made, "logits", made).flatten(0, -2)
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
    parser.add_argument("--network", choices=["bert", "gpt2", "lstm"], default="bert")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=5)
    flags = parser.parse_args()
    torch.manual_seed(1)
    model, classes = network(flags.network, flags.dropout)
    model.train()
    tokens = torch.randint(0, 30000, (flags.batch, flags.length))
    if flags.network == "lstm":
        tokens = torch.randn(flags.batch, flags.length, 512)
    rows = flags.batch * flags.length if flags.network == "gpt2" else flags.batch
    labels = torch.randint(0, classes, (rows,))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {flags.network}, {flags.batch} x {flags.length}, "
          f"{flags.precision}")
    for name, forward in (("eager", model), ("torch.compile", torch.compile(model))):
        seconds, loss = measure(forward, model, tokens, labels, flags.precision, flags.steps)
        print(f"{name:14} {seconds * 1e3:8.0f} ms a step, loss {loss:.4f}")


if __name__ == "__main__":
    main()
