#!/usr/bin/env bash
# Applies clang-format 14 (Debian 12's) to every C and C++ file of the project, or to those named (-i [FILE...]), or checks that it has
# been applied (--check).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tool=$(command -v clang-format-14 || command -v clang-format || true)
version=$([ -z "$tool" ] || "$tool" --version | sed -E 's/.*version ([0-9]+).*/\1/')
if [ "$version" != 14 ]; then  # other versions break lines elsewhere
  echo "format: skipped, needs clang-format 14, found ${version:-none}"
  exit 0
fi
if [ "${1:-}" = -i ] && [ $# -gt 1 ]; then
  shift
  exec "$tool" -i -- "$@"
fi
cd "$root"
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  echo "format: skipped, this is no git checkout"
  exit 0
fi
files=()
while IFS= read -r -d '' file; do
  [ -f "$file" ] && files+=("$file")
done < <(git ls-files -z --cached --others --exclude-standard '*.h' '*.c' '*.cpp')
case "${1:-}" in
  -i) "$tool" -i "${files[@]}" ;;
  --check)
    if ! "$tool" --dry-run --Werror "${files[@]}"; then
      echo "format: run \`make format\`" >&2
      exit 1
    fi
    echo "format: ${#files[@]} files in order"
    ;;
  *) echo "usage: scripts/format.sh -i [FILE...] | --check" >&2; exit 2 ;;
esac
