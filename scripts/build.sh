#!/usr/bin/env bash
# Configures (when needed) and builds one preset: scripts/build.sh PRESET JOBS [TARGET]. Says first how much it will be.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
jobs=${2:-$(nproc)}
target=${3:-all}

# CMake's options for the compilers of a preset, one a line; none: those that CMake finds.
compilers() {
  :
}

options=()
[ -z "${Torch_DIR:-}" ] || options+=("-DTorch_DIR=$Torch_DIR")
[ -z "${CMAKE_PREFIX_PATH:-}" ] || options+=("-DCMAKE_PREFIX_PATH=$CMAKE_PREFIX_PATH")
if [ ! -e "build/$preset/build.ninja" ] || [ ${#options[@]} -gt 0 ]; then
  echo "build: configuring preset $preset (some 10 seconds)"
  mkdir -p build
  mapfile -t chosen < <(compilers "$preset")
  if ! cmake --preset "$preset" "${chosen[@]}" "${options[@]}" >"build/configure-$preset.log" 2>&1; then
    grep -A 6 'CMake Error' "build/configure-$preset.log" >&2 || tail -n 20 "build/configure-$preset.log" >&2
    exit 1
  fi
fi

# Object files of the target that are not there yet; what has changed since the last build comes on top.
missing=$(cd "build/$preset" && ninja -t inputs "$target" 2>/dev/null | { grep '\.o$' || true; } |
  while IFS= read -r object; do [ -e "$object" ] || echo "$object"; done | wc -l)
if [ "$missing" -gt 0 ]; then
  # A compilation, which is of several files, takes 6 to 12 seconds of one core (bench/notes/build-time.md).
  echo "build: $target of preset $preset: $missing compilations, $((missing * 6 / jobs / 60)) to $(((missing * 12 / jobs + 59) / 60)) minutes with $jobs jobs"
fi
cmake --build "build/$preset" --parallel "$jobs" --target "$target"
