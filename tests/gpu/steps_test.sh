#!/usr/bin/env bash
# Goal    tests/gpu/run says what failed, and what it has not tried though nothing failed.
# Method  steps that pass, skip, skip a part, fail and take too long; the last line and the exit code.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

# run STEP...: the steps in a shell of their own, each "name seconds command"; then the report. Output in $told.
run() {
  told=$(
    # shellcheck disable=SC1091  # It is beside this script.
    . "$here/steps.sh"
    for each in "$@"; do
      read -r name seconds command <<< "$each"
      step "$name" "$seconds" bash -c "$command"
    done
    report
  )
  code=$?
}

# expect CODE LAST_LINE
expect() {
  if [ "$code" != "$1" ] || [ "$(tail -n 1 <<< "$told")" != "$2" ]; then
    printf 'expected %s and: %s\ngot %s and:\n%s\n' "$1" "$2" "$code" "$told"
    exit 1
  fi
}

run "good 5 true"
expect 0 "all steps that ran passed; results in $out"
run "good 5 true" "none 5 echo skipped: no file; exit 77" "half 5 echo '   skipped: one GPU'"
expect 0 "all steps that ran passed; results in $out; NOT TRIED: none, half (1 of its parts) (each log says why)"
run "bad 5 exit 3" "none 5 exit 77" "slow 1 exec sleep 30"
expect 1 "results in $out; NOT TRIED: none (each log says why)"
grep -qx "failed: bad slow" <<< "$told" || { echo "$told"; exit 1; }
diff <(cat "$out/steps.txt") - << END || exit 1
bad 3
none 77
slow 124
END
