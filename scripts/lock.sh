#!/usr/bin/env bash
# Resolve pyproject.toml afresh in a throw-away virtualenv and write the exact versions to constraints.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

python="${LOCK_PYTHON:-python3.11}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --upgrade pip
"$work/venv/bin/python" -m pip install --quiet '.[dev]'
{
  echo "# Exact versions of everything installed; written by \`make lock\`, never by hand."
  "$work/venv/bin/python" -m pip freeze --all --exclude bridle --exclude pip
} >"$work/constraints.txt"
# A pin must be a plain version: an address or a path would tie the file to one machine.
if grep -nE '@|://|^-' "$work/constraints.txt"; then
  echo "the lines above are not plain pins; constraints.txt was left as it is" >&2
  exit 1
fi
mv "$work/constraints.txt" constraints.txt
echo "constraints.txt: $(grep -c == constraints.txt) pins"
