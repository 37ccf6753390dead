#!/usr/bin/env python3
"""What Python costs over the C interface: importing cco, and calls of windows. Needs gcc and a running cco-memd.

    bench.py [--json FILE] [--check] [--rounds N]

One run, rounds of C and of Python in turn, in processes of their own against the same daemon. Medians, with the 10th
and 90th percentile of the rounds. Import: a new interpreter with `import cco`, less one without. Time passed, and time
that the calling thread (import: the process) had the CPU, which tells what Python adds whatever else the machine does.
--check compares the least CPU time of the rounds with LIMITS_US, which are generous; it ends with 1 if one is exceeded.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cco

ROUNDS = 15
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
SOURCE = Path(__file__).resolve().parents[2]
CALLS = {"get_address": 20_000, "get_info": 20_000, "create and destroy": 200}

# More CPU time than the baseline's, in microseconds. The last are two calls with two round trips, after each of which a
# busy machine has given the caches to others: 17 were measured, and 32 with seven programs for each core.
LIMITS_US = {"import cco": 60_000, "get_address": 15, "get_info": 15, "create and destroy": 80}

C_PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "cco/cco.h"
static double now_us(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
#define TIME(count, call)                                     \
  for (int i = 0; i < (count) / 10; ++i) { call; }            \
  begin = now_us(CLOCK_MONOTONIC);                            \
  begin_cpu = now_us(CLOCK_THREAD_CPUTIME_ID);                \
  for (int i = 0; i < (count); ++i) { call; }                 \
  printf("%.4f ", (now_us(CLOCK_MONOTONIC) - begin) / (count)); \
  printf("%.4f\n", (now_us(CLOCK_THREAD_CPUTIME_ID) - begin_cpu) / (count));
static int failed;
#define OK(call) failed |= (call) != CCO_OK
int main(void) {
  double begin, begin_cpu;
  cco_client* client = 0;
  cco_group* group = 0;
  cco_window *window = 0, *again = 0;
  void* address;
  cco_group_options of_group;
  cco_window_options of_window;
  cco_window_info info;
  memset(&of_group, 0, sizeof of_group);
  memset(&of_window, 0, sizeof of_window);
  of_group.struct_size = sizeof of_group, of_group.size = 1, of_group.name = "bench-c";
  of_window.struct_size = sizeof of_window, of_window.size_bytes = 4096;
  info.struct_size = sizeof info;
  OK(cco_client_create(0, &client));
  OK(cco_group_create(client, &of_group, &group));
  OK(cco_window_create(group, "w", &of_window, &window));
  TIME(GET_ADDRESS, OK(cco_window_get_address(window, 0, 8, &address)));
  TIME(GET_INFO, OK(cco_window_get_info(window, &info)));
  TIME(CREATE, OK(cco_window_create(group, "again", &of_window, &again)); cco_window_destroy(again));
  cco_client_destroy(client);
  return failed;
}
"""

PY_PROGRAM = f"""
import time, cco
def timed(count, call):
    for _ in range(count // 10):
        call()
    begin, begin_cpu = time.perf_counter_ns(), time.thread_time_ns()
    for _ in range(count):
        call()
    print((time.perf_counter_ns() - begin) / 1e3 / count, (time.thread_time_ns() - begin_cpu) / 1e3 / count)
with cco.Client() as client, cco.Group(client, rank=0, size=1, name="bench-python") as group:
    with cco.Window(group, "w", 4096) as window:
        timed({CALLS["get_address"]}, lambda: window.address(0, 8))
        timed({CALLS["get_info"]}, lambda: window.info())
        timed({CALLS["create and destroy"]}, lambda: cco.Window(group, "again", 4096).close())
"""


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT).stdout


def process_us(code):
    """Of an interpreter that runs `code`: from its start to its end, and on the CPU."""
    begin = time.perf_counter_ns()
    child = subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT)
    _, status, used = os.wait4(child.pid, 0)
    passed = (time.perf_counter_ns() - begin) / 1e3
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{code!r} ended with {child.returncode}")
    return passed, (used.ru_utime + used.ru_stime) * 1e6


def build(folder):
    library = cco.library_path()
    source, program = folder / "bench.c", folder / "bench"
    source.write_text(C_PROGRAM)
    subprocess.run(["gcc", "-O2", f"-I{SOURCE}/client/include", f"-I{SOURCE}/device/include", str(source), "-o",
                    str(program), library, f"-Wl,-rpath,{os.path.dirname(library)}",
                    f"-DGET_ADDRESS={CALLS['get_address']}", f"-DGET_INFO={CALLS['get_info']}",
                    f"-DCREATE={CALLS['create and destroy']}"], check=True)
    return program


def spread(values):
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return statistics.median(ordered), ordered[tenth], ordered[-1 - tenth]


def report(name, ours, base, what, result):
    """`ours`, `base`: (passed, on the CPU) of each round."""
    result[name] = {}
    for index, clock in enumerate(("passed", "cpu")):
        ours_us, base_us = spread([one[index] for one in ours]), spread([one[index] for one in base])
        more = ours_us[0] - base_us[0]
        result[name][clock] = {"python_us": ours_us, "baseline_us": base_us, "difference_us": more}
        print(f"{name:20} {clock:7} {ours_us[0]:10.2f} ({ours_us[1]:.2f}-{ours_us[2]:.2f})   {what} {base_us[0]:.2f} "
              f"({base_us[1]:.2f}-{base_us[2]:.2f})   more: {more:.2f}")


def exceeded(rounds):
    """What takes more than its limit, as text. `rounds`: name -> (ours, base), as for report()."""
    found = []
    for name, limit in LIMITS_US.items():
        ours, base = (min(cpu for _, cpu in one) for one in rounds[name])
        if ours - base > limit:
            found.append(f"{name}: {ours:.2f} us of CPU time, {ours - base:.2f} more than {base:.2f}; the limit is "
                         f"{limit} more")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the figures there, too")
    parser.add_argument("--check", action="store_true", help="end with 1 if a limit is exceeded")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    result = {"python": sys.version.split()[0], "cco": cco.version(), "library": cco.library_path()}
    print(f"CPython {result['python']}, cco {result['cco']}; microseconds, median (P10-P90) of "
          f"{arguments.rounds} rounds")
    bare, imported, loaded = [], [], []
    in_c, in_python = {name: [] for name in CALLS}, {name: [] for name in CALLS}
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        run(sys.executable, "-c", "import cco")  # Compiles the package, once.
        for _ in range(arguments.rounds):
            bare.append(process_us("pass"))
            imported.append(process_us("import cco"))
            loaded.append(process_us("import cco; cco.library_path()"))
            for command, found in (([str(program)], in_c), ([sys.executable, "-c", PY_PROGRAM], in_python)):
                for name, line in zip(CALLS, run(*command).splitlines()):
                    found[name].append(tuple(map(float, line.split())))
    report("import cco", imported, bare, "bare interpreter", result)
    report("import, and load", loaded, bare, "bare interpreter", result)
    for name in CALLS:
        report(name, in_python[name], in_c[name], "C", result)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    slow = exceeded({"import cco": (imported, bare), **{name: (in_python[name], in_c[name]) for name in CALLS}})
    if arguments.check and slow:
        sys.exit("\n".join(slow))


if __name__ == "__main__":
    main()
