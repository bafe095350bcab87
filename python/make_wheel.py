#!/usr/bin/env python3
"""PrepackedWeights ulp_runtime and the shared library into a wheel: make_wheel.py LIBRARY FOLDER. Prints the wheel's path.

A wheel is a zip archive with a list of its files; there is nothing to compile. Equal sources give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "ulp_runtime"

MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}  # words of readelf
# The version of glibc beside which distributions ship a libstdc++ with these symbols (manylinux policies of auditwheel).
GLIBC_OF_GLIBCXX = {19: 17, 22: 24, 24: 27, 25: 28, 28: 31, 29: 34, 30: 35, 31: 38, 32: 38, 33: 39}


def version() -> str:
    """What ulp/version.h says."""
    text = (ROOT / "ulp/version.h").read_text()
    return ".".join(re.search(rf"#define ULP_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def tag(library: Path) -> str:
    """The platforms that have what the library needs."""
    needs = subprocess.run(["readelf", "-V", "-W", str(library)], check=True, capture_output=True, text=True).stdout
    glibc = max(int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", needs))
    glibcxx = max(int(patch) for patch in re.findall(r"Name: GLIBCXX_3\.4\.(\d+)", needs))
    beside = [minor for patch, minor in GLIBC_OF_GLIBCXX.items() if patch >= glibcxx]
    header = subprocess.run(["readelf", "-h", "-W", str(library)], check=True, capture_output=True, text=True).stdout
    machine = MACHINES[re.search(r"Machine: +(.*)", header)[1].strip()]
    if not beside:
        return f"py3-none-linux_{machine}"
    return f"py3-none-manylinux_2_{max(glibc, min(beside))}_{machine}"


METADATA = """\
Metadata-Version: 2.1
Name: ulp-runtime
Version: {version}
Summary: Runs ulp's engine files: neural networks in fp32, bf16 and int8 on the CPU
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy>=1.21
Description-Content-Type: text/markdown

`ulp_runtime.Engine("model.ulp").run(x)` runs an engine file on NumPy arrays. The files are made by ulp, the library and the
tool for low-precision training and compression of LibTorch models. This package is the runtime alone: one shared library
and its Python functions, without LibTorch.
"""


def files(library: Path, platforms: str) -> dict[str, bytes]:
    """What is in the wheel, by name, but for the list of it."""
    info = f"{PACKAGE}-{version()}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: ulp\nRoot-Is-Purelib: false\nTag: {platforms}\n"
    found = {
        f"{PACKAGE}/{path.name}": path.read_bytes()
        for path in sorted((ROOT / "python" / PACKAGE).iterdir())
        if path.suffix in (".py", ".typed")
    }
    found[f"{PACKAGE}/libulp_runtime.so"] = library.read_bytes()
    found[f"{info}/METADATA"] = METADATA.format(version=version()).encode()
    found[f"{info}/WHEEL"] = wheel.encode()
    found[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    found[f"{info}/copyright"] = (ROOT / "cmake/copyright").read_bytes()  # of what is compiled in, too
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content in found.items())
    found[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    return found


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: make_wheel.py LIBRARY FOLDER")
    library, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    platforms = tag(library)
    wheel = folder / f"{PACKAGE}-{version()}-{platforms}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files(library, platforms).items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(wheel)


if __name__ == "__main__":
    main()
