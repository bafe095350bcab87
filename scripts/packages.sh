#!/usr/bin/env bash
# Builds the Debian packages into dist and tries them without installing: scripts/packages.sh JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
scripts/build.sh package "$jobs"
build=build/package
rm -f "$build"/*.deb
(cd "$build" && cpack -G DEB >cpack.log 2>&1) || { grep -i error "$build/cpack.log" >&2 || cat "$build/cpack.log" >&2; exit 1; }
mkdir -p dist
cp "$build"/*.deb dist/
tests/packages/unpacked.sh "$build"/*.deb
for file in "$build"/*.deb; do
  echo "packages: dist/$(basename "$file") ($(($(stat -c %s "$file") / 1024)) KiB)"
done
