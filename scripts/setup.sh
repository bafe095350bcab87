#!/usr/bin/env bash
# Prepares a Debian 12 (or newer, or Ubuntu) machine for building ulp: Debian packages, LibTorch, the data set of the
# demo; `setup.sh docs` also what writes the documentation, `setup.sh fuzz` the compiler of the fuzzers, `setup.sh wheel`
# what tries the Python package, `setup.sh packages` what finds the dependencies of Debian packages. `setup.sh arm64`
# prepares for the runtime on 64-bit Arm instead: a cross compiler, and qemu-user to run its tests. Does only what is
# missing; says what it does, and what to do when it cannot.
set -euo pipefail
cd "$(dirname "$0")/.."

TORCH_VERSION=2.13.0
BUILD_PACKAGES=(g++ cmake ninja-build ccache make nlohmann-json3-dev libcli11-dev libgtest-dev
  libbenchmark-dev zlib1g-dev libzip-dev libicu-dev libflatbuffers-dev flatbuffers-compiler libjs-chart.js clang-format)
[ "${1:-}" != docs ] || BUILD_PACKAGES+=(doxygen)
[ "${1:-}" != arm64 ] || BUILD_PACKAGES+=(g++-aarch64-linux-gnu qemu-user googletest)
[ "${1:-}" != fuzz ] || BUILD_PACKAGES+=(clang-14 libclang-rt-14-dev libomp-14-dev)
[ "${1:-}" != wheel ] || BUILD_PACKAGES+=(python3-numpy python3-venv)
[ "${1:-}" != packages ] || BUILD_PACKAGES+=(dpkg-dev)
DATA_PACKAGE=dataset-fashion-mnist
DATA_FOLDER=usr/share/datasets/fashion-mnist

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

installed() { dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"
  else return 77
  fi
}

install_packages() {
  say "installing Debian packages: $*"
  local log status=0
  log=$(mktemp)
  { as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"; } \
    >"$log" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    tail -n 5 "$log" >&2
    rm -f "$log"
    if [ $status -eq 77 ]; then
      say "these packages need root. Ask an administrator to run:  apt-get install $*" >&2
    else
      say "apt-get failed. Is the network up? Try:  apt-get update && apt-get install $*" >&2
    fi
    return 1
  fi
  rm -f "$log"
}

# The compiler of what reads LibTorch (scripts/build.sh): clang 16 or later, where there is one; GCC does it, too, slower.
add_clang() {
  local version
  [ -z "${CXX:-}" ] || return 0
  for version in 16 17 18 19; do
    ! command -v "clang++-$version" >/dev/null || return 0
  done
  apt-cache show g++ >/dev/null 2>&1 || as_root apt-get update -q >/dev/null 2>&1 || true  # a new machine has no lists
  for version in 16 17 18 19; do
    if apt-cache show "clang-$version" >/dev/null 2>&1; then
      missing+=("clang-$version")
      return 0
    fi
  done
  say "no clang 16 or later in the package lists: GCC compiles all, which takes half as long again"
}

setup_packages() {
  command -v dpkg-query >/dev/null || die "this script knows Debian and Ubuntu only. Elsewhere install the like of: ${BUILD_PACKAGES[*]}"
  local missing=() package
  for package in "${BUILD_PACKAGES[@]}"; do
    case $package in  # a newer tool on PATH serves as well as Debian's
      cmake | make | ccache | clang-format | doxygen | g++) command -v "$package" >/dev/null && continue ;;
      ninja-build) command -v ninja >/dev/null && continue ;;
    esac
    installed "$package" || missing+=("$package")
  done
  case ${1:-} in arm64 | fuzz) ;; *) add_clang ;; esac
  if ! python3 -m pip --version >/dev/null 2>&1 && [ ! -e "$TORCH_STAMP" ] && [ "$OWN_TORCH" = no ]; then
    missing+=(python3 python3-pip)
  fi
  [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}" || exit 1
}

check_tools() {
  local version
  version=$("${CXX:-g++}" -dumpfullversion 2>/dev/null || true)
  case "$version" in
    "") ;;  # not GCC: CMake will judge
    [0-9].* | 10.*) die "GCC $version is too old: ulp needs GCC 11 or later. Install g++-12 and set CXX=g++-12" ;;
  esac
  version=$(cmake --version | sed -n '1s/.* //p')
  if [ "$(printf '%s\n3.25\n' "$version" | sort -V | head -n 1)" != 3.25 ]; then
    die "CMake $version is too old: ulp needs 3.25 or later (pip install cmake)"
  fi
}

setup_torch() {
  if [ "$OWN_TORCH" = yes ]; then
    say "using the LibTorch given by Torch_DIR or CMAKE_PREFIX_PATH"
    return
  fi
  [ ! -e "$TORCH_STAMP" ] || return 0
  say "installing LibTorch from the pip wheel torch==$TORCH_VERSION into .deps/libtorch (about 200 MB to download)"
  local staging=.deps/libtorch.new log index=()
  # PyTorch's own index has the CPU build; where it cannot be reached the default index serves.
  if python3 - <<'PY' 2>/dev/null
import urllib.request
urllib.request.urlopen("https://download.pytorch.org/whl/cpu/torch/", timeout=5)
PY
  then index=(--extra-index-url https://download.pytorch.org/whl/cpu)
  fi
  rm -rf "$staging"
  mkdir -p .deps
  log=$(mktemp)
  if ! python3 -m pip install --disable-pip-version-check --no-input --no-deps --no-compile \
    "${index[@]}" --target "$staging" "torch==$TORCH_VERSION" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -rf "$log" "$staging"
    die "pip could not install torch==$TORCH_VERSION. Check the network, or point CMAKE_PREFIX_PATH at a LibTorch (2.11 or later)"
  fi
  rm -f "$log"
  [ -e "$staging/torch/share/cmake/Torch/TorchConfig.cmake" ] || die "the wheel holds no LibTorch for C++ (no TorchConfig.cmake)"
  if [ -e "$staging/torch/lib/libtorch_cuda.so" ] && ! command -v nvcc >/dev/null; then
    rm -rf "$staging"
    die "pip chose the CUDA build of torch, which needs the CUDA toolkit to compile against, and there is none here. Either
  make https://download.pytorch.org/whl/cpu reachable (it has the CPU build), or install the CUDA toolkit, or point
  CMAKE_PREFIX_PATH at a CPU LibTorch (https://pytorch.org/get-started/locally, package LibTorch)"
  fi
  rm -rf .deps/libtorch
  mv "$staging" .deps/libtorch
  touch "$TORCH_STAMP"
}

setup_data() {
  [ ! -e "/$DATA_FOLDER/train-images-idx3-ubyte.gz" ] || return 0
  [ ! -e ".cache/$DATA_FOLDER/train-images-idx3-ubyte.gz" ] || return 0
  if [ "$(id -u)" = 0 ]; then
    install_packages "$DATA_PACKAGE" && return 0
  fi
  say "downloading the data set package $DATA_PACKAGE and unpacking it into .cache (no root needed)"
  local folder
  folder=$(mktemp -d)
  if (cd "$folder" && apt-get download -q "$DATA_PACKAGE" >/dev/null 2>&1) && mkdir -p .cache && dpkg -x "$folder"/*.deb .cache; then
    rm -rf "$folder"
  else
    rm -rf "$folder"
    say "warning: the data set could not be fetched; build and tests work, the demo will not. Later:  apt-get install $DATA_PACKAGE" >&2
  fi
}

TORCH_STAMP=.deps/libtorch/.torch-$TORCH_VERSION
OWN_TORCH=no
if [ -n "${Torch_DIR:-}" ] || [ -n "${CMAKE_PREFIX_PATH:-}" ]; then OWN_TORCH=yes; fi

setup_packages "$@"
check_tools
if [ "${1:-}" != arm64 ]; then  # the runtime needs neither
  setup_torch
  setup_data
fi
say "ready"
