"""What callers give, checked before it becomes C's: every error names the argument."""

from __future__ import annotations

import ctypes
import operator
import os
from typing import Any, TypeVar

from cco import _abi
from cco.errors import InvalidArgument, Status

Kind = TypeVar("Kind")


def wrong(what: str, value: object, takes: str) -> TypeError:
    """An argument of a type that makes no sense."""
    return TypeError(f"{what} is {value!r}, of type {type(value).__name__}; it takes {takes}")


def integer(value: Any, what: str, low: int, high: int) -> int:
    """A number within limits; NumPy's will do. TypeError: no integer. InvalidArgument: outside."""
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong(what, value, f"an integer, {low} to {high}") from None
    if low <= number <= high:
        return number
    raise InvalidArgument(Status.INVALID_ARGUMENT, f"{what} is {number}; it takes {low} to {high}")


_LIMITS = {
    ctypes.c_int32: (-(2**31), 2**31 - 1),
    ctypes.c_uint32: (0, 2**32 - 1),
    ctypes.c_uint64: (0, 2**64 - 1),
}


def fit(kind: Any, value: Any, what: str) -> int:
    """A number that a C type holds: ctypes would cut it. Raises as integer()."""
    return integer(value, what, *_LIMITS[kind])


def encode(text: str | None, what: str) -> bytes | None:
    """For C. TypeError: neither str nor None. InvalidArgument: a zero byte in it."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise wrong(what, text, "a str")
    raw = text.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise InvalidArgument(Status.INVALID_ARGUMENT, f"{what} {text!r} has a zero byte in it")
    return raw


def encode_path(path: str | os.PathLike[str] | None, what: str) -> bytes | None:
    """The same for a path."""
    if path is not None and not isinstance(path, str):
        try:
            path = os.fspath(path)
        except TypeError:
            raise wrong(what, path, "a path: a str or an os.PathLike") from None
    return encode(path, what)


def expect(value: Any, kind: type[Kind], what: str, takes: str | None = None) -> Kind:
    """An object of that class. TypeError: another one."""
    if isinstance(value, kind):
        return value
    raise wrong(what, value, takes or f"a cco.{kind.__name__}")


def raw_bytes(raw: Any, count: int, what: str, means: str) -> bytes:
    """Exactly `count` bytes. TypeError: no bytes. InvalidArgument, a ValueError: not as many."""
    if not isinstance(raw, (bytes, bytearray, memoryview)):
        raise wrong(what, raw, f"{count} bytes")
    if len(raw) != count:
        raise InvalidArgument(
            Status.INVALID_ARGUMENT, f"{means} has {count} bytes, not {len(raw)}"
        )
    return bytes(raw)


_KINDS: dict[type[_abi.Sized], dict[str, Any]] = {}  # Of the fields that are numbers.


def fill(options: type[_abi.Sized], **fields: Any) -> Any:
    """An options struct; numbers are checked against their fields."""
    kinds = _KINDS.get(options)
    if kinds is None:
        named = [(field[0], field[1]) for field in options._fields_]
        kinds = _KINDS[options] = {name: kind for name, kind in named if kind in _LIMITS}
    for name, value in fields.items():
        kind = kinds.get(name)
        if kind is not None:
            fields[name] = fit(kind, value, name)
    return options(**fields)
