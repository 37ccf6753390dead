"""Calls of entry points of the device bitcode out of FlyDSL kernels."""

from __future__ import annotations

from functools import cache
from typing import Any

import flydsl.expr as fx
from flydsl.compiler.backends import get_backend
from flydsl.compiler.extern_link import link_extern
from flydsl.expr.extern import ffi

from cco import device
from cco.flydsl._values import int32, int64

_CODE_OBJECT_VERSION = 6  # Of everything that FlyDSL makes.
_ENTRIES = {symbol.name: symbol.operation for symbol in device.symbols()}
_CONVERT = {"int": int32, "u64": int64}
_FLYDSL_NAMES = {"int": "int32", "u64": "uint64", "void": "void"}
_RESULTS = {"int": fx.Int32, "u64": fx.Int64}


def find_cco_bitcode(cov: int = _CODE_OBJECT_VERSION) -> str:
    """Path of the device bitcode for the GPU that FlyDSL compiles for.

    That is `FLYDSL_GPU_ARCH` or `ARCH` of the environment, else the GPU of this machine.
    `cov`: the code object version; FlyDSL's is 6. Raises ValueError for another one or a GPU that
    there is no bitcode for, FileNotFoundError, which says what was looked at, if it is not there.
    """
    if cov != _CODE_OBJECT_VERSION:
        raise ValueError(f"code object version {cov}: FlyDSL makes version {_CODE_OBJECT_VERSION}")
    arch = str(get_backend().target.arch)
    return str(device.find_bitcode(arch.split(":")[0].split("-")[0]))


def call(symbol: str, *arguments: Any) -> Any:
    """Calls an entry point of the table by its name, from the kernel that is being traced.

    For those that no handle has a method for. Returns `fx.Int32`, `fx.Int64` or None, as the table
    says. KeyError: no such entry point; TypeError: too few or too many arguments, or one that is
    no integer; RuntimeError: not in a kernel.
    """
    operation = _ENTRIES[symbol]
    wanted = operation.parameters
    if len(arguments) != len(wanted):
        names = ", ".join(parameter.name for parameter in wanted)
        raise TypeError(f"{symbol} takes {len(wanted)} arguments ({names}), got {len(arguments)}")
    values = [_CONVERT[p.c_type](p.name, value) for p, value in zip(wanted, arguments)]
    result = _function(symbol, find_cco_bitcode())(*values)
    return None if result is None else _RESULTS[operation.result](result)


@cache
def _function(symbol: str, bitcode: str) -> Any:
    operation = _ENTRIES[symbol]
    types = [_FLYDSL_NAMES[parameter.c_type] for parameter in operation.parameters]
    extern = ffi(symbol, types, _FLYDSL_NAMES[operation.result])
    return link_extern(extern, bitcode_path=bitcode)
