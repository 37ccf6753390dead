"""Goal    client/python/examples/flydsl_all_gather.py compiles as it is, and verifies what it says.
Method  its kernels are compiled for a GPU that is not there; its host side runs as two ranks on the
        host driver, with copies of the process in place of kernels and of HIP."""

import pytest

import flydsl_support
from conftest import SOURCE

if flydsl_support.missing():
    pytest.skip(f"FlyDSL: {flydsl_support.missing()}", allow_module_level=True)

EXAMPLE = SOURCE / "client" / "python" / "examples" / "flydsl_all_gather.py"
ON_HOST = f"""
import ctypes, importlib.util, sys
spec = importlib.util.spec_from_file_location("example", "{EXAMPLE}")
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
import cco

class Memory:
    def __init__(self, device): pass
    def copy(self, to, source, size): ctypes.memmove(to, source, size)
    def synchronize(self): pass

def all_gather(comm, window, shard_bytes, blocks=None):
    for peer in range(group.size):
        place = group.rank * shard_bytes
        size = shard_bytes - int(sys.argv[2]) * (peer == 1)
        if peer != group.rank:
            ctypes.memmove(live.address(peer, place), live.address(None, place), size)

class Window(cco.Window):
    def __init__(self, *arguments):
        global live
        live = self
        super().__init__(*arguments)

example.Hip, cco.Window = Memory, Window
example.by_engines = example.by_stores = all_gather
with cco.Group.from_env() as group:
    sys.exit(not example.gather(group, sys.argv[1] == "stores"))
"""


def test_it_compiles(tmp_path):
    if not (flydsl_support.BITCODE / "cco_gfx950.bc").exists():
        pytest.skip(f"no cco_gfx950.bc in {flydsl_support.BITCODE}: it needs clang++-19")
    ended, kernels = flydsl_support.Compiler(tmp_path).run(EXAMPLE, "gfx950")
    assert "cco_gfx950.bc; nothing has run" in ended.stdout
    for name in ("by_engines_kernel", "by_stores_kernel"):
        assert flydsl_support.undefined_symbols(kernels[name], tmp_path) == []
        assert flydsl_support.unwaited_stores(kernels[name], tmp_path) == ""


@pytest.mark.parametrize("how", ["engines", "stores"])
def test_its_host_side(processes, how):
    for ended in processes(2, ON_HOST, how, 0):
        assert f"by {how}, all right" in ended.out


def test_it_sees_a_wrong_word(processes):
    """Rank 1 lacks the last word of rank 0's shard, and alone says so."""
    codes = [one.code for one in processes(2, ON_HOST, "stores", 8, check=False)]
    assert codes == [0, 1]
