#!/usr/bin/env python3
"""Where the time of a build goes: seconds of one core by cause, from Ninja's log of a build folder.

  scripts/build_time.py build/release                      the table: precompiled headers, rooms, tests, links, and the heaviest files
  scripts/build_time.py build/release --target ulp_tool    only what one target needs
  scripts/build_time.py build/release --json >before.json  the same for programs
  scripts/build_time.py build/release --compare before.json   by cause before and after, and the files that grew
  scripts/build_time.py build/release --trace 12           compiles 12 objects once more and says what the compiler did

A step counts with the time from its start to its end. That is its time of one core where Ninja ran no more jobs than the
machine has cores, nothing else ran and no compiler cache helped (CCACHE_DISABLE=1). The log keeps the last time of each
step, so a build in parts is seen as a whole.

scripts/build.sh asks this program how long a build will take: --sample names the steps to time first, --estimate compares
the steps that are done with scripts/build_weights.txt, which --weights writes.
"""
import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

SAMPLE = 5  # compilations that tell how fast a machine is
WEIGHTS = Path(__file__).resolve().parent / "build_weights.txt"
KERNELS = ("ulp/kernels", "ulp/kernels/training")
PLAIN_ROOMS = ("ulp/base", "ulp/formats", "ulp/runtime")
ISA = re.compile(r"_(portable|avx2|avx512(?:_[a-z0-9]+)?|amx(?:_emulated)?|neon(?:_[a-z0-9]+)?)\.cpp\.o$")
ORDER = ["precompiled headers", "kernels", "rooms without LibTorch", "rooms on LibTorch", "tool", "tests", "fuzzing", "examples",
         "benchmarks", "links", "other steps"]


def fail(words):
    sys.exit(f"build_time: error: {words}")


def read_log(build):
    """Output -> seconds: the last entry of each output, outputs of one step together as the first of them."""
    log = build / ".ninja_log"
    if not log.is_file():
        fail(f"expected a folder that Ninja has built in, got '{build}' without .ninja_log")
    lines = log.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].startswith("# ninja log v"):
        fail(f"expected a log of Ninja, got '{log}'")
    steps = {}
    for line in lines[1:]:
        fields = line.split("\t")
        if len(fields) != 5:
            continue  # the last line of an interrupted build
        start, end, _, output, command = fields
        steps.pop(output, None)
        steps[output] = (int(start), int(end), command)
    seen, seconds = set(), {}
    for output, step in steps.items():
        if step not in seen:
            seen.add(step)
            seconds[output] = (step[1] - step[0]) / 1000
    return seconds


def read_rules(build):
    """Output -> Ninja's rule without the name of the target: CXX_COMPILER, CUSTOM_COMMAND..."""
    rules = {}
    with open(build / "build.ninja", encoding="utf-8") as file:
        for line in file:
            match = re.match(r"build (.*?): (\S+)", line)
            if match:
                rule = re.sub(r"__.*", "", match[2])
                for output in match[1].replace("$ ", "\0").replace("|", " ").split():
                    rules[output.replace("\0", " ").replace("$:", ":")] = rule
    return rules


def is_header(output):
    return output.endswith((".gch", ".pch"))


def cause_of(output, rule):
    """(cause, part): what the table counts a step as."""
    folder = re.split(r"/?CMakeFiles/", output)[0] if "CMakeFiles/" in output else os.path.dirname(output)
    if is_header(output):
        target = re.search(r"([^/]+)\.dir/", output)
        return "precompiled headers", target[1] if target else output
    if "LINKER" in rule:
        return "links", "libraries" if "LIBRARY" in rule else "programs"
    if "COMPILER" not in rule:
        return "other steps", folder or "."
    if folder in KERNELS:
        isa = ISA.search(output)
        return "kernels", f"{folder} {isa[1] if isa else 'any'}"
    if folder in PLAIN_ROOMS:
        return "rooms without LibTorch", folder
    if folder.startswith("ulp/"):
        return "rooms on LibTorch", folder
    if folder == "cli":
        return "tool", folder
    if folder.startswith("tests"):
        return "tests", folder
    for top, cause in (("fuzz", "fuzzing"), ("examples", "examples"), ("bench", "benchmarks")):
        if folder.split("/")[0] == top:
            return cause, folder
    return "other steps", folder or "."


def what_it_compiles(build, output):
    """For a step of several files as one: their names."""
    match = re.search(r"^(.*/Unity/unity_.*)\.o$", output)
    if not match or not (build / match[1]).is_file():
        return []
    text = (build / match[1]).read_text(encoding="utf-8")
    return [os.path.basename(name) for name in re.findall(r'#include "(.*?)"', text)]


def inputs_of(build, target):
    """The outputs of all steps that a target needs."""
    found = subprocess.run(["ninja", "-C", str(build), "-t", "inputs", target], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        fail(f"Ninja knows no target '{target}' in {build}: {(found.stderr or found.stdout).strip()}")
    return set(line.strip() for line in found.stdout.splitlines()) | {target}


def load(build, target=None):
    """What has been built: a list of {output, seconds, cause, part}, heaviest first. Outputs that are no longer part of the build are left out."""
    rules = read_rules(build)
    wanted = inputs_of(build, target) if target else None
    steps = []
    for output, seconds in read_log(build).items():
        if output.startswith("/") or output not in rules or (wanted is not None and output not in wanted):
            continue
        cause, part = cause_of(output, rules[output])
        steps.append({"output": output, "seconds": seconds, "cause": cause, "part": part})
    return sorted(steps, key=lambda step: (-step["seconds"], step["output"]))


def by(steps, *keys):
    groups = defaultdict(list)
    for step in steps:
        groups[tuple(step[key] for key in keys)].append(step)
    return groups


def short(output, width):
    name = re.sub(r"CMakeFiles/([^/]+)\.dir/", r"\1: ", output)
    name = re.sub(r": Unity/unity_(?:.*_)?(\d+)_c[a-z]*\.[a-z]+\.o$", r": group \1", name)
    return name if len(name) <= width else "..." + name[-(width - 3):]


def print_table(build, steps, top):
    total = sum(step["seconds"] for step in steps) or 1e-9
    print(f"{'cause':38} {'steps':>6} {'seconds':>9} {'share':>7} {'mean':>7} {'slowest':>8}")

    def row(name, group):
        seconds = [step["seconds"] for step in group]
        print(f"{name:38} {len(group):6} {sum(seconds):9.1f} {100 * sum(seconds) / total:6.1f}% {statistics.mean(seconds):7.1f} {max(seconds):8.1f}")

    causes = by(steps, "cause")
    parts = by(steps, "cause", "part")
    for cause in ORDER:
        if (cause,) not in causes:
            continue
        row(cause, causes[(cause,)])
        inside = [(key[1], group) for key, group in parts.items() if key[0] == cause]
        for part, group in sorted(inside, key=lambda entry: -sum(step["seconds"] for step in entry[1])):
            if len(inside) > 1:
                row(f"  {part}", group)
    print(f"{'all':38} {len(steps):6} {total:9.1f}")
    if top:
        print(f"\nthe {min(top, len(steps))} heaviest steps")
        for step in steps[:top]:
            print(f"{step['seconds']:9.1f}  {short(step['output'], 90)}")
            files = what_it_compiles(build, step["output"])
            if files:
                print(f"{'':11}of {', '.join(files)}")


def load_other(name, target):
    """The steps of --compare: a build folder, or what --json wrote."""
    path = Path(name)
    if path.is_dir():
        return load(path, target)
    try:
        return json.loads(path.read_text(encoding="utf-8"))["steps"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"expected a build folder or a file that --json wrote, got '{name}' ({error})")


def compare(before, after, top):
    """Before and after by cause, and the files that grew by more than the machines differ."""
    old = {step["output"]: step["seconds"] for step in before}
    both = [(step["output"], old[step["output"]], step["seconds"]) for step in after if step["output"] in old]
    pace = statistics.median(new / was for _, was, new in both if was > 0.2) if any(was > 0.2 for _, was, _ in both) else 1.0
    print(f"{'cause':38} {'before':>9} {'after':>9} {'ratio':>7}")
    first, second = by(before, "cause"), by(after, "cause")
    rows = [(cause, first.get((cause,), []), second.get((cause,), [])) for cause in ORDER] + [("all", before, after)]
    for name, was, now in rows:
        a, b = sum(step["seconds"] for step in was), sum(step["seconds"] for step in now)
        if a or b:
            print(f"{name:38} {a:9.1f} {b:9.1f} {b / a if a else float('nan'):7.2f}")
    print(f"\na step that is in both takes {pace:.2f} of its time before (median of {len(both)})")
    grown = sorted(((new - was * pace, name, was, new) for name, was, new in both), reverse=True)
    heavy = [entry for entry in grown if entry[0] >= 2 and entry[3] >= 1.25 * pace * entry[2]]
    print(f"{len(heavy)} grew by a quarter and 2 s more than that:" if heavy else "none grew by a quarter and 2 s more than that")
    for _, name, was, new in heavy[:top]:
        print(f"{was:9.1f} -> {new:6.1f}  {short(name, 90)}")
    names = {step["output"] for step in after}
    new, gone = [step for step in after if step["output"] not in old], [step for step in before if step["output"] not in names]
    for word, group in (("new", new), ("gone", gone)):
        print(f"{len(group)} steps are {word}, {sum(step['seconds'] for step in group):.1f} s")
        for step in group[:top]:
            print(f"{step['seconds']:9.1f}  {short(step['output'], 90)}")


# ---- what the compiler does --------------------------------------------------------------------------------------------

STAGES = ["front end", "templates", "optimizer", "code generation"]
# GCC's passes on RTL, where instructions are chosen; what else "opt and generate" has is the optimizer.
RTL = re.compile(r"^(expand|post expand|lower subreg|jump|forward prop|CSE|CPROP|PRE$|code hoisting|combiner|late combiner|if-conversion|mode switching|"
                 r"integrated RA|LRA|reload|load CSE after reload|ree|thread pro|peephole 2|split |hard reg cprop|scheduling|machine dep reorg|reorder blocks|"
                 r"shorten branches|reg stack|final|symout|variable (output|tracking)|var-tracking|loop2|loop (init|fini|invariant|unroll)|RTL |rtl |df |"
                 r"register (information|scan)|dead store elim[12]|rest of compilation|assemble)")


def stages_of_gcc(report):
    """What -ftime-report prints, as seconds by stage."""
    wall = 2 if re.search(r"usr\s+sys\s+wall", report) else 0
    entries = {}
    for line in report.splitlines():
        match = re.match(r" ?(\S.*?)\s*:\s+(\d.*)", line)
        if match:
            numbers = re.findall(r"([\d.]+) *(?:\(|$)", match[2]) or re.findall(r"[\d.]+", match[2])
            if len(numbers) > wall:
                entries[match[1].strip()] = float(numbers[wall])
    total = re.search(r"^\s*TOTAL\s*:\s*(.*)$", report, re.M)
    if not total or "phase opt and generate" not in entries:
        return None
    every = float(total[1].split()[wall])
    templates = entries.get("template instantiation", 0.0) + entries.get("constraint satisfaction", 0.0)
    generate = sum(seconds for name, seconds in entries.items() if RTL.match(name))
    optimizer = max(entries["phase opt and generate"] - generate, 0.0)
    return {"front end": max(every - templates - optimizer - generate, 0.0), "templates": templates, "optimizer": optimizer,
            "code generation": generate}


def covered(intervals):
    """The length of the union of intervals."""
    end = length = 0
    for start, stop in sorted(intervals):
        if stop > end:
            length += stop - max(start, end)
            end = stop
    return length


def stages_of_clang(trace):
    """What -ftime-trace writes, as seconds by stage."""
    spans = defaultdict(list)
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and not event["name"].startswith("Total "):
            spans[event["name"]].append((event["ts"], event["ts"] + event["dur"]))
    total = {event["name"][6:]: event["dur"] for event in trace["traceEvents"] if event["name"].startswith("Total ")}
    every = total.get("ExecuteCompiler", 0)
    templates = covered([span for name in ("InstantiateClass", "InstantiateFunction", "PerformPendingInstantiations") for span in spans[name]])
    generate = total.get("CodeGenPasses", 0)
    optimizer = max(total.get("Backend", 0) - generate, 0)
    stages = {"front end": max(every - templates - optimizer - generate, 0), "templates": templates, "optimizer": optimizer, "code generation": generate}
    return {name: micros / 1e6 for name, micros in stages.items()}


def compiler_call(command):
    """The arguments of a compilation without a compiler cache and without what it writes."""
    words = shlex.split(command)
    start = next((i for i, word in enumerate(words) if re.search(r"(^|/)(clang\+\+|g\+\+|c\+\+|clang|gcc|cc)(-[\d.]+)?$", word)
                  or re.search(r"-(g\+\+|gcc)(-[\d.]+)?$", word)), None)
    if start is None:
        return None
    call, skip = [], False
    for word in words[start:]:
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-MD", "-MMD"):
            call.append(word)
    return call


def trace_one(entry, folder):
    call = compiler_call(entry["command"])
    if call is None:
        return None
    version = subprocess.run([call[0], "--version"], capture_output=True, text=True, check=True).stdout
    clang = "clang" in version
    made = Path(folder) / "sample.o"
    extra = ["-ftime-trace", "-ftime-trace-granularity=100"] if clang else ["-ftime-report"]
    done = subprocess.run(call + extra + ["-o", str(made)], cwd=entry["directory"], capture_output=True, text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        print(f"build_time: warning: {entry['output']} did not compile: {done.stderr.strip().splitlines()[:1]}", file=sys.stderr)
        return None
    if clang:
        trace = made.with_suffix(".json")
        return stages_of_clang(json.loads(trace.read_text(encoding="utf-8"))) if trace.is_file() else None
    return stages_of_gcc(done.stderr)


def trace(build, steps, count):
    """Compiles `count` objects, spread evenly over the seconds of the log, and prints the compiler's stages."""
    with open(build / "compile_commands.json", encoding="utf-8") as file:
        entries = {os.path.relpath(os.path.join(entry["directory"], entry["output"]), build.resolve()): entry
                   for entry in json.load(file) if "output" in entry}
    objects = [step for step in steps if step["output"] in entries and not is_header(step["output"])]
    if not objects:
        fail("no compilation of the log is in compile_commands.json")
    objects.sort(key=lambda step: (ORDER.index(step["cause"]), step["part"], step["output"]))
    total, at, chosen = sum(step["seconds"] for step in objects), 0.0, []
    points = [(i + 0.5) / count * total for i in range(count)]  # each stands for an equal share of the seconds
    for step in objects:
        if any(at <= point < at + step["seconds"] for point in points):
            chosen.append(step)
        at += step["seconds"]
    sums, names = defaultdict(lambda: defaultdict(float)), []
    print(f"{'object':72} {'seconds':>8} " + " ".join(f"{name:>15}" for name in STAGES))
    with tempfile.TemporaryDirectory() as folder:
        for step in chosen:
            stages = trace_one(entries[step["output"]], folder)
            if not stages:
                continue
            every = sum(stages.values())
            print(f"{short(step['output'], 72):72} {every:8.1f} " + " ".join(f"{stages[name]:15.1f}" for name in STAGES), flush=True)
            names.append(step["output"])
            for name, seconds in stages.items():
                sums[step["cause"]][name] += seconds
                sums["all"][name] += seconds
    if not names:
        fail("no sample compiled")
    for cause in [cause for cause in ORDER + ["all"] if cause in sums]:
        every = sum(sums[cause].values())
        print(f"{cause:72} {every:8.1f} " + " ".join(f"{100 * sums[cause][name] / every:14.0f}%" for name in STAGES))


# ---- how long a build will take ----------------------------------------------------------------------------------------

def weight_keys(output, rule):
    """What the weights know a step as, the closest first."""
    cause, part = cause_of(output, rule)
    target = re.search(r"([^/]+)\.dir/", output)
    keys = [f"{cause}: {part}", cause]
    if cause not in ("kernels", "precompiled headers", "links") and target:
        keys.insert(0, f"{cause}: {part} {target[1]}")
    return keys


def write_weights(steps, rules):
    """The mean seconds of each kind of step."""
    groups = defaultdict(list)
    for step in steps:
        for key in weight_keys(step["output"], rules[step["output"]]):
            groups[key].append(step["seconds"])
    print("# Seconds of one core that a step takes, by kind: where scripts/build.sh guesses from how long a build will take.")
    print("# Written by scripts/build_time.py build/release --weights, after a whole build without a compiler cache.")
    for key in sorted(groups):
        print(f"{statistics.mean(groups[key]):.2f} {key}")


def read_weights():
    weights = {}
    with open(WEIGHTS, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#") and line.strip():
                seconds, key = line.rstrip("\n").split(" ", 1)
                weights[key] = float(seconds)
    return weights


def weight_of(output, rules, weights):
    return next((weights[key] for key in weight_keys(output, rules[output]) if key in weights), 1.0)


def to_do(build, targets, rules):
    """The compilations and links that Ninja would run for the targets."""
    # Its own file would only be asked whether CMake has to run; under another name that question is left out.
    with tempfile.NamedTemporaryFile(suffix=".ninja") as manifest:
        manifest.write((build / "build.ninja").read_bytes())
        manifest.flush()
        found = subprocess.run(["ninja", "-C", str(build), "-f", manifest.name, "-n", *targets], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        fail((found.stderr or found.stdout).strip().splitlines()[-1])
    outputs = (re.match(r"\[.*?\] (?:Building|Linking) .* (\S+)$", line) for line in found.stdout.splitlines())
    return {output[1] for output in outputs if output and output[1] in rules}


def measured(rules, weights, build):
    """(seconds, weight) of the compilations that are done. One that took a tenth of its weight came out of a compiler cache."""
    done = read_log(build) if (build / ".ninja_log").is_file() else {}
    pairs = [(seconds, weight_of(name, rules, weights)) for name, seconds in done.items() if "COMPILER" in rules.get(name, "")]
    return [(seconds, weight) for seconds, weight in pairs if seconds > 0.1 * weight]


def print_sample(build, targets):
    """The steps to time first: the headers that all else waits for, and some of each kind."""
    rules, weights = read_rules(build), read_weights()
    compilations = sorted(name for name in to_do(build, targets, rules) if "COMPILER" in rules[name])
    if sum(weight_of(name, rules, weights) for name in compilations) < 120 or len(measured(rules, weights, build)) >= SAMPLE:
        return  # short, or what was built before tells
    sample = [name for name in compilations if is_header(name) and not name.startswith(("tests/", "bench/"))]
    groups = defaultdict(list)
    for name in compilations:
        if not is_header(name):
            groups[cause_of(name, rules[name])[0]].append(name)
    for cause, count in (("kernels", 2), ("rooms without LibTorch", 2), ("rooms on LibTorch", 2)):
        names = sorted(groups[cause], key=lambda name: (weight_of(name, rules, weights), name))
        sample += [names[len(names) * (i + 1) // (count + 1)] for i in range(count) if names]
    print("\n".join(dict.fromkeys(sample)))


def in_words(seconds):
    return f"about {seconds / 60:.0f} minutes" if seconds >= 90 else f"about {max(round(seconds / 10), 1) * 10} seconds"


def print_estimate(build, targets, jobs, count_only):
    """The compilations to be done, and the minutes they will take as measured by those that are done."""
    rules, weights = read_rules(build), read_weights()
    missing = to_do(build, targets, rules)
    compilations = [name for name in missing if "COMPILER" in rules[name]]
    if not compilations:
        return
    words = f"{len(compilations)} compilations"
    pairs = measured(rules, weights, build)
    if count_only:
        words += "; the first ones tell how long that takes on this machine"
    elif pairs:
        pace = sum(seconds for seconds, _ in pairs) / sum(weight for _, weight in pairs)
        each = [pace * weight_of(name, rules, weights) for name in missing]
        # While the last steps run, workers have nothing to do.
        words += f", {in_words(sum(each) / jobs + max(each) / 2 * (jobs - 1) / jobs)} on this machine with {jobs} job{'s' * (jobs > 1)}"
    print(f"build: {' '.join(targets)}: {words}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, metavar="BUILD_DIR", help="a folder that Ninja has built in, such as build/release")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="how many of the heaviest steps to list (20)")
    parser.add_argument("--target", help="only the steps that this target needs, as Ninja names it")
    parser.add_argument("--json", action="store_true", help="print {total, causes, steps} as JSON")
    parser.add_argument("--compare", metavar="OTHER", help="an earlier build: its folder, or what --json wrote")
    parser.add_argument("--trace", type=int, metavar="N",
                        help="compile N objects once more with -ftime-trace (clang) or -ftime-report (GCC) and sum what the compiler did: "
                             "front end, templates, optimizer, code generation")
    parser.add_argument("--weights", action="store_true", help="print the mean time of each kind of step, as scripts/build_weights.txt has it")
    parser.add_argument("--sample", nargs="+", metavar="TARGET", help="print the steps to time first before TARGET is built; none where that is known")
    parser.add_argument("--count", nargs="+", metavar="TARGET", help="print how much is to be done for TARGET")
    parser.add_argument("--estimate", nargs="+", metavar="TARGET", help="print how much is to be done for TARGET, and how long it will take")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="of --estimate: how many steps run at once (the cores)")
    options = parser.parse_args()
    if not (options.build / "build.ninja").is_file():
        fail(f"expected a folder that is configured for Ninja, got '{options.build}' without build.ninja")
    if options.sample:
        return print_sample(options.build, options.sample)
    if options.estimate or options.count:
        return print_estimate(options.build, options.estimate or options.count, max(options.jobs, 1), bool(options.count))
    steps = load(options.build, options.target)
    if not steps:
        fail(f"nothing of {options.target or options.build} has been built")
    if options.weights:
        return write_weights(steps, read_rules(options.build))
    if options.trace:
        return trace(options.build, steps, options.trace)
    if options.compare:
        return compare(load_other(options.compare, options.target), steps, options.top)
    if options.json:
        causes = {cause: round(sum(step["seconds"] for step in group), 3) for (cause,), group in by(steps, "cause").items()}
        return print(json.dumps({"total": round(sum(causes.values()), 3), "causes": causes, "steps": steps}, indent=1))
    return print_table(options.build, steps, options.top)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.stderr.close()
