"""Writes schedules.json: learning rates (and momenta) of every step, for tests/amp/schedule_golden_test.cpp.

    python tests/golden/make_schedules.py        (made with torch 2.13.0)

torch's schedulers are run; Hugging Face's schedules are computed here from their published formulas.
Two parameter groups with different base rates each; `rule` and `fields` name the rule in ulp.
"""

import json
import math
import pathlib

import torch
from torch.optim import lr_scheduler

BASE = [0.1, 0.03]


def optimizer_of(kind):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in BASE]
    return torch.optim.AdamW(groups) if kind == "adamw" else torch.optim.SGD(groups, momentum=0.9)


def torch_run(make, steps, rule, fields, kind="sgd", momentum=False):
    """`make` gets an optimizer and returns torch's scheduler; `steps` counts the rates that are noted."""
    optimizer = optimizer_of(kind)
    scheduler = make(optimizer)
    rates, momenta = [], []
    for step in range(steps):
        rates.append([group["lr"] for group in optimizer.param_groups])
        if momentum:
            group = optimizer.param_groups[1]
            momenta.append(group["betas"][0] if kind == "adamw" else group["momentum"])
        optimizer.step()
        if step + 1 < steps:
            scheduler.step()
    return {"source": type(scheduler).__name__, "rule": rule, "fields": fields, "optimizer": kind, "rates": rates,
            "momenta": momenta}


def formula_run(source, factor, steps, rule, fields):
    rates = [[base * factor(step) for base in BASE] for step in range(steps)]
    return {"source": source, "rule": rule, "fields": fields, "optimizer": "sgd", "rates": rates, "momenta": []}


def hf_rise(step, warmup):
    return step / max(1, warmup)


def hf_cosine(warmup, total, cycles):
    def factor(step):
        if step < warmup:
            return hf_rise(step, warmup)
        done = (step - warmup) / max(1, total - warmup)
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * cycles * 2.0 * done)))

    return factor


def hf_linear(warmup, total):
    return lambda step: hf_rise(step, warmup) if step < warmup else max(0.0, (total - step) / max(1, total - warmup))


def hf_polynomial(warmup, total, power, end):
    def factor(step):
        if step < warmup:
            return hf_rise(step, warmup)
        if step > total:
            return end
        return (1.0 - end) * (1 - (step - warmup) / (total - warmup)) ** power + end

    return factor


def one_cycle(**fields):
    arguments = {**fields, "anneal_strategy": {0: "cos", 1: "linear"}[fields.get("anneal", 0)]}
    arguments.pop("anneal", None)
    return lambda optimizer: lr_scheduler.OneCycleLR(optimizer, BASE, **arguments)


def one_cycle_runs():
    for fields, kind in [
        ({"total_steps": 50}, "sgd"),
        ({"total_steps": 50}, "adamw"),
        ({"total_steps": 33, "pct_start": 0.25, "anneal": 1, "div_factor": 10.0, "final_div_factor": 100.0}, "sgd"),
        ({"total_steps": 40, "pct_start": 0.4, "three_phase": True, "base_momentum": 0.8, "max_momentum": 0.9}, "sgd"),
        ({"total_steps": 21, "pct_start": 0.5, "three_phase": True, "anneal": 1}, "adamw"),
    ]:
        yield torch_run(one_cycle(**fields), fields["total_steps"], "one_cycle", {**fields, "cycle_momentum": True}, kind, True)


def main():
    runs = [
        torch_run(lambda o: lr_scheduler.CosineAnnealingLR(o, 40), 41, "cosine", {"total_steps": 40}),
        torch_run(lambda o: lr_scheduler.PolynomialLR(o, 30, power=1.0), 36, "polynomial", {"total_steps": 30}),
        torch_run(lambda o: lr_scheduler.PolynomialLR(o, 30, power=2.5), 36, "polynomial",
                  {"total_steps": 30, "power": 2.5}),
        torch_run(lambda o: lr_scheduler.LinearLR(o, 1 / 3, 1.0, 12), 20, "constant",
                  {"warmup_steps": 12, "warmup_from": 1 / 3}),
        torch_run(lambda o: lr_scheduler.ConstantLR(o, 1.0, 5), 8, "constant", {}),
        *one_cycle_runs(),
        formula_run("constant with warm-up", lambda s: min(1.0, hf_rise(s, 7)), 15, "constant", {"warmup_steps": 7}),
        formula_run("linear", hf_linear(6, 31), 36, "polynomial", {"warmup_steps": 6, "total_steps": 31}),
        formula_run("cosine", hf_cosine(6, 31, 0.5), 32, "cosine", {"warmup_steps": 6, "total_steps": 31}),
        formula_run("cosine, two waves", hf_cosine(0, 31, 2.0), 32, "cosine", {"total_steps": 31, "cycles": 2.0}),
        formula_run("polynomial", hf_polynomial(5, 30, 3.0, 0.01), 36, "polynomial",
                    {"warmup_steps": 5, "total_steps": 30, "power": 3.0, "end_factor": 0.01}),
    ]
    path = pathlib.Path(__file__).with_name("schedules.json")
    lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    path.write_text('{"base":' + json.dumps(BASE) + ',"runs":[\n' + lines + "\n]}\n")
    print(path.stat().st_size, "bytes", [run["source"] for run in runs])


if __name__ == "__main__":
    main()
