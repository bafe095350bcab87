#!/bin/sh
# Perplexity of a small GPT-2 with weights of few bits: plain rounding, GPTQ and AWQ (bench/notes/gptq.md).
#   bench/gptq_perplexity.sh MODEL.safetensors TEXT CALIBRATION [FLAGS OF ulp quantize]
# Prints a line a run: bits, group, method, loss in nats, perplexity, and that of the float model. ULP names the tool.
set -e
model=$1 text=$2 calibration=$3
shift 3
ulp=${ULP:-build/release/bin/ulp}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for bits in 4 3 2; do
  for group in 32 128; do
    for method in rtn gptq "gptq --act-order" awq; do
      set_calibration="--calibration $calibration --samples 128"
      [ "$method" = rtn ] && set_calibration=
      # shellcheck disable=SC2086
      "$ulp" quantize "$model" --mode weight-only --bits $bits --group $group --method $method $set_calibration \
        --no-embeddings --data "$text" --out "$folder/q.ulp" --json "$@" 2>"$folder/err" >"$folder/out" || {
        cat "$folder/err" >&2
        exit 1
      }
      python3 - "$folder/out" "$bits" "$group" "$method" <<'PY'
import json, math, sys
r = json.load(open(sys.argv[1]))
print(*sys.argv[2:], "%.5f %.4f float %.4f" % (r["loss"], math.exp(r["loss"]), math.exp(r["float_loss"])), flush=True)
PY
    done
  done
done
