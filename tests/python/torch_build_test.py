"""Goal    cco.torch's extension is compiled once, found again, and what hinders it is told with the way out.
Method  `python -m cco.torch.build` and imports in processes of their own, with caches and compilers that are gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BUILD, child_environment

pytest.importorskip("torch", reason="no torch")

os.environ["XDG_CACHE_HOME"] = str(BUILD / "python-cache")  # None in anybody's home.


def build(*arguments, **variables):
    command = [sys.executable, "-m", "cco.torch.build", *arguments]
    return subprocess.run(command, env=child_environment(**variables), capture_output=True, text=True, timeout=600,
                          check=False)


def test_the_extension_is_built_once_and_found(tmp_path):
    """A second build of the same is the file that is there, and a named one is checked."""
    first, again = build(), build(CXX="/nonexistent")
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert first.stdout == again.stdout
    path = Path(first.stdout.strip())
    assert path.is_file() and Path(os.environ["XDG_CACHE_HOME"]) in path.parents
    wrong = tmp_path / "torch-0.0.so"
    wrong.touch()
    for named, reason in ((wrong, "another torch"), (tmp_path / "none.so", "no file")):
        seen = import_it(CCO_TORCH_EXTENSION=str(named))
        assert seen.returncode == 0 and reason in seen.stderr and "register_symm_backend" in seen.stderr, seen.stderr
    seen = import_it(CCO_TORCH_EXTENSION=str(path))
    assert seen.returncode == 0 and not seen.stderr, seen.stderr


def test_the_extension_has_no_copy_of_the_cpp_library(tmp_path):
    """Whatever the compiler links by itself. With a copy, an error with a number in its text ended the process."""
    needed = subprocess.run(["readelf", "-d", build().stdout.strip()], capture_output=True, text=True, timeout=60,
                            check=True).stdout
    assert "[libstdc++.so.6]" in needed, needed
    compiler, seen = tmp_path / "compiler", tmp_path / "seen"
    compiler.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\nexit 1\n', encoding="utf-8")
    compiler.chmod(0o755)
    assert build(XDG_CACHE_HOME=str(tmp_path), CXX=str(compiler)).returncode == 1
    libraries = [line for line in seen.read_text(encoding="utf-8").splitlines() if "libstdc++" in line]
    assert libraries and all(os.path.isfile(path) for path in libraries), libraries


def test_a_first_build_is_announced_and_leaves_one_file(tmp_path):
    """Nobody should wonder what an import does for ten seconds."""
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ntouch "$2"\n', encoding="utf-8")
    compiler.chmod(0o755)
    cache = tmp_path / "cache"
    first, again = (build(XDG_CACHE_HOME=str(cache), CXX=str(compiler)) for _ in range(2))
    assert first.returncode == again.returncode == 0, first.stderr
    # Both also warn that this compiler's work, an empty file, cannot be loaded.
    (line,) = [line for line in first.stderr.splitlines() if "compiling" in line]
    assert line.startswith("cco.torch: compiling its extension") and str(cache) in line
    assert "compiling" not in again.stderr
    assert [path.name for path in (cache / "cco/torch").iterdir()] == [Path(first.stdout.strip()).name]


def import_it(module="cco.torch", **variables):
    return subprocess.run([sys.executable, "-c", f"import {module}"], env=child_environment(**variables),
                          capture_output=True, text=True, timeout=120, check=False)


def test_without_a_compiler_it_says_what_to_do(tmp_path):
    seen = build(XDG_CACHE_HOME=str(tmp_path), CXX="no-such-compiler")
    assert seen.returncode == 1
    for part in ("no-such-compiler", "CXX", "g++", "CCO_TORCH_EXTENSION"):
        assert part in seen.stderr, seen.stderr
    seen = build(XDG_CACHE_HOME=str(tmp_path), CXX="false")
    assert seen.returncode == 1 and "the compiler fails with 1" in seen.stderr
    assert not list(tmp_path.rglob("*.so")), "half a build is left"


@pytest.mark.parametrize("module", ["cco.torch", "mori.allocator"])
def test_an_import_that_cannot_register_warns_once(module):
    seen = import_it(module, CCO_LIBRARY="/nonexistent")
    assert seen.returncode == 0 and seen.stderr.count("has not registered its back-end") == 1, seen.stderr
    assert f"{module}.register_symm_backend()" in seen.stderr and seen.stderr.startswith("<string>:1: RuntimeWarning")


def test_a_daemon_that_is_not_there_is_told(tmp_path):
    script = "import torch, cco.torch\ntorch.distributed._symmetric_memory.empty(4, device='cpu')\n"
    seen = subprocess.run([sys.executable, "-c", f"import torch.distributed._symmetric_memory\n{script}"],
                          env=child_environment(CCO_SOCKET=str(tmp_path / "none.sock")), capture_output=True,
                          text=True, timeout=120, check=False)
    assert seen.returncode == 1 and "attaching to cco-memd: CCO_UNAVAILABLE" in seen.stderr, seen.stderr
