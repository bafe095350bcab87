#!/usr/bin/env python3
"""Archives of pt2_networks in PyTorch: the same bits, sizes that stay free, and AOTInductor.

    pt2_networks out float && .deps/peers-venv/bin/python bench/peers/pt2_check.py out
    .deps/peers-venv/bin/python bench/peers/pt2_check.py out --tool build/release/bin/ulp
    pt2_networks out8 int8 && .deps/peers-venv/bin/python bench/peers/pt2_check.py out8 --compile resnet8 --tolerance 5e-2

Each archive is loaded by torch.export.load() in a process of its own that imports torch alone: NumPy's files are read here by hand. It
runs at the batches and lengths of the files, on one thread. Of each input, a size outside of the range that the graph has must be refused by
a message that names the input. With --tool, programs that the tool cannot write have to be refused by name (pt2_refused.py). Networks that
--compile names (`all`, `none`) are compiled by torch._inductor.aoti_compile_and_package(), and the package runs on the same inputs; C++
compilers do that, in half a minute to two minutes each. The table has the share of results of other bits, and the largest difference as
a share of the largest result. Ends with exit code 1 where bits differ, something is not refused, or a compiled program is further off than
--tolerance: it fuses and reorders sums, and one code that rounds otherwise changes all that follow.
"""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

LENGTHS_ARE_UNROLLED = ("lstm", "recurrent")  # AOTInductor needs the length of a recurrent layer


def worker(folder, name, compiled):
    """One network, in a process of its own; prints a line of JSON."""
    import ast
    import re

    import torch

    def array(path):
        """NumPy's file of one array."""
        with open(path, "rb") as file:
            data = file.read()
        size = int.from_bytes(data[8:10], "little")
        header = ast.literal_eval(data[10:10 + size].decode())
        kind = {"<f4": torch.float32, "<i8": torch.int64, "|u1": torch.uint8}[header["descr"]]
        return torch.frombuffer(bytearray(data[10 + size:]), dtype=kind).reshape(header["shape"])

    def arrays(kind, batch):
        paths = glob.glob(f"{folder}/{name}.{batch}.{kind}*.npy")
        return [array(path) for path in sorted(paths, key=lambda path: int(re.search(r"(\d+)\.npy$", path)[1]))]

    def compare(run):
        other, count, largest = 0, 0, 0.0
        for batch in (1, 7):
            with torch.no_grad():
                results = torch.utils._pytree.tree_leaves(run(*arrays("x", batch)))
            expected = arrays("y", batch)
            assert [list(y.shape) for y in results] == [list(y.shape) for y in expected], "other shapes"
            for got, ours in zip(results, expected):
                other += int((got.contiguous().view(torch.int32) != ours.view(torch.int32)).sum())
                count += ours.numel()
                apart = float((got - ours).abs().max() / ours.abs().max())
                largest = apart if apart != apart or apart > largest else largest
        return {"other": other, "count": count, "largest": largest}

    def refusal(module, x, i, name):
        """What is wrong with the refusal of input i where it has another size; empty where nothing is."""
        wrong = torch.cat([x[i], x[i]], dim=x[i].dim() - 1).repeat_interleave(40, dim=x[i].dim() - 1)
        try:
            module(*x[:i], wrong, *x[i + 1:])
        except AssertionError as error:
            said = str(error)
            return "" if said.startswith(f"Guard failed: {name}.size()") else f"{name}: {said.splitlines()[0] if said else 'no word'}"
        return f"{name} is taken"

    torch.set_num_threads(1)
    program = torch.export.load(f"{folder}/{name}.pt2")
    module = program.module()
    line = {"version": torch.__version__, "nodes": sum(node.op == "call_function" for node in program.graph.nodes),
            "eager": compare(module)}
    x = arrays("x", 1)
    line["taken"] = [said for said in (refusal(module, x, i, name) for i, name in enumerate(program.graph_signature.user_inputs)) if said]
    if compiled:
        with tempfile.TemporaryDirectory() as scratch:
            path = torch._inductor.aoti_compile_and_package(program, package_path=f"{scratch}/compiled.pt2")
            line["compiled"] = compare(torch._inductor.aoti_load_package(path))
    print(json.dumps(line))


def run(folder, name, compiled):
    command = [sys.executable, os.path.abspath(__file__), folder, "--network", name] + ["--compiled"] * compiled
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"version"')]
    if done.returncode != 0 or not lines:
        return {"error": (done.stderr or done.stdout).strip().splitlines()[-1][:200]}
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--compile", default="mlp,resnet8,bert", help="networks for AOTInductor, all or none")
    parser.add_argument("--tool", help="build/release/bin/ulp, which must refuse by name what it cannot write")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of compiled programs")
    parser.add_argument("--network", help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.network:
        return worker(args.folder, args.network, args.compiled)
    names = sorted(os.path.basename(path)[:-4] for path in glob.glob(f"{args.folder}/*.pt2"))
    chosen = names if args.compile == "all" else args.compile.split(",")
    good = bool(names)
    print("| network | nodes | other bits | wrong sizes | AOTInductor, largest difference |\n|---|---:|---:|---|---:|")
    for name in names:
        compiled = name in chosen and name not in LENGTHS_ARE_UNROLLED
        line = run(args.folder, name, compiled)
        if "error" in line:
            good = False
            print(f"| {name} | {line['error']} | | | |", flush=True)
            continue
        eager, after = line["eager"], line.get("compiled")
        good = good and eager["other"] == 0 and not line["taken"] and (after is None or after["largest"] <= args.tolerance)
        print(f"| {name} | {line['nodes']} | {eager['other']} of {eager['count']} | "
              f"{', '.join(line['taken']) or 'refused by name'} | {after['largest'] if after else ''} |", flush=True)
    if args.tool:
        import pt2_refused
        good = pt2_refused.check_refused(args.tool) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
