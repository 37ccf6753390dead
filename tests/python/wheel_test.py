"""Goal    the wheel holds all that a machine without cco's headers and folders needs, runs, and its tag is true.
Method  deploy/python-wheel with the build's own library (it may need the distribution's gRPC: the self-contained one
        takes a second build), installed into a fresh environment by the name of its extra; two ranks there pass their
        numbers round. Tags: of that library, and of one that needs the C library alone."""

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from conftest import LIBRARY, PATIENCE_S, SOURCE

HELLO = """
import ctypes, sys
from concurrent.futures import ThreadPoolExecutor
import cco

def rank(number):
    with cco.Client() as client, cco.Group(client, rank=number, size=2, name="wheel", timeout_ms=20000) as group:
        with cco.Window(group, "hello", 4) as window:
            ctypes.c_uint32.from_address(window.address(1 - number)).value = 100 + number
            group.barrier()
            assert ctypes.c_uint32.from_address(window.address()).value == 101 - number
            group.barrier()

with ThreadPoolExecutor(2) as ranks:
    list(ranks.map(rank, range(2)))
import mori.cco
assert issubclass(mori.cco.Communicator, cco.Communicator)
print(cco.library_path())
"""


def call(*command, **options):
    ended = subprocess.run([str(part) for part in command], text=True, capture_output=True, timeout=5 * PATIENCE_S,
                           check=False, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.strip()


def tool(*arguments):
    """Runs deploy/python-wheel."""
    return subprocess.run([str(part) for part in (SOURCE / "deploy" / "python-wheel", *arguments, "--python",
                                                  sys.executable)],
                          text=True, capture_output=True, timeout=5 * PATIENCE_S, check=False)


def foreign():
    """What the build's library needs beyond the C and C++ libraries."""
    needed = re.findall(r"NEEDED +(\S+)", call("objdump", "-p", LIBRARY.resolve()))
    usual = r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+|ld-linux.*"
    return [name for name in needed if not re.fullmatch(usual, name)]


@pytest.fixture(scope="module", autouse=True)
def setuptools():
    version = tuple(map(int, pytest.importorskip("setuptools").__version__.split(".")[:2]))
    if version < (70, 1):
        pytest.skip(f"setuptools {version[0]}.{version[1]} beside {sys.executable}: wheels without a network need 70.1")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    bitcode = tmp_path_factory.mktemp("bitcode")
    (bitcode / "cco_nvptx64.bc").write_bytes(b"BC")
    output = tmp_path_factory.mktemp("wheel")
    told = tool("--library", LIBRARY.resolve(), "--any-library", "--bitcode", bitcode, "--output", output)
    assert told.returncode == 0, told.stdout + told.stderr
    wheels = {path.rsplit("/", 1)[1].split("-")[0]: path for path in told.stdout.split()}
    assert wheels.keys() == {"cco_heap", "cco_heap_mori"}
    return wheels


def test_what_is_in_it(wheel):
    assert ("-py3-none-linux_" if foreign() else "-py3-none-manylinux_2_") in wheel["cco_heap"]
    assert wheel["cco_heap_mori"].endswith("-py3-none-any.whl")
    assert "mori/cco/cco.py" in zipfile.ZipFile(wheel["cco_heap_mori"]).namelist()
    names = set(zipfile.ZipFile(wheel["cco_heap"]).namelist())
    tracked = call("git", "-C", SOURCE / "client" / "python", "ls-files", "cco/*.py", "cco/torch/csrc/*").split()
    assert names >= {*tracked, "cco/py.typed", "cco/lib/libcco_client.so.0", "cco/device/bitcode/cco_nvptx64.bc",
                      "cco/include/cco/cco.h", "cco/include/cco/device/abi.h"}


def test_a_library_that_needs_others_is_refused(tmp_path):
    """Its wheel would say "any Linux with this glibc" and fail on most."""
    if not foreign():
        pytest.skip(f"{LIBRARY} needs nothing beyond the C and C++ libraries")
    told = tool("--library", LIBRARY.resolve(), "--output", tmp_path)
    assert told.returncode == 1 and foreign()[0] in told.stderr and "--any-library" in told.stderr, told.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_needs_libc_alone_fits_every_linux(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no cc")
    (tmp_path / "alone.c").write_text('#include <stdio.h>\nint alone(void) { return puts(""); }\n')
    call(compiler, "-shared", "-fPIC", "-o", tmp_path / "alone.so", tmp_path / "alone.c")
    told = tool("--library", tmp_path / "alone.so", "--bitcode", tmp_path, "--output", tmp_path / "out")
    assert told.returncode == 0, told.stderr
    assert "no bitcode" in told.stderr and "-py3-none-manylinux_2_" in told.stdout, told.stdout


def test_no_public_index_can_give_another_package(wheel):
    """PyPI has a stranger's cco, and may get one of any name; it takes no version with a local part."""
    for path in wheel.values():
        archive = zipfile.ZipFile(path)
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
        assert re.search(r"^Version: \S+\+cco$", metadata, re.MULTILINE)
        for required in re.findall(r"^Requires-Dist: (cco\S*)", metadata, re.MULTILINE):
            assert re.fullmatch(r"cco-heap(-mori)?==\S+\+cco;?", required), required


def test_it_runs_from_a_fresh_environment(wheel, daemon, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
         "--find-links", Path(wheel["cco_heap"]).parent, "cco-heap[mori]")
    path = call(python, "-I", "-c", HELLO, env={"CCO_SOCKET": daemon.socket}, cwd=tmp_path)
    assert path.startswith(str(tmp_path / "venv")) and path.endswith("cco/lib/libcco_client.so.0")
    daemon.expect_nothing_left()
