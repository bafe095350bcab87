#!/bin/bash
# Training and inference beside busy processes, as a Markdown table: `ulp train` on resnet14 with the thread count that follows
# the machine, compiled (--compile) and with a fixed one, and the latency of its engine in fp32.
#   bench/shared_machine.sh [BUSY...]     numbers of busy processes, by default 0 1 3
# STEPS (40) is the length of a run of training. Start it on a quiet machine: what else computes counts as busy, too.
set -eu
ulp=$(realpath "${ULP:-build/release/bin/ulp}")
steps=${STEPS:-40}
cores=$(nproc)
folder=$(mktemp -d)
busy=()
stop_busy() { [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}" 2>/dev/null || true; busy=(); }
trap 'stop_busy; rm -rf "$folder"' EXIT

# field NAME: the number behind it in the result.
field() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),\{0,1\}$/\1/p" "$folder/result.json" | head -1; }

# rate PRECISION [FLAGS]: steps a second.
rate() {
  local precision=$1
  shift
  "$ulp" train --model resnet14 --max-steps "$steps" --precision "$precision" --json --out "$folder/m.safetensors" "$@" \
    >"$folder/result.json" 2>"$folder/errors" || { cat "$folder/errors" >&2; exit 1; }
  awk -v steps="$steps" -v seconds="$(field seconds)" 'BEGIN { printf "%.2f", steps / seconds }'
}

# latency: milliseconds of one image in the engine, all cores.
latency() {
  "$ulp" bench "$folder/m.fp32.ulp" --batch 1 --threads "$cores" --json >"$folder/result.json" 2>"$folder/errors" ||
    { cat "$folder/errors" >&2; exit 1; }
  sed -n 's/^ *"median [[]ms[]]": \([0-9.e+-]*\),\{0,1\}$/\1/p' "$folder/result.json" | head -1
}

rate fp32 --threads "$cores" >/dev/null  # makes the model whose engine is measured; warms up
"$ulp" lower "$folder/m.safetensors" --out "$folder/m.fp32.ulp" >/dev/null 2>&1
echo "| busy processes on $cores cores | fp32, steps/s: following | compiled | $cores threads | 1 thread | bf16: following | compiled | $cores threads | 1 thread | engine fp32, ms |"
echo "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
for count in "${@:-0 1 3}"; do
  for number in $count; do
    for ((i = 0; i < number; ++i)); do
      (while :; do :; done) &
      busy+=($!)
    done
    row="| $number |"
    for precision in fp32 bf16; do
      row+=" $(rate "$precision") | $(rate "$precision" --compile) | $(rate "$precision" --threads "$cores") | $(rate "$precision" --threads 1) |"
    done
    echo "$row $(latency) |"
    stop_busy
  done
done
