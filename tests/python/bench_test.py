"""Goal    client/python/bench.py measures against a daemon, and its --check names what is slow.
Method  one round, without limits: times are not a test's business; and made-up rounds within the limits and beyond."""

import runpy
import shutil
import subprocess
import sys

import pytest

from conftest import PATIENCE_S, SOURCE, child_environment

BENCH = SOURCE / "client" / "python" / "bench.py"


def test_one_round(daemon):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc for the C half")
    told = subprocess.run([sys.executable, str(BENCH), "--rounds", "1"], text=True, capture_output=True,
                          timeout=4 * PATIENCE_S, check=False, env=child_environment(CCO_SOCKET=daemon.socket))
    assert told.returncode == 0, told.stdout + told.stderr
    daemon.expect_nothing_left()


def test_what_is_slow_is_named():
    exceeded = runpy.run_path(str(BENCH))["exceeded"]
    base = [(0.0, 1.0), (0.0, 3.0)]
    rounds = {name: (base, base) for name in ("import cco", "get_address", "get_info", "create and destroy")}
    assert exceeded(rounds) == []
    rounds["get_info"] = ([(1.0, 90.0), (99.0, 16.5)], base)
    (told,) = exceeded(rounds)
    assert "get_info" in told and "16.50" in told and "15.50 more" in told and "limit is 15" in told
