"""Goal    the wheel holds all that a machine without cco's headers and folders needs, and runs.
Method  deploy/python-wheel with the build's own library (it may need the distribution's gRPC: the self-contained one
        takes a second build), installed into a fresh environment; two ranks there pass their numbers round."""

import subprocess
import sys
import venv
import zipfile

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    version = tuple(map(int, pytest.importorskip("setuptools").__version__.split(".")[:2]))
    if version < (70, 1):
        pytest.skip(f"setuptools {version[0]}.{version[1]} beside {sys.executable}: wheels without a network need 70.1")
    bitcode = tmp_path_factory.mktemp("bitcode")
    (bitcode / "cco_nvptx64.bc").write_bytes(b"BC")
    output = tmp_path_factory.mktemp("wheel")
    told = call(SOURCE / "deploy" / "python-wheel", "--library", LIBRARY.resolve(), "--bitcode", bitcode, "--output",
                output, "--python", sys.executable)
    wheels = {path.rsplit("/", 1)[1].split("-")[0]: path for path in told.split()}
    assert wheels.keys() == {"cco", "cco_mori_alias"}
    return wheels


def test_what_is_in_it(wheel):
    assert "-py3-none-manylinux_2_" in wheel["cco"] and wheel["cco_mori_alias"].endswith("-py3-none-any.whl")
    assert "mori/cco/cco.py" in zipfile.ZipFile(wheel["cco_mori_alias"]).namelist()
    names = set(zipfile.ZipFile(wheel["cco"]).namelist())
    tracked = call("git", "-C", SOURCE / "client" / "python", "ls-files", "cco/*.py", "cco/torch/csrc/*").split()
    assert names >= {*tracked, "cco/py.typed", "cco/lib/libcco_client.so.0", "cco/device/bitcode/cco_nvptx64.bc",
                      "cco/include/cco/cco.h", "cco/include/cco/device/abi.h"}


def test_it_runs_from_a_fresh_environment(wheel, daemon, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", *wheel.values())
    path = call(python, "-I", "-c", HELLO, env={"CCO_SOCKET": daemon.socket}, cwd=tmp_path)
    assert path.startswith(str(tmp_path / "venv")) and path.endswith("cco/lib/libcco_client.so.0")
    daemon.expect_nothing_left()
