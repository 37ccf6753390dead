"""MORI's `mori.ir.triton.cco`: cco.triton under that name. Kernels written for it need no edit.

Beside the namespaces there is a function for each name of `mori.cco.device.ops.CCO_DEVICE_FUNCTIONS`:
`cco.gda_put_iw_inc(dev_comm, ctx, peer, ...)`, with its arguments in that table's order.

A call's result, which in MORI is always 0, is a wait result here: 0 as long as all goes well.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from triton.language import core

from cco import device as _device
from cco import triton as _triton
from cco.triton import (
    CoopScope,
    DevComm,
    Gda,
    Lsa,
    Sdma,
    SignalOp,
    Tdm,
    ThreadMode,
    Window,
    get_extern_libs,
)
from mori.cco.device.ops import CCO_DEVICE_FUNCTIONS
from mori.cco.device.ops import SdmaOptFlags as _Flags

get_cco_extern_libs = get_extern_libs

SdmaOptFlags = ModuleType(f"{__name__}.SdmaOptFlags", "Plain integers, in a module, which Triton lets kernels see.")
vars(SdmaOptFlags).update(DEFAULT=_Flags.DEFAULT, AGGREGATE=_Flags.AGGREGATE)


def _aggregate(flags: Any, semantic: Any) -> Any:
    """Bit 0 of SDMA's flags."""
    value = flags.value if isinstance(flags, core.constexpr) else flags
    return int(value) & 1 if isinstance(value, int) else semantic.and_(value, semantic.to_tensor(1))


def _raw(name: str, symbol: _device.Symbol) -> Any:
    """MORI's function of that symbol: the method of cco.triton with the arguments that choose the same."""
    row = symbol.operation
    _, space, method = row.base.split("_", maxsplit=2)
    target = getattr(getattr(_triton, row.face or space.capitalize()), row.method or method)
    chosen = {key: value for axis, choice in zip(row.axes, symbol.choices)
              for key, value in zip(axis.arguments, choice.values)}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(parameter.name, kind) for parameter in row.parameters])

    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        given = dict(signature.bind(*args, **kwargs).arguments)
        if "flags" in given:
            given["aggregate"] = _aggregate(given.pop("flags"), _semantic)
        return target(**given, **chosen, _semantic=_semantic)

    return _named(call, name, f"`{symbol.name}`, with its arguments; see {row.face or space.capitalize()}.")


def _system_fence(leader_only: Any = 0, _semantic: Any = None) -> Any:
    """Every thread fences, also where MORI has only the leader do so: that orders no less."""
    del leader_only
    return _triton.DevComm.system_fence(_semantic=_semantic)


def _named(function: Any, name: str, text: str | None) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return core.extern(function)


_SYMBOLS = {symbol.name: symbol for symbol in _device.symbols()}
_functions = {
    name: _raw(name, _SYMBOLS[described["symbol"]])
    for name, described in CCO_DEVICE_FUNCTIONS.items() if name != "system_fence"
} | {"system_fence": _named(_system_fence, "system_fence", _system_fence.__doc__)}
globals().update(_functions)

__all__ = [
    "CoopScope",
    "DevComm",
    "Gda",
    "Lsa",
    "Sdma",
    "SdmaOptFlags",
    "SignalOp",
    "Tdm",
    "ThreadMode",
    "Window",
    "get_cco_extern_libs",
    "get_extern_libs",
    *_functions,
]
