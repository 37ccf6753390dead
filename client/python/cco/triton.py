"""cco inside `@triton.jit`: the device table's methods as Triton functions. Needs Triton 3.5 or newer.

    from cco import triton as cco

    @triton.jit
    def send(dev_comm, window, peer, nbytes):
        cco.Gda.put(dev_comm, peer, window, 0, window, 0, nbytes, signal_op=cco.SignalOp.INC, coop=cco.CoopScope.BLOCK)

    send[(1,)](comm.device_ptr, window.device_ptr, 1, 4096, extern_libs=cco.get_extern_libs())

Namespaces `DevComm`, `Window`, `Lsa`, `Sdma`, `Tdm`, `Gda`, and the enumerations, are modules, so that kernels may use
them by any name. Every method takes scalars; what the table calls an axis, and what must be one of few values, is
checked when the kernel is compiled. `docs/device_table.md` lists them all.

A scalar call in Triton is made by every thread of the program. `coop=BLOCK` makes it one call; the defaults of Gda and
Sdma are MORI's, and fit `num_warps=1`.
"""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import triton
from triton.language import core

from .device import ENUMERATIONS, NAMESPACES, NEVER, Operation, find_bitcode, methods

_DTYPES: dict[str, Any] = {"u64": core.dtype("uint64"), "int": core.dtype("int32")}


def _compile_time(value: Any) -> Any:
    """A constexpr's value; anything else as it is."""
    return value.value if isinstance(value, core.constexpr) else value


def _axis_value(row: Operation, name: str, given: Any) -> int:
    value = _compile_time(given)
    if not isinstance(value, int):
        raise TypeError(f"{row.face}.{row.method}: {name} must be known when the kernel is compiled (an integer or "
                        f"tl.constexpr), not a value of the kernel ({value})")
    return int(value)


def _operand(row: Operation, name: str, c_type: str, given: Any, semantic: Any) -> Any:
    """`given` as a scalar of that type; addresses may be pointers."""
    value = _compile_time(given)
    if isinstance(value, int):
        row.check(name, int(value))
    tensor = semantic.to_tensor(int(value) if isinstance(value, bool) else value)
    if tensor.type.is_block():
        raise TypeError(f"{row.face}.{row.method}: {name} is a scalar, not a tensor of shape {tensor.shape}")
    if tensor.dtype.is_floating():
        raise TypeError(f"{row.face}.{row.method}: {name} is an integer, not {tensor.dtype}")
    return semantic.cast(tensor, _DTYPES[c_type])


def _method(row: Operation) -> Any:
    """The row as a function that kernels call."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    given = inspect.Signature([
        inspect.Parameter(a.name, kind, default=inspect.Parameter.empty if a.default is None else a.default)
        for a in row.signature])

    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        bound = given.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        chosen = {name: _axis_value(row, name, values[name]) for axis in row.axes for name in axis.arguments}
        symbol = row.symbol(chosen)
        operands = [_operand(row, p.name, p.c_type, values[p.name], _semantic) for p in row.parameters]
        types = tuple(operand.dtype for operand in operands)
        return core.extern_elementwise("", "", operands, {types: (symbol.name, _DTYPES[row.result])}, is_pure=False,
                                       _semantic=_semantic)

    call.__name__ = row.method
    call.__qualname__ = f"{row.face}.{row.method}"
    call.__doc__ = row.document()
    hidden = inspect.Parameter("_semantic", inspect.Parameter.KEYWORD_ONLY, default=None)
    setattr(call, "__signature__", given.replace(parameters=[*given.parameters.values(), hidden]))
    return core.extern(call)


def _module(name: str, members: dict[str, Any], text: str) -> ModuleType:
    """A namespace that Triton lets kernels see."""
    made = ModuleType(f"{__name__}.{name}", text)
    vars(made).update(members)
    return made


def _namespace(name: str) -> ModuleType:
    members = {method: _method(row) for method, row in methods(name).items()}
    return _module(name, members, f"The {name} rows of the table.")


DevComm, Window, Lsa, Sdma, Tdm, Gda = (_namespace(name) for name in NAMESPACES)
CoopScope, SignalOp, ThreadMode, Team, SdmaSignal, WaitStatus = (
    _module(name, dict(ENUMERATIONS[name]), "Plain integers.")
    for name in ("CoopScope", "SignalOp", "ThreadMode", "Team", "SdmaSignal", "WaitStatus"))


@triton.jit
def status_of(result):  # type: ignore[no-untyped-def]
    """WaitStatus of a wait result."""
    return (result & 0xFFFFFFFF).to(core.int32)


@triton.jit
def rank_of(result):  # type: ignore[no-untyped-def]
    """World rank that a wait result is about; -1 if about none, as of 0, which is arrived."""
    return core.where(result == 0, -1, (result >> 32).to(core.int32))


def bitcode_target(target: Any = None) -> str:
    """The target of `find_bitcode()` for one of Triton's, by default of the current device.

    `target` is a `triton.backends.compiler.GPUTarget`, or a name such as "gfx942:sramecc+" or "cuda". RuntimeError: no
    device to ask.
    """
    if target is None:
        try:
            target = triton.runtime.driver.active.get_current_target()
        except RuntimeError as error:
            raise RuntimeError(f"Triton has no GPU to ask ({error}): name what to compile for, target=\"cuda\" or "
                               "target=\"gfx950\"") from error
    if not isinstance(target, str):
        target = "cuda" if target.backend == "cuda" else str(target.arch)
    return "nvptx64" if target == "cuda" else str(target).split(":", maxsplit=1)[0]


def get_extern_libs(target: Any = None) -> dict[str, str]:
    """What to launch with: `kernel[grid](..., extern_libs=get_extern_libs())`. `target` as of bitcode_target().

    RuntimeError: no GPU to ask. FileNotFoundError, ValueError: as `cco.device.find_bitcode()`.
    """
    name = bitcode_target(target)
    path = find_bitcode(name)
    libraries = {"cco": str(path)}
    if name != "nvptx64":
        # Triton below 3.9 keeps AMD kernels by the path of a library, whatever is in it. A name that no function has is
        # not linked, and makes the difference.
        libraries[f"cco.{_digest(path)}"] = str(path)
    return libraries


_digests: dict[tuple[Path, int, int], str] = {}


def _digest(path: Path) -> str:
    """Of the contents; read again when the file has changed."""
    facts = path.stat()
    key = (path, facts.st_mtime_ns, facts.st_size)
    if key not in _digests:
        _digests[key] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return _digests[key]


__all__ = ["NEVER", "CoopScope", "DevComm", "Gda", "Lsa", "Sdma", "SdmaSignal", "SignalOp", "Tdm", "Team", "ThreadMode",
           "WaitStatus", "Window", "bitcode_target", "get_extern_libs", "rank_of", "status_of"]
