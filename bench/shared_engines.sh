#!/bin/bash
# Engines beside busy processes and beside each other, as Markdown tables: mean milliseconds of a run, and the
# runs a second of 2 and 8 processes of one engine each.
#   bench/shared_engines.sh FILE.ulp...
# BUILDS ("now=build/release") names builds to compare, by turns in one run: "before=other/build now=build/release".
# BATCHES ("1 16"), BUSY ("0 1 3": busy processes), TURNS (3), SECONDS_EACH (2), THREADS (0: one a core). What else
# computes counts as busy, too.
set -eu
read -ra builds <<<"${BUILDS:-now=build/release}"
read -ra batches <<<"${BATCHES:-1 16}"
read -ra numbers <<<"${BUSY:-0 1 3}"
turns=${TURNS:-3} span=${SECONDS_EACH:-2} threads=${THREADS:-0}
folder=$(mktemp -d)
busy=()
stop_busy() { [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}" 2>/dev/null || true; busy=(); }
trap 'stop_busy; rm -rf "$folder"' EXIT

# rate BUILD FILE BATCH: the line of engine_bench.
rate() { "${1#*=}/bin/engine_bench" rate "$2" "$3" "$threads" "$span"; }

# median: of numbers, one a line.
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# together BUILD FILE COUNT: the lines of so many processes.
together() {
  local waiting=() i
  for ((i = 0; i < $3; ++i)); do
    rate "$1" "$2" 1 >"$folder/$i" &
    waiting+=($!)
  done
  wait "${waiting[@]}"
  for ((i = 0; i < $3; ++i)); do cat "$folder/$i"; done
}

header="" rule=""
for build in "${builds[@]}"; do header+=" ${build%%=*} |" rule+="---:|"; done
echo "| file | batch | busy processes |$header"
echo "|---|---:|---:|$rule"
for number in "${numbers[@]}"; do
  for ((i = 0; i < number; ++i)); do
    (while :; do :; done) &
    busy+=($!)
  done
  for file in "$@"; do
    for batch in "${batches[@]}"; do
      rm -f "$folder"/times.*
      for ((turn = 0; turn < turns; ++turn)); do
        for build in "${builds[@]}"; do
          rate "$build" "$file" "$batch" | awk '{ print $6 }' >>"$folder/times.${build%%=*}"
        done
      done
      row="| $(basename "$file" .ulp) | $batch | $number |"
      for build in "${builds[@]}"; do row+=" $(median <"$folder/times.${build%%=*}") |"; done
      echo "$row"
    done
  done
  stop_busy
done
echo
echo "| file | processes | |$header"
echo "|---|---:|---|$rule"
for file in "$@"; do
  for count in 2 8; do
    rm -f "$folder"/runs.* "$folder"/cost.*
    for ((turn = 0; turn < turns; ++turn)); do
      for build in "${builds[@]}"; do
        together "$build" "$file" "$count" >"$folder/lines"
        awk '{ runs += $(NF - 1) } END { print runs }' "$folder/lines" >>"$folder/runs.${build%%=*}"
        awk '{ runs += $(NF - 1); cost += $9 * $(NF - 1) } END { print cost / runs }' "$folder/lines" \
          >>"$folder/cost.${build%%=*}"
      done
    done
    for kind in "runs runs/s, all" "cost ms of processors a run"; do
      row="| $(basename "$file" .ulp) | $count | ${kind#* } |"
      for build in "${builds[@]}"; do row+=" $(median <"$folder/${kind%% *}.${build%%=*}") |"; done
      echo "$row"
    done
  done
done
