"""What scripts/ computes: causes of build time, what a change reaches, the parts of a run on a GPU."""
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import build_time  # noqa: E402
import test_changed  # noqa: E402

BUILD_NINJA = """
build CMakeFiles/ulp_torch_core_pch.dir/cmake_pch.hxx.gch: CXX_COMPILER__ulp_torch_core_pch_unscanned_Release a.cxx
build ulp/kernels/CMakeFiles/ulp_room_kernels.dir/conv/tiles_avx512_vnni.cpp.o: CXX_COMPILER__k_Release t.cpp
build ulp/base/CMakeFiles/ulp_room_base.dir/a.cpp.o: CXX_COMPILER__b_Release a.cpp
build ulp/quant/CMakeFiles/ulp_room_quant_core.dir/Unity/unity_ulp_room_quant_core_0_cxx.cxx.o: CXX_COMPILER__q_Release u.cxx
build cli/CMakeFiles/ulp_tool.dir/main.cpp.o: CXX_COMPILER__t_Release main.cpp
build tests/quant/CMakeFiles/test_quant.dir/x_test.cpp.o: CXX_COMPILER__x_Release x.cpp
build lib/libulp.so.0.1 lib/libulp.so | extra: CXX_SHARED_LIBRARY_LINKER__ulp_Release o
build tests/small.stamp: CUSTOM_COMMAND x
"""
QUANT = "ulp/quant/CMakeFiles/ulp_room_quant_core.dir/Unity/unity_ulp_room_quant_core_0_cxx.cxx.o"
# Start, end, output: milliseconds. The second build compiled one file again; one output is no longer built.
LOG = [(0, 9000, "ulp/base/CMakeFiles/ulp_room_base.dir/a.cpp.o", "a1"), (0, 500, "gone.o", "g1"),
       (10, 12010, "CMakeFiles/ulp_torch_core_pch.dir/cmake_pch.hxx.gch", "p1"),
       (20, 4020, "ulp/kernels/CMakeFiles/ulp_room_kernels.dir/conv/tiles_avx512_vnni.cpp.o", "k1"), (30, 20030, QUANT, "q1"),
       (30, 6030, "cli/CMakeFiles/ulp_tool.dir/main.cpp.o", "t1"), (40, 5040, "tests/quant/CMakeFiles/test_quant.dir/x_test.cpp.o", "x1"),
       (50, 1050, "lib/libulp.so.0.1", "l1"), (50, 1050, "lib/libulp.so", "l1"), (0, 250, "tests/small.stamp", "s1"),
       (0, 3000, "ulp/base/CMakeFiles/ulp_room_base.dir/a.cpp.o", "a1")]


def build_folder(folder, scale=1.0, heavier=0):
    """A build folder whose steps took `scale` times as long, and the group of quant so many milliseconds more."""
    (folder / "build.ninja").write_text(BUILD_NINJA, encoding="utf-8")
    lines = [f"{start}\t{start + round((end - start) * scale) + (heavier if output == QUANT else 0)}\t7\t{output}\t{command}"
             for start, end, output, command in LOG]
    (folder / ".ninja_log").write_text("\n".join(["# ninja log v7", *lines, "12\t13"]), encoding="utf-8")
    return folder


def printed(call, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        call(*arguments)
    return out.getvalue()


class BuildTime(unittest.TestCase):
    def setUp(self):
        self.folders = [tempfile.TemporaryDirectory() for _ in range(2)]
        self.addCleanup(lambda: [folder.cleanup() for folder in self.folders])
        self.first, self.second = (Path(folder.name) for folder in self.folders)

    def test_each_step_counts_once_by_its_cause(self):
        steps = build_time.load(build_folder(self.first))
        found = {(step["cause"], step["part"]): step["seconds"] for step in steps}
        self.assertEqual(found, {
            ("precompiled headers", "ulp_torch_core_pch"): 12, ("kernels", "ulp/kernels avx512_vnni"): 4,
            ("rooms without LibTorch", "ulp/base"): 3, ("rooms on LibTorch", "ulp/quant"): 20, ("tool", "cli"): 6,
            ("tests", "tests/quant"): 5, ("links", "libraries"): 1, ("other steps", "tests"): 0.25})
        self.assertEqual([step["seconds"] for step in steps], sorted((step["seconds"] for step in steps), reverse=True))
        table = printed(build_time.print_table, self.first, steps, 2)
        self.assertRegex(table, r"rooms on LibTorch +1 +20\.0 +39\.0% ")
        self.assertRegex(table, r"all +8 +51\.2")
        self.assertRegex(table, r"the 2 heaviest steps\n +20\.0  ulp/quant/ulp_room_quant_core: group 0\n +12\.0")

    def test_a_file_that_grew_is_seen_on_another_machine(self):
        before, after = build_time.load(build_folder(self.first)), build_time.load(build_folder(self.second, 2, 12000))
        text = printed(build_time.compare, before, after, 5)
        self.assertIn("takes 2.00 of its time before", text)
        self.assertRegex(text, r"1 grew .*\n +20\.0 -> +52\.0  ulp/quant/ulp_room_quant_core: group 0\n")
        text = printed(build_time.compare, before, build_time.load(build_folder(self.second, 2)), 5)
        self.assertIn("none grew", text)

    def test_what_gcc_reports(self):
        report = """
Time variable                                   usr           sys          wall           GGC
 phase setup                        :   0.00 (  0%)   0.00 (  0%)   0.50 (  3%)  1862k (  0%)
 phase parsing                      :   6.00 ( 50%)   1.00 ( 50%)   7.00 ( 47%)   500M ( 50%)
 phase lang. deferred               :   2.00 ( 17%)   0.20 ( 10%)   2.50 ( 17%)   200M ( 20%)
 phase opt and generate             :   4.00 ( 33%)   0.80 ( 40%)   5.00 ( 33%)   300M ( 30%)
 |name lookup                       :   0.40 (  3%)   0.20 ( 10%)   0.60 (  4%)    10M (  1%)
 template instantiation             :   3.00 ( 25%)   0.40 ( 20%)   4.00 ( 27%)   300M ( 30%)
 tree PRE                           :   0.50 (  4%)   0.00 (  0%)   0.50 (  3%)    10M (  1%)
 expand                             :   0.50 (  4%)   0.00 (  0%)   0.75 (  5%)    10M (  1%)
 integrated RA                      :   0.90 (  8%)   0.00 (  0%)   1.25 (  8%)    10M (  1%)
 TOTAL                              :  12.00          2.00         15.00          1000M
"""
        self.assertEqual(build_time.stages_of_gcc(report),
                         {"front end": 6.0, "templates": 4.0, "optimizer": 3.0, "code generation": 2.0})
        self.assertIsNone(build_time.stages_of_gcc("error: no such file"))

    def test_what_clang_traces(self):
        def event(name, start, length):
            return {"ph": "X", "name": name, "ts": start * 1e6, "dur": length * 1e6}
        events = [event("InstantiateClass", 1, 2), event("InstantiateFunction", 2, 2), event("InstantiateFunction", 2.5, 1),
                  event("PerformPendingInstantiations", 6, 2), event("InstantiateFunction", 6.5, 1), event("Total ExecuteCompiler", 0, 14),
                  event("Total Backend", 0, 5), event("Total CodeGenPasses", 0, 2), event("Total InstantiateFunction", 0, 4)]
        self.assertEqual(build_time.stages_of_clang({"traceEvents": events}),
                         {"front end": 4.0, "templates": 5.0, "optimizer": 3.0, "code generation": 2.0})

    def test_weights_and_the_pace_of_a_machine(self):
        folder = build_folder(self.first)
        rules = build_time.read_rules(folder)
        build_time.WEIGHTS, kept = self.second / "weights.txt", build_time.WEIGHTS
        self.addCleanup(setattr, build_time, "WEIGHTS", kept)
        build_time.WEIGHTS.write_text(printed(build_time.write_weights, build_time.load(folder), rules), encoding="utf-8")
        weights = build_time.read_weights()
        self.assertEqual(build_time.weight_of(QUANT, rules, weights), 20)
        other = QUANT.replace("quant", "prune")  # unknown: as rooms on LibTorch are
        self.assertEqual(build_time.weight_of(other, {other: "CXX_COMPILER"}, weights), 20)
        pairs = build_time.measured(rules, weights, build_folder(self.first, 1.5))
        self.assertAlmostEqual(sum(seconds for seconds, _ in pairs) / sum(weight for _, weight in pairs), 1.5, places=2)
        self.assertEqual(build_time.measured(rules, weights, build_folder(self.first, 0.01)), [])  # a compiler cache

    def test_the_weights_of_the_project_are_of_its_rooms(self):
        known = build_time.read_weights()
        for room in test_changed.read_rooms():
            self.assertTrue(any(f"ulp/{room}" in key.split() for key in known), f"scripts/build_weights.txt lacks ulp/{room}")


class Changed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = test_changed.Tree()

    def reach(self, *files):
        reach = test_changed.Reach(self.tree)
        for file in files:
            reach.add_changed(file)
        return reach

    def test_a_source_reaches_its_room_and_deeper_those_above(self):
        reach = self.reach("ulp/quant/not_there.cpp")
        self.assertEqual((set(reach.folders), reach.unknown), ({"tests/quant"}, []))
        deeper = reach.deeper()
        self.assertLessEqual({"tests/prune", "tests/lower", "tests/app", "tests/cli"}, deeper)
        self.assertFalse({"tests/quant", "tests/formats", "tests/kernels"} & deeper)

    def test_a_header_reaches_what_includes_it(self):
        every = {f"tests/{room}" for room in self.tree.rooms}
        self.assertLessEqual(every - {"tests/libtorch"}, set(self.reach("ulp/base/error.h").folders) | {"tests/report"})
        private = self.reach("ulp/kernels/isa/vec256.h")
        self.assertEqual(set(private.folders), {"tests/kernels", "tests/kernels/training"})

    def test_rooms_above_go_through_others(self):
        self.assertIn("app", self.tree.rooms_above("formats"))
        self.assertIn("distill", self.tree.rooms_above("quant"))  # through lower
        self.assertEqual(self.tree.rooms_above("app"), set())

    def test_other_files(self):
        self.assertEqual(set(self.reach("tests/quant/qat_test.cpp").folders), {"tests/quant"})
        self.assertEqual(set(self.reach("tests/kernels/training/optimizer_test.cpp").folders), {"tests/kernels/training"})
        self.assertEqual(set(self.reach("docs/gpu.md").folders), {"tests/docs"})
        self.assertLessEqual({"tests/quant"}, set(self.reach("tests/golden/observers.json").folders))
        self.assertEqual(set(self.reach("fuzz/harness/onnx.cpp").tests), {"replay_onnx"})
        self.assertEqual(set(self.reach("bench/gpu_bench.cpp").targets), {"gpu_bench"})
        self.assertLessEqual({"tests/lower", "tests/ops", "tests/networks"}, set(self.reach("tests/lower/support.cpp").folders))

    def test_what_nobody_knows_asks_for_all(self):
        for file in ("CMakeLists.txt", "cmake/UlpRoom.cmake", "scripts/build.sh", "tests/CMakeLists.txt", "Makefile", "tests/golden/no_such.json"):
            self.assertEqual(self.reach(file).unknown, [file])

    def test_every_golden_file_belongs_to_a_test(self):
        for path in sorted((ROOT / "tests/golden").rglob("*")):
            file = path.relative_to(ROOT).as_posix()
            if path.is_file():
                self.assertEqual(self.reach(file).unknown, [], file)

    def test_tests_of_a_build_folder(self):
        with tempfile.TemporaryDirectory() as name:
            build = Path(name)
            (build / "tests/cli").mkdir(parents=True)
            (build / "tests/cli/CTestTestfile.cmake").write_text(
                f'add_test([=[cli]=] "{build}/bin/test_cli")\nset_tests_properties([=[cli]=] PROPERTIES COST "1000")\n'
                f'add_test("cli_objects" "/usr/bin/cmake" "-DOBJECTS={build}/a.o|{build}/b.o" "-P" "x.cmake")\n', encoding="utf-8")
            self.assertEqual(test_changed.tests_of(build), {"tests/cli": [("cli", ["bin/test_cli"]), ("cli_objects", ["a.o", "b.o"])]})


class Gpu(unittest.TestCase):
    def test_every_test_for_gpus_is_a_part_once(self):
        done = subprocess.run([str(ROOT / "scripts/gpu.sh"), "--dry-run"], capture_output=True, text=True, check=True)
        parts = [line.split("\t")[0] for line in done.stdout.splitlines() if "\t" in line]
        tests = [name for file in sorted((ROOT / "tests/cuda").glob("*.cpp"))
                 for name in re.findall(r"^TEST_F\(Cuda, (\w+)\)", file.read_text(encoding="utf-8"), re.M)]
        self.assertGreater(len(tests), 10)
        self.assertEqual(parts[0], "machine")
        self.assertEqual(len(set(parts)), len(parts))
        self.assertLessEqual({f"test-{name}" for name in tests}, set(parts))
        self.assertEqual([part for part in parts if part.startswith("test-")], parts[1:1 + sum(part.startswith("test-") for part in parts)])

    def test_it_comes_to_cmake_and_says_where_that_fails(self):
        script = str(ROOT / "scripts/gpu.sh")
        shown = subprocess.run([script, "--dry-run"], capture_output=True, text=True, check=True).stdout.splitlines()
        if "gpu: LibTorch: none found" in shown or "gpu: missing packages: " not in shown:
            self.skipTest("the script would end or install packages before")
        with tempfile.TemporaryDirectory() as folder:
            cmake = Path(folder) / "cmake"
            cmake.write_text("#!/bin/sh\n[ \"$1\" != --version ] || exec echo cmake version 3.25.1\necho CMake Error: none; exit 1\n",
                             encoding="utf-8")
            cmake.chmod(0o755)
            done = subprocess.run([script, f"{folder}/results"], capture_output=True, text=True, check=False,
                                  env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
            self.assertEqual(done.returncode, 3, done)
            self.assertIn("CMake could not configure", done.stderr)
            self.assertIn('"status": "failed"', (Path(folder) / "results/build.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
