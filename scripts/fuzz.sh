#!/usr/bin/env bash
# Builds the fuzzers and runs each for some time: scripts/fuzz.sh PRESET JOBS SECONDS [HARNESS...]. What they find lies in
# build/PRESET/findings; what covers new code is kept in build/PRESET/corpus for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 jobs=$2 seconds=$3
shift 3
CXX=${CXX:-$(command -v clang++-14 || command -v clang++ || true)}
[ -n "$CXX" ] || { echo "fuzz: error: needs clang. Install it with: apt-get install clang-14 libomp-14-dev" >&2; exit 1; }
export CXX
targets=$(cd fuzz/harness && ls ./*.cpp | sed 's|./\(.*\).cpp|\1|')
scripts/build.sh "$preset" "$jobs"
build=build/$preset
# A finding: memory beyond 256 MB (and four times the file, which has 1 MB at most), 10 seconds, a crash, an exception.
limits=(-max_len=1048576 -rss_limit_mb=600 -malloc_limit_mb=260 -timeout=10 -detect_leaks=1)
export ASAN_OPTIONS="quarantine_size_mb=16:allocator_may_return_null=0:${ASAN_OPTIONS:-}"
status=0
for name in ${*:-$targets}; do
  program=$build/bin/fuzz_$name
  [ -x "$program" ] || { echo "fuzz: $name needs PRESET=fuzz-torch, left out"; continue; }
  mkdir -p "$build/corpus/$name" "$build/findings"
  folders=("$build/corpus/$name" "$build/fuzz/corpus/$name")
  [ ! -d "fuzz/findings/$name" ] || folders+=("fuzz/findings/$name")
  echo "fuzz: $name for $seconds seconds"
  if ! "$program" "${limits[@]}" -max_total_time="$seconds" -artifact_prefix="$build/findings/$name-" -print_final_stats=1 \
    "${folders[@]}" >"$build/fuzz-$name.log" 2>&1; then
    status=1
    echo "fuzz: $name FOUND something, see $build/fuzz-$name.log:"
    grep -m 3 -E 'ERROR|runtime error|expected|Test unit written' "$build/fuzz-$name.log" || tail -n 5 "$build/fuzz-$name.log"
  fi
  grep -E 'stat::number_of_executed_units|stat::new_units_added' "$build/fuzz-$name.log" || true
done
exit $status
