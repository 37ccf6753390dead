"""MORI's table of device functions, generated from the rows of `cco.device` that MORI has. Needs no framework.

CCO_DEVICE_FUNCTIONS  name in Python -> symbol of the bitcode, types of its arguments and result, whether it only reads

The types are those of cco's bitcode. In newer MORI what returns nothing returns int32 0, and `cco_system_fence` takes
an int: `mori.ir.triton.cco` has both.
"""

from __future__ import annotations

from typing import Any

from cco.device import ENUMERATIONS, Symbol, methods, symbols

__all__ = [
    "CCO_DEVICE_FUNCTIONS",
    "CCO_DEVICE_FUNCTIONS_BY_SYMBOL",
    "COOP_TAGS",
    "CoopScope",
    "GDA_DATA_TAGS",
    "GDA_SIGNAL_TAGS",
    "SdmaOptFlags",
    "SignalOp",
    "ThreadMode",
]


class CoopScope:
    """Who makes a call together."""

    THREAD = ENUMERATIONS["CoopScope"]["THREAD"]
    WARP = ENUMERATIONS["CoopScope"]["WARP"]
    BLOCK = ENUMERATIONS["CoopScope"]["BLOCK"]


class SignalOp:
    """What happens to the peer's signal behind the bytes."""

    NONE = ENUMERATIONS["SignalOp"]["NONE"]
    INC = ENUMERATIONS["SignalOp"]["INC"]
    ADD = ENUMERATIONS["SignalOp"]["ADD"]


class ThreadMode:
    """AGGREGATE: all threads that call together name the same peer."""

    INDEPENDENT = ENUMERATIONS["ThreadMode"]["INDEPENDENT"]
    AGGREGATE = ENUMERATIONS["ThreadMode"]["AGGREGATE"]


class SdmaOptFlags:
    """Bits of `flags` of SDMA puts and gets."""

    DEFAULT = 0
    AGGREGATE = 1


_TYPES = {"u64": "uint64", "int": "int32", "void": "void"}


def _described(symbol: Symbol) -> dict[str, Any]:
    row = symbol.operation
    return {
        "symbol": symbol.name,
        "args": [_TYPES[parameter.c_type] for parameter in row.parameters],
        "ret": _TYPES[row.result],
        "pure": row.face == "DevComm" and bool(row.parameters) or row.face == "Window",
        "family": row.base.removeprefix("cco_"),
        "tag": "__".join(choice.tag for choice in symbol.choices) or None,
    }


def _rows() -> list[Symbol]:
    fence = methods("DevComm")["system_fence"]
    return [symbol for symbol in symbols() if symbol.operation.of_mori] + list(fence.symbols())


CCO_DEVICE_FUNCTIONS: dict[str, dict[str, Any]] = {
    symbol.name.removeprefix("cco_").replace("__", "_"): _described(symbol) for symbol in _rows()
}
CCO_DEVICE_FUNCTIONS_BY_SYMBOL: dict[str, tuple[str, dict[str, Any]]] = {
    described["symbol"]: (name, described) for name, described in CCO_DEVICE_FUNCTIONS.items()
}

COOP_TAGS = ("thread", "warp", "block")
GDA_DATA_TAGS = ("it", "iw", "ib", "at")
GDA_SIGNAL_TAGS = ("none", "inc", "add")
