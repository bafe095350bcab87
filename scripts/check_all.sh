#!/usr/bin/env bash
# What `make test` leaves out for its length: the whole suite under other processors' limits, on odd numbers of threads and
# on a busy machine, the long tests, and the sources with the headers of the oldest LibTorch.
#   scripts/check_all.sh [PRESET [JOBS]] [--only NAME]... [--list]
# It goes on after failures, writes build/check-all.md after each setting, and ends with status 1 where something failed.
# All settings take one to three hours on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."

OLD_TORCH=2.11.0
# Name, what it is, and the environment of the tests.
SETTINGS=(
  "as-it-is|the machine as it is, each call of the tool a start of the program|ULP_TEST_SERVER=off"
  "default|LibTorch without vector instructions|ATEN_CPU_CAPABILITY=default"
  "avx2|AVX2 in LibTorch, oneDNN and ulp|ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 ULP_ISA=avx2"
  "portable|SSE4.1 in oneDNN, plain C++ elsewhere|ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 ULP_ISA=portable"
  "threads-1|one thread|OMP_NUM_THREADS=1"
  "threads-3|three threads|OMP_NUM_THREADS=3"
  "threads-many|more threads than cores|OMP_NUM_THREADS=$((2 * $(nproc) + 1))"
  "busy|beside processes that keep half of the cores busy|"
  "long|ULP_LONG_TESTS: files of fuzzing once more, each installed header alone, fetched sources|"
  "parts|libulp linked without each of the parts that a build may leave out, and without all|"
  "torch-$OLD_TORCH|the sources compiled with the headers of LibTorch $OLD_TORCH|"
)

say() { printf 'check-all: %s\n' "$*"; }
usage() { sed -n '2,6s/^# \{0,1\}//p' "$0"; }

preset=release jobs=$(nproc) only=() positional=()
while [ $# -gt 0 ]; do
  case $1 in
    --only) only+=("${2:?check-all: --only needs a name}"); shift ;;
    --list)
      for setting in "${SETTINGS[@]}"; do IFS='|' read -r name what environment <<<"$setting"; printf '%-14s %s  %s\n' "$name" "$what" "$environment"; done
      exit 0 ;;
    -h | --help) usage; exit 0 ;;
    *) positional+=("$1") ;;
  esac
  shift
done
preset=${positional[0]:-$preset} jobs=${positional[1]:-$jobs}
build=build/$preset results=build/check-all table=build/check-all.md

wanted() {
  [ ${#only[@]} -eq 0 ] && return 0
  local name
  for name in "${only[@]}"; do [ "$name" != "$1" ] || return 0; done
  return 1
}

known=" $(for setting in "${SETTINGS[@]}"; do printf '%s ' "${setting%%|*}"; done)"
for name in ${only[@]+"${only[@]}"}; do
  [[ $known == *" $name "* ]] || { say "error: expected one of$known, got '$name'" >&2; exit 2; }
done

busy=()
restore_options=no
clean_up() {
  local pid
  for pid in ${busy[@]+"${busy[@]}"}; do kill "$pid" 2>/dev/null || true; done
  busy=()
  if [ "$restore_options" = yes ]; then
    restore_options=no
    cmake -DULP_LONG_TESTS=OFF "$build" >/dev/null
  fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# CTest's lines of results as NAME<tab>passed|failed|skipped<tab>SECONDS. One that says nothing has failed.
results_of() {
  awk '/^ *[0-9]+\/[0-9]+ Test +#/ {
    line = $0
    split($1, part, "/")
    all = part[2]
    ++lines
    sub(/^.*#[0-9]+: +/, "", line)
    name = line
    sub(/ .*/, "", name)
    status = line ~ / Passed / ? "passed" : (line ~ /Skipped|Not Run \(Disabled\)/ ? "skipped" : "failed")
    seconds = match(line, /[0-9.]+ sec/) ? substr(line, RSTART, RLENGTH - 4) : 0
    printf "%s\t%s\t%s\n", name, status, seconds
  }
  END { if (lines < all) printf "%d tests without a result\tfailed\t0\n", all - lines }' "$1"
}

# run_tests NAME ENVIRONMENT [CTEST-OPTION...]
run_tests() {
  local name=$1 environment=() log=$results/$1.log
  read -r -a environment <<<"$2"
  shift 2
  env ${environment[@]+"${environment[@]}"} ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$jobs" "$@" >"$log" 2>&1 || true
  results_of "$log" >"$results/$name.tsv"
  if ! [ -s "$results/$name.tsv" ]; then
    tail -n 5 "$log"
    printf 'ctest\tfailed\t0\n' >"$results/$name.tsv"
  fi
}

test_names() { ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p' | sort; }

run_long() {
  local before after
  before=$(test_names)
  if ! grep -q '^ULP_LONG_TESTS:BOOL=ON' "$build/CMakeCache.txt"; then
    restore_options=yes
    cmake -DULP_LONG_TESTS=ON "$build" >"$results/long-configure.log"
  else
    before=
  fi
  after=$(test_names)
  if scripts/build.sh "$preset" "$jobs" >"$results/long-build.log" 2>&1; then
    run_tests long "" -R "^($( { comm -13 <(echo "$before") <(echo "$after"); echo consumer_programs; } | paste -sd '|'))\$"
  else
    tail -n 20 "$results/long-build.log"
    printf 'build\tfailed\t0\n' >"$results/long.tsv"
  fi
  clean_up
}

# Each part off by itself, then all: everything that is left has to be there at the link. The compiler is the system's.
run_parts() {
  local name=$1 log=$results/$1.log start off part status option options parts
  mapfile -t parts < <(sed -n 's/^option(\(ULP_WITH_[A-Z0-9]*\) .*/\1/p' cmake/UlpComponents.cmake)
  : >"$log"
  for off in "${parts[@]}" all; do
    options=() start=$SECONDS status=failed
    for part in "${parts[@]}"; do
      option=ON
      [ "$off" != "$part" ] && [ "$off" != all ] || option=OFF
      [ "$off$part" != ULP_WITH_MEMORYULP_WITH_DISTRIBUTED ] || option=OFF  # which needs it
      options+=("-D$part=$option")
    done
    if cmake --preset release -B build/parts "${options[@]}" -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--no-undefined >>"$log" 2>&1 &&
      cmake --build build/parts --parallel "$jobs" --target ulp ulp_demo >>"$log" 2>&1 && build/parts/bin/ulp-demo formats 0.1 >>"$log"; then
      status=passed
    fi
    printf 'without_%s\t%s\t%s\n' "$off" "$status" "$((SECONDS - start))" >>"$results/$name.tsv"
  done
}

# The headers of a wheel, of whatever kind pip gets: those for GPUs are the same.
old_torch_headers() {
  local folder=.deps/libtorch-$OLD_TORCH staging=.deps/libtorch-$OLD_TORCH.new
  [ ! -e "$folder/.complete" ] || return 0
  say "getting the headers of torch==$OLD_TORCH into $folder (a wheel of up to 600 MB)"
  rm -rf "$staging" "$folder"
  mkdir -p "$staging"
  python3 -m pip download --disable-pip-version-check --no-input -q --no-deps -d "$staging" "torch==$OLD_TORCH" &&
    python3 - "$staging" <<'PY' && rm -f "$staging"/*.whl && touch "$staging/.complete" && mv "$staging" "$folder"
import glob, sys, zipfile
for wheel in glob.glob(sys.argv[1] + "/*.whl"):
    archive = zipfile.ZipFile(wheel)
    archive.extractall(sys.argv[1], [name for name in archive.namelist() if name.startswith("torch/include/")])
PY
}

run_old_torch() {
  local name=$1 start=$SECONDS status=failed
  if old_torch_headers >"$results/$name.log" 2>&1 &&
    python3 scripts/check_torch_headers.py "$build" ".deps/libtorch-$OLD_TORCH/torch" --jobs "$jobs" >>"$results/$name.log" 2>&1; then
    status=passed
  fi
  tail -n 20 "$results/$name.log"
  printf 'compiles_with_torch_%s\t%s\t%s\n' "$OLD_TORCH" "$status" "$((SECONDS - start))" >"$results/$name.tsv"
}

# The table: what was run, and each test under each setting.
write_table() {
  {
    echo "# check-all"
    echo
    echo "$(git log -1 --format='%h %s' 2>/dev/null || echo 'no git'), $(date -u '+%Y-%m-%d %H:%M') UTC, $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), preset $preset"
    echo
    echo "| setting | what | environment | passed | failed | skipped | seconds |"
    echo "|---|---|---|---:|---:|---:|---:|"
    local setting name what environment columns=()
    for setting in "${SETTINGS[@]}"; do
      IFS='|' read -r name what environment <<<"$setting"
      if [ -e "$results/$name.tsv" ]; then
        columns+=("$name")
        awk -F '\t' -v name="$name" -v what="$what" -v environment="${environment:--}" -v seconds="$(cat "$results/$name.seconds")" '
          { count[$2]++ }
          END { printf "| %s | %s | %s | %d | %d | %d | %d |\n", name, what, environment, count["passed"], count["failed"], count["skipped"], seconds }' \
          "$results/$name.tsv"
      elif [ -e "$results/$name.reason" ]; then
        echo "| $name | $what | ${environment:--} | not run: $(cat "$results/$name.reason") | | | |"
      else
        echo "| $name | $what | ${environment:--} | not run | | | |"
      fi
    done
    [ ${#columns[@]} -gt 0 ] || return 0
    echo
    printf '| test, seconds |'; printf ' %s |' "${columns[@]}"; echo
    printf '|---|'; for name in "${columns[@]}"; do printf -- '---:|'; done; echo
    local files=()
    for name in "${columns[@]}"; do files+=("$results/$name.tsv"); done
    awk -F '\t' '
      FNR == 1 { column++ }
      { if (!($1 in seen)) { seen[$1] = 1; order[++tests] = $1 }
        cell[$1, column] = $2 == "passed" ? $3 : ($2 == "failed" ? "**FAILED** " $3 : $2) }
      END { for (i = 1; i <= tests; i++) {
              printf "| %s |", order[i]
              for (c = 1; c <= column; c++) printf " %s |", cell[order[i], c]
              printf "\n" } }' "${files[@]}"
  } >"$table"
}

scripts/setup.sh
mkdir -p "$results"
rm -f "$results"/*.tsv "$results"/*.seconds "$results"/*.reason
scripts/build.sh "$preset" "$jobs"
failed=0
for setting in "${SETTINGS[@]}"; do
  IFS='|' read -r name what environment <<<"$setting"
  wanted "$name" || continue
  if [ "$name" = avx2 ] && ! grep -qw avx2 /proc/cpuinfo; then
    echo "this processor has no AVX2" >"$results/$name.reason"
    write_table
    continue
  fi
  say "$name: $what${environment:+ ($environment)}"
  start=$SECONDS
  case $name in
    busy)
      for ((i = 0; i < ($(nproc) + 1) / 2; i++)); do
        (while :; do :; done) &
        busy+=($!)
      done
      run_tests busy ""
      clean_up ;;
    long) run_long ;;
    parts) run_parts "$name" ;;
    torch-*) run_old_torch "$name" ;;
    *) run_tests "$name" "$environment" ;;
  esac
  echo $((SECONDS - start)) >"$results/$name.seconds"
  write_table
  if grep -q "$(printf '\tfailed\t')" "$results/$name.tsv"; then
    failed=1
    say "$name FAILED: $(awk -F '\t' '$2 == "failed" { printf "%s ", $1 }' "$results/$name.tsv")(all output: $results/$name.log)"
  fi
done
cat "$table"
exit $failed
