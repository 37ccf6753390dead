"""Where the device bitcode is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

TARGETS: tuple[str, ...] = ("nvptx64", "gfx90a", "gfx942", "gfx950", "gfx1250")


def _folders() -> list[tuple[str, Path]]:
    """(what it is, folder) in the order in which they are looked at."""
    here = Path(__file__).resolve().parent
    folders = [("carried in the package", here / "bitcode")]
    # Beside an installed library (PREFIX/lib, PREFIX/lib64, PREFIX/lib/TRIPLE), else where one installs by hand.
    library = os.environ.get("CCO_LIBRARY", "")
    prefixes = list(Path(library).resolve().parents)[1:3] if library else []
    prefixes += [Path(sys.prefix), Path("/usr/local"), Path("/usr")]
    return folders + [("installed", prefix / "share/cco/bitcode") for prefix in prefixes]


def find_bitcode(target: str) -> Path:
    """The bitcode for a target of TARGETS.

    Looked at in turn: the folder that $CCO_BITCODE_DIR names (then it must be there), the one in this package,
    share/cco/bitcode of the prefix of $CCO_LIBRARY and of the usual ones.

    ValueError: no such target. FileNotFoundError: not there; the message says what was looked at and what to do.
    """
    if target not in TARGETS:
        raise ValueError(f"no device bitcode for '{target}': there is {', '.join(TARGETS)}")
    name = f"cco_{target}.bc"
    named = os.environ.get("CCO_BITCODE_DIR")
    folders = _folders() if named is None else [("$CCO_BITCODE_DIR", Path(named))]
    for _, folder in folders:
        if (folder / name).is_file():
            return folder / name
    looked = "; ".join(f"{what}: {folder / name}" for what, folder in folders)
    raise FileNotFoundError(
        f"no device bitcode for {target}. Looked at {looked}. Build it (cmake --build BUILD --target cco_bitcode, "
        "which needs clang-19) and set CCO_BITCODE_DIR=BUILD/device/bitcode, or install cco where it is looked for")
