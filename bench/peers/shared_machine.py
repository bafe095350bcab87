#!/usr/bin/env python3
"""Networks beside busy processes, in ulp and in its peers: the mean time of a call, as a Markdown table.

    cmake --build build/release --target peer_networks engine_bench
    build/release/bin/peer_networks /tmp/peers resnet50 mobilenet_v2 bert
    .deps/peers-venv/bin/python bench/peers/shared_machine.py /tmp/peers

For each number of busy processes (--busy 0 1 3) the runtimes are measured in turn, each in a process of its own with --threads
threads (one a core), several turns; the mean of a call over --seconds seconds counts, and the median over the turns. Beside
each time stands how many times as long as the same runtime it takes with the first number of busy processes, and at peers how many times as
long as ulp in the same state. Start it on a quiet machine: what else computes counts as busy, too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

from compare import machine
from networks import ENGINES, PEERS, ROOT, Variant, checked, input_of
from peers import seconds_per_call


def measure_peer(args):
    """One peer, in this process: the mean seconds of a call."""
    args.x = input_of(args.folder, args.network, args.batch)
    run, _ = PEERS[args.peer](args)
    print(json.dumps(seconds_per_call(run, 1, args.seconds)))


class Shared(Variant):
    """One runtime, beside what else runs."""

    def mean_seconds(self, batch):
        threads, seconds = str(self.args.threads), str(self.args.seconds)
        if self.engine:
            words = self.call([self.args.engine_bench, "rate", self.engine, str(batch), threads, seconds]).split()
            return float(words[words.index("on") - 1]) / 1e3  # "... 1.234 on average"
        return json.loads(self.call([
            sys.executable, os.path.abspath(__file__), self.args.folder, "--peer", f"{self.name}|{self.precision}", "--network",
            self.network, "--batch", str(batch), "--threads", threads, "--seconds", seconds]).strip().splitlines()[-1])


def runtimes(args, network):
    found = [Shared(args, network, f"ulp {kind}", precision) for kind, precision in ENGINES.items()
             if os.path.exists(os.path.join(args.folder, f"{network}.{kind}.ulp"))]
    found += [Shared(args, network, *key.split("|")) for key in PEERS]
    precisions = ("fp32", "int8")
    found = [v for v in found if v.precision in precisions and (v.engine or v.name in args.peers)]
    return [v for v in sorted(found, key=lambda v: precisions.index(v.precision)) if checked(v)]


def measure(args, network, found):
    """Prints the rows of a network and returns them."""
    seconds = {}
    for number in args.busy:
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
        try:
            times = {(v, batch): [] for v in found for batch in args.batches}
            for _ in range(args.turns):
                for v, batch in times:
                    times[v, batch].append(v.mean_seconds(batch))
        finally:
            for process in busy:
                process.kill()
        seconds.update({(v, batch, number): statistics.median(of) for (v, batch), of in times.items()})
    rows = []
    for batch in args.batches:
        for v in found:
            ours = [o for o in found if o.engine and o.precision == v.precision]
            row, cells = {"network": network, "precision": v.precision, "batch": batch, "runs on": v.name}, []
            for number in args.busy:
                time = seconds[v, batch, number]
                slower = time / seconds[v, batch, args.busy[0]]
                beside = None if v.engine or not ours else time / min(seconds[o, batch, number] for o in ours)
                row[f"{number} busy"] = {"ms": 1e3 * time, "of the first": slower, "of ulp": beside}
                cells.append(f"{1e3 * time:.4g} | {slower:.2f}x | " + ("" if beside is None else f"{beside:.2f}x"))
            rows.append(row)
            print(f"| {network} | {v.precision} | {batch} | {v.name} | " + " | ".join(cells) + " |", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="what peer_networks wrote")
    parser.add_argument("--networks", nargs="+", default=["resnet50", "mobilenet_v2", "bert"])
    parser.add_argument("--peers", nargs="+", default=["ONNX Runtime", "OpenVINO"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 3], help="numbers of busy processes")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a measurement, after as many of warming up")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--ulp", default=os.path.join(ROOT, "build/release/bin/ulp"), help="the tool")
    parser.add_argument("--engine-bench", default=os.path.join(ROOT, "build/release/bin/engine_bench"))
    parser.add_argument("--json", help="file for the figures")
    for hidden in ("--peer", "--network"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return measure_peer(args)
    args.rounds = 1
    found = {network: runtimes(args, network) for network in args.networks}
    print(machine() + f"; {args.threads} threads, medians of {args.turns} turns\n")
    print("| network | precision | batch | runs on | " +
          " | ".join(f"{n} busy, ms | of {args.busy[0]} busy | ulp is" for n in args.busy) + " |")
    print("|---|---|--:|---|" + "--:|--:|--:|" * len(args.busy), flush=True)
    rows = [row for network in args.networks for row in measure(args, network, found[network])]
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
