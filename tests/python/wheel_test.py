"""The installed wheel, as a Python program uses it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np
import ulp_runtime
from ulp_runtime import ArgumentError, Context, Engine, Error, FileError

import engine_files as files

WEIGHT = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
BIAS = np.array([0.5, -0.5], np.float32)


def two_threads_in_a_child(engine: Engine, context: Context, queue: multiprocessing.Queue) -> None:
    queue.put([runs.run(np.ones((1, 3), np.float32)).tolist() for runs in (engine, context)])
    context.close()


def of_busy_and_idle_in_a_child(busy: Context, idle: Context, queue: multiprocessing.Queue) -> None:
    try:
        busy.run(np.ones((1, 3), np.float32))
        queue.put("it ran")
    except Error as error:
        queue.put(str(error))
    queue.put(idle.run(np.ones((1, 3), np.float32)).tolist())


class Running(unittest.TestCase):
    def test_a_file_runs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.ulp"
            path.write_bytes(files.linear(WEIGHT, BIAS))
            x = np.arange(12, dtype=np.float32).reshape(4, 3)
            for given in (path, str(path)):
                np.testing.assert_array_equal(Engine(given).run(x), x @ WEIGHT.T + BIAS)

    def test_inputs_by_place_and_by_name(self) -> None:
        engine = Engine.from_bytes(files.sum_and_relu())
        a, b = np.float32([[1, -2, 3]]), np.float32([[1, 1, -9]])
        total, positive = engine.run(a, b)
        np.testing.assert_array_equal(total, a + b)
        np.testing.assert_array_equal(positive, np.maximum(a + b, 0))
        named = engine.run({"b": b, "a": a})
        self.assertEqual(list(named), ["sum", "positive"])
        np.testing.assert_array_equal(named["sum"], total)

    def test_arrays_of_any_order_and_python_numbers(self) -> None:
        engine = Engine.from_bytes(files.linear(WEIGHT, BIAS))
        x = np.arange(24, dtype=np.float32).reshape(3, 8)
        np.testing.assert_array_equal(engine.run(x.T), x.T @ WEIGHT.T + BIAS)
        np.testing.assert_array_equal(engine.run(x.T[::2].astype(np.float16)), x.T[::2] @ WEIGHT.T + BIAS)
        np.testing.assert_array_equal(engine.run(x.T.astype(">f4")), x.T @ WEIGHT.T + BIAS)
        np.testing.assert_array_equal(engine.run([[1, 2, 3.0]]), np.float32([[14.5, 31.5]]))
        odd = np.zeros(4 * 3 + 1, np.uint8)[1:].view(np.float32).reshape(1, 3)
        np.testing.assert_array_equal(engine.run(odd), BIAS[None])

    def test_ids(self) -> None:
        table = np.arange(10, dtype=np.float32).reshape(5, 2)
        engine = Engine.from_bytes(files.lookup(table))
        for ids in (np.array([[0, 4, 2, 1]]), np.array([[0, 4, 2, 1]], np.int32), [[0, 4, 2, 1]]):
            np.testing.assert_array_equal(engine.run(ids), table[np.asarray(ids)])
        with self.assertRaisesRegex(Error, "5"):
            engine.run([[0, 1, 2, 5]])
        with self.assertRaisesRegex(ArgumentError, "int64 for input 'ids'"):
            engine.run([[0.0, 1.0, 2.0, 3.0]])
        narrow = Engine.from_bytes(files.lookup(table, "i32"))
        np.testing.assert_array_equal(narrow.run([[0, 4, 2, 1]]), table[[[0, 4, 2, 1]]])
        with self.assertRaisesRegex(ArgumentError, "4294967299"):
            narrow.run([[0, 1, 2, 2**32 + 3]])  # would be 3 in 32 bits

    def test_free_dimensions_follow_the_arrays(self) -> None:
        engine = Engine.from_bytes(files.relu_along({"name": "time", "min": 1, "max": 8, "multiple": 1}))
        self.assertEqual(engine.free_dimensions, (("time", 1, 8, 1, False),))
        for shape in ((2, 8), (3, 1), (1, 5)):
            x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
            np.testing.assert_array_equal(engine.run(x), np.maximum(x, 0))
        with self.assertRaisesRegex(ArgumentError, "9"):
            engine.run(np.zeros((1, 9), np.float32))

    def test_own_threads_of_a_context_are_new_ones(self) -> None:
        engine = Engine.from_bytes(files.linear(WEIGHT, BIAS), threads=2)
        shared = engine.context()
        x = np.ones((2, WEIGHT.shape[1]), np.float32)
        expected = shared.run(x)

        def threads_of(**options: bool) -> int:
            before = len(os.listdir("/proc/self/task"))
            context = engine.context(**options)
            np.testing.assert_array_equal(context.run(x), expected)
            return len(os.listdir("/proc/self/task")) - before

        self.assertEqual(threads_of(), 0)
        self.assertEqual(threads_of(own_threads=True), 1)

    def test_runs_of_a_context_continue_each_other(self) -> None:
        engine = Engine.from_bytes(
            files.relu_along({"name": "time", "min": 1, "max": 8, "multiple": 1}, continued="time")
        )
        context = engine.context(threads=1)
        self.assertEqual(context.threads, 1)
        x = np.ones((1, 3), np.float32)
        for position in (0, 3, 6):
            self.assertEqual(context.position, position)
            if position < 6:
                context.run(x)
        with self.assertRaisesRegex(Error, "'time'"):
            context.run(x)
        context.rewind(3)
        context.run(x)
        context.close()
        with self.assertRaisesRegex(Error, "closed"):
            context.run(x)
        for _ in range(9):  # each of an engine's own stands alone
            engine.run(x)

    def test_bfloat16(self) -> None:
        values = np.float32([1.0, -2.5, 3.1415927, np.inf])
        bits = ulp_runtime.to_bfloat16(values)
        self.assertEqual(bits.tolist(), [0x3F80, 0xC020, 0x4049, 0x7F80])
        halfway = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32).view(np.float32)
        self.assertEqual(ulp_runtime.to_bfloat16(halfway).tolist(), [0x3F80, 0x3F82, 0x3F81])
        self.assertTrue(np.isnan(ulp_runtime.from_bfloat16(ulp_runtime.to_bfloat16(np.float32("nan")))))
        every = np.arange(1 << 16, dtype=np.uint16)
        wide = ulp_runtime.from_bfloat16(every)
        back = ulp_runtime.to_bfloat16(wide)
        np.testing.assert_array_equal(back[~np.isnan(wide)], every[~np.isnan(wide)])
        engine = Engine.from_bytes(files.bf16_relu())
        self.assertEqual((engine.inputs[0].type, engine.inputs[0].dtype), ("bf16", np.dtype(np.uint16)))
        out = ulp_runtime.from_bfloat16(engine.run(bits[None]))
        np.testing.assert_array_equal(out, [[1.0, 0.0, 3.140625, np.inf]])
        with self.assertRaisesRegex(ArgumentError, "to_bfloat16"):
            engine.run(values[None])

    def test_what_an_engine_says_of_itself(self) -> None:
        engine = Engine.from_bytes(files.linear(WEIGHT, BIAS), isa="portable")
        self.assertEqual(engine.inputs[0][:4], ("x", "f32", np.dtype(np.float32), (None, 3)))
        self.assertEqual(engine.isa, "portable")
        self.assertIn("portable", ulp_runtime.isas())
        self.assertEqual(engine.constant_bytes, WEIGHT.nbytes + BIAS.nbytes)
        self.assertEqual(repr(engine), "<ulp_runtime.Engine (x) -> (y)>")
        self.assertRegex(ulp_runtime.__version__, r"^\d+\.\d+\.\d+$")


class Errors(unittest.TestCase):
    def setUp(self) -> None:
        self.engine = Engine.from_bytes(files.linear(WEIGHT, BIAS))
        self.x = np.ones((2, 3), np.float32)

    def test_files(self) -> None:
        with self.assertRaisesRegex(FileError, "/nowhere.ulp"):
            Engine("/nowhere.ulp")
        content = files.linear(WEIGHT, BIAS)
        for size in (0, 7, 8, 100, len(content) - 1):
            with self.assertRaises(FileError):
                Engine.from_bytes(content[:size])
        with self.assertRaises(ArgumentError):
            Engine("a\0b")

    def test_options(self) -> None:
        content = files.linear(WEIGHT, BIAS)
        wrong = (
            {"isa": "abc"},
            {"sparse_weights": "maybe"},
            {"blocks": "some"},
            {"error_budget": 2.0},
            {"max_measuring_ms": -1},
            {"threads": -1},
            {"threads": 1 << 31},
        )
        for options in wrong:
            with self.assertRaises(ArgumentError):
                Engine.from_bytes(content, **options).run(self.x)
        given = Engine.from_bytes(content, error_budget=0.01, blocks="never", max_measuring_ms=0).run(self.x)
        np.testing.assert_array_equal(given, self.engine.run(self.x))
        with self.assertRaisesRegex(Error, "max_constant_bytes"):
            Engine.from_bytes(content, max_constant_bytes=1)

    def test_inputs(self) -> None:
        cases = [
            ([], r"expected 1 inputs \(x\), got 0"),
            ([self.x, self.x], "got 2"),
            ([{"y": self.x}], r"expected the inputs \['x'\], got \['y'\]"),
            ([np.ones((2, 4), np.float32)], r"\[batch, 3\] with batch 2, got \[2, 4\]"),
            ([np.ones(3, np.float32)], "2 dimensions"),
            ([np.ones((0, 3), np.float32)], r"got \[0, 3\]"),
            ([np.ones((2, 3))], r"expected float32 for input 'x' \(f32\), got float64; x.astype\(numpy.float32\)"),
            ([np.ones((2, 3), np.int64)], "got int64"),
        ]
        for inputs, said in cases:
            with self.assertRaisesRegex(ArgumentError, said):
                self.engine.run(*inputs)
        self.assertTrue(issubclass(ArgumentError, ValueError))
        np.testing.assert_array_equal(self.engine.run(self.x), self.x @ WEIGHT.T + BIAS)

    def test_a_closed_engine(self) -> None:
        with self.engine as engine:
            context = engine.context()
        with self.assertRaisesRegex(Error, "closed"):
            self.engine.run(self.x)
        self.assertEqual(context.run(self.x).shape, (2, 2))


class Threads(unittest.TestCase):
    def test_many_threads_use_one_engine(self) -> None:
        engine = Engine.from_bytes(files.linear(WEIGHT, BIAS), threads=1)
        wrong = []

        def work(seed: int) -> None:
            for i in range(50):
                x = np.full((1 + i % 5, 3), seed + i, np.float32)
                if not np.array_equal(engine.run(x), x @ WEIGHT.T + BIAS):
                    wrong.append(seed)

        workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(wrong, [])

    def test_a_run_lets_other_threads_compute(self) -> None:
        engine = Engine.from_bytes(files.heavy(128), threads=1)
        x = np.ones((512, 128), np.float32)
        engine.run(x)
        counted, seen, stop = [0], [0], threading.Event()

        def count() -> None:
            while not stop.is_set():
                counted[0] += 1

        counter = threading.Thread(target=count)
        counter.start()
        try:
            for _ in range(100):  # one run during which the other thread counts is enough
                before = counted[0]
                engine.run(x)
                seen[0] = max(seen[0], counted[0] - before)
                if seen[0] > 1000:
                    break
        finally:
            stop.set()
            counter.join()
        self.assertGreater(seen[0], 1000)

    def test_what_a_context_says_waits_for_its_run(self) -> None:
        context = Engine.from_bytes(files.heavy(128), threads=1).context()
        x = np.ones((512, 128), np.float32)
        context.run(x)

        def work() -> None:
            for _ in range(20):
                context.run(x)

        worker = threading.Thread(target=work)
        worker.start()
        asked = 0
        while worker.is_alive() or asked < 100:
            self.assertEqual(context.position, 0)
            self.assertEqual(context.threads, 1)
            asked += 1
        worker.join()

    def test_a_child_of_fork_runs(self) -> None:
        engine = Engine.from_bytes(files.linear(WEIGHT, BIAS), threads=2)
        context = engine.context()
        engine.run(np.ones((1, 3), np.float32))
        methods = multiprocessing.get_context("fork")
        queue = methods.Queue()
        child = methods.Process(target=two_threads_in_a_child, args=(engine, context, queue))
        child.start()
        self.assertEqual(queue.get(timeout=60), [[[6.5, 14.5]], [[6.5, 14.5]]])
        child.join()
        self.assertEqual(child.exitcode, 0)
        self.assertEqual(context.run(np.ones((1, 3), np.float32)).tolist(), [[6.5, 14.5]])

    def test_a_context_that_another_thread_used_at_fork_says_so(self) -> None:
        engine = Engine.from_bytes(files.linear(WEIGHT, BIAS), threads=2)
        busy, idle = engine.context(), engine.context()
        methods = multiprocessing.get_context("fork")
        queue = methods.Queue()
        with busy._lock, engine._lock:  # as during a call of another thread
            child = methods.Process(target=of_busy_and_idle_in_a_child, args=(busy, idle, queue))
            child.start()
        self.assertIn("that another thread was using", queue.get(timeout=60))
        self.assertEqual(queue.get(timeout=60), [[6.5, 14.5]])
        child.join()
        self.assertEqual(child.exitcode, 0)
        self.assertEqual(busy.run(np.ones((1, 3), np.float32)).tolist(), [[6.5, 14.5]])

    def test_rows_that_are_time_by_batch(self) -> None:
        engine = Engine.from_bytes(files.time_by_batch())
        info = engine.outputs[0]
        self.assertEqual((info.shape, info.times, info.outer), ((None, 2), 3, 3))
        self.assertEqual((engine.inputs[0].times, engine.inputs[0].outer), (1, 1))
        x = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
        np.testing.assert_array_equal(engine.run(x), x.transpose(1, 0, 2).reshape(12, 2))

    def test_memory_comes_back(self) -> None:
        content = files.linear(np.ones((512, 512), np.float32), np.zeros(512, np.float32))

        def resident() -> int:
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def once() -> None:
            engine = Engine.from_bytes(content, threads=1)
            engine.run(np.ones((8, 512), np.float32))

        for _ in range(20):
            once()
        gc.collect()
        before = resident()
        for _ in range(200):  # 200 MB of weights
            once()
        gc.collect()
        self.assertLess(resident() - before, 20 << 20)


if __name__ == "__main__":
    unittest.main()
