#!/usr/bin/env bash
# Predicted and measured peaks of training: six networks in three precisions with three optimizers, as a Markdown table.
#   bench/memory_matrix.sh build/release/bin/ulp > matrix.md
set -euo pipefail
ulp=${1:?the tool}
echo "| network | precision | optimizer | predicted, MiB | measured, MiB | above |"
echo "|---|---|---|---:|---:|---:|"
while read -r network flags; do
  for precision in fp32 bf16 O2:bf16; do
    for optimizer in sgd adam adamw; do
      # shellcheck disable=SC2086
      "$ulp" memory "$network" $flags --precision "$precision" --optimizer "$optimizer" --prove --json 2>/dev/null |
        python3 -c '
import json, sys
answer = json.load(sys.stdin)
predicted, measured = answer["peak_bytes"], answer["measured_bytes"]
print(f"| {sys.argv[1]} | {sys.argv[2]} | {sys.argv[3]} | {predicted / 2**20:.3f} | {measured / 2**20:.3f} "
      f"| {100 * (predicted / measured - 1):.3f} % |", flush=True)' "$network" "$precision" "$optimizer"
    done
  done
done <<'NETWORKS'
mlp --batch 300
resnet20 --batch 50
mobilenet_v2 --batch 24
bert --batch 40 --length 64
gpt2 --batch 33 --length 64
lstm --batch 40 --length 48
NETWORKS
