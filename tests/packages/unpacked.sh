#!/usr/bin/env bash
# Unpacks Debian packages of ulp into a folder and looks at them, and uses them, there: unpacked.sh PACKAGE.deb...
# Nothing is installed.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "packages: error: $*" >&2; exit 1; }

for package in "$@"; do
  dpkg -x "$package" "$root"
  name=$(dpkg-deb -f "$package" Package)
  depends=$(dpkg-deb -f "$package" Depends)
  case $name in
    libulp-runtime*-dev | libulp-dev) ;;
    ulp | libulp*) grep -q 'libc6' <<<"$depends" || fail "$name depends on no C library: $depends" ;;
  esac
  [ -e "$root/usr/share/doc/$name/copyright" ] || fail "$name has no copyright"
  ! dpkg-deb -c "$package" | awk '{print $6}' | grep -qv '^\./\(usr/.*\)\?$' || fail "$name has files outside /usr"
done

# Nothing of the machine that built them is in them.
for file in $(find "$root" -name '*.so.*.*' -type f) $(find "$root/usr/libexec" -type f 2>/dev/null); do
  paths=$(readelf -d "$file" | sed -n 's/.*R\(UN\)\?PATH.*\[\(.*\)\].*/\2/p')
  case $paths in *"$source_dir"* | *.deps*) fail "$file looks for libraries in $paths" ;; esac
done
! grep -rlF "$source_dir" "$root" --include='*.cmake' --include='*.so.*' --include=ulp || fail "files above name the folder of the sources"

# Programs in C and C++ compile against them.
engine=$root/small.ulp
options=(-G Ninja -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON)
for example in c_engine run_engine; do
  cmake -S "$source_dir/examples/$example" -B "$root/$example" "${options[@]}" >"$root/log" 2>&1 || { cat "$root/log" >&2; exit 1; }
  cmake --build "$root/$example" >"$root/log" 2>&1 || { cat "$root/log" >&2; exit 1; }
done
"${CXX:-g++}" -std=c++20 -I"$root/usr/include" "$source_dir/tests/consumer/make_engine.cpp" -o "$root/make_engine" \
  "$(find "$root" -name libulp_runtime.so)"
export LD_LIBRARY_PATH=
LD_LIBRARY_PATH=$(dirname "$(find "$root" -name libulp_runtime.so)")
"$root/make_engine" "$engine"
for example in c_engine run_engine; do
  "$root/$example/$example" "$engine" 2 | grep -q 'item 1: class 2' || fail "$example gave another class"
done

# The tool says what it lacks, and starts where that is.
tool=$root/usr/bin/ulp
if [ -e "$tool" ]; then
  if [ ! -e /opt/libtorch ]; then
    ! said=$(env -u LD_LIBRARY_PATH "$tool" --version 2>&1) || fail "the tool started without LibTorch"
    grep -q 'expected LibTorch .* in /opt/libtorch, found none' <<<"$said" || fail "the tool said: $said"
  fi
  # Another LibTorch beside it is no help.
  mkdir -p "$root/torch/lib" "$root/torch/include/torch/headeronly"
  touch "$root/torch/lib/libtorch.so"
  printf '#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 13\n' >"$root/torch/include/torch/headeronly/version.h"
  sed "s|^home=.*|home=$root/torch|" "$tool" >"$root/other_torch"
  ! said=$(env -u LD_LIBRARY_PATH sh "$root/other_torch" --version 2>&1) || fail "the tool started with LibTorch 1.13"
  grep -q 'found another version' <<<"$said" || fail "the tool said: $said"
  torch=${Torch_DIR:+${Torch_DIR%/share/cmake/Torch}}
  LD_LIBRARY_PATH+=:${torch:-$source_dir/.deps/libtorch/torch}/lib
  "$root/usr/libexec/ulp/ulp" --version | grep -q '^ulp [0-9]' || fail "the tool did not start"
fi
echo "packages: $# packages are as they should be"
