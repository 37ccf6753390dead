"""Goal    the script that tries the core package on a GPU, tests/gpu/python/core.py, works where it can be tried here.
Method  it runs on the host driver, with torch on the CPU, and says what it verified."""

import subprocess
import sys

import pytest

from conftest import PATIENCE_S, SOURCE, child_environment

pytest.importorskip("torch")


def test_core(daemon):
    ended = subprocess.run([sys.executable, str(SOURCE / "tests" / "gpu" / "python" / "core.py")], text=True,
                           env=child_environment(), capture_output=True, timeout=3 * PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("verified: ") == 8, ended.stdout
    daemon.expect_nothing_left()
