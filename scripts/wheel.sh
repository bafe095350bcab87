#!/usr/bin/env bash
# Builds the runtime, packs it as a Python wheel into dist, installs that into a fresh environment and runs its tests:
# scripts/wheel.sh PRESET JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
jobs=${2:-$(nproc)}
scripts/build.sh "$preset" "$jobs" ulp_runtime
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cmake --install "build/$preset" --component runtime --strip --prefix "$stage/prefix" >"$stage/install.log"
library=$(readlink -f "$(find "$stage/prefix" -name 'libulp_runtime.so*' | head -n 1)")

# Debian's Python has Debian's NumPy; another one on PATH serves where it has its own.
python=/usr/bin/python3
if ! "$python" -c 'import numpy, venv' 2>/dev/null; then python=$(command -v python3); fi
wheel=$("$python" python/make_wheel.py "$library" dist)
"$python" -m venv --system-site-packages "$stage/venv"
"$stage/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
"$stage/venv/bin/python" -m unittest discover --start-directory tests/python --pattern '*_test.py'
echo "wheel: $wheel ($(($(stat -c %s "$wheel") / 1024)) KiB)"
