#!/usr/bin/env python3
"""Files of every kind: read and right, read and wrong, or refused, and why.

    cmake --build build/release --target conformance
    bench/peers/conformance.py build/release/bin/conformance [--only node|modules] [--json FILE]

Installs the judges (setup.sh) where this Python has not got them. Then:
- node: ONNX's own tests of its operators, plain and expanded into functions, and those of whole small models that come with the
  package onnx. Of a test that is refused as it is, the same file with its whole numbers given at import (axes, sizes, counts), then
  with stored inputs. Right is what the test says, within its tolerance, of our graph and of our engine with LibTorch for what it has not got.
- modules: small modules (small_modules.py) as torch.export writes them, drawn with a fixed seed. Each is read, compared with PyTorch,
  and written in every form: ONNX (opset 21, opset 17, fp16, QDQ) beside ONNX Runtime and read back, TensorFlow Lite (float, int8)
  beside LiteRT, Core ML as coremltools reads it, computed by MIL's rules (coreml_check.py). Float forms are compared with PyTorch,
  quantized ones with our quantized graph.

Prints one table and, with --list, each file that is not right. Ends with 1 where anything is wrong that conformance_table.py does not
list. With --least FILE it ends with 1, too, where a row of the table has fewer that are right than FILE says, and names the row:

    bench/peers/conformance.py build/release/bin/conformance --least bench/peers/conformance_least.json

A row that grew is written to the file by --write-least FILE.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings

from conformance_table import Table, read_least, write_least

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(HERE, "../../.deps/peers-venv/bin/python")


def ensure_judges():
    """Goes on in the environment of setup.sh where a judge is missing here."""
    try:
        import onnx, onnxruntime, torch, ai_edge_litert, coremltools  # noqa: F401
    except ImportError:
        if os.path.exists(VENV) and os.path.samefile(sys.executable, VENV):
            raise
        subprocess.run([os.path.join(HERE, "setup.sh")], check=True, stdout=sys.stderr)
        os.execv(VENV, [VENV, os.path.abspath(__file__), *sys.argv[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="build/release/bin/conformance")
    parser.add_argument("--only", choices=["node", "modules"])
    parser.add_argument("--match", default="*", help="a pattern of names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="each file that is not right")
    parser.add_argument("--json", help="a file for the verdicts")
    parser.add_argument("--least", help="a file of least counts: fewer that are right is an error, of the parts that are run")
    parser.add_argument("--write-least", help="such a file of this run")
    parser.add_argument("--keep", help="a folder for the files of what is not right")
    arguments = parser.parse_args()
    if (arguments.least or arguments.write_least) and arguments.match != "*":
        parser.error("expected no --match beside --least or --write-least, which count all names")
    if arguments.write_least and arguments.only:
        parser.error("expected no --only beside --write-least, which counts all parts")
    try:
        least = read_least(arguments.least) if arguments.least else {}
    except ValueError as error:
        parser.error(f"--least: {error}")
    ensure_judges()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import conformance_modules
    import conformance_nodes
    parts = {"node": conformance_nodes, "modules": conformance_modules}
    table, suites = Table(), set()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.keep:
            os.makedirs(arguments.keep, exist_ok=True)
            folder = arguments.keep
        for name, part in parts.items():
            if arguments.only in (None, name):
                part.run(arguments, table, folder)
                suites.update(part.SUITES)
    if arguments.list:
        print("\n".join(table.listing()))
    print(table.text())
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(table.as_json(), file, indent=1)
    if arguments.write_least:
        write_least(arguments.write_least, table)
    unknown, fewer = table.unknown(), table.fewer(least, suites)
    for suite, name, form in unknown:
        print(f"wrong: {suite} {name} {form}: {table.rows[(suite, name, form)][1]}")
    for line in fewer:
        print(f"fewer: {line}")
    sys.exit(1 if unknown or fewer else 0)


if __name__ == "__main__":
    main()
