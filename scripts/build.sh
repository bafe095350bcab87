#!/usr/bin/env bash
# Configures (when needed) and builds one preset: scripts/build.sh PRESET JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
jobs=${2:-$(nproc)}
options=()
[ -z "${Torch_DIR:-}" ] || options+=("-DTorch_DIR=$Torch_DIR")
[ -z "${CMAKE_PREFIX_PATH:-}" ] || options+=("-DCMAKE_PREFIX_PATH=$CMAKE_PREFIX_PATH")
if [ ! -e "build/$preset/build.ninja" ] || [ ${#options[@]} -gt 0 ]; then
  echo "build: configuring preset $preset"
  mkdir -p build
  if ! cmake --preset "$preset" "${options[@]}" >"build/configure-$preset.log" 2>&1; then
    grep -A 6 'CMake Error' "build/configure-$preset.log" >&2 || tail -n 20 "build/configure-$preset.log" >&2
    exit 1
  fi
fi
echo "build: compiling preset $preset with $jobs jobs"
cmake --build "build/$preset" --parallel "$jobs"
