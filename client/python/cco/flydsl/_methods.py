"""Makes methods of handles from the rows of the device table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from cco import device
from cco.flydsl import _link
from cco.flydsl._values import Handle

# The arguments that an enumeration names, all known when the kernel is compiled.
_ENUMERATED = {
    "coop": "CoopScope",
    "signal_op": "SignalOp",
    "thread_mode": "ThreadMode",
    "team": "Team",
    "signal": "SdmaSignal",
}


def add_methods(handle: type[Handle], bound: tuple[str, ...]) -> None:
    """Gives `handle` the methods that the table has in its namespace. `bound`: the arguments that
    the handle itself stands for, its attributes of these names. What never changes, such as a
    rank, becomes a property. Methods that `handle` has stay as they are."""
    for name, operation in device.methods(handle.__name__).items():
        if name in vars(handle):
            continue
        function = _method(operation, bound)
        constant = operation.ordering == "none" and operation.blocking == "never"
        if constant and list(inspect.signature(function).parameters) == ["self"]:
            setattr(handle, name, property(function))
        else:
            setattr(handle, name, function)


def _method(operation: device.Operation, bound: tuple[str, ...]) -> Callable[..., Any]:
    signature = _signature(operation, bound)
    selecting = {name for axis in operation.axes for name in axis.arguments}

    def method(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        values = given.arguments
        handle = values.pop("self")
        values.update({name: getattr(handle, name) for name in bound})
        for name, value in values.items():
            if name in _ENUMERATED or name in selecting:
                values[name] = _choice(name, value)
            if isinstance(value, int):
                operation.check(name, value)
        symbol = operation.symbol(values)
        return _link.call(symbol.name, *(values[p.name] for p in operation.parameters))

    method.__name__ = operation.method
    method.__qualname__ = f"{operation.face}.{operation.method}"
    method.__doc__ = operation.document(bound)
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def _signature(operation: device.Operation, bound: tuple[str, ...]) -> inspect.Signature:
    """As in the table without what is bound; keywords from the first optional choice on."""
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    selecting = {name for axis in operation.axes for name in axis.arguments} | set(_ENUMERATED)
    keyword = False
    for argument in operation.signature:
        if argument.name in bound:
            continue
        optional = argument.default is not None
        if optional and (argument.name in selecting or argument.name == "timeout_ns"):
            keyword = True
        kind = (
            inspect.Parameter.KEYWORD_ONLY if keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD
        )
        default = argument.default if optional else inspect.Parameter.empty
        parameters.append(inspect.Parameter(argument.name, kind, default=default))
    return inspect.Signature(parameters)


def _choice(name: str, value: Any) -> int:
    """An argument that selects an entry point, so a run-time value cannot be it."""
    if isinstance(value, int) and (name == "signal" or not isinstance(value, bool)):
        return int(value)
    raise TypeError(
        f"{name} must be known when the kernel is compiled: a {_ENUMERATED.get(name, 'number')}, "
        f"which is a Python int, not a {type(value).__name__}. It selects the entry point."
    )

