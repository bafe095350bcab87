"""Programs that `ulp export --to pt2` has to refuse by name, for pt2_check.py."""

import os
import subprocess
import tempfile
import warnings


def programs():
    """(name, a function of a layer's result, where the tool refuses it, what its message must name)."""
    import torch

    @torch.library.custom_op("another::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    read, written = "[exchange.import_pt2] ", "[exchange.export_pt2] "
    yield "plain", torch.relu, None, ()  # so that the others are refused for what they are
    yield "library", lambda x: torch.ops.another.twice(x), read, ("'twice'", "another.twice", "expected operators of aten")
    yield "branch", lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), read, ("'cond'", "expected operators of aten")
    yield "number", lambda x: x[:x.sum().int().abs().clamp(0, 3).item()], read, ("'item'", "aten.item", "follow")
    yield "complex", lambda x: torch.fft.fft(x).abs(), written, ("aten::fft_fft", "'fft_fft'", "ComplexFloat")


def exported(path, function):
    """A linear layer and the function behind it, with a free batch."""
    import torch

    class Behind(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            return function(self.layer(x))

    free = {0: torch.export.Dim("batch", max=64)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(Behind().eval(), (torch.randn(6, 4),), dynamic_shapes=(free,)), path)


def fault(tool, path, where, words):
    """What is wrong with the tool's answer; empty where nothing is."""
    out = path + ".out.pt2"
    done = subprocess.run([tool, "export", path, "--to", "pt2", "--shape", "4,1,1", "--out", out], capture_output=True, text=True)
    if where is None:
        return "" if done.returncode == 0 and os.path.exists(out) else f"refused: {done.stderr.strip()}"
    code = 3 if "import" in where else 1  # a file that cannot be read has its own
    if done.returncode != code:
        return f"expected exit code {code}, got {done.returncode}"
    if os.path.exists(out):
        return "a file was written"
    message = done.stderr.strip()
    named = words + ((path,) if "import" in where else ())
    missing = [word for word in named if word not in message]
    if not message.startswith("ulp: " + where) or len(message.splitlines()) != 1 or missing:
        return f"expected one line of {where}with {' and '.join(named)}, got: {message}"
    return ""


def check_refused(tool):
    """Prints a line for each program; whether all of them are refused as they have to be."""
    good = True
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for name, function, where, words in programs():
            path = os.path.join(folder, name + ".pt2")
            exported(path, function)
            cases.append((name, path, where, words))
        with open(cases[0][1], "rb") as file:
            half = file.read()
        path = os.path.join(folder, "cut.pt2")
        with open(path, "wb") as file:
            file.write(half[:len(half) // 2])
        cases.append(("cut", path, "[exchange.import_pt2] ", ("as a .pt2 archive of torch.export",)))
        for name, path, where, words in cases:
            wrong = fault(tool, path, where, words)
            good = good and not wrong
            print(f"{name}: {wrong or ('refused by name' if where else 'written')}", flush=True)
    return good
