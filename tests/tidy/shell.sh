#!/usr/bin/env bash
# Goal    no script has an error that a reader would not see.
# Method  shellcheck over every tracked or new file that begins with a shell's name.
set -euo pipefail
cd "$1"
command -v shellcheck > /dev/null || { echo "skipped: no shellcheck (package shellcheck)"; exit 77; }
git ls-files -z --cached --others --exclude-standard | xargs -0 grep -lIE -m1 '^#!.*\b(ba)?sh$' |
  while read -r file; do
    if head -1 "$file" | grep -qE '^#!.*\b(ba)?sh$'; then echo "$file"; fi
  done | xargs shellcheck
