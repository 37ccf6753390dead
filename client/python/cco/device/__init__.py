"""The device bitcode: its one table of entry points, and where its files are. Imports the standard library alone.

    OPERATIONS          every row; `Operation.symbols()` are its `extern "C"` functions
    PARAMETERS          what the faces' arguments mean
    find_bitcode(t)     the file for a target of TARGETS
    status_of, rank_of  what a wait result says
"""

from __future__ import annotations

from .axes import ENUMERATIONS
from .bitcode import TARGETS, find_bitcode
from .glossary import PARAMETERS
from .model import NEVER, Argument, Axis, Choice, Operation, Parameter, Symbol
from .table_gda import GDA
from .table_lsa import DEVCOMM, LSA, TDM, WINDOW
from .table_sdma import SDMA

OPERATIONS: tuple[Operation, ...] = DEVCOMM + WINDOW + LSA + SDMA + TDM + GDA
NAMESPACES: tuple[str, ...] = ("DevComm", "Window", "Lsa", "Sdma", "Tdm", "Gda")


def symbols() -> tuple[Symbol, ...]:
    """Every `extern "C"` function, in the table's order."""
    return tuple(symbol for operation in OPERATIONS for symbol in operation.symbols())


def methods(namespace: str) -> dict[str, Operation]:
    """The methods of one of NAMESPACES, by name."""
    return {operation.method: operation for operation in OPERATIONS if operation.face == namespace}


def status_of(result: int) -> int:
    """WaitStatus of a wait result: 0 arrived, 1 timed out, 2 peer lost, 3 refused, 4 failed."""
    return result & 0xFFFFFFFF


def rank_of(result: int) -> int | None:
    """World rank that a wait result is about; None if about none."""
    rank = (result >> 32) & 0xFFFFFFFF
    return None if result == 0 or rank == 0xFFFFFFFF else rank


__all__ = ["ENUMERATIONS", "NAMESPACES", "NEVER", "OPERATIONS", "PARAMETERS", "TARGETS", "Argument", "Axis", "Choice",
           "Operation", "Parameter", "Symbol", "find_bitcode", "methods", "rank_of", "status_of", "symbols"]
