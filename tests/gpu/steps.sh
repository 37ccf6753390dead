# What both modes of `run` are made of. Takes root, stage, bin, out and gpus from it.
failed=() skipped=()
: > "$out/steps.txt"
ends=${ends:-}  # Of $SECONDS: no step goes on after it. Empty: never.

# step <name> <seconds> <command...>: logged, timed, bounded; its exit code goes to steps.txt. 77: the whole step was
# skipped, which is no failure; a line of the log that begins with "skipped": a part of it was.
step() {
  local name=$1 limit=$2 started=$SECONDS status=0 word=ok parts
  shift 2
  if [ -n "$ends" ] && [ $((ends - SECONDS)) -lt "$limit" ]; then limit=$((ends - SECONDS)); fi
  if [ "$limit" -gt 0 ]; then
    timeout -k 5 "$limit" "$@" > "$out/$name.log" 2>&1 || status=$?
  else
    echo "no time is left for it" > "$out/$name.log"
    status=124
  fi
  echo "$name $status" >> "$out/steps.txt"
  parts=$(grep -cE '^ *skipped: ' "$out/$name.log")
  case $status in
    0) if [ "$parts" -gt 0 ]; then skipped+=("$name ($parts of its parts)"); fi ;;
    77) word=skipped status=0 skipped+=("$name") ;;
    *) word="FAILED ($status)" failed+=("$name") ;;
  esac
  printf '%-22s %s, %d s\n' "$name" "$word" $((SECONDS - started))
  if [ $status != 0 ]; then tail -n 25 "$out/$name.log" | sed 's/^/    /'; fi
  return $status
}

# The last lines: what failed, else what was not tried. False: a step failed.
report() {
  local list
  if [ ${#failed[@]} -gt 0 ]; then echo "failed: ${failed[*]}"; fi
  if [ ${#skipped[@]} -gt 0 ]; then
    list=$(printf ', %s' "${skipped[@]}")
    list="; NOT TRIED: ${list:2} (each log says why)"
  fi
  [ ${#failed[@]} -gt 0 ] && echo "results in $out${list:-}" && return 1
  echo "all steps that ran passed; results in $out${list:-}"
}

describe_machine() {
  {
    nvidia-smi --query-gpu=name,uuid,driver_version,memory.total --format=csv
    nvidia-smi topo -m 2>/dev/null
    cat "$stage/commit"
  } > "$out/machine.txt" 2>&1
  echo "$gpus GPU(s), $(sed -n 2p "$out/machine.txt"), commit $(cat "$stage/commit")"
}

# A private cco-memd, which the programs after it find by $CCO_SOCKET; it ends with this script.
start_daemon() {
  export CCO_SOCKET=$out/memd.sock
  "$bin/cco-memd" --driver cuda --socket "$CCO_SOCKET" > "$out/memd.log" 2>&1 &
  daemon=$!
  trap 'kill $daemon 2> /dev/null' EXIT
  for _ in $(seq 200); do
    "$bin/ccoctl" status > "$out/status.txt" 2>&1 && break
    kill -0 $daemon 2> /dev/null || break
    read -rt 0.1 <> <(:) || true  # 100 ms until the next try
  done
  step status 20 "$bin/ccoctl" status
}

stop_daemon() {
  kill -TERM $daemon 2> /dev/null
  step daemon_stops 20 tail --pid=$daemon -f /dev/null
}

# bench <name> <seconds> <command...>: a step whose command ends in cco-bench's options; JSON in <name>.json.
bench() {
  local name=$1 limit=$2
  shift 2
  rm -f "$out/$name.json"
  step "$name" "$limit" "$@" --json "$out/$name.json" && cat "$out/$name.log"
}

# NCCL: the headers and the library of the system, or of the Python package. False: this machine has none, or no nvcc.
find_nccl() {
  local package
  package=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2> /dev/null || true)
  command -v nvcc > /dev/null || return 1
  for nccl_include in /usr/local/cuda/include /usr/local/include /usr/include ${package:+"$package/include"}; do
    [ -f "$nccl_include/nccl_device.h" ] || continue
    nccl_library=(-lnccl)
    if [ -n "$package" ] && [ "$nccl_include" = "$package/include" ]; then
      nccl_library=(-Xlinker "$package/lib/libnccl.so.2")  # nvcc knows no file of this name.
      export LD_LIBRARY_PATH=$package/lib:${LD_LIBRARY_PATH:-}
    fi
    return 0
  done
  return 1
}

build_nccl() {
  step nccl_build 180 nvcc -std=c++20 -O3 -arch=sm_90 -I"$nccl_include" -o "$out/nccl_baseline" \
    "$root/tests/gpu/nccl_baseline.cu" "${nccl_library[@]}"
}

run_nccl() {
  NCCL_NVLS_ENABLE=0 step nccl 60 "$out/nccl_baseline" && cat "$out/nccl.log"
  rm -f "$out/nccl_baseline"
}
