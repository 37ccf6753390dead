"""The extension under cco.torch: found, or compiled once for each release of torch. See cco.torch.build."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import cco

_SOURCES = Path(__file__).resolve().parent / "csrc"
_COMPILE_S = 600


class BuildError(RuntimeError):
    """The extension is not there and could not be built; the text says what to do."""


def _include_folders() -> list[Path]:
    """Where cco/cco.h and what it includes are: in the wheel, beside the library, or in the source tree."""
    package = Path(__file__).resolve().parents[1]
    prefix = Path(cco.library_path()).resolve().parent.parent
    source = package.parents[2]
    in_tree = [source / "client" / "include", source / "device" / "include"]
    tried = [[package / "include"], [prefix / "include"], in_tree]
    for folders in tried:
        if (folders[0] / "cco" / "cco.h").is_file() and (folders[-1] / "cco" / "device" / "abi.h").is_file():
            return folders
    names = ", ".join(str(folders[0]) for folders in tried)
    raise BuildError(f"cco.torch finds no cco/cco.h: tried {names}. Install cco's headers (cco-dev)")


def _torch_release() -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def _compiler() -> list[str]:
    """With its first options, as in CXX="ccache g++"."""
    named = os.environ.get("CXX")
    candidates = [named] if named else ["g++", "clang++", "c++"]
    for candidate in candidates:
        words = shlex.split(candidate)
        if words and shutil.which(words[0]) is not None:
            return words
    raise BuildError(
        f"cco.torch needs a C++ compiler once for torch {torch.__version__}, and finds none of "
        f"{', '.join(candidates)}. "
        "Install g++, or set CXX to a compiler, or build it on another machine with the same torch by `python -m "
        "cco.torch.build --output FOLDER` and set CCO_TORCH_EXTENSION to that file here"
    )


def _flags() -> list[str]:
    major, minor = _torch_release()
    return [
        *"-std=c++20 -O2 -g0 -fPIC -shared -fvisibility=hidden -Wall -Wno-unknown-pragmas".split(),
        f"-DCCO_TORCH_RELEASE={major * 100 + minor}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ]


def _standard_library() -> list[str]:
    """The C++ library that torch has loaded. Some compilers find only its archive: locales of a second copy inside the
    extension are not those of the first, and a number in an error's text would end the process."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        loaded = {line.split(maxsplit=5)[-1].strip() for line in maps if "/libstdc++.so." in line}
    return sorted(path for path in loaded if os.path.isfile(path))[:1]


def _command(compiler: list[str], output: Path) -> list[str]:
    root = Path(torch.__file__).resolve().parent
    headers = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include"]
    return [
        *compiler,
        *_flags(),
        *(f"-isystem{folder}" for folder in headers),
        *(f"-I{folder}" for folder in _include_folders()),
        str(_SOURCES / "backend.cc"),
        *("-o", str(output), f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10", "-ldl", *_standard_library()),
    ]


def key() -> str:
    """Names a build: what differs gives another key. Equal sources, headers, torch and flags are one build."""
    digest = hashlib.sha256()
    folders = _include_folders()
    files = [*sorted(_SOURCES.iterdir()), folders[0] / "cco" / "cco.h"]
    files += sorted((folders[-1] / "cco" / "device").glob("abi*.h"))
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    digest.update(f"{_flags()} {platform.machine()}".encode())
    return f"torch-{torch.__version__}-{digest.hexdigest()[:16]}"


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "cco" / "torch"


def build(folder: Path | None = None) -> Path:
    """Compiles the extension into `folder` (None: the cache) unless it is there; its path.

    Safe between processes: one compiles, the others wait for it, ten minutes at most. BuildError.
    """
    folder = cache_folder() if folder is None else folder
    name = key()
    path = folder / f"{name}.so"
    if path.exists():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Whoever holds the lock ends by itself: the compiler has its own time limit, and a dead process holds none.
        with open(folder / f"{name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                if not path.exists():
                    _compile(path)
            finally:
                # Others may still wait for this file, and find the build. If there is none, they and whoever makes
                # the next file compile at once, which costs time alone.
                Path(lock.name).unlink(missing_ok=True)
    except OSError as error:
        raise BuildError(f"cco.torch cannot write its extension into {folder}: {error}. Set XDG_CACHE_HOME") from None
    return path


def _compile(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        unfinished = Path(scratch) / path.name
        command = _command(_compiler(), unfinished)
        print(f"cco.torch: compiling its extension for torch {torch.__version__}, once, into {path.parent}",
              file=sys.stderr, flush=True)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
        except subprocess.TimeoutExpired:
            raise BuildError(f"cco.torch: the compiler has not ended in {_COMPILE_S} s: {' '.join(command)}") from None
        if done.returncode != 0:
            raise BuildError(
                f"cco.torch: the compiler fails with {done.returncode}; is torch {torch.__version__} one that "
                f"docs/torch.md lists? {' '.join(command)}\n{done.stderr[-4000:]}"
            )
        os.replace(unfinished, path)


def find_or_build() -> str:
    """$CCO_TORCH_EXTENSION if set (wrong is an error), else the cached build, made if need be. BuildError."""
    named = os.environ.get("CCO_TORCH_EXTENSION")
    if named is None:
        return str(build())
    if not os.path.isfile(named):
        raise BuildError(f"CCO_TORCH_EXTENSION is {named!r}, which is no file: name a build, or unset it")
    if os.path.basename(named) != f"{key()}.so":
        raise BuildError(
            f"CCO_TORCH_EXTENSION is {named!r}, a build of other sources or of another torch; this needs {key()}.so: "
            "run `python -m cco.torch.build --output FOLDER` with this release of cco and of torch"
        )
    return named
