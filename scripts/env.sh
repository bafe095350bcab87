# Sourced by the Makefile: where the data set is when it could not be installed system-wide.
if [ -d "$PWD/.cache/usr/share/datasets/fashion-mnist" ]; then
  export ULP_DATA_DIR="${ULP_DATA_DIR:-$PWD/.cache/usr/share/datasets/fashion-mnist}"
fi
