"""Goal    the programs of client/python/docs/torch.md and its example do what they say, under both launchers.
Method  as a user runs them: `torchrun` and `ccoctl run`, two ranks on CPU tensors, against a daemon."""

import os
import re
import subprocess
import sys

import pytest

from conftest import BUILD, CCOCTL, PATIENCE_S, SOURCE, child_environment

pytest.importorskip("torch", reason="no torch")

os.environ["XDG_CACHE_HOME"] = str(BUILD / "python-cache")  # None in anybody's home.
PYTHON = SOURCE / "client" / "python"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", (PYTHON / "docs" / "torch.md").read_text(encoding="utf-8"),
                      re.MULTILINE | re.DOTALL)
EXAMPLE = PYTHON / "examples" / "torch_symmetric_memory.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture(scope="module", autouse=True)
def extension():
    """Builds it once: else the launchers' time-outs would have to hold a compiler."""
    made = subprocess.run([sys.executable, "-m", "cco.torch.build"], env=child_environment(), capture_output=True,
                          text=True, timeout=600, check=False)
    assert made.returncode == 0, made.stderr


def launched(*command):
    ended = subprocess.run([str(part) for part in command], text=True, capture_output=True, timeout=2 * PATIENCE_S,
                           env=child_environment(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1"), check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_page_has_programs():
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_program(daemon, tmp_path, number):
    page = tmp_path / "page.py"
    page.write_text(PROGRAMS[number], encoding="utf-8")
    launched(*TORCHRUN, page)
    daemon.expect_nothing_left()


@pytest.mark.parametrize("launcher", [TORCHRUN, [CCOCTL, "run", "-n", "2", "--", sys.executable]],
                         ids=["torchrun", "ccoctl"])
def test_example(daemon, launcher):
    told = launched(*launcher, EXAMPLE)
    assert told.count("add up") == 2, told  # Two processes may share a line.
    daemon.expect_nothing_left()
