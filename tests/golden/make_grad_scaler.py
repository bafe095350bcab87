"""Writes grad_scaler.json: what torch.amp.GradScaler does, step by step, for tests/amp/grad_scaler_golden_test.cpp.

    python tests/golden/make_grad_scaler.py        (made with torch 2.13.0)

Each optimizer owns one parameter of two elements. The loss of a micro-batch is (w * g).sum(), so its scaled gradient is
scale * g (with "sparse" it looks a row up twice, so the row's gradient is 2 * scale * g); g comes from one letter an
optimizer and micro-batch:
  a..h  ordinary values    B  1e34: overflows only while the scale is large    i  +inf    j  -inf    n  NaN    z  zero
"""

import json
import math
import pathlib
import random

import torch

VALUES = {"B": 1e34, "i": math.inf, "j": -math.inf, "n": math.nan, "z": 0.0}


def gradient(letter):
    if letter in VALUES:
        return torch.tensor([0.5, VALUES[letter]])
    value = (ord(letter) - ord("a") + 1) / 7
    return torch.tensor([value, -0.25 * value])


def letters(rng, steps, bad, alphabet="iijnB"):
    return "".join(rng.choice(alphabet) if rng.random() < bad else rng.choice("abcdefgh") for _ in range(steps))


def make_weight(kind):
    start = torch.tensor([1.0, -1.0])
    return torch.nn.Parameter(start.repeat(3, 1) if kind == "sparse" else start)


def make_optimizer(kind, weight, momentum):
    if kind == "adam":
        return torch.optim.Adam([weight], lr=1e-3)
    if kind == "adamw":
        return torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.1)
    return torch.optim.SGD([weight], lr=1e-3, momentum=0.0 if kind == "sparse" else momentum)


def loss_of(kind, weight, letter):
    if kind == "sparse":
        weight = torch.nn.functional.embedding(torch.tensor([1, 1]), weight, sparse=True)
    return (weight * gradient(letter)).sum()


def run(name, steps, optimizers, options, micro_batches=1, clip=0.0, momentum=0.9, restore=(), new_scale=(),
        kinds=None, separate_losses=False):
    """`optimizers`: for each a string of steps * micro_batches letters. `new_scale`: pairs (step, scale).
    `kinds`: for each "sgd", "adam", "adamw" or "sparse" (SGD with a sparse gradient)."""
    kinds = kinds or ["sgd"] * len(optimizers)
    new_scale = dict(new_scale)
    scaler = torch.amp.GradScaler("cpu", **options)
    weights = [make_weight(kind) for kind in kinds]
    opts = [make_optimizer(kind, weight, momentum) for kind, weight in zip(kinds, weights)]
    scales, trackers, stepped = [], [], ["" for _ in optimizers]
    for step in range(steps):
        for opt in opts:
            opt.zero_grad()
        for batch in range(micro_batches):
            at = step * micro_batches + batch
            losses = [loss_of(kind, weight, events[at]) for kind, weight, events in zip(kinds, weights, optimizers)]
            if separate_losses:
                for scaled in scaler.scale(losses):
                    scaled.backward()
            else:
                scaler.scale(sum(losses)).backward()
        for i, (opt, weight) in enumerate(zip(opts, weights)):
            if clip:
                scaler.unscale_(opt)
                torch.nn.utils.clip_grad_norm_([weight], clip)
            before = weight.detach().clone()
            opt.stepped = False
            original = opt.step

            def count(*args, original=original, opt=opt, **kwargs):
                opt.stepped = True
                return original(*args, **kwargs)

            opt.step = count
            scaler.step(opt)
            opt.step = original
            stepped[i] += "1" if opt.stepped else "0"
            assert opt.stepped or torch.equal(before, weight) or before.isnan().any()
        if step in new_scale:
            scaler.update(float(new_scale[step]))
        else:
            scaler.update()
        scales.append(scaler.get_scale())
        trackers.append(scaler.state_dict().get("_growth_tracker", 0))
        if step in restore:
            state = scaler.state_dict()
            scaler = torch.amp.GradScaler("cpu", init_scale=3.0)
            scaler.load_state_dict(state)
    changes = [[i, s] for i, s in enumerate(scales) if i == 0 or s != scales[i - 1]]
    return {
        "name": name, "steps": steps, "options": options, "micro_batches": micro_batches, "clip": clip,
        "momentum": momentum, "kinds": kinds, "separate_losses": separate_losses, "restore": list(restore), "new_scale": [list(p) for p in new_scale.items()],
        "optimizers": optimizers, "stepped": stepped, "scale_changes": changes, "trackers": trackers,
        "weights": [[float(x).hex() for x in w.detach().flatten()] for w in weights],
    }


def main():
    rng = random.Random(20)
    short = {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 7}
    odd = {"init_scale": 1234.5, "growth_factor": 1.7, "backoff_factor": 0.37, "growth_interval": 5}
    steep = {"init_scale": 1.0, "growth_factor": 1e10, "backoff_factor": 1e-3, "growth_interval": 1}
    scenarios = [
        run("one optimizer", 2000, [letters(rng, 2000, 0.08)], short),
        run("defaults", 2300, [letters(rng, 2100, 0.0) + letters(rng, 200, 0.05)], {}),
        run("two optimizers", 2000, [letters(rng, 2000, 0.04), letters(rng, 2000, 0.04)], odd),
        run("unscale before clip", 2000, [letters(rng, 2000, 0.06), letters(rng, 2000, 0.03)], short, clip=0.3),
        run("accumulation", 700, [letters(rng, 2100, 0.03)], odd, micro_batches=3),
        run("save and restore", 2000, [letters(rng, 2000, 0.06)], odd, restore=(0, 332, 333, 1200)),
        run("manual scale", 1000, [letters(rng, 1000, 0.06)], short, new_scale=((3, 8), (50, 1e30), (51, 0.1), (700, 65536))),
        run("grows only while finite", 40, ["z" * 40], steep),
        run("backs off to nothing", 400, [letters(rng, 400, 0.97)], short),
        run("a loss for each of three kinds", 2000, [letters(rng, 2000, 0.03) for _ in range(3)], odd,
            kinds=["sgd", "adam", "adamw"], separate_losses=True, restore=(77, 1500)),
        run("adam, accumulated and clipped", 700, [letters(rng, 1400, 0.03), letters(rng, 1400, 0.02)], short,
            micro_batches=2, clip=0.3, kinds=["adam", "adamw"]),
        run("sparse gradients", 1500, [letters(rng, 1500, 0.06), letters(rng, 1500, 0.02)], short, kinds=["sparse", "sgd"]),
        run("disabled", 300, [letters(rng, 300, 0.0), letters(rng, 300, 0.0)], {"enabled": False}, kinds=["sgd", "adam"]),
    ]
    path = pathlib.Path(__file__).with_name("grad_scaler.json")
    path.write_text(json.dumps({"torch": torch.__version__, "scenarios": scenarios}, separators=(",", ":")) + "\n")
    for s in scenarios:
        print(s["name"], len(s["scale_changes"]), [x.count("0") for x in s["stepped"]], s["scale_changes"][-1], s["weights"])
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
