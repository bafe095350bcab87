#!/usr/bin/env bash
# Makes the Python environment of the comparison, .deps/peers-venv (about 1.5 GB); a second run changes nothing.
set -euo pipefail
cd "$(dirname "$0")"
venv=../../.deps/peers-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
# PyTorch's own index has the build without CUDA; where it cannot be reached, the default index serves too.
"$venv/bin/pip" install --disable-pip-version-check --requirement requirements.txt \
  --extra-index-url "${PEERS_TORCH_INDEX:-https://download.pytorch.org/whl/cpu}"
echo "ready: .deps/peers-venv/bin/python bench/peers/compare.py --help"
