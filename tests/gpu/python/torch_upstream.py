#!/usr/bin/env python3
"""Goal    upstream's own tests of symmetric memory pass with cco as the back-end of GPU tensors.
Method  the test file of the installed release of torch, unchanged, run test by test with "CCO" set as the back-end
        in every process; two GPUs. Tests of what other back-ends do inside are left out, by name.

The file is not in torch's wheel. Get it from the tag of this release, beside this script or anywhere:

    curl -O https://raw.githubusercontent.com/pytorch/pytorch/v2.11.0/test/distributed/test_symmetric_memory.py
    torch_upstream.py [--json FILE] [--select REGEX] test_symmetric_memory.py

$TORCH_UPSTREAM_TESTS may name it instead. Prints each test's outcome; exit code 1: a test failed,
77: none was tried.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# By name, each for a reason of its own.
LEFT_OUT = {
    "multimem|multicast": "takes multicast, which this back-end says it has not",
    "nccl|nvshmem|Nccl|NVSHMEM": "of another back-end",
    "pg_allgather|custom_backend|pg_rendezvous": "looks at how the CUDA back-end exchanges its handles",
    "test_lowering|LoweringTest": "of the compiler; takes no back-end",
    "subgroup": "takes four GPUs",
}
TEST_S = 120

# Python imports this by its name as it starts, in every process that the tests start.
SITE = """
import os
import cco.torch
import torch.distributed._symmetric_memory as _symm_mem
if os.environ["CCO_UPSTREAM_BACKEND"] != "CUDA":  # The default, which cannot be asked for by name.
    _symm_mem.set_backend(os.environ["CCO_UPSTREAM_BACKEND"])
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--select", default="", help="a regular expression of test names; default: all")
    parser.add_argument("--backend", default="CCO", help="for a run to compare with: CUDA")
    parser.add_argument("file", nargs="?", type=Path, default=os.environ.get("TORCH_UPSTREAM_TESTS"))
    asked = parser.parse_args()
    import torch

    if asked.file is None:
        print(f"skipped: takes upstream's test_symmetric_memory.py of torch {torch.__version__}; see --help")
        return 77
    if torch.cuda.device_count() < 2:
        print(f"skipped: takes two GPUs, and there are {torch.cuda.device_count()}")
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="cco-upstream-") as folder:
        (Path(folder) / "sitecustomize.py").write_text(SITE, encoding="utf-8")
        path = os.pathsep.join([folder, str(asked.file.resolve().parent), os.environ.get("PYTHONPATH", "")])
        results = run_all(asked, {**os.environ, "PYTHONPATH": path, "CCO_UPSTREAM_BACKEND": asked.backend})
    counts = {kind: sum(1 for one in results.values() if one["outcome"] == kind)
              for kind in ("passed", "skipped", "failed", "left out")}
    print(f"torch {torch.__version__}, back-end {asked.backend}: " +
          ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 1 if counts["failed"] or not counts["passed"] else 0


def run_all(asked, environment):
    results = {}
    for name in names_of(asked.file.stem, environment):
        if not re.search(asked.select, name):
            continue
        why = next((why for pattern, why in LEFT_OUT.items() if re.search(pattern, name)), None)
        if why is not None:
            results[name] = {"outcome": "left out", "why": why}
            continue
        began = time.monotonic()
        outcome, text = run_one(name, environment)
        results[name] = {"outcome": outcome, "seconds": round(time.monotonic() - began, 1)}
        print(f"{outcome:8} {name} ({results[name]['seconds']} s)", flush=True)
        if asked.json:  # After each, as time may run out.
            Path(asked.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
        if outcome == "failed":
            print("".join(f"         {line}\n" for line in text.splitlines()[-40:]), end="", flush=True)
    return results


def names_of(module, environment):
    """All tests that unittest finds, parametrised ones under their own names."""
    script = (
        f"import unittest\nfor suite in unittest.defaultTestLoader.loadTestsFromName({module!r}):\n"
        "    for test in suite:\n        print(test.id())\n"
    )
    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=180,
                          check=False)
    if told.returncode != 0:
        sys.exit(f"cannot list the tests of {module}: {told.stderr[-3000:]}")
    return [line for line in told.stdout.splitlines() if line.startswith(f"{module}.")]


def run_one(name, environment):
    with subprocess.Popen([sys.executable, "-m", "unittest", "-v", name], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as child:
        try:
            text = child.communicate(timeout=TEST_S)[0]
        except subprocess.TimeoutExpired:
            end_session(child)
            text = f"{child.communicate()[0]}\nnot ended after {TEST_S} s"
            return "failed", text
        finally:
            end_session(child)  # Also when this process is asked to end.
    if child.returncode != 0:
        return "failed", text
    return ("skipped" if "skipped=1" in text or "... skipped" in text else "passed"), text


def end_session(child):
    """The ranks are its children, in its session, and may outlive it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    sys.exit(main())
