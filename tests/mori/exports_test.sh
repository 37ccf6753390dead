#!/bin/sh
# Goal    libcco_mori.so exports exactly the functions that mori/cco/host.hpp declares.
# Method  compare nm with the declarations.
# Use     exports_test.sh LIBRARY HOST_HPP
set -eu
library=$1 header=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
nm -DC --defined-only "$library" | sed -n 's/.* [TDBRVWiu] //p' | sed 's/^mori::cco::\([A-Za-z]*\)(.*/\1/' | sort -u \
  > "$work/exported"
sed -n 's/^[a-zA-Z].*[ *]\(cco[A-Z][A-Za-z]*\)(.*/\1/p' "$header" | sort -u > "$work/declared"
[ -s "$work/declared" ] || { echo "no declaration found in $header"; exit 1; }
diff "$work/declared" "$work/exported" || { echo "above: < declared in $header, > exported by $library"; exit 1; }
