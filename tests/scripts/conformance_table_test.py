"""The table of bench/peers/conformance.py: least counts, and reasons that are one reason."""
import sys
import tempfile
import unittest
from pathlib import Path

PEERS = Path(__file__).resolve().parent.parent.parent / "bench/peers"
sys.path.insert(0, str(PEERS))
import conformance_table  # noqa: E402


def table_of(**right):
    """A table of "SUITE__FORM" and how many of it are right; one more of each is refused."""
    table = conformance_table.Table()
    for row, count in right.items():
        suite, form = row.replace("_stored", " stored").split("__")
        for i in range(count):
            table.add(suite, f"right{i}", form, "right")
        table.add(suite, "refused", form, "refused", "because")
    return table


class LeastCounts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "least.json"

    def test_what_is_written_is_read(self):
        conformance_table.write_least(self.path, table_of(modules__pt2=3, node_stored__graph=2, simple__graph=0))
        self.assertEqual(conformance_table.read_least(self.path), {("modules", "pt2"): 3, ("node stored", "graph"): 2})

    def test_a_row_that_fell_is_named(self):
        least = {("modules", "pt2"): 3, ("modules", "onnx"): 2, ("node", "graph"): 5}
        now = table_of(modules__pt2=2, modules__onnx=4)
        self.assertEqual(now.fewer(least, {"modules"}), ["modules, pt2: 2 right, expected at least 3"])
        self.assertEqual(len(now.fewer(least, {"modules", "node"})), 2)  # a row that is not there has none
        self.assertEqual(table_of(modules__pt2=3, modules__onnx=2).fewer(least, {"modules"}), [])

    def test_a_wrong_one_is_none_that_is_right(self):
        now = table_of(modules__pt2=3)
        now.add("modules", "right0", "pt2", "wrong", "off by 1")
        self.assertEqual(len(now.fewer({("modules", "pt2"): 3}, {"modules"})), 1)
        self.assertEqual(now.unknown(), [("modules", "right0", "pt2")])

    def test_what_is_right_as_it_is_needs_no_stored_inputs(self):
        least = {("node", "graph"): 5, ("node stored", "graph"): 3}
        self.assertEqual(table_of(node__graph=7, node_stored__graph=1).fewer(least, {"node"}), [])
        self.assertEqual(table_of(node__graph=4, node_stored__graph=4).fewer(least, {"node"}),
                         ["node, graph: 4 right, expected at least 5"])
        self.assertEqual(table_of(node__graph=5, node_stored__graph=2).fewer(least, {"node"}),
                         ["node and node stored, graph: 7 right, expected at least 8"])

    def test_other_files_are_refused_by_name(self):
        for text in ("", "{}", "[]", '{"modules": 3}', '{"modules, pt2": 0}', '{"modules, pt2": "3"}', '{"modules, pt2": true}'):
            self.path.write_text(text, encoding="utf-8")
            with self.assertRaises(ValueError) as raised:
                conformance_table.read_least(self.path)
            self.assertIn(str(self.path), str(raised.exception))
        self.path.unlink()
        self.assertRaises(ValueError, conformance_table.read_least, self.path)

    def test_the_file_of_the_project_has_every_form(self):
        least = conformance_table.read_least(PEERS / "conformance_least.json")
        self.assertEqual({form for suite, form in least if suite == "modules"},
                         {"pt2", "engine", "onnx", "onnx back", "onnx17", "onnx17 back", "fp16", "fp16 back", "qdq", "qdq back", "tflite",
                          "tflite_int8", "coreml"})
        self.assertGreaterEqual(sum(least[("node" + kind, "graph")] for kind in conformance_table.KINDS), 1738)


class Reasons(unittest.TestCase):
    def test_names_and_numbers_are_no_reasons(self):
        reason = conformance_table.reason_of
        pool = "[exchange.export_tflite] expected calls, got aten::max_pool2d '{}'{}: expected no dilation, got {}"
        self.assertEqual(reason(pool.format("a", "", 2)), reason(pool.format("b_1", " in first.body", 12)))
        self.assertNotEqual(reason(pool.format("a", "", 2)), reason(pool.format("a", "", 2).replace("pool2d", "pool3d")))
        self.assertEqual(reason("'/tmp/a.onnx': node 'n' (Pad): sizes [1, -2]; the names nearest to it with one are Abs, Acos"),
                         "FILE: node (Pad): sizes [..]")
        self.assertEqual(reason("one\nmore lines"), "one")
        self.assertEqual(reason(""), "")


if __name__ == "__main__":
    unittest.main()
