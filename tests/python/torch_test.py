"""Goal    torch's symmetric memory works over cco with CPU tensors: memory, signals, groups, errors, ends in any order.
Method  ranks as processes with gloo, each a scenario of torch_ranks.py, against a real daemon on the host driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BUILD, PATIENCE_S, child_environment

pytest.importorskip("torch", reason="no torch")

RANKS = Path(__file__).with_name("torch_ranks.py")
# One build of the extension for all tests, and none in anybody's home.
os.environ["XDG_CACHE_HOME"] = str(BUILD / "python-cache")


@pytest.fixture(scope="module", autouse=True)
def extension():
    """Builds it once: else the ranks' time-outs would have to hold a compiler."""
    made = subprocess.run([sys.executable, "-m", "cco.torch.build"], env=child_environment(), capture_output=True,
                          text=True, timeout=600, check=False)
    assert made.returncode == 0, made.stderr


SCENARIOS = {"basics": 3, "groups": 3, "histories": 3, "errors": 2, "absent": 2, "teardown": 2,
             "external": 2, "misuse": 1, "communicator": 2, "mori": 2}


@pytest.mark.parametrize("scenario, count", SCENARIOS.items())
def test_ranks(daemon, processes, tmp_path, scenario, count):
    processes(count, RANKS, scenario, tmp_path, PATIENCE_S=str(PATIENCE_S * 0.8))
    daemon.expect_nothing_left()
