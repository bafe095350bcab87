#!/usr/bin/env bash
# Tests and benchmarks on a machine with a GPU that can be had for a short time only.
#   scripts/gpu.sh [RESULTS]      builds the library, test_cuda and two benchmarks with all cores into build/gpu, then runs them in
#                                 parts of 60 s at most, the most telling first. Each part's result lies at once in RESULTS
#                                 (default gpu-results): PART.json and PART.txt. A second run skips what passed with the same
#                                 sources; summary.md lists all.
#     --dry-run                   prints the parts and what would be installed, and does nothing
#     --deps FILE                 takes what it builds with from FILE, which --pack wrote, for machines without a network
#     --jobs N, --minutes M       compilations at once (the cores; fewer where memory is short); no part begins after M (13)
#   scripts/gpu.sh --pack FILE    on any machine that builds ulp: packs the headers and libraries that a GPU's may lack (.tar.gz)
# LibTorch is that of CMAKE_PREFIX_PATH or Torch_DIR, else that of python3's torch, else .deps/libtorch. Exit status: 0 all
# passed, 1 something failed, 2 LibTorch can use no GPU here, 3 something to build with is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

PART_SECONDS=60
started=$SECONDS
# What is compiled with: a header or a program, and the Debian package that has it.
NEEDED=(nlohmann/json.hpp=nlohmann-json3-dev gtest/gtest.h=libgtest-dev zip.h=libzip-dev unicode/uchar.h=libicu-dev
  zlib.h=zlib1g-dev flatbuffers/flatbuffers.h=libflatbuffers-dev flatc=flatbuffers-compiler chart.js=libjs-chart.js)
# Tests that run first: what failed before, then what trains.
FIRST=(Cuda.CheckpointsGiveTheBits Cuda.AutocastAndLossScalingTrain Cuda.KernelsCompiledAtRunTimeGiveTheHostsBits
  Cuda.AGraphOfAWholeStepTrainsAsItsSteps Cuda.Fp8LayersGiveWhatTheProcessorEmulates
  Cuda.Fp8ModelsTrainAndSayWhichProductsTheyTook Cuda.QuantizationAwareTrainingConvertsAsOnTheProcessor)

say() { printf 'gpu: %s\n' "$*"; }
die() { say "error: $2" >&2; exit "$1"; }

dry_run=no pack='' deps='' jobs='' minutes=13 results=''
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry_run=yes ;;
    --pack) pack=${2:?gpu: --pack needs a file}; shift ;;
    --deps) deps=${2:?gpu: --deps needs a file}; shift ;;
    --jobs) jobs=${2:?gpu: --jobs needs a number}; shift ;;
    --minutes) minutes=${2:?gpu: --minutes needs a number}; shift ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die 3 "unknown option '$1', see --help" ;;
    *) results=$1 ;;
  esac
  shift
done
results=${results:-gpu-results}
root=$PWD build=$PWD/build/gpu

# ---- what it builds with ---------------------------------------------------------------------------------------------------

chart_js() {
  # One of the folders is seldom there, and head ends find.
  { find -L "$@" /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist \( -iname chart.min.js -o -name chart.umd.js \) 2>/dev/null || true; } |
    head -n 1
}

# The headers, libraries and programs of the packages as this machine has them, with the libraries that those load.
pack_dependencies() {
  local staging need file files=()
  staging=$(mktemp -d)
  for need in "${NEEDED[@]}"; do
    mapfile -t -O ${#files[@]} files < <(dpkg -L "${need#*=}" |
      grep -E '^/usr/(include/|lib/|share/(cmake|javascript|nodejs)/|bin/flatc)' | grep -vE '/lib(icu|flat|z).*\.a$|/python3/')
  done
  # What is loaded by the name that the library has in itself, and what those load.
  local libraries=() library
  for library in zip icuuc z; do
    file=$("${CXX:-c++}" -print-file-name="lib$library.so")
    libraries+=("$(dirname "$(realpath -s "$file")")/$(readelf -d "$file" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')")
  done
  mapfile -t -O ${#files[@]} files < <(printf '%s\n' "${libraries[@]}"
    ldd "$(command -v flatc)" "${libraries[@]}" | sed -n 's/.*=> \(\/.*\) (.*/\1/p' |
      grep -vE '/(libc|libm|libpthread|libdl|librt|libgcc_s|libstdc\+\+|ld-linux.*)\.so' | sort -u)
  for file in "${files[@]}"; do
    [ -e "$file" ] && [ ! -d "$file" ] || continue
    mkdir -p "$staging$(dirname "$file")"
    cp -a "$file" "$staging$file"
    while [ -L "$file" ]; do  # what a link names comes along
      file=$(cd "$(dirname "$file")" && realpath -s "$(readlink "$file")")
      mkdir -p "$staging$(dirname "$file")"
      cp -a "$file" "$staging$file"
    done
  done
  # Libraries of /lib are looked for where those of /usr/lib are.
  [ ! -d "$staging/lib" ] || { mkdir -p "$staging/usr/lib"; cp -an "$staging/lib/." "$staging/usr/lib/"; rm -r "${staging:?}/lib"; }
  tar -C "$staging" -czf "$1" .
  rm -rf "$staging"
  say "$1 holds what to build with, $(du -h "$1" | cut -f1); on the other machine: scripts/gpu.sh --deps $1"
}

has() {
  case $1 in
    flatc) command -v flatc >/dev/null ;;
    chart.js) [ -n "$(chart_js ${prefix:+"$prefix"})" ] ;;
    *) echo "#include <$1>" | "${CXX:-c++}" -std=c++20 -E -x c++ - >/dev/null 2>&1 ;;
  esac
}

missing_packages() {
  local need
  command -v "${CXX:-c++}" >/dev/null || echo g++
  for need in "${NEEDED[@]}"; do has "${need%%=*}" || echo "${need#*=}"; done
}

cmake_is_new() { command -v cmake >/dev/null && [ "$(printf '%s\n3.25\n' "$(cmake --version | sed -n '1s/.* //p')" | sort -V | head -n 1)" = 3.25 ]; }

# What is missing: by apt-get as root, CMake and Ninja also by pip.
get_dependencies() {
  local missing=() tools=()
  mapfile -t missing < <(missing_packages)
  if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing ${missing[*]}"
    local apt=(timeout 120 env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10)
    "${apt[@]}" update >"$results/apt.txt" 2>&1 || true
    "${apt[@]}" install --no-install-recommends "${missing[@]}" >>"$results/apt.txt" 2>&1 || true
    mapfile -t missing < <(missing_packages)
  fi
  cmake_is_new || tools+=(cmake)
  command -v ninja >/dev/null || tools+=(ninja)
  if [ ${#tools[@]} -gt 0 ]; then
    say "installing ${tools[*]} by pip into build/gpu-tools"
    timeout 120 python3 -m pip install --disable-pip-version-check --no-input -q --target build/gpu-tools "${tools[@]}" >"$results/pip.txt" 2>&1 || true
    export PATH=$root/build/gpu-tools/bin:$PATH PYTHONPATH=$root/build/gpu-tools${PYTHONPATH:+:$PYTHONPATH}
    cmake_is_new || missing+=("cmake (3.25 or later)")
    command -v ninja >/dev/null || missing+=(ninja-build)
  fi
  [ ${#missing[@]} -eq 0 ] || die 3 "missing: ${missing[*]}. Install them, or carry them: scripts/gpu.sh --pack FILE on a machine that
  builds ulp, here --deps FILE"
}

# The folder that CMake finds LibTorch by.
find_torch() {
  if [ -n "${Torch_DIR:-}" ]; then
    echo "$Torch_DIR"
  elif [ -n "${CMAKE_PREFIX_PATH:-}" ]; then
    echo "$CMAKE_PREFIX_PATH"
  else
    local found
    found=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null || true)
    [ -n "$found" ] && [ -e "$found/share/cmake/Torch/TorchConfig.cmake" ] || found=$root/.deps/libtorch/torch
    [ -e "$found/share/cmake/Torch/TorchConfig.cmake" ] && echo "$found"
  fi
}

# ---- parts -------------------------------------------------------------------------------------------------------------------

# NAME<tab>COMMAND of each part, the most telling first. Commands may write the file $json.
parts() {
  printf 'machine\t%s\n' "$build/bin/gpu_bench --machine --json \$json"
  local tests test name
  tests=$({ grep -hoE '^TEST_F\(Cuda, \w+' tests/cuda/*.cpp; grep -hoE '^TEST\(Offload, \w*Cuda\w*' tests/amp/offload_test.cpp; } |
    sed -E 's/^TEST(_F)?\((\w+), /\2./')
  for test in "${FIRST[@]}" $tests; do
    grep -qx "$test" <<<"$tests" && echo "$test"
  done | awk '!seen[$0]++' | while read -r test; do
    printf 'test-%s\t%s\n' "${test#*.}" "$build/bin/test_cuda --gtest_filter=$test --gtest_output=json:\$json"
  done
  local bench=$build/bin/gpu_bench
  for name in "bert-base 32" "bert-large 16"; do
    printf 'bench-%s\t%s\n' "${name% *}-precisions" "$bench $name 128 5 --seconds 35 --json \$json --ways 'fp32,tf32,bf16,fp16 and loss scaling'"
    printf 'bench-%s\t%s\n' "${name% *}-fp8" "$bench $name 128 5 --seconds 35 --json \$json --ways 'bf16,fp8:current,fp8:delayed'"
    printf 'bench-%s\t%s\n' "${name% *}-updates" "$bench $name 128 5 --seconds 35 --json \$json --ways 'bf16,bf16 and fused step,bf16 as a CUDA graph'"
    printf 'bench-%s\t%s\n' "${name% *}-checkpoints" "$bench $name 128 5 --seconds 35 --json \$json --ways 'bf16,bf16 and sqrt checkpoints'"
  done
  printf 'bench-bert-large-optimizer\t%s\n' "$build/bin/gpu_optimizer_bench bert-large 5 --json \$json"
  printf 'peer-bert-base-eager\tpython3 bench/peers/gpu_step.py bert-base 32 128 5 eager\n'
  printf 'peer-bert-base-compiled\tpython3 bench/peers/gpu_step.py bert-base 32 128 3 "eager bf16,compiled bf16"\n'
}

json_string() { # TEXT: between quotes
  local text=$1
  text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\t'/ } text=${text//$'\n'/ }
  printf '"%s"' "$text"
}

# A word for the sources: results of others do not count.
fingerprint() {
  find ulp cmake CMakeLists.txt tests/cuda tests/amp tests/memory bench/gpu_bench.cpp bench/gpu_optimizer_bench.cpp bench/peers/gpu_step.py -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-16
}

field() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" | head -n 1; }

# write_result PART STATUS SECONDS EXIT COMMAND [RESULT-FILE]
write_result() {
  {
    echo "{"
    echo "  \"part\": \"$1\","
    echo "  \"status\": \"$2\","
    echo "  \"seconds\": $3,"
    echo "  \"exit\": $4,"
    echo "  \"sources\": \"$sources\","
    echo "  \"time\": \"$(date -u +%Y-%m-%dT%H:%M:%SZ)\","
    echo "  \"command\": $(json_string "$5"),"
    if [ -n "${6:-}" ] && [ -s "$6" ]; then printf '  "result": '; cat "$6"; else echo '  "result": null'; fi
    echo "}"
  } >"$results/$1.json.new"
  mv "$results/$1.json.new" "$results/$1.json"
}

run_part() {
  local name=$1 command=$2 status=passed code=0 begin json=$results/$1.own.json text=$results/$1.txt
  begin=$(date +%s.%N)
  rm -f "$json"
  json=$json timeout -k 5 "$PART_SECONDS" bash -c "${command//\$json/\"\$json\"}" >"$text" 2>&1 || code=$?
  local seconds
  seconds=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
  case $code in
    0) if grep -q '^\[  SKIPPED \]' "$text" || { [[ $command == *--gtest_filter* ]] && ! grep -q '^\[  PASSED  \] 1 test' "$text"; }; then status=skipped; fi ;;
    124 | 137) status=timeout ;;
    *) status=failed ;;
  esac
  write_result "$name" "$status" "$seconds" "$code" "$command" "$json"
  rm -f "$json"
  say "$status $name, $seconds s"
  [ "$status" != failed ] || { grep -m 4 -E 'Failure|error|Error|expected|what\(\)' "$text" || tail -n 4 "$text"; } | sed 's/^/    /'
}

write_summary() {
  {
    echo "| part | status | seconds |"
    echo "|---|---|---:|"
    local name command file
    for name in build $(parts | cut -f1); do
      file=$results/$name.json
      if [ ! -e "$file" ]; then
        echo "| $name | not run | |"
      elif [ "$(field "$file" sources)" != "$sources" ]; then
        echo "| $name | of other sources | |"
      else
        echo "| $name | $(field "$file" status) | $(field "$file" seconds) |"
      fi
    done
  } >"$results/summary.md"
}

# ---- the run -------------------------------------------------------------------------------------------------------------------

if [ -n "$pack" ]; then
  command -v dpkg >/dev/null || die 3 "--pack knows Debian and Ubuntu only"
  prefix=''
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] || die 3 "missing here: ${missing[*]}; run scripts/setup.sh"
  pack_dependencies "$pack"
  exit 0
fi

prefix=''
if [ -n "$deps" ]; then
  [ -e "$deps" ] || die 3 "--deps: no file '$deps'"
  prefix=$root/build/gpu-deps/usr
fi
torch=$(find_torch || true)
if [ "$dry_run" = yes ]; then
  say "LibTorch: ${torch:-none found}"
  if [ -z "$deps" ]; then say "missing packages: $(missing_packages | paste -sd ' ')"; fi
  parts
  exit 0
fi

mkdir -p "$results" "$root/build"
results=$(cd "$results" && pwd)
sources=$(fingerprint)
library_path=''
if [ -n "$deps" ]; then
  rm -rf "$root/build/gpu-deps"
  mkdir -p "$root/build/gpu-deps"
  tar -C "$root/build/gpu-deps" -xzf "$deps"
  # Only what is built here finds these libraries: other programs have their own.
  for folder in "$prefix"/lib "$prefix"/lib/*-linux-gnu; do library_path=${library_path:+$library_path:}$folder; done
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$library_path" "$prefix/bin/flatc" >"$root/build/gpu-deps/flatc"
  chmod +x "$root/build/gpu-deps/flatc"
  export PATH=$root/build/gpu-deps:$PATH
  for folder in "$prefix"/include "$prefix"/include/*-linux-gnu; do export CPLUS_INCLUDE_PATH=${CPLUS_INCLUDE_PATH:+$CPLUS_INCLUDE_PATH:}$folder; done
fi
[ -n "$torch" ] || die 3 "no LibTorch: python3 has no torch; set CMAKE_PREFIX_PATH to one (2.11 or later)"
get_dependencies
say "LibTorch: $torch"

if [ -z "$jobs" ]; then  # a compilation takes up to 1.5 GB
  jobs=$(nproc)
  memory=$(awk '/^MemAvailable/ { print int($2 / 1600000) }' /proc/meminfo)
  [ "$memory" -ge "$jobs" ] || jobs=$((memory > 0 ? memory : 1))
fi
options=(-DCMAKE_BUILD_TYPE=Release -DULP_ON_GPU=ON -DULP_BUILD_TOOL=OFF -DULP_BUILD_EXAMPLES=OFF -DULP_INSTALL=OFF -DULP_WERROR=OFF
  "-DULP_CHART_JS=$(chart_js ${prefix:+"$prefix"})")
if [ -n "${Torch_DIR:-}" ]; then options+=("-DTorch_DIR=$Torch_DIR" "-DCMAKE_PREFIX_PATH=$prefix"); else options+=("-DCMAKE_PREFIX_PATH=$torch${prefix:+;$prefix}"); fi
if [ -n "$library_path" ]; then  # RPATH also serves the libraries that libraries load
  flags="-Wl,--disable-new-dtags,-rpath,$library_path,-rpath-link,$library_path"
  options+=("-DCMAKE_SHARED_LINKER_FLAGS=$flags" "-DCMAKE_EXE_LINKER_FLAGS=$flags")
fi
# NCCL's header lies beside python3's torch.
nccl=$torch/../nvidia/nccl/include
[ ! -e "$nccl/nccl.h" ] || export CPLUS_INCLUDE_PATH=$nccl${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
begin=$SECONDS
say "building the library, test_cuda and the benchmarks with $jobs jobs into build/gpu"
if ! cmake -S . -B "$build" -G Ninja "${options[@]}" >"$results/build.txt" 2>&1; then
  write_result build failed $((SECONDS - begin)) 1 "cmake ${options[*]}"
  grep -A 8 'CMake Error' "$results/build.txt" >&2 || tail -n 20 "$results/build.txt" >&2
  die 3 "CMake could not configure, see $results/build.txt"
fi
if ! ninja -C "$build" -j "$jobs" test_cuda gpu_bench gpu_optimizer_bench >>"$results/build.txt" 2>&1; then
  write_result build failed $((SECONDS - begin)) 1 "ninja test_cuda gpu_bench gpu_optimizer_bench"
  grep -m 10 -E 'error|FAILED' "$results/build.txt" >&2 || tail -n 20 "$results/build.txt" >&2
  die 1 "the build failed, see $results/build.txt"
fi
write_result build passed $((SECONDS - begin)) 0 "ninja test_cuda gpu_bench gpu_optimizer_bench"
say "built in $((SECONDS - begin)) s"

code=0
"$build/bin/gpu_bench" --machine || code=$?
if [ $code -eq 2 ]; then
  write_summary
  die 2 "built, but there is no GPU that this LibTorch can use: nothing was run"
fi
while IFS=$'\t' read -r name command <&3; do
  file=$results/$name.json
  if [ -e "$file" ] && [ "$(field "$file" status)" = passed ] && [ "$(field "$file" sources)" = "$sources" ]; then
    say "passed before: $name"
    continue
  fi
  if [ $((SECONDS - started)) -ge $((minutes * 60)) ]; then
    say "$minutes minutes are over; the rest runs another time"
    break
  fi
  run_part "$name" "$command"
  write_summary
done 3< <(parts)
write_summary
cat "$results/summary.md"
if grep -qE '\| (failed|timeout|skipped|not run|of other sources) \|' "$results/summary.md"; then exit 1; fi
