#!/usr/bin/env bash
# Goal    what is installed is complete: a program outside the tree builds against it and runs with it.
# Method  install into a temporary prefix, move it, build the README's first program once by find_package and once by
#         pkg-config, and run both as four ranks on the installed daemon; the same for a MORI CCO program. Nothing of
#         the build tree may be needed.
set -euo pipefail
source=$1 build=$2 compiler=$3
work=$(mktemp -d "${TMPDIR:-/tmp}/cco.XXXXXX")
daemon=
finish() {
  local status=$?
  if [ -n "$daemon" ]; then
    kill "$daemon" 2> /dev/null || true
    timeout 20 tail --pid="$daemon" -f /dev/null || kill -KILL "$daemon"
  fi
  [ "$status" = 0 ] || tail -n 30 "$work"/*.log >&2 || true
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "$*" >&2; exit 1; }

cmake --install "$build" --prefix "$work/installed" > "$work/install.log"
prefix=$work/moved
mv "$work/installed" "$prefix"

for file in bin/cco-memd bin/ccoctl bin/cco-bench bin/cco-main-job libexec/cco/cco-keeper include/cco/cco.h \
  include/cco/client.hpp include/cco/device.hpp include/mori/cco/cco.hpp etc/cco/memd.textproto \
  lib/systemd/system/cco-memd.service lib/systemd/system/cco-memd.socket lib/sysusers.d/cco.conf \
  lib/tmpfiles.d/cco.conf share/cco/northanger_abbey.txt share/doc/cco/LICENSE; do
  [ -s "$prefix/$file" ] || fail "not installed: $file"
done
library=$(find "$prefix" -name libcco_client.so.0 -print -quit)
[ -n "$library" ] || fail "not installed: libcco_client.so.0"
export PKG_CONFIG_PATH=${library%/*}/pkgconfig
mori=${library%/*}/libcco_mori.so.0
[ -s "$mori" ] || fail "not installed: libcco_mori.so.0"
if readelf -d "$prefix"/bin/* "$library" "$mori" | grep -E 'R(UN)?PATH' | grep -F "$build"; then
  fail "a path of the build tree"
fi

consumer=$source/tests/install/consumer
cmake -S "$consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  > "$work/cmake.log"
cmake --build "$work/consumer" >> "$work/cmake.log"
read -ra flags <<< "$(pkg-config --cflags --libs cco)"
"$compiler" -std=c++20 -Wall -Wextra -Werror "$consumer/main.cc" -pthread "${flags[@]}" -Wl,-rpath,"${library%/*}" \
  -o "$work/by_pkg_config" 2> "$work/pkg-config.log"
[ "$(pkg-config --modversion cco)" = "$(awk -F'VERSION |[)]' '/^project/ { split($2, v, " "); print v[1] }' \
  "$source/CMakeLists.txt")" ] || fail "cco.pc has another version than the project"

export CCO_SOCKET=$work/memd.sock
echo "socket_path: \"$CCO_SOCKET\"" > "$work/memd.textproto"
"$prefix/bin/cco-memd" --config "$work/memd.textproto" --driver host > "$work/memd.log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
  if "$prefix/bin/ccoctl" status > /dev/null 2>&1; then break; fi
  kill -0 "$daemon" 2> /dev/null || fail "the installed cco-memd ended"
  read -rt 0.1 <> <(:) || true
done
expect_passed_right() {  # By the program that the arguments run.
  "$@" > "$work/output.log" 2>&1 || fail "$* failed"
  for rank in 0 1 2 3; do
    grep -qx "rank $rank received $(((rank + 3) % 4))" "$work/output.log" || fail "$*: rank $rank did not receive"
  done
}
for program in "$work/consumer/first" "$work/by_pkg_config"; do
  expect_passed_right "$prefix/bin/ccoctl" run -n 4 --no-prefix -- "$program"
done
expect_passed_right "$work/consumer/mori"
"$prefix/bin/ccoctl" run -n 4 -- "$prefix/bin/cco-main-job" --bytes 4097 > "$work/job.log" 2>&1 ||
  fail "the installed main job failed"
