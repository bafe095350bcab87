"""The program bench/conformance.cpp for conformance.py, and the files of arrays that go in and come out."""

import concurrent.futures
import json
import subprocess
import threading

import ml_dtypes
import numpy as np


class Converter:
    """The program bench/conformance.cpp, started again where it ends."""

    def __init__(self, program):
        self.program = program
        self.process = None

    def ask(self, **request):
        """Its answer; {"failed": {"process": ...}} where it ends without one."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True)
        timer = threading.Timer(120, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if line:
            return json.loads(line)
        status = self.process.wait()
        return {"failed": {"process": f"the process ended with {status}"}}


def each(arguments, items, work):
    """Does the work for all items, each thread with a converter of its own."""
    local = threading.local()

    def one(item):
        if not hasattr(local, "converter"):
            local.converter = Converter(arguments.program)
        work(local.converter, item)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done in [pool.submit(one, item) for item in items]:
            done.result()


def save(path, arrays):
    """A safetensors file; arrays of types that it has not got are left out."""
    types = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
             "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
             "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
    header, data, kept = {}, b"", {}
    for name, array in arrays.items():
        if not isinstance(array, (np.ndarray, np.generic)):
            continue
        array = np.asarray(array)
        if array.dtype.name in ("int4", "uint4", "int2", "uint2"):
            array = array.astype(np.int8 if array.dtype.name.startswith("i") else np.uint8)
        if array.dtype.name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn"):  # the program makes them of floats
            array = array.astype(np.float32)
        if array.dtype.name in types:
            kept[name] = array
    for name, array in sorted(kept.items(), key=lambda one: -one[1].dtype.itemsize):  # so all of them are aligned
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": types[array.dtype.name], "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def load(path):
    """Arrays by name."""
    types = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64, "I32": np.int32,
             "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_,
             "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}
    with open(path, "rb") as file:
        raw = file.read()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(raw[end + one["data_offsets"][0]:end + one["data_offsets"][1]], types[one["dtype"]]).reshape(one["shape"])
            for name, one in header.items()}
