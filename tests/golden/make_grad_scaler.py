"""Writes grad_scaler.json: what torch.amp.GradScaler does, step by step, for tests/amp/grad_scaler_golden_test.cpp.

    python tests/golden/make_grad_scaler.py        (made with torch 2.13.0)

Each optimizer owns one parameter of two elements. The loss of a micro-batch is (w * g).sum(), so its scaled gradient is
scale * g; g comes from one letter an optimizer and micro-batch:
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


def run(name, steps, optimizers, options, micro_batches=1, clip=0.0, momentum=0.9, restore=(), new_scale=()):
    """`optimizers`: for each a string of steps * micro_batches letters. `new_scale`: pairs (step, scale)."""
    new_scale = dict(new_scale)
    scaler = torch.amp.GradScaler("cpu", **options)
    weights = [torch.nn.Parameter(torch.tensor([1.0, -1.0])) for _ in optimizers]
    opts = [torch.optim.SGD([w], lr=1e-3, momentum=momentum) for w in weights]
    scales, trackers, stepped = [], [], ["" for _ in optimizers]
    for step in range(steps):
        for opt in opts:
            opt.zero_grad()
        for batch in range(micro_batches):
            loss = 0
            for weight, events in zip(weights, optimizers):
                loss = loss + (weight * gradient(events[step * micro_batches + batch])).sum()
            scaler.scale(loss).backward()
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
        trackers.append(scaler.state_dict()["_growth_tracker"])
        if step in restore:
            state = scaler.state_dict()
            scaler = torch.amp.GradScaler("cpu", init_scale=3.0)
            scaler.load_state_dict(state)
    changes = [[i, s] for i, s in enumerate(scales) if i == 0 or s != scales[i - 1]]
    return {
        "name": name, "steps": steps, "options": options, "micro_batches": micro_batches, "clip": clip,
        "momentum": momentum, "restore": list(restore), "new_scale": [list(p) for p in new_scale.items()],
        "optimizers": optimizers, "stepped": stepped, "scale_changes": changes, "trackers": trackers,
        "weights": [[float(x).hex() for x in w.detach()] for w in weights],
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
    ]
    path = pathlib.Path(__file__).with_name("grad_scaler.json")
    path.write_text(json.dumps({"torch": torch.__version__, "scenarios": scenarios}, separators=(",", ":")) + "\n")
    for s in scenarios:
        print(s["name"], len(s["scale_changes"]), [x.count("0") for x in s["stepped"]], s["scale_changes"][-1], s["weights"])
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
