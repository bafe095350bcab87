#!/bin/sh
# Accuracy of each precision over several seeds, on Fashion-MNIST: mean, lowest and highest.
#   bench/accuracy.sh [MODEL [EPOCHS [SEEDS]]]        default: mlp 4 5
set -eu
ulp=${ULP:-build/release/bin/ulp}
model=${1:-mlp} epochs=${2:-4} seeds=${3:-5}
for flags in "fp32" "bf16" "O2:bf16" "fp16" "fp16 --scaler none"; do
  seed=1
  while [ "$seed" -le "$seeds" ]; do
    # shellcheck disable=SC2086  # flags are several words
    "$ulp" train --model "$model" --epochs "$epochs" --seed "$seed" --precision $flags --json 2>/dev/null |
      sed -n 's/.*"accuracy_percent": \([0-9.]*\).*/\1/p'
    seed=$((seed + 1))
  done | awk -v flags="$flags" -v model="$model" '
    { sum += $1; if (NR == 1 || $1 < low) low = $1; if ($1 > high) high = $1 }
    END { printf "%-8s %-20s mean %.2f %%, lowest %.2f, highest %.2f, %d runs\n", model, flags, sum / NR, low, high, NR }'
done
