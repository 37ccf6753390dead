#!/usr/bin/env bash
# Goal    no change of the interface goes unnoticed.
# Method  the snapshot made from the .proto files is the one in the repository.
set -euo pipefail
root=$1
"$root/proto/golden/snapshot" | diff -u "$root/proto/golden/memd_v1.txtpb" - || {
  echo "The interface has changed. If that is meant: proto/golden/snapshot > proto/golden/memd_v1.txtpb" >&2
  exit 1
}
