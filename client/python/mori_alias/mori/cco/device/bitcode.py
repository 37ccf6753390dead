"""Where the device bitcode is. Needs no framework."""

from __future__ import annotations

import os

from cco import Client, Error, device

__all__ = ["find_cco_bitcode", "get_bitcode_path"]

_TRITON, _FLYDSL = 5, 6  # Whose code objects have which version.


def _by_triton() -> str:
    from cco.triton import bitcode_target

    return bitcode_target()


def _by_flydsl() -> str:
    from flydsl.compiler.backends import get_backend

    return str(get_backend().target.arch)


def _by_daemon() -> str:
    with Client() as client:
        arch = client.gpu(0).arch
    if arch == "host":
        raise LookupError("cco-memd runs on its driver \"host\", without a GPU")
    return "nvptx64" if arch.startswith("sm_") else arch


def _target(cov: int) -> str:
    """What to compile for: of the environment, of the kernel language with these code objects, of the daemon."""
    named = os.environ.get("FLYDSL_GPU_ARCH") or os.environ.get("ARCH")
    if named:
        return named
    tried = []
    for ask in (_by_triton if cov == _TRITON else _by_flydsl, _by_daemon):
        try:
            return ask()
        except (ImportError, RuntimeError, LookupError, OSError, Error) as error:
            tried.append(f"{ask.__name__.removeprefix('_by_')}: {error}")
    raise FileNotFoundError(
        f"no GPU to find the device bitcode for ({'; '.join(tried)}). Set FLYDSL_GPU_ARCH, say gfx950 or nvptx64, or "
        "MORI_CCO_BC to a file"
    )


def find_cco_bitcode(cov: int = _FLYDSL) -> str:
    """Path of the device bitcode: the file that $MORI_CCO_BC names, else `cco.device.find_bitcode()`'s.

    cov  the code object version: 5 for Triton, 6 for FlyDSL. The bitcode has none of its own: both get one file.

    The GPU is that of $FLYDSL_GPU_ARCH or $ARCH, else what Triton (5) or FlyDSL (6) compiles for, else the first of
    cco-memd. ValueError: another `cov`, or no bitcode for that GPU. FileNotFoundError: not there, or no GPU to ask.
    """
    if cov not in (_TRITON, _FLYDSL):
        raise ValueError(f"code object version {cov}: the bitcode fits {_TRITON}, Triton's, and {_FLYDSL}, FlyDSL's")
    named = os.environ.get("MORI_CCO_BC")
    if named and os.path.isfile(named):
        return named
    return str(device.find_bitcode(_target(cov).split(":")[0].split("-")[0]))


get_bitcode_path = find_cco_bitcode
