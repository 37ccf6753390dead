#!/usr/bin/env bash
# Goal    the unit has no misspelt key, stays hardened, and its limits are where systemd reads them.
# Method  systemd-analyze on a copy whose program exists (it says nothing about a good unit, and exits 0 even when it
#         complains); then one grep for each promise. A unit with a misspelt key has to be refused.
set -euo pipefail
root=$1
command -v systemd-analyze > /dev/null || { echo "skipped: no systemd-analyze (package systemd)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unit=$root/systemd/cco-memd.service

complaints() {  # complaints <unit file>
  sed 's,/usr/bin/cco-memd,/bin/true,' "$1" > "$work/cco-memd.service"
  systemd-analyze verify --man=no "$work/cco-memd.service" 2>&1 || true
}
said=$(complaints "$unit")
[ -z "$said" ] || { echo "systemd-analyze verify: $said" >&2; exit 1; }
sed 's/^ProtectHome=/ProtectHouse=/' "$unit" > "$work/misspelt"
[ -n "$(complaints "$work/misspelt")" ] || { echo "verify finds no misspelt key: this test is blind" >&2; exit 1; }

complaints "$unit" > /dev/null
systemd-analyze security --offline=true --threshold=20 --no-pager "$work/cco-memd.service" > "$work/score" 2>&1 ||
  { cat "$work/score" >&2; exit 1; }

has() {  # has <section> <line>
  awk -v section="[$1]" -v line="$2" \
    '/^\[/ { now = $0 } now == section && $0 == line { found = 1 } END { exit !found }' "$unit" ||
    { echo "$unit: [$1] lacks $2" >&2; exit 1; }
}
has Unit StartLimitIntervalSec=60  # In [Service] systemd ignores it.
has Unit StartLimitBurst=5
has Service Type=notify
has Service Restart=on-failure
has Service "RestartPreventExitStatus=64 78"
has Service RuntimeDirectory=cco
has Service RuntimeDirectoryPreserve=restart
has Service LimitNOFILE=1048576
has Service LimitMEMLOCK=infinity
has Service User=cco
has Service DevicePolicy=closed
has Service "ExecStart=/usr/bin/cco-memd --config /etc/cco/memd.textproto"
has Install WantedBy=multi-user.target

for group in cco cco-admin; do
  grep -Eq "^[ug] $group " "$root/systemd/cco.sysusers" || { echo "sysusers does not make $group" >&2; exit 1; }
done
grep -q '^d /run/cco 0755 cco cco' "$root/systemd/cco.tmpfiles"
mkdir -p "$work/tree/etc"
said=$(systemd-sysusers --root="$work/tree" "$root/systemd/cco.sysusers" 2>&1) || { echo "$said" >&2; exit 1; }
grep -q '^cco:' "$work/tree/etc/passwd" && grep -q '^cco-admin:' "$work/tree/etc/group"
