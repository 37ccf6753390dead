#!/bin/sh
# Goal    libcco_client.so exports exactly the functions that cco.h declares; the headers include nothing foreign.
# Method  compare nm with the declarations; list every #include of the public headers.
# Use     exports_test.sh LIBRARY INCLUDE_DIRECTORY
set -eu
library=$1 include=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$library" | sed -n 's/.* [TDBRVWiu] \([^@]*\).*/\1/p' | sort > "$work/exported"
sed -n 's/^CCO_API .*[ *]\(cco_[a-z_]*\)(.*/\1/p' "$include/cco/cco.h" | sort > "$work/declared"
[ -s "$work/declared" ] || { echo "no declaration found in $include/cco/cco.h"; exit 1; }
diff "$work/declared" "$work/exported" || { echo "above: < declared in cco.h, > exported by $library"; exit 1; }
if grep -hE '^ *# *include' "$include"/cco/*.h "$include"/cco/*.hpp | grep -vE '"cco/|<[a-z_]+(\.h)?>'; then
  echo "above: public headers include neither the standard library nor cco/"; exit 1
fi
