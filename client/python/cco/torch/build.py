"""Compiles the extension under cco.torch ahead of time.

    python -m cco.torch.build                  # into the cache, where cco.torch looks; prints the path
    python -m cco.torch.build --output FOLDER  # for machines without a compiler: set CCO_TORCH_EXTENSION there

It implements two C++ interfaces of torch that differ between releases, so it cannot come with the wheel. It needs
g++ 11 or clang 14 or newer, neither nvcc nor a GPU toolkit, and no Python headers: Python calls it by ctypes.
The cache is $XDG_CACHE_HOME/cco/torch, or ~/.cache/cco/torch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cco.torch._build import BuildError, build, cache_folder, find_or_build, key

__all__ = ["BuildError", "build", "cache_folder", "find_or_build", "key"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cco.torch.build", description="Compiles cco.torch's extension.")
    parser.add_argument("--output", type=Path, help="the folder for it; default: the cache")
    folder = parser.parse_args().output
    try:
        print(build(folder))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
