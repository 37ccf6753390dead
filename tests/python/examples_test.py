"""Goal    each example of client/python/examples verifies what it says, under both launchers.
Method  as a user runs it: `ccoctl run` and `torchrun`, against a daemon; it prints one line for each rank."""

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CCOCTL, PATIENCE_S, SOURCE, child_environment

pytest.importorskip("numpy")
EXAMPLES = SOURCE / "client" / "python" / "examples"
CASES = [("hello_window.py", [], "from rank"), ("lsa_all_gather.py", ["65536"], "0 values wrong")]


def launched(launcher, script, arguments):
    ended = subprocess.run([*launcher, str(EXAMPLES / script), *arguments], env=child_environment(), text=True,
                           capture_output=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize(("script", "arguments", "text"), CASES)
def test_under_ccoctl(daemon, script, arguments, text):
    told = launched([str(CCOCTL), "--socket", daemon.socket, "run", "-n", "4", "--", sys.executable], script, arguments)
    assert told.count(text) == 4, told
    daemon.expect_nothing_left()


@pytest.mark.parametrize(("script", "arguments", "text"), CASES)
def test_under_torchrun(daemon, script, arguments, text):
    torchrun = Path(sys.executable).with_name("torchrun")
    if not torchrun.exists():
        pytest.skip(f"no torch beside {sys.executable}")
    told = launched([str(torchrun), "--standalone", "--nproc-per-node", "3"], script, arguments)
    assert told.count(text) == 3, told
    daemon.expect_nothing_left()


def test_an_example_that_finds_something_wrong_fails(daemon):
    """The gather's own check: a value is changed while it runs."""
    script = (EXAMPLES / "lsa_all_gather.py").read_text().replace(
        "        everything = ", "        mine[1] += 1\n        everything = ")
    assert "mine[1]" in script
    ended = subprocess.run([sys.executable, "-c", script, "64"], text=True, capture_output=True, timeout=PATIENCE_S,
                           check=False, env=child_environment(
                               CCO_RANK="0", CCO_SIZE="1", CCO_JOB="wrong", PYTHONPATH=f"{EXAMPLES}:{EXAMPLES.parent}"))
    assert ended.returncode == 1 and "1 values wrong" in ended.stdout, ended.stderr
