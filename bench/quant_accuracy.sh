#!/bin/sh
# What each way of quantizing costs a trained model on TEST (10000) test images, as a Markdown table.
#   bench/quant_accuracy.sh MODEL [QAT FLAGS]     e.g. resnet20.safetensors --max-steps 300 --precision bf16
# QAT rows train on for the flags' steps; their gain over float is partly that of training longer.
set -eu
ulp=${ULP:-build/release/bin/ulp}
model=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# recipe NAME BITS GRANULARITY OBSERVER
recipe() {
  cat >"$folder/$1.json" <<JSON
{"type": "ulp.quant.Recipe", "version": 3,
 "weight": {"observer": "$4", "scheme": {"bits": $2, "granularity": $3}}}
JSON
}
recipe tensor 8 '"per_tensor"' mse
recipe channel 8 '{"per_channel": 0}' mse
recipe tensor4 4 '"per_tensor"' mse
recipe channel4 4 '{"per_channel": 0}' mse
echo '{"type": "ulp.quant.Recipe", "version": 3}' >"$folder/none.json"
recipe tensor4_range 4 '"per_tensor"' min_max
recipe channel4_range 4 '{"per_channel": 0}' min_max

# row TITLE RECIPE FLAGS...
row() {
  title=$1 recipe=$2
  shift 2
  "$ulp" quantize "$model" --recipe "$folder/$recipe.json" --test "${TEST:-10000}" --out "$folder/q.ulp" --json "$@" \
    2>"$folder/errors" >"$folder/result.json" || { cat "$folder/errors" >&2; exit 1; }
  awk -v title="$title" '
    /"accuracy_percent"/ { quantized = $2 + 0 }
    /"float_accuracy_percent"/ { exact = $2 + 0 }
    /"weight_bytes"/ { bytes = $2 + 0 }
    /"float_weight_bytes"/ { all = $2 + 0 }
    END { printf "| %s | %.2f | %+.2f | %.3f |\n", title, quantized, quantized - exact, bytes / all }' \
    "$folder/result.json"
}

echo "| $(basename "$model") | accuracy, % | against float, points | weights, x float |"
echo "|---|---|---|---|"
row "int8 static, per tensor" tensor
row "int8 static, per channel" channel
row "4-bit weights static, per tensor" tensor4
row "4-bit weights static, per channel" channel4
row "4-bit weights static, per tensor, whole range" tensor4_range
row "4-bit weights static, per channel, whole range" channel4_range
row "int8 dynamic, linear layers" none --mode dynamic
row "int8 QAT, per channel" channel --mode qat "$@"
row "4-bit weights QAT, per channel" channel4 --mode qat "$@"
