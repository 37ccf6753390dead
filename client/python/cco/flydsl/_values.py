"""What crosses from a FlyDSL kernel into device bitcode: 32-bit and 64-bit integers, nothing else.

Everything here runs while a kernel is traced. Thread-safe as FlyDSL's tracing is: each trace has
values of its own.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl.expr.numeric import Integer, Numeric


class Handle:
    """A 64-bit word of a kernel, an address on the device, and methods on it.

    FlyDSL carries it through `if`, `for` and `while` of run-time values as one IR value. The word
    may be a kernel's argument of type `Int64`, another handle, or a Python int.
    """

    word: Any  # fx.Int64

    def __init__(self, word: Any) -> None:
        self.word = _handle_word(type(self).__name__, word)

    def __extract_to_ir_values__(self) -> list[Any]:
        return [self.word.ir_value()]

    @classmethod
    def __construct_from_ir_values__(cls, values: list[Any], exemplar: Any = None) -> Handle:
        handle = object.__new__(cls)
        handle.word = fx.Int64(values[0])
        return handle


def int32(name: str, value: Any) -> Any:
    """`value` as `fx.Int32`; 64-bit ones keep their low half. TypeError unless it is an integer."""
    return _integer(fx.Int32, name, value)


def int64(name: str, value: Any) -> Any:
    """`value` as `fx.Int64`, extended as its own type says. A handle is its word. TypeError
    unless it is an integer."""
    return _integer(fx.Int64, name, value.word if isinstance(value, Handle) else value)


def _handle_word(name: str, value: Any) -> Any:
    width = _width(value)
    if width is not None and width < 64:
        raise TypeError(
            f"{name} of a {width}-bit value: addresses have 64 bits. Give the kernel's and the "
            "launcher's argument the type flydsl.expr.Int64."
        )
    return int64(name, value)


def _width(value: Any) -> int | None:
    """Bits of a run-time integer; None of a Python int, a constant, a handle or an index."""
    if isinstance(value, Numeric):
        return type(value).width if isinstance(value.value, ir.Value) else None
    if isinstance(value, ir.Value) and isinstance(value.type, ir.IntegerType):
        return int(ir.IntegerType(value.type).width)
    return None


def _integer(kind: type, name: str, value: Any) -> Any:
    if isinstance(value, ir.Value):
        integral = isinstance(value.type, (ir.IntegerType, ir.IndexType))
    else:
        integral = isinstance(value, (int, Integer))
    if not integral:
        raise TypeError(
            f"{name} is a {type(value).__name__}, and entry points take integers only: of a float "
            "pass the bits, of a pointer the address"
        )
    return kind(value)
