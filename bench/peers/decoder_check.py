#!/usr/bin/env python3
"""Decoders of random weights that transformers saved, run by ulp from their folders, beside transformers itself.

    .deps/peers-venv/bin/python bench/peers/decoder_check.py build/release/bin/ulp

For each family and setting: the largest difference of the logits as a share of the largest one, for the network itself (which has to be
within 1e-5), and for engines in fp32, bf16, dynamic int8 and 4-bit weights. Nothing is downloaded.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

sys.modules["torchvision"] = None  # not needed here, and one of another PyTorch would keep transformers from loading
os.environ["TQDM_DISABLE"] = "1"
import transformers
from transformers import AutoModelForCausalLM

from differences import largest_share

REACH = 1e-5  # of the largest logit
LENGTH = 24
SHARED = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32, "rope_theta": 500.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 100.0}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.5, 2.0], "long_factor": [2.0, 3.0, 4.0]}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 24}


def variants():
    """Name, class of the configuration, its settings."""
    yield "llama 2", "LlamaConfig", {"num_key_value_heads": 4}
    yield "llama 3", "LlamaConfig", {"rope_parameters": LLAMA3}
    yield "llama, biases, head_dim", "LlamaConfig", {"attention_bias": True, "mlp_bias": True, "head_dim": 12}
    yield "llama, linear", "LlamaConfig", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}
    yield "llama, dynamic", "LlamaConfig", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}
    yield "llama, gelu", "LlamaConfig", {"hidden_act": "gelu"}
    yield "smollm", "LlamaConfig", {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5}}
    yield "mistral, window 7", "MistralConfig", {"sliding_window": 7}
    yield "mistral", "MistralConfig", {"sliding_window": None, "num_key_value_heads": 1}
    yield "qwen2", "Qwen2Config", {"tie_word_embeddings": True}
    yield "qwen2, window 5", "Qwen2Config", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    yield "qwen3", "Qwen3Config", {"head_dim": 16}
    yield "gemma", "GemmaConfig", {"head_dim": 16}
    yield "gemma 2", "Gemma2Config", {**GEMMA, "sliding_window": 6}
    yield "gemma 2, no caps", "Gemma2Config", {**GEMMA, "final_logit_softcapping": None, "attn_logit_softcapping": None}
    yield "gemma 3", "Gemma3TextConfig", {**GEMMA, "sliding_window": 6, "layer_types": [
        "sliding_attention", "full_attention", "sliding_attention"], "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}
    yield "phi 3", "Phi3Config", {"sliding_window": 9}
    yield "llama, yarn", "LlamaConfig", {"rope_parameters": YARN}
    yield "qwen2, yarn, betas", "Qwen2Config", {"rope_parameters": {
        **YARN, "beta_fast": 6.0, "beta_slow": 0.5, "truncate": False, "attention_factor": 1.2}}
    yield "qwen3, yarn, mscale", "Qwen3Config", {"head_dim": 16, "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.5}}
    yield "phi 4 mini", "Phi3Config", {"tie_word_embeddings": True, "original_max_position_embeddings": 32,
                                       "rope_parameters": {**LONGROPE, "partial_rotary_factor": 0.75}}
    yield "phi 3, attention_factor", "Phi3Config", {"original_max_position_embeddings": 32, "rope_parameters": {
        **LONGROPE, "short_factor": [1.0, 1.5, 2.0, 2.0], "long_factor": [1.0] * 4, "attention_factor": 1.1}}
    yield "llama, longrope", "LlamaConfig", {"rope_parameters": {
        **LONGROPE, "short_factor": [1.0, 1.5, 2.0, 2.0], "long_factor": [1.0] * 4, "factor": 2.0,
        "original_max_position_embeddings": 32}}
    yield "phi 3, partial", "Phi3Config", {"rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
    yield "stablelm", "StableLmConfig", {}
    yield "stablelm, biases, half", "StableLmConfig", {"use_qkv_bias": True, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}


def made(config):
    """A network whose weights matter, those of norms and biases, too."""
    network = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("norm.weight"):
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
            else:
                parameter.normal_(0, 0.2)
    return network


def older(folder):
    """The same settings as files of before 2025 spell them."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None)
    if rope and "full_attention" in rope:
        config["rope_theta"] = rope["full_attention"].pop("rope_theta")
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    elif rope:
        config["rope_theta"] = rope.pop("rope_theta")
    if rope and "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = rope if rope and rope.get("rope_type") != "default" else None
    path.write_text(json.dumps(config))


class Tool:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder

    def call(self, *words):
        done = subprocess.run([self.path, *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])

    def logits(self, model):
        out = self.folder / "out.safetensors"
        self.call("run", model, "--input", self.folder / "inputs.safetensors", "--out", out)
        return next(iter(load_file(out).values()))


def shares(tool, network, tokens, engines):
    """Of each form the largest difference, or what the tool says."""
    def of(form, model, right, make=None):
        try:
            if make:
                tool.call(*make)
            return form, float(largest_share(tool.logits(model), right)), None
        except RuntimeError as error:
            return form, None, str(error)

    folder = tool.folder
    save_file({"input": tokens}, folder / "inputs.safetensors")
    with torch.no_grad():
        right = network(input_ids=tokens).logits
    network.save_pretrained(folder / "whole")
    network.save_pretrained(folder / "shards", max_shard_size="20KB")
    older(folder / "shards")
    yield of("network", folder / "whole", right)
    yield of("shards, old config", folder / "shards", right)
    engine = folder / "engine.ulp"
    if engines:
        lower = ("lower", folder / "whole", "--out", engine)
        yield of("engine fp32", engine, right, lower)
        yield of("fp32 decoding", engine, right, (*lower, "--continued", "time"))
        yield of("bf16", engine, right, (*lower, "--precision", "bf16", "--continued", "time"))
    network.to(torch.bfloat16).save_pretrained(folder / "half")
    rounded = AutoModelForCausalLM.from_pretrained(folder / "half", dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        right = rounded(input_ids=tokens).logits
    yield of("bf16 file", folder / "half", right)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", help="the tool, build/release/bin/ulp")
    parser.add_argument("--only", default="", help="variants whose name has this in it")
    parser.add_argument("--engines", action="store_true", help="engines, too")
    flags = parser.parse_args()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    failed = False
    for name, kind, settings in variants():
        if flags.only not in name:
            continue
        torch.manual_seed(3)
        network = made(getattr(transformers, kind)(**{**SHARED, **settings}))
        tokens = torch.randint(0, SHARED["vocab_size"], (3, LENGTH))
        with tempfile.TemporaryDirectory() as temporary:
            tool = Tool(flags.tool, pathlib.Path(temporary))
            for form, share, said in shares(tool, network, tokens, flags.engines):
                exact = form in ("network", "shards, old config", "bf16 file")
                failed |= exact and (share is None or share > REACH)
                print(f"{name:26} {form:20} {said if share is None else format(share, '.1e')}", flush=True)
    print("NOT within reach" if failed else f"within {REACH}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
