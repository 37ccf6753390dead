"""What the rows of the device table are made of.

The table is data: an `Operation` for each thing that a kernel can ask for, with the choices that a compiler must know
as `Axis`. Each combination of tags is one `Symbol`, an `extern "C"` function of the device bitcode.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from .glossary import meaning_of

NEVER = -1
"""A `timeout_ns` of 2^64 - 1: the wait ends when the group does, never by time."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a symbol. `c_type` is u64 (handles, offsets, sizes, values) or int (32 bits)."""

    c_type: str
    name: str


@dataclass(frozen=True)
class Choice:
    """One value of an axis: the arguments that choose it, its part of the symbol, its C++ template argument."""

    values: tuple[int, ...]
    tag: str
    cpp: str


@dataclass(frozen=True)
class Axis:
    """What is chosen when a kernel is compiled, by the face's arguments of these names.

    Several values may choose the same tag. `error` says what to do about values that choose none.
    """

    arguments: tuple[str, ...]
    choices: tuple[Choice, ...]
    error: str

    def tags(self) -> tuple[Choice, ...]:
        """One choice for each tag, in order."""
        return tuple({choice.tag: choice for choice in reversed(self.choices)}[tag]
                     for tag in dict.fromkeys(choice.tag for choice in self.choices))


@dataclass(frozen=True)
class Argument:
    """One argument of a face's method; `default` is None where it has to be given."""

    name: str
    default: int | None


@dataclass(frozen=True)
class Symbol:
    """One `extern "C"` function: its name, and what it is an instance of."""

    name: str
    operation: Operation
    choices: tuple[Choice, ...]

    @property
    def prototype(self) -> str:
        """As in the list of MORI's symbols: `u64 cco_lsa_ptr(u64, int, u64)`."""
        types = ", ".join(parameter.c_type for parameter in self.operation.parameters)
        return f"{self.operation.result} {self.name}({types})"


@dataclass(frozen=True)
class Operation:
    """One row of the table.

    base        symbols are `base` and, for each axis, `__` and the tag
    result      `u64`, `int` or `void`
    face        namespace of the faces that it is a method of; empty: for those who name symbols themselves
    signature   the method's arguments: names of parameters and of axes' arguments
    primitive   what of cco/device it calls
    is_result   the value is a wait result: 0 is "arrived", see `status_of()`
    limits      parameters that take few values, and those values
    of_mori     MORI has symbols of these names and types
    """

    base: str
    result: str
    parameters: tuple[Parameter, ...]
    axes: tuple[Axis, ...]
    face: str
    method: str
    signature: tuple[Argument, ...]
    primitive: str
    meaning: str
    ordering: str
    blocking: str
    returns: str
    is_result: bool
    of_mori: bool
    limits: tuple[tuple[str, tuple[int, ...]], ...]

    def symbols(self) -> Iterator[Symbol]:
        """All instances, in the order of the axes."""
        for choices in itertools.product(*(axis.tags() for axis in self.axes)):
            yield Symbol("__".join((self.base, *(choice.tag for choice in choices))), self, choices)

    def symbol(self, values: dict[str, int]) -> Symbol:
        """The instance that these values of the axes' arguments choose. ValueError: none, and what to do."""
        choices = []
        for axis in self.axes:
            wanted = tuple(values[name] for name in axis.arguments)
            found = next((choice for choice in axis.choices if choice.values == wanted), None)
            if found is None:
                given = ", ".join(f"{name}={value}" for name, value in zip(axis.arguments, wanted))
                raise ValueError(f"{self.face}.{self.method}({given}): {axis.error}")
            choices.append(found)
        return Symbol("__".join((self.base, *(choice.tag for choice in choices))), self, tuple(choices))

    def document(self, bound: tuple[str, ...] = ()) -> str:
        """The method's text for help(), without the arguments that the face has `bound`."""
        names = [argument.name for argument in self.signature if argument.name not in bound]
        lines = [self.meaning, ""]
        width = max(map(len, names), default=0) + 2
        lines += [f"{name:{width}}{meaning_of(self.face, self.method, name)}" for name in names]
        lines += [""] if names else []
        lines += [f"{title.capitalize():10}{getattr(self, title)}" for title in ("ordering", "blocking", "returns")]
        return "\n".join(lines)

    def check(self, name: str, value: int) -> None:
        """ValueError: a parameter that takes few values does not take this one."""
        for limited, allowed in self.limits:
            if name == limited and value not in allowed:
                raise ValueError(f"{self.face}.{self.method}({name}={value}): {name} takes "
                                 f"{', '.join(map(str, allowed))}")


def parameters(text: str) -> tuple[Parameter, ...]:
    """`u64 dev_comm, int peer` as parameters."""
    words = [part.split() for part in text.split(",") if part.strip()]
    return tuple(Parameter(c_type, name) for c_type, name in words)


def signature(text: str) -> tuple[Argument, ...]:
    """`dev_comm peer coop=0` as arguments."""
    parts = [word.partition("=") for word in text.split()]
    return tuple(Argument(name, int(default) if equals else None) for name, equals, default in parts)


def operation(base: str, prototype: str, primitive: str, meaning: str, *, axes: tuple[Axis, ...] = (),
              face: str = "", call: str = "", ordering: str = "none", blocking: str = "never", returns: str = "",
              of_mori: bool = False, limits: dict[str, tuple[int, ...]] | None = None) -> Operation:
    """A row. `prototype` is `RESULT(parameters)`, where RESULT may be `wait` for a u64 that is a wait result;
    `face` is `Namespace.method`, `call` its signature."""
    result, _, rest = prototype.partition("(")
    takes = parameters(rest.rstrip(")"))
    few = {"signal_op": (0, 1, 2), "aggregate": (0, 1)} | (limits or {})
    namespace, _, method = face.partition(".")
    if result == "wait" and not returns:
        returns = "a wait result"
    return Operation(base, "u64" if result == "wait" else result, takes, axes, namespace, method,
                     signature(call), primitive, meaning, ordering, blocking, returns or "nothing", result == "wait",
                     of_mori, tuple((p.name, few[p.name]) for p in takes if p.name in few))
