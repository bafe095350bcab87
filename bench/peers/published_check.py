#!/usr/bin/env python3
"""Networks of ulp on weights that transformers saved, beside transformers itself: logits, and what ulp writes read by transformers.

    .deps/peers-venv/bin/python bench/peers/published_check.py build/release/bin/published_logits

Weights are random; nothing is downloaded.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

sys.modules["torchvision"] = None  # not needed here, and one of another PyTorch would keep transformers from loading
from transformers import (BertConfig, BertForSequenceClassification, DistilBertConfig, DistilBertForSequenceClassification,
                          GPT2Config, GPT2LMHeadModel)

from differences import largest_share

REACH = 1e-5  # of the largest logit


def networks():
    torch.manual_seed(3)
    shared = {"vocab_size": 99, "num_labels": 3}
    yield "bert", BertForSequenceClassification(BertConfig(
        **shared, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=50,
        max_position_embeddings=40, pad_token_id=0))
    yield "distilbert", DistilBertForSequenceClassification(DistilBertConfig(
        **shared, dim=24, n_layers=3, n_heads=4, hidden_dim=50, max_position_embeddings=40, pad_token_id=0))
    yield "gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=24, n_layer=3, n_head=4, n_positions=40))


def logits_of(program, name, weights, tokens, folder):
    save_file({"tokens": tokens}, folder / "tokens.safetensors")
    done = subprocess.run([program, name, weights, folder / "tokens.safetensors", folder / "out.safetensors",
                           folder / "written.safetensors"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr}")
    return load_file(folder / "out.safetensors")["logits"], done.stdout.strip()


def tool_logits(tool, weights, tokens, folder):
    """What `ulp run` says of the folder as transformers wrote it, config.json among it."""
    save_file({"input": tokens}, folder / "inputs.safetensors")
    done = subprocess.run([tool, "run", weights, "--input", folder / "inputs.safetensors", "--out", folder / "run.safetensors"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ulp run {weights}: {done.stderr}")
    return next(iter(load_file(folder / "run.safetensors").values()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="published_logits of the benchmarks")
    parser.add_argument("--tool", help="the tool, whose `ulp run FOLDER` is compared, too")
    flags = parser.parse_args()
    worst = 0.0
    for name, network in networks():
        network.eval()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(0, 0.2)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            tokens = torch.randint(1, 99, (5, 17))
            if name != "gpt2":
                tokens[2, 9:] = 0
            with torch.no_grad():
                right = network(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
            network.save_pretrained(folder / "whole")
            network.save_pretrained(folder / "shards", max_shard_size="20KB")
            old = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v.clone()
                   for k, v in network.state_dict().items() if not k.startswith("lm_head")}
            save_file(old, folder / "old.safetensors")
            for form in ("whole", "shards", "old.safetensors"):
                ours, said = logits_of(flags.program, name, folder / form, tokens, folder)
                share = float(largest_share(ours, right))
                worst = max(worst, share)
                shards = len(list((folder / form).glob("*.safetensors"))) if (folder / form).is_dir() else 1
                print(f"{name}, {form} ({shards} files): {said}; largest difference {share:.1e} of the largest logit")
            if flags.tool:
                ours = tool_logits(flags.tool, folder / "whole", tokens, folder)
                share = float(largest_share(ours, right))
                worst = max(worst, share)
                print(f"{name}, ulp run on the folder: largest difference {share:.1e} of the largest logit")
            state = load_file(folder / "written.safetensors")
            blank = type(network)(network.config)
            base = blank if name != "gpt2" else blank.transformer
            lacking, more = base.load_state_dict(state, strict=False)
            lacking = [key for key in lacking if not key.endswith(("position_ids", "token_type_ids"))]
            blank.eval()
            with torch.no_grad():
                again = blank(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
            print(f"{name}: transformers reads what ulp writes, {len(lacking)} missing, {len(more)} unexpected, "
                  f"{'the same bits' if torch.equal(again, right) else 'OTHER bits'}")
            worst = max(worst, 1.0 if lacking or more or not torch.equal(again, right) else 0.0)
    print("within reach" if worst <= REACH else f"NOT within {REACH}")
    sys.exit(worst > REACH)


if __name__ == "__main__":
    main()
