"""Goal    the programs in client/python/docs/core.md do what the page says.
Method  each fenced Python block is run as two ranks, in processes."""

import re

import pytest

from conftest import SOURCE

pytest.importorskip("numpy")
PAGE = SOURCE / "client" / "python" / "docs" / "core.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_has_programs():
    assert len(PROGRAMS) >= 6


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_program(processes, daemon, program):
    for ended in processes(2, program):
        assert ended.err == ""
    daemon.expect_nothing_left()
