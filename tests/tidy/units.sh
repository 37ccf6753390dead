#!/usr/bin/env bash
# Goal    the units have no misspelt key, stay hardened (exposure at most 2.0, a reason for each loosened option), and
#         keep what systemd/README.md says of restarts.
# Method  systemd-analyze on copies whose program exists (it says nothing about a good unit, and exits 0 even when it
#         complains); then one grep for each promise. A misspelt key has to be refused, and a loosened option found.
set -euo pipefail
root=$1
command -v systemd-analyze > /dev/null || { echo "skipped: no systemd-analyze (package systemd)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unit=$root/systemd/cco-memd.service

socket=$root/systemd/cco-memd.socket

complaints() {  # complaints <service file> <socket file>
  sed 's,/usr/bin/cco-memd,/bin/true,' "$1" > "$work/cco-memd.service"
  cp "$2" "$work/cco-memd.socket"
  systemd-analyze verify --man=no "$work/cco-memd.service" "$work/cco-memd.socket" 2>&1 || true
}
blind() { echo "$1: this test is blind" >&2; exit 1; }
sed 's/^ProtectHome=/ProtectHouse=/' "$unit" > "$work/misspelt"
[ -n "$(complaints "$work/misspelt" "$socket")" ] || blind "verify finds no misspelt key of a service"
sed 's/^SocketMode=/SocketMood=/' "$socket" > "$work/misspelt"
[ -n "$(complaints "$unit" "$work/misspelt")" ] || blind "verify finds no misspelt key of a socket"
said=$(complaints "$unit" "$socket")
[ -z "$said" ] || { echo "systemd-analyze verify: $said" >&2; exit 1; }

is_hardened() {  # is_hardened <service file>
  systemd-analyze security --offline=true --threshold=20 --no-pager "$1" > "$work/score" 2>&1
}
is_hardened "$work/cco-memd.service" || { cat "$work/score" >&2; exit 1; }
grep -v '^User=\|^Protect' "$work/cco-memd.service" > "$work/loose.service"
! is_hardened "$work/loose.service" || blind "systemd-analyze finds a service without protection safe"
for option in PrivateDevices PrivateUsers MemoryDenyWriteExecute ProtectProc ProcSubset RootDirectory SystemCallFilter \
  PrivateNetwork; do
  grep -q "^# Loosened: $option " "$unit" || { echo "$unit: $option is loosened, and no comment says why" >&2; exit 1; }
done

has() {  # has <section> <line>
  awk -v section="[$1]" -v line="$2" \
    '/^\[/ { now = $0 } now == section && $0 == line { found = 1 } END { exit !found }' "$unit" "$socket" ||
    { echo "the units: [$1] lacks $2" >&2; exit 1; }
}
has Unit StartLimitIntervalSec=0  # In [Service] systemd ignores it.
has Unit Requires=cco-memd.socket
has Service Type=notify
has Service Restart=always
has Service WatchdogSec=10
has Service RuntimeDirectory=cco/state
has Service RuntimeDirectoryPreserve=restart
has Service LimitNOFILE=1048576
has Service LimitMEMLOCK=infinity
has Service TasksMax=4096
# The driver `host` allocates its GPUs' memory in this service: a limit would end the daemon for what its clients hold.
if grep -q '^Memory\(Max\|High\)=' "$unit"; then echo "$unit limits the driver host's GPUs" >&2; exit 1; fi
has Service User=cco
has Service DevicePolicy=closed
has Service "ExecStart=/usr/bin/cco-memd --config /etc/cco/memd.textproto --state-dir /run/cco/state"
stored=$(sed -n 's/^FileDescriptorStoreMax=//p' "$unit")
has Service "Environment=FDSTORE=${stored:-none}"
# The configuration that is installed, and the sockets, speak of the same.
value() { sed -n "s/^$1: \"\(.*\)\"/\1/p" "$root/deploy/memd.textproto"; }
path=$(value socket_path)
has Socket "ListenStream=$path"
has Socket "ListenSequentialPacket=${path%.sock}-fd.sock"
has Socket "SocketMode=$(value socket_mode)"
has Socket "SocketGroup=$(value socket_group)"
has Socket TriggerLimitIntervalSec=0
has Install WantedBy=sockets.target
has Install WantedBy=multi-user.target

for group in cco cco-admin; do
  grep -Eq "^[ug] $group " "$root/systemd/cco.sysusers" || { echo "sysusers does not make $group" >&2; exit 1; }
done
grep -q '^d /run/cco 0755 cco cco' "$root/systemd/cco.tmpfiles"
mkdir -p "$work/tree/etc"
said=$(systemd-sysusers --root="$work/tree" "$root/systemd/cco.sysusers" 2>&1) || { echo "$said" >&2; exit 1; }
grep -q '^cco:' "$work/tree/etc/passwd" && grep -q '^cco-admin:' "$work/tree/etc/group"
