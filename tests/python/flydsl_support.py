"""Compiles FlyDSL scripts for a GPU that is not there, and reads what came out."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import BUILD, PATIENCE_S, SOURCE, child_environment

BITCODE = BUILD / "device" / "bitcode"
ISA_CHECK = SOURCE / "tests" / "tidy" / "isa" / "isa_check.py"
NEEDED = ("flydsl", "numpy", "torch")  # FlyDSL imports the other two and does not declare them.


def missing():
    """What this machine lacks to compile with FlyDSL; empty if nothing."""
    lacks = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacks:
        return f"no Python package {', '.join(lacks)}"
    return "" if linker() else "no ld.lld of LLVM 19 or later"


@functools.cache
def linker():
    """An ld.lld that knows FlyDSL's code objects, those of version 6; None if there is none."""
    for name in ("ld.lld-22", "ld.lld-21", "ld.lld-20", "ld.lld-19", "ld.lld"):
        path = shutil.which(name)
        if path is not None:
            told = subprocess.run([path, "--version"], capture_output=True, text=True, check=True,
                                  timeout=PATIENCE_S).stdout
            version = re.search(r"LLD (\d+)", told)
            if version and int(version.group(1)) >= 19:
                return path
    return None


@dataclass
class Kernel:
    """One compiled kernel: LLVM IR before device bitcode is linked, assembly, the code object."""

    llvm_ir: str
    assembly: list[str]
    code_object: bytes

    def calls(self):
        """Entry points that are called before linking, in order."""
        return re.findall(r"call (?:\w+ )?\S+ @(cco_\w+)\(", self.llvm_ir)

    def count(self, pattern):
        return sum(bool(re.search(pattern, line)) for line in self.assembly)

    def has_sequence(self, *patterns):
        """Whether instructions that match appear in this order, with anything in between."""
        rest = iter(self.assembly)
        return all(any(re.search(pattern, line) for line in rest) for pattern in patterns)


class Compiler:
    """Runs FlyDSL scripts in a folder, where FlyDSL finds a linker and caches nothing."""

    def __init__(self, folder):
        self.folder = Path(folder)
        tools = self.folder / "rocm" / "llvm" / "bin"
        tools.mkdir(parents=True)
        (tools / "ld.lld").symlink_to(linker())

    def run(self, script, arch, *arguments, check=True, **variables):
        """Runs `script` (a path, or Python source), which calls its launchers: FlyDSL compiles
        them for `arch` and launches nothing. Returns the process and the kernels by name."""
        path = Path(script) if "\n" not in str(script) else self._written(script)
        dump = self.folder / f"dump-{arch}-{path.stem}"
        shutil.rmtree(dump, ignore_errors=True)
        ended = subprocess.run(
            [sys.executable, str(path), *arguments], capture_output=True, text=True, check=False,
            timeout=5 * PATIENCE_S, env=child_environment(**{
                "HOME": str(self.folder), "ROCM_PATH": str(self.folder / "rocm"), "ARCH": arch,
                "FLYDSL_GPU_ARCH": arch, "COMPILE_ONLY": "1", "FLYDSL_RUNTIME_ENABLE_CACHE": "0",
                "FLYDSL_DUMP_IR": "1", "FLYDSL_DUMP_DIR": str(dump),
                "CCO_BITCODE_DIR": str(BITCODE), **variables}))
        if check:
            assert ended.returncode == 0, f"{path.name} for {arch}:\n{ended.stdout}{ended.stderr}"
        # FlyDSL numbers the kernels of a module: pass_right_0.
        kernels = {re.sub(r"_\d+$", "", one.name): _read(one) for one in sorted(dump.glob("*"))}
        return ended, kernels

    def _written(self, source):
        path = self.folder / f"script{len(list(self.folder.glob('script*')))}.py"
        path.write_text(source, encoding="utf-8")  # FlyDSL reads kernels' sources from files.
        return path


def _read(folder):
    def text(pattern):
        found = sorted(folder.glob(pattern))
        assert len(found) == 1, f"{folder} has {[one.name for one in folder.iterdir()]}"
        return found[0].read_text(encoding="utf-8")

    assembly = re.split(r"\n\s*\.section", text("*_final_isa.s"))[0].splitlines()
    binary = re.search(r'bin = "((?:[^"\\]|\\.)*)"', text("*_gpu_module_to_binary.mlir"))
    code = re.sub(rb"\\([0-9A-F]{2}|[\\\"])", _unescape, binary.group(1).encode("latin-1"))
    return Kernel(text("*_llvm_ir.ll"), [line.strip() for line in assembly], code)


def _unescape(match):
    escaped = match.group(1)
    return bytes([int(escaped, 16)]) if len(escaped) == 2 else escaped


def _llvm(name):
    tool = shutil.which(f"{name}-22") or shutil.which(name)
    if tool is None:
        pytest.skip(f"no {name}")
    return tool


def unwaited_stores(kernel, folder):
    """Stores after a write-back that nobody has waited for; empty if all is well."""
    path = Path(folder) / "kernel.co"
    path.write_bytes(kernel.code_object)
    ended = subprocess.run([sys.executable, str(ISA_CHECK), "shipped", str(path)], check=False,
                           capture_output=True, text=True, timeout=PATIENCE_S,
                           env={**os.environ, "LLVM_OBJDUMP": _llvm("llvm-objdump")})
    assert not ended.stderr, ended.stderr
    return ended.stdout


def undefined_symbols(kernel, folder):
    """What the code object expects of others. FlyDSL's linker does not mind, the loader would."""
    path = Path(folder) / "kernel.co"
    path.write_bytes(kernel.code_object)
    ended = subprocess.run([_llvm("llvm-nm"), "-D", "-u", "-j", str(path)], check=True,
                           capture_output=True, text=True, timeout=PATIENCE_S)
    return ended.stdout.split()
