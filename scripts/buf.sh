#!/usr/bin/env bash
# Run buf over proto/: `buf.sh format` rewrites, `buf.sh check` lints and compares with the base branch.
# buf comes from npm; without npm it is skipped with one line, except under CI=true.
set -euo pipefail
cd "$(dirname "$0")/.."

buf=tools/node_modules/.bin/buf

install_buf() {
  # npm writes this file at the end of an install.
  if [[ -x "$buf" && tools/node_modules/.package-lock.json -nt tools/package-lock.json ]]; then return; fi
  if ! command -v npm >/dev/null; then
    echo "buf: skipped, there is no npm on this machine" >&2
    if [[ "${CI:-}" == true ]]; then exit 1; fi
    exit 0
  fi
  npm --prefix tools ci --silent --no-audit --no-fund --ignore-scripts
}

# The commit to compare with: where this branch left main or, on main itself, the commit before.
base_commit() {
  local main base
  for main in origin/main main; do
    if base="$(git merge-base HEAD "$main" 2>/dev/null)"; then
      if [[ "$base" != "$(git rev-parse HEAD)" ]]; then echo "$base"; return; fi
    fi
  done
  git rev-parse --verify --quiet HEAD~1 || true
}

check_breaking() {
  local base
  base="$(base_commit)"
  if [[ -z "$base" ]] || ! git cat-file -e "$base:proto/buf.yaml" 2>/dev/null; then
    echo "buf breaking: no earlier version of proto/ to compare with yet"
    return
  fi
  local old
  old="$(mktemp -d)"
  # shellcheck disable=SC2064  # expand now: the variable is local
  trap "rm -rf '$old'" EXIT
  git archive "$base" proto | tar -x -C "$old"
  "$buf" breaking proto --against "$old/proto"
}

install_buf
case "${1:-}" in
  format) "$buf" format proto --write --path proto/bridle ;;
  check)
    "$buf" lint proto
    "$buf" format proto --diff --exit-code --path proto/bridle
    check_breaking
    echo "buf: clean"
    ;;
  *) echo "usage: buf.sh format|check" >&2; exit 2 ;;
esac
