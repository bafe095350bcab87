#!/usr/bin/env python3
"""Builds and runs only the tests that a change can reach: `make test-changed`.

  scripts/test_changed.py               what differs from where this branch left origin/main (or the last commit), commits and edits
  scripts/test_changed.py --base v0.1   what differs from another commit
  scripts/test_changed.py --list        says what it would run and why, builds nothing
  scripts/test_changed.py --deep        also the tests of all rooms above a changed one

What is reached:
  - a source file of a room: the test of its room. Rooms above it may see the change, too; --deep runs their tests.
  - a header: the same for every file that includes it, also through other headers and in samples of pages.
  - a file of a test's folder: that test; golden data: the tests that name them; a page: the test of pages.
  - what is none of these (CMake, scripts), or a test that this build leaves out: only `make test` or `make check-all`
    tells. The other tests run, and the exit status is 3.
The rooms and what is above them stand in cmake/rooms.txt. A change is done when `make test` passes; this is for the way there.
"""
import argparse
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)
CODE = (".h", ".cpp", ".c", ".inc")
SOURCES = ("ulp", "cli", "tests", "fuzz", "examples", "bench")
TESTED_SCRIPTS = tuple(f"scripts/{name}" for name in ("build_time.py", "build_weights.txt", "test_changed.py", "gpu.sh", "check_all.sh", "check_torch_headers.py"))
ABOVE_ALL = "ulp/ulp.h", "ulp/ulp_runtime.h", "ulp/version.h"


def git(*arguments):
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


def changed_files(base):
    """The files that differ from where HEAD left `base`, with what is not committed and not tracked."""
    if git("rev-parse", "--is-inside-work-tree") != "true":
        sys.exit("test-changed: error: this is no git checkout, so nobody knows what has changed; run `make test`")
    for name in [base] if base else ["origin/main", "HEAD~1", "HEAD"]:
        start = git("merge-base", name, "HEAD")
        if start is None:
            continue
        if not base and name == "origin/main" and start == git("rev-parse", "HEAD") and not git("status", "--porcelain"):
            continue  # nothing beside main: its last commit
        break
    else:
        sys.exit(f"test-changed: error: git knows no commit '{base}'")
    files = git("diff", "--name-only", "--no-renames", start).splitlines() + git("ls-files", "--others", "--exclude-standard").splitlines()
    print(f"test-changed: {len(set(files))} files differ from {git('log', '-1', '--format=%h %s', start)}")
    return sorted(set(files))


def read_rooms():
    """Room -> the rooms it may include."""
    rooms = {}
    for line in (ROOT / "cmake/rooms.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            room, _, others = line.partition(":")
            rooms[room] = set(others.split())
    return rooms


class Tree:
    """What includes what."""

    def __init__(self):
        self.rooms = read_rooms()
        self.users = defaultdict(set)  # header -> the files that include it
        self.text = {}
        for folder in SOURCES:
            for path in (ROOT / folder).rglob("*"):
                if path.suffix in CODE:
                    self.read(path)
        for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
            self.read(page)  # the samples of pages compile, too
        for lists in [*(ROOT / "tests").rglob("CMakeLists.txt"), *(ROOT / "fuzz").rglob("CMakeLists.txt")]:
            self.read_lists(lists)

    def read(self, path):
        name = path.relative_to(ROOT).as_posix()
        self.text[name] = path.read_text(encoding="utf-8", errors="replace")
        for header in INCLUDE.findall(self.text[name]):
            self.users[self.resolve(header, path.parent)].add(name)

    def read_lists(self, path):
        """Programs of tests also compile sources of other folders."""
        for word in re.findall(r"[\w${}./*-]+\.cpp", path.read_text(encoding="utf-8")):
            word = word.replace("${PROJECT_SOURCE_DIR}", str(ROOT)).replace("${CMAKE_CURRENT_SOURCE_DIR}", str(path.parent))
            if "$" not in word and ("/../" in word or word.startswith((str(ROOT), ".."))):
                for source in Path(os.path.normpath(path.parent / word)).parent.glob(os.path.basename(word)):
                    self.users[source.relative_to(ROOT).as_posix()].add(path.relative_to(ROOT).as_posix())

    @staticmethod
    def resolve(header, folder):
        for place in (folder, ROOT, ROOT / "tests", ROOT / "fuzz"):
            path = Path(os.path.normpath(place / header))
            if path.is_file() and path.is_relative_to(ROOT):
                return path.relative_to(ROOT).as_posix()
        return header if header.startswith("ulp/") else f"tests/{header}"  # one that was deleted

    def reached_by(self, file):
        """The file and all that include it."""
        found, ahead = {file}, [file]
        while ahead:
            for user in self.users.get(ahead.pop(), ()):
                if user not in found:
                    found.add(user)
                    ahead.append(user)
        return found

    def room_of(self, file):
        fitting = [room for room in self.rooms if file.startswith(f"ulp/{room}/")]
        return max(fitting, key=len, default=None)

    def rooms_above(self, room):
        """All rooms that may include the room, also through others."""
        found = set()
        for other, below in self.rooms.items():  # the table goes upward
            if room in below or below & found:
                found.add(other)
        return found - {room}


class Reach:
    """What has to run: folders with tests, single tests, targets; why; and what only `make test` tells."""

    def __init__(self, tree):
        self.tree = tree
        self.folders, self.tests, self.targets = defaultdict(set), defaultdict(set), defaultdict(set)
        self.unknown = []
        self.rooms = set()

    def add(self, file, because):
        """What one file, changed or reached by a changed one, wants to have run."""
        parts = file.split("/")
        room = self.tree.room_of(file)
        if room:
            self.rooms.add(room)
            self.folders[f"tests/{room}"].add(because)
        elif file in ABOVE_ALL:
            self.folders["tests/base" if file.endswith("version.h") else "tests/consumer"].add(because)
        elif parts[0] == "cli":
            self.folders["tests/cli"].add(because)
            self.folders["tests/docs"].add(because)
        elif file.startswith("tests/golden/") and not file.endswith(".md"):
            self.add_golden(file, because)
        elif parts[0] == "tests" and len(parts) > 2 and (ROOT / "tests" / parts[1] / "CMakeLists.txt").is_file():
            inner = next((room for room in sorted(self.tree.rooms, key=len, reverse=True) if file.startswith(f"tests/{room}/")), parts[1])
            self.folders[f"tests/{inner}"].add(because)
        elif parts[0] == "tests" and file.endswith(".h"):
            pass  # what includes it is reached by itself
        elif parts[:2] == ["fuzz", "harness"]:
            self.tests[f"replay_{Path(file).stem}"].add(because)
        elif parts[0] == "fuzz" and len(parts) > 1 and not file.endswith(".md"):
            self.folders["fuzz"].add(because)
        elif parts[0] == "examples" and len(parts) > 2:
            self.folders["examples"].add(because)
        elif parts[0] == "bench" and file.endswith(".cpp"):
            if because.startswith("bench/"):  # make test leaves them out, too
                self.targets[Path(file).stem if "_modules" not in file else "peer_networks"].add(because)
        elif file.endswith(".md"):
            self.folders["tests/docs"].add(because)
            if file == "docs/architecture.md":
                self.folders["tests/base"].add(because)
        elif file == "cmake/rooms.txt":
            self.folders["tests/base"].add(because)
        elif file in TESTED_SCRIPTS:
            self.folders["tests/scripts"].add(because)
        elif not (file.endswith(CODE) and parts[0] in SOURCES or file in (".gitignore", "LICENSE", ".clang-format")
                  or file.startswith(("bench/peers/", "bench/notes/"))):
            self.unknown.append(file)
        if file.endswith("CMakeLists.txt") and room:
            self.folders["tests/base"].add(because)  # the lists of headers

    def add_golden(self, file, because):
        """The tests whose sources name the file, or the folder that it is in."""
        name = Path(file.split("/")[2])
        if name.suffix == ".py":
            return  # writes golden data, which are a change of their own
        users = []
        for words in (rf'golden/{re.escape(name.name)}["/]|"{re.escape(name.name)}[/"]', rf'"{re.escape(name.stem)}"'):
            users = users or [user for user, text in self.tree.text.items() if user.startswith(("tests/", "fuzz/")) and re.search(words, text)]
        if not users:
            self.unknown.append(file)
        for user in users:
            for reached in self.tree.reached_by(user):
                self.add(reached, because)

    def add_changed(self, file):
        reached = self.tree.reached_by(file)
        for other in sorted(reached):
            self.add(other, file)
        return len(reached) - 1

    def deeper(self):
        """Folders with tests of the rooms above, and of what is above all rooms."""
        above = set().union(*(self.tree.rooms_above(room) for room in self.rooms)) if self.rooms else set()
        folders = {f"tests/{room}" for room in above}
        for file, text in self.tree.text.items():
            if any(f"ulp/{room}/" in text for room in above | self.rooms):
                parts = file.split("/")
                if parts[0] in ("fuzz", "examples"):
                    folders.add(parts[0])
                elif parts[0] == "tests" and len(parts) > 2 and parts[1] != "golden":
                    folders.add(f"tests/{parts[1]}")
        if self.rooms:
            folders |= {"tests/cli", "tests/consumer", "tests/docs"}
        return {folder for folder in folders if (ROOT / folder).is_dir()} - set(self.folders)


def tests_of(build):
    """Folder of the sources -> [(name, the files in the build folder that its command names)]."""
    found = defaultdict(list)
    for file in build.rglob("CTestTestfile.cmake"):
        folder = file.parent.relative_to(build).as_posix()
        for bracket, quoted, words in re.findall(r'^add_test\((?:\[=\[(.*?)\]=\]|"(.*?)") (.*)\)$', file.read_text(encoding="utf-8"), re.M):
            name = bracket or quoted
            named = re.findall(re.escape(str(build)) + r"/([^\"|; ]+)", words)
            found[folder].append((name, named))
    return found


def selection(reach, build, rooms):
    """The names of the tests to run, and the files to build for them."""
    names, wanted, met = set(), set(reach.targets), set()
    for folder, tests in tests_of(build).items():
        inside = next((other for other in reach.folders if folder == other or folder.startswith(other + "/")
                       and folder.removeprefix("tests/") not in rooms), None)
        for name, files in tests:
            if inside or name in reach.tests:
                met.add(inside or name)
                names.add(name)
                wanted.update(files)
                if folder == "tests/consumer":
                    wanted.add("all")  # it installs everything
    known = subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    outputs = {line.rsplit(":", 1)[0] for line in known.splitlines()}
    for missing in sorted((set(reach.folders) | set(reach.tests)) - met):
        reach.unknown.append(missing)
        print(f"test-changed: {missing} has no test in this build; `make check-all` may have it")
    return names, sorted(target for target in wanted if target in outputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the commit to compare with (origin/main, or where there is none or no difference, HEAD~1)")
    parser.add_argument("--deep", action="store_true", help="also run the tests of every room above a changed one")
    parser.add_argument("--list", action="store_true", help="say what would run and why, and build nothing")
    parser.add_argument("--preset", default="release", help="the preset to build (release)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many compilations and tests run at once (the cores)")
    parser.add_argument("files", nargs="*", metavar="FILE", help="take these files as changed instead of asking git")
    options = parser.parse_args()
    start = time.monotonic()
    os.chdir(ROOT)
    files = options.files or changed_files(options.base)
    if not files:
        return print("test-changed: nothing has changed")
    tree = Tree()
    reach = Reach(tree)
    for file in files:
        users = reach.add_changed(file)
        if users:
            print(f"test-changed: {file} is included by {users} files")
    deeper = reach.deeper()
    if options.deep:
        for folder in deeper:
            reach.folders[folder].add("a room below it")
    for kind, chosen in (("tests of", reach.folders), ("tests", reach.tests), ("builds", reach.targets)):
        if chosen:
            print(f"test-changed: {kind} {' '.join(sorted(name.removeprefix('tests/') for name in chosen))}")
        for name, because in sorted(chosen.items() if options.list else ()):
            print(f"    {name}: {', '.join(sorted(because)[:3])}{' and others' if len(because) > 3 else ''}")
    if deeper and not options.deep:
        print(f"test-changed: left out, what may see it from above (--deep): {' '.join(sorted(name.removeprefix('tests/') for name in deeper))}")
    for file in reach.unknown:
        print(f"test-changed: {file} is no source, test or page: only `make test` tells what it changes")
    if not options.list:
        run(reach, tree, options, files)
        print(f"test-changed: done after {time.monotonic() - start:.0f} s")
    if reach.unknown:
        print("test-changed: that is not all; run `make test`")
        sys.exit(3)
    return None


def run(reach, tree, options, files):
    def call(*command):
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit(1)

    build = ROOT / "build" / options.preset
    jobs = str(options.jobs)
    call("scripts/build.sh", options.preset, jobs, "build.ninja")
    names, targets = selection(reach, build, tree.rooms)
    if any(file.endswith(CODE) for file in files):
        call("scripts/format.sh", "--check")
    if targets:
        call("scripts/build.sh", options.preset, jobs, *targets)
    if names:
        pattern = "^(" + "|".join(re.escape(name) for name in sorted(names)) + ")$"
        call("ctest", "--test-dir", str(build), "--output-on-failure", "--parallel", jobs, "-R", pattern)


if __name__ == "__main__":
    main()
