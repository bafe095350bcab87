"""What became of each file, for conformance.py: right, wrong or refused, what is known, and how many there were before."""

import collections
import fnmatch
import json
import re
import threading

# What is not right and stays so: a pattern of "SUITE NAME FORM", and why.
KNOWN = [
    ("modules interpolate*.int8.* qdq", "a number between two codes: the order of ONNX Runtime's sums decides which one is nearer"),
]

STORED = " stored"  # a suite's tests with stored inputs are a suite of their own
VALUES = " values"  # and so are those whose whole numbers are given at import
KINDS = ["", VALUES, STORED]  # from plain to changed


class Table:
    """What became of each file, in each form."""

    def __init__(self):
        self.rows = collections.OrderedDict()
        self.lock = threading.Lock()

    def add(self, suite, name, form, verdict, why=""):
        """A verdict is right, wrong or refused."""
        with self.lock:
            self.rows[(suite, name, form)] = (verdict, why)

    def all_right(self, suite, name):
        with self.lock:
            return all(verdict == "right" for key, (verdict, _) in self.rows.items() if key[:2] == (suite, name))

    def unknown(self):
        """What is wrong and not listed."""
        return [key for key, (verdict, _) in self.rows.items() if verdict == "wrong" and not known(key)]

    def fewer(self, least, parts):
        """Lines on the rows of which fewer are right than `least` has, {(suite, form): count}; `parts` are the suites that were run, and
        others are passed over. A test that is right as it is needs neither given numbers nor stored inputs: a row of those counts together
        with the plainer ones."""
        now = {row: counts["right"] for row, counts in self.counts().items()}
        lines = []
        for suite, form in least:
            kind = next((one for one in (VALUES, STORED) if suite.endswith(one)), "")
            plain = suite.removesuffix(kind)
            if plain not in parts:
                continue
            rows = [(plain + one, form) for one in KINDS[:KINDS.index(kind) + 1]]
            found, wanted = (sum(counts.get(row, 0) for row in rows) for counts in (now, least))
            if found < wanted:
                names = [row[0] for row in rows if row in least]
                lines.append(f"{' and '.join(names)}, {form}: {found} right, expected at least {wanted}")
        return lines

    def counts(self):
        counts = collections.OrderedDict()
        for (suite, _, form), (verdict, _) in sorted(self.rows.items()):
            counts.setdefault((suite, form), collections.Counter())[verdict] += 1
        return counts

    def text(self):
        lines = [f"{'files':28} {'all':>6} {'right':>6} {'wrong':>6} {'listed':>6} {'refused':>8}"]
        for (suite, form), counts in self.counts().items():
            listed = sum(one[0] == "wrong" and known(key) is not None for key, one in self.rows.items()
                         if (key[0], key[2]) == (suite, form))
            lines.append(f"{suite + ', ' + form:28} {sum(counts.values()):6} {counts['right']:6} {counts['wrong'] - listed:6} "
                         f"{listed:6} {counts['refused']:8}")
        for suite, form in self.counts():
            reasons = collections.Counter(reason_of(why) for (s, _, f), (verdict, why) in self.rows.items()
                                          if (s, f) == (suite, form) and verdict == "refused")
            if reasons:
                lines += ["", f"refused of {suite}, {form}:"]
                lines += [f"{count:6}  {reason}" for reason, count in reasons.most_common(40)]
        return "\n".join(lines)

    def listing(self):
        return [f"{verdict:8} {suite} {name} {form}: {why}" for (suite, name, form), (verdict, why) in sorted(self.rows.items())
                if verdict != "right"]

    def as_json(self):
        return {"counts": [{"suite": suite, "form": form, **counts} for (suite, form), counts in self.counts().items()],
                "files": [{"suite": suite, "name": name, "form": form, "verdict": verdict, "why": why}
                          for (suite, name, form), (verdict, why) in sorted(self.rows.items())]}


def read_least(path):
    """{(suite, form): how many are right at least} of a file that write_least() wrote. Throws ValueError, which names the file."""
    try:
        with open(path) as file:
            least = {tuple(row.split(", ")): count for row, count in json.load(file).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"expected a file of least counts in '{path}', got {type(error).__name__}: {error}") from None
    if not least or any(len(row) != 2 or type(count) is not int or count < 1 for row, count in least.items()):
        raise ValueError(f"expected rows of \"suite, form\" with a count above 0 in '{path}', got others or none")
    return least


def write_least(path, table):
    """The rows of the table and how many of each are right, one a line; rows without any are left out."""
    counts = {", ".join(row): one["right"] for row, one in table.counts().items() if one["right"]}
    with open(path, "w") as file:
        json.dump(counts, file, indent=1)
        file.write("\n")


def known(key):
    text = " ".join(key)
    return next((why for pattern, why in KNOWN if fnmatch.fnmatchcase(text, pattern)), None)


def reason_of(why):
    """A message without names of files, nodes, layers and tensors, without numbers, and without what it advises."""
    why = why.splitlines()[0] if why else ""
    why = re.sub(r"; the names nearest to it with one are [\w:]+(, [\w:]+)*", "", why)
    why = re.sub(r"'[^']*[/.][^']*'", "FILE", why)
    why = re.sub(r"node '[^']*'", "node", why)
    why = re.sub(r"'[^']*'( in [\w.]+)?", "'..'", why)  # a call in a layer that has a name is the same call
    why = re.sub(r"\[[-\d, ]*\]", "[..]", why)
    why = re.sub(r"(?<!\w)-?\d+(\.\d+)?(e[-+]?\d+)?(?!\w)", "N", why)
    return why[:200]
