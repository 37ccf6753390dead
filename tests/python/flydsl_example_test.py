"""Goal    client/python/examples/flydsl_all_gather.py compiles as it is, and verifies what it says.
Method  its kernels are compiled for a GPU that is not there, and launched by FlyDSL on a HIP that
        only says what it is asked for; its host side runs as two ranks on the host driver, with
        copies of the process in place of kernels and of HIP."""

import subprocess
from pathlib import Path

import pytest

import flydsl_support
from conftest import SOURCE

if flydsl_support.missing():
    pytest.skip(f"FlyDSL: {flydsl_support.missing()}", allow_module_level=True)

HIP = Path(__file__).with_name("flydsl_hip.c")
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


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    if not (flydsl_support.BITCODE / "cco_gfx950.bc").exists():
        pytest.skip(f"no cco_gfx950.bc in {flydsl_support.BITCODE}: it needs clang++-19")
    return flydsl_support.Compiler(tmp_path_factory.mktemp("flydsl"))


LAUNCHES = f"""
import sys
sys.path.insert(0, "{EXAMPLE.parent}")
import flydsl_all_gather as example
example.by_engines(0x123456789abcde0, 0xfedcba987654320, 1 << 40)
example.by_stores(0x123456789abcde0, 0xfedcba987654320, 1 << 40, 7)
"""


def test_it_compiles(compiler, tmp_path):
    ended, kernels = compiler.run(EXAMPLE, "gfx950")
    assert "cco_gfx950.bc; nothing has run" in ended.stdout
    for name in ("by_engines_kernel", "by_stores_kernel"):
        assert flydsl_support.undefined_symbols(kernels[name], tmp_path) == []
        assert flydsl_support.unwaited_stores(kernels[name], tmp_path) == ""


def test_flydsl_launches_it_with_whole_addresses(compiler, tmp_path):
    """FlyDSL's own loader and launcher, down to the calls of HIP."""
    (tmp_path / "map").write_text("hip_4.2 { global: hip*; };")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libamdhip64.so.7", HIP,
                    f"-Wl,--version-script={tmp_path / 'map'},-soname,libamdhip64.so.7"], check=True)
    ended, _ = compiler.run(LAUNCHES, "gfx950", COMPILE_ONLY="0", LD_LIBRARY_PATH=str(tmp_path))
    launched = [line for line in ended.stdout.splitlines() if " grid " in line]
    words = "shared 0 stream 0 extra 0: 123456789abcde0 fedcba987654320 10000000000"
    assert launched == [f"by_engines_kernel_0 grid 1 1 1 block 64 1 1 {words}",
                        f"by_stores_kernel_0 grid 7 1 1 block 256 1 1 {words}"]


@pytest.mark.parametrize("how", ["engines", "stores"])
def test_its_host_side(processes, how):
    for ended in processes(2, ON_HOST, how, 0):
        assert f"by {how}, all right" in ended.out


def test_it_sees_a_wrong_word(processes):
    """Rank 1 lacks the last word of rank 0's shard, and alone says so."""
    codes = [one.code for one in processes(2, ON_HOST, "stores", 8, check=False)]
    assert codes == [0, 1]
