#!/usr/bin/env python3
"""Runs the demo's network in ulp and in its peers, side by side, and prints accuracy, latency and throughput.

Each variant is measured in a process of its own, so that no thread pool left spinning disturbs the next one; the
variants take turns (A B C A B C ...), and the table shows the median over the turns and their quartiles. A
measurement during which other programs used the processors is taken again.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata

import network
import peers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# The widest gap to ulp's fp32 accuracy, in points, at which a variant still counts as the same network.
TOLERANCE = {"fp32": 0.02, "bf16": 0.5, "int8": 0.5}
# The share of the processors that other programs may use during a measurement.
QUIET_SHARE = 0.03


def environment(args):
    """Variables of the measured processes: as many OpenMP threads as asked for, compiled kernels kept."""
    threads = str(args.threads)
    return dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads,
                TORCHINDUCTOR_CACHE_DIR=os.path.join(args.work, "inductor"))


def output_of(command, args):
    done = subprocess.run(command, env=environment(args), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout


class Peer:
    def __init__(self, key, args):
        self.name, self.precision = key.split("|")
        self.args = args
        self.command = [sys.executable, os.path.join(HERE, "peers.py"), key, "--model", args.model, "--work",
                        args.work, "--data", args.data, "--threads", str(args.threads)]

    def ask(self, *more):
        return json.loads(output_of([*self.command, *more], self.args).strip().splitlines()[-1])

    def accuracy(self):
        return self.ask("--batches", "250", "--accuracy")[0]

    def seconds(self):
        """Seconds of a call for each of the batch sizes."""
        return self.ask("--batches", *map(str, self.args.batches))


class Ulp:
    def __init__(self, name, precision, file, args):
        self.name, self.precision, self.file, self.args = name, precision, file, args

    def ask(self, *command):
        return json.loads(output_of([self.args.ulp, *command, "--json", "--threads", str(self.args.threads)],
                                    self.args))

    def accuracy(self):
        return self.ask("eval", self.file, "--data", self.args.data)["accuracy_percent"]

    def seconds(self):
        # Four rounds: the first is the warm-up that a peer has too, and the median forgives it.
        batches = ",".join(map(str, self.args.batches))
        rows = self.ask("bench", self.file, "--batch", batches, "--rounds", "4")["Speed"]
        return [row["median [ms]"] / 1e3 for row in rows]


def variants(args):
    """ulp first in each precision, then its peers."""
    folder = os.path.dirname(args.model)
    stem = os.path.splitext(os.path.basename(args.model))[0]
    found = []
    for precision in ("fp32", "bf16", "int8"):
        engine = os.path.join(folder, f"{stem}.{precision}.ulp")
        found.append(Ulp("ulp engine", precision, engine, args))
        if precision == "fp32":
            found.append(Ulp("LibTorch eager (C++)", precision, args.model, args))
        found += [Peer(key, args) for key in peers.RUNNERS if key.endswith(f"|{precision}")]
    return [v for v in found if args.only in f"{v.name}|{v.precision}"]


def check_accuracy(found):
    """The accuracy of each variant; ends the program if one computes something else than the fp32 network."""
    reference = None
    accuracies = []
    for variant in found:
        accuracies.append(variant.accuracy())
        reference = accuracies[0] if reference is None else reference
        print(f"accuracy  {variant.name:22} {variant.precision}  {accuracies[-1]:.2f} %", file=sys.stderr)
        if abs(accuracies[-1] - reference) > TOLERANCE[variant.precision]:
            sys.exit(f"{variant.name} {variant.precision}: expected {reference:.2f} % within "
                     f"{TOLERANCE[variant.precision]} points, got {accuracies[-1]:.2f} %")
    return accuracies


def summarize(seconds):
    quartiles = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [seconds[0]] * 3
    return {"median": statistics.median(seconds), "lower": quartiles[0], "upper": quartiles[2],
            "minimum": min(seconds), "maximum": max(seconds)}


def busy_seconds():
    """Processor time spent since boot by everything, and by the finished children of this process."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = (int(value) for value in file.readline().split()[1:9])
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    everything = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return everything, children.ru_utime + children.ru_stime


def measure_quietly(variant, args):
    """Seconds of a call for each batch size in the quietest of the attempts, and the share others used in it."""
    best = None
    for _ in range(args.attempts):
        start, (everything, ours) = time.perf_counter(), busy_seconds()
        seconds = variant.seconds()
        wall, (everything_after, ours_after) = time.perf_counter() - start, busy_seconds()
        others = max(0.0, (everything_after - everything) - (ours_after - ours)) / (wall * os.cpu_count())
        if best is None or others < best[1]:
            best = seconds, others
        if others <= QUIET_SHARE:
            break
    return best


def measure(found, args):
    """{batch: [summary of each variant]}, the variants in turn, and the largest share others used."""
    times = {batch: [[] for _ in found] for batch in args.batches}
    shares = []
    for turn in range(args.turns):
        for i, variant in enumerate(found):
            measured, others = measure_quietly(variant, args)
            shares.append(others)
            for batch, seconds in zip(args.batches, measured):
                times[batch][i].append(seconds)
        print(f"turn {turn + 1} of {args.turns}, others used at most "
              f"{100 * max(shares[-len(found):]):.1f} % of the processors", file=sys.stderr)
    return {batch: [summarize(s) for s in rows] for batch, rows in times.items()}, max(shares)


def machine():
    model, flags = platform.processor(), ""
    with open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                model = value.strip()
            elif name.strip() == "flags":
                flags = value
    known = [f for f in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8") if f in flags.split()]
    return f"{model}, {os.cpu_count()} cores, {' '.join(known)}, {platform.system()} {platform.release()}"


def print_table(found, accuracies, times, others, args):
    packages = ("torch", "onnxruntime", "openvino", "nncf", "numpy")
    print(f"\n{machine()}")
    print(", ".join(f"{name} {metadata.version(name)}" for name in packages) + f"; {args.threads} threads, "
          f"{args.turns} turns, median (quartiles); others used at most {100 * others:.1f} % of the processors\n")
    heads = [f"batch {b}, {'ms' if b == 1 else 'images/s'}" for b in args.batches]
    print("| precision | runs on | accuracy | " + " | ".join(f"{h} | ulp is" for h in heads) + " |")
    print("|---|---|--:|" + "--:|--:|" * len(heads))
    for i, variant in enumerate(found):
        accuracy = f"{accuracies[i]:.2f} %" if accuracies else "-"
        cells = [variant.precision, variant.name, accuracy]
        base = next((j for j, v in enumerate(found) if v.name == "ulp engine" and v.precision == variant.precision), i)
        for batch in args.batches:
            t = times[batch][i]
            if batch == 1:
                cells.append(f"{t['median'] * 1e3:.3f} ({t['lower'] * 1e3:.3f}-{t['upper'] * 1e3:.3f})")
            else:
                cells.append(f"{batch / t['median']:,.0f} ({batch / t['upper']:,.0f}-{batch / t['lower']:,.0f})")
            cells.append("" if base == i else f"{t['median'] / times[batch][base]['median']:.2f}x as fast")
        print("| " + " | ".join(cells) + " |")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=os.path.join(ROOT, "demo-out/model.safetensors"),
                        help="weights that `ulp demo` wrote, its engines beside them (default: %(default)s)")
    parser.add_argument("--ulp", default=os.path.join(ROOT, "build/release/bin/ulp"), help="the tool")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist",
                        help="folder of the four IDX files, .gz or not (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--turns", type=int, default=9, help="each variant runs once in a turn (default: 9)")
    parser.add_argument("--attempts", type=int, default=4,
                        help="measurements of a variant in a turn while others use the processors (default: 4)")
    parser.add_argument("--only", default="", help="measure variants that contain this, such as 'int8' or 'OpenVINO|'")
    parser.add_argument("--no-accuracy", action="store_true", help="skip the check that all compute the same")
    parser.add_argument("--work", help="folder for the peers' files, kept (default: a temporary one)")
    parser.add_argument("--json", help="write the figures here too")
    args = parser.parse_args()
    if min(args.turns, args.threads, args.attempts, *args.batches) < 1:
        parser.error("expected turns, threads, attempts and batches of at least 1")
    for file in (args.model, args.ulp, args.data):
        if not os.path.exists(file):
            parser.error(f"expected '{file}' to exist; see README.md")
    args.model = os.path.abspath(args.model)
    return args


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as temporary:
        args.work = args.work or temporary
        os.makedirs(args.work, exist_ok=True)
        if not os.path.exists(os.path.join(args.work, "int8.xml")):
            peers.prepare(network.Weights(args.model), args.data, args.work)
        found = variants(args)
        accuracies = [] if args.no_accuracy else check_accuracy(found)
        times, others = measure(found, args)
        print_table(found, accuracies, times, others, args)
        if args.json:
            rows = [{"runs_on": v.name, "precision": v.precision, "accuracy": accuracies[i] if accuracies else None,
                     "seconds": {str(b): times[b][i] for b in args.batches}} for i, v in enumerate(found)]
            with open(args.json, "w") as file:
                json.dump({"machine": machine(), "threads": args.threads, "turns": args.turns,
                           "others_share": others, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
