#!/usr/bin/env python3
"""Reads the sources with the headers of another LibTorch: scripts/check_torch_headers.py BUILD_DIR TORCH [--jobs N] [--only TEXT]

Each compilation of the library, the tool, tests/cuda and the benchmarks for GPUs that BUILD_DIR/compile_commands.json has is done again with TORCH/include
instead of LibTorch's headers, and stops before code is made (-fsyntax-only). So nothing of TORCH is linked: the headers of a build for GPUs serve
on a machine without CUDA. Exit status 1 where one does not compile.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from build_time import compiler_call, is_header  # noqa: E402

WANTED = re.compile(r"^(ulp|cli)/|^tests/cuda/|^bench/.*gpu_(bench|optimizer_bench)")


def read_commands(build):
    """(output below the build folder, arguments without what they write, working directory) of what reads LibTorch, and its include folder."""
    entries, torch = [], set()
    with open(build / "compile_commands.json", encoding="utf-8") as file:
        for entry in json.load(file):
            call = compiler_call(entry["command"])
            output = os.path.relpath(os.path.join(entry["directory"], entry.get("output", "")), build)
            includes = [word for word in call or () if word.endswith("/include") and (Path(word) / "ATen/ATen.h").is_file()]
            if includes:
                torch.update(includes)
                entries.append((output, call, entry["directory"]))
    if len(torch) != 1:
        sys.exit(f"check_torch_headers: error: expected one LibTorch in {build}/compile_commands.json, got {sorted(torch) or 'none'}")
    return entries, torch.pop()


def run(call, directory):
    done = subprocess.run(call, cwd=directory, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, metavar="BUILD_DIR", help="a configured build folder")
    parser.add_argument("torch", type=Path, metavar="TORCH", help="the folder of the other LibTorch, with include/")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many compilations at once (the cores)")
    parser.add_argument("--only", default="", help="only compilations whose output has this text")
    options = parser.parse_args()
    build, new = options.build.resolve(), str(options.torch.resolve() / "include")
    if not (Path(new) / "ATen/ATen.h").is_file():
        sys.exit(f"check_torch_headers: error: expected ATen/ATen.h in {new}")
    entries, old = read_commands(build)
    folder = build / "other-torch"
    shutil.rmtree(folder, ignore_errors=True)
    moved = {}  # precompiled header -> the same of the other LibTorch

    def changed(call):
        words = [word.replace(old, new) for word in call]
        for header, other in moved.items():
            words = [word.replace(header, other) for word in words]
        return words

    headers, sources = [], []
    for output, call, directory in entries:
        if is_header(output):
            text = str(build / os.path.splitext(output)[0])
            moved[text] = str(folder / str(len(moved)) / "cmake_pch.hxx")
            headers.append((output, call, directory, moved[text] + os.path.splitext(output)[1]))
        elif WANTED.search(output) and options.only in output:
            sources.append((output, call, directory))
    used = {header for header in moved for _, call, _ in sources if any(word.startswith(header) for word in call)}
    failed = []

    def report(output, errors):
        if errors is None:
            return
        failed.append(output)
        first = [line for line in errors.splitlines() if "error" in line][:3] or errors.splitlines()[-3:]
        print(f"{output} does not compile:\n  " + "\n  ".join(first), flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {}
        for output, call, directory, made in headers:
            original = str(build / os.path.splitext(output)[0])
            if original in used:
                os.makedirs(os.path.dirname(made))
                shutil.copy(original, moved[original])
                shutil.copy(original + ".cxx", moved[original] + ".cxx")  # what the header is compiled as
                waiting[pool.submit(run, [*changed(call), "-o", made], directory)] = output
        for done in concurrent.futures.as_completed(waiting):
            report(waiting[done], done.result())
        waiting = {pool.submit(run, [*changed(call), "-fsyntax-only"], directory): output for output, call, directory in sources}
        for done in concurrent.futures.as_completed(waiting):
            report(waiting[done], done.result())
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(sources)} compilations with the headers in {new}, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
