#!/usr/bin/env python3
"""Adapters of Hugging Face's PEFT read and merged by ulp, and adapters that ulp trained read by PEFT, on small networks of random weights.

    .deps/peers-venv/bin/python bench/peers/lora_check.py build/release/bin/ulp

It needs peft beside transformers. For each family, with and without use_rslora: how many tensors of the merged network have PEFT's bits, whether PEFT
reads each tensor that ulp wrote, and the bits of what it merges of them. Fails unless all are the same. Nothing is downloaded.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

sys.modules["torchvision"] = None  # not needed here, and one of another PyTorch would keep transformers from loading
os.environ["TQDM_DISABLE"] = "1"
import peft
import transformers

SIZES = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
FAMILIES = {
    "llama": (lambda: transformers.LlamaConfig(**SIZES), ["q_proj", "v_proj", "down_proj"]),
    "mistral": (lambda: transformers.MistralConfig(**SIZES), ["q_proj", "gate_proj"]),
    "qwen2": (lambda: transformers.Qwen2Config(**SIZES), ["q_proj", "k_proj", "up_proj"]),
    "qwen3": (lambda: transformers.Qwen3Config(**SIZES, head_dim=16), ["o_proj"]),
    "gemma2": (lambda: transformers.Gemma2Config(**SIZES, head_dim=16), ["v_proj", "up_proj"]),
    "phi3": (lambda: transformers.Phi3Config(**SIZES), ["qkv_proj", "o_proj"]),
    "gpt2": (lambda: transformers.GPT2Config(vocab_size=256, n_embd=64, n_layer=2, n_head=4, n_positions=64), ["c_attn", "c_fc"]),
}


def same_tensors(model, path):
    """Tensors of a file that have the bits of the model's, and how many there are."""
    own = model.state_dict()
    named = [(own.get(name, own.get("transformer." + name)), value) for name, value in load_file(path).items()]
    return sum(mine is not None and torch.equal(mine, value) for mine, value in named), len(named)


def check(ulp, folder, name, rslora):
    """True where everything has the same bits."""
    make, targets = FAMILIES[name]
    base = transformers.AutoModelForCausalLM.from_config(make()).eval()
    base.save_pretrained(folder / name)

    def run(*words):
        done = subprocess.run([ulp, *map(str, words)], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{name}: ulp {words[0]}: {done.stderr}")

    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=targets, use_rslora=rslora, task_type="CAUSAL_LM",
                             fan_in_fan_out=name == "gpt2")
    theirs = peft.get_peft_model(base, config).eval()
    for key, parameter in theirs.named_parameters():
        if "lora_B" in key:
            parameter.data.normal_(0, 0.05)
    theirs.save_pretrained(folder / "theirs")
    run("export", name, "--adapter", "theirs", "--to", "safetensors", "--out", "merged.safetensors")
    read = same_tensors(theirs.merge_and_unload(), folder / "merged.safetensors")

    run("train", "--init", name, "--data", "text.txt", "--length", 64, "--batch", 4, "--max-steps", 10, "--threads", 1, "--lora", 4,
        "--lora-alpha", 12, "--lora-targets", ",".join(targets), *(["--lora-rslora"] if rslora else []), "--out", "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(folder / name).eval()
    again = peft.PeftModel.from_pretrained(again, folder / "ours").eval()
    written, loaded = load_file(folder / "ours/adapter_model.safetensors"), peft.get_peft_model_state_dict(again)
    whole = set(written) == set(loaded) and all(torch.equal(written[key], loaded[key]) for key in written)
    run("export", name, "--adapter", "ours", "--to", "safetensors", "--out", "merged.safetensors")
    wrote = same_tensors(again.merge_and_unload(), folder / "merged.safetensors")
    print(f"{name:8} {'rslora' if rslora else '':6} PEFT's adapter merged: {read[0]} of {read[1]} tensors with its bits; ulp's adapter: "
          f"{'read whole' if whole else 'NOT read whole'}, {wrote[0]} of {wrote[1]}")
    return whole and read[0] == read[1] and wrote[0] == wrote[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ulp", type=pathlib.Path)
    ulp = parser.parse_args().ulp.resolve()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    print(f"peft {peft.__version__}, transformers {transformers.__version__}, PyTorch {torch.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("a fine day, an awful hour\n" * 400)
        good = [check(ulp, folder, family, rslora) for family in FAMILIES for rslora in (False, True)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
