#!/usr/bin/env bash
# Configures (when needed) and builds one preset: scripts/build.sh PRESET JOBS [TARGET...]. Says how many compilations that
# is, times the first ones, and says how long the rest takes on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
jobs=${2:-$(nproc)}
[ $# -gt 2 ] || set -- "$preset" "$jobs" all
targets=("${@:3}")

# CMake's options for the compilers of a preset, one a line; none: those that CMake finds. What reads LibTorch compiles in
# two thirds of the time with clang (cmake/UlpCompilers.cmake); older ones than 16 lack parts of C++20. CXX overrules.
compilers() {
  case $1 in release | package) ;; *) return 0 ;; esac
  local clang version
  [ -z "${CXX:-}" ] && command -v g++ >/dev/null || return 0
  for clang in clang++-16 clang++-17 clang++-18 clang++-19 clang++; do
    command -v "$clang" >/dev/null || continue
    version=$("$clang" -dumpversion)
    [ "${version%%.*}" -ge 16 ] || continue
    printf '%s\n' "-DCMAKE_CXX_COMPILER=$(command -v "$clang")" "-DCMAKE_C_COMPILER=$(command -v gcc)" "-DULP_KERNEL_CXX=$(command -v g++)"
    return 0
  done
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

build() {
  cmake --build "build/$preset" --parallel "$jobs" --target "$@"
}

# scripts/build_time.py QUESTION TARGET...; without Python, or where Ninja cannot tell, nothing is said.
ask() {
  python3 scripts/build_time.py "build/$preset" --jobs "$jobs" "$@" 2>/dev/null || true
}

build build.ninja >/dev/null || build build.ninja  # CMake runs where its files have changed
mapfile -t sample < <(ask --sample "${targets[@]}")
if [ ${#sample[@]} -gt 0 ]; then
  ask --count "${targets[@]}"
  build "${sample[@]}"
fi
ask --estimate "${targets[@]}"
build "${targets[@]}"
