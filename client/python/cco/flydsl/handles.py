"""The objects of a kernel: what it has been given, and its transports.

Their methods are the rows of `cco.device`: each call is a call of one entry point, which the
arguments `coop`, `signal_op`, `thread_mode`, `team`, `signal` and, of single values, `nbytes`
select. Those are Python ints that are known when the kernel is compiled (TypeError otherwise,
ValueError for a combination that there is not); all others may be run-time values. Windows are
given as `Window` or as the word that it would be made of; offsets and sizes are bytes, 64-bit;
peers are LSA ranks, of `Gda` world ranks.

`help(cco.Lsa.put)` says what a method orders, how long it may block and what it returns. Of most
that is a wait result, an `fx.Int64`: 0 is "arrived"; `status_of()` and `rank_of()` take it apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flydsl.expr as fx

from cco import device
from cco.flydsl import _link
from cco.flydsl._methods import add_methods
from cco.flydsl._values import Handle


def _enumeration(name: str, meaning: str) -> Any:
    return type(name, (), {"__doc__": meaning, "__module__": __name__, **device.ENUMERATIONS[name]})


CoopScope = _enumeration("CoopScope", "Who makes a call together.")
SignalOp = _enumeration("SignalOp", "What becomes of the peer's signal behind the bytes.")
ThreadMode = _enumeration(
    "ThreadMode",
    "INDEPENDENT: each thread's call is an operation. AGGREGATE: the threads of a warp that make "
    "the call together, for the same peer, post as one; only with CoopScope.THREAD.",
)
Team = _enumeration("Team", "Some of the ranks.")
SdmaSignal = _enumeration("SdmaSignal", "Whose signal of (this rank, queue) rises behind a copy.")
WaitStatus = _enumeration("WaitStatus", "What `status_of()` says.")


def status_of(result: Any) -> Any:
    """WaitStatus, an `fx.Int32`, of a wait result."""
    return fx.Int32(fx.Int64(result))


def rank_of(result: Any) -> Any:
    """World rank, an `fx.Int32`, that a wait result is about; -1 about none, as of "arrived"."""
    word = fx.Int64(result)
    return (word == 0).select(fx.Int32(-1), fx.Int32(word >> 32))


class _Methods(Handle):
    if TYPE_CHECKING:  # Added below.

        def __getattr__(self, name: str) -> Any: ...


class Window(_Methods):
    """A window, from `handle` of the host's window."""

    def __init__(self, handle: Any) -> None:
        super().__init__(handle)

    @property
    def handle(self) -> Any:
        """The word it was made from: an address in device memory, an `fx.Int64`."""
        return self.word

    @property
    def win(self) -> Any:
        """The same, as the device table names it."""
        return self.word

    def lsa_ptr(self, peer_lsa_rank: Any, offset: Any = 0) -> Any:
        """Address, an `fx.Int64`, of an offset in that rank's copy, for loads and stores; nothing
        is checked."""
        return _link.call("cco_lsa_ptr", self, peer_lsa_rank, offset)


class _OfComm(_Methods):
    def __init__(self, dev_comm: Any) -> None:
        super().__init__(dev_comm)

    @property
    def dev_comm(self) -> Any:
        """The device communicator's word: an address in device memory, an `fx.Int64`."""
        return self.word


class Lsa(_OfComm):
    """Loads and stores to memory of this node."""


class Sdma(_OfComm):
    """Copies by engines, on queues of each peer."""


class Tdm(_OfComm):
    """Copies through a block's shared memory, beside the block."""


class Gda(_OfComm):
    """The network, on one context of a device communicator."""

    ctx = 0
    _of_context: dict[int, type[Gda]] = {}

    # FlyDSL rebuilds a handle from its class and its word, so each context is a class.
    def __new__(cls, dev_comm: Any, ctx: int = 0) -> Gda:
        if isinstance(ctx, bool) or not isinstance(ctx, int):
            raise TypeError(
                f"ctx must be known when the kernel is compiled: an int, got a {type(ctx).__name__}"
            )
        if ctx == 0:
            return object.__new__(Gda)
        kind = type(f"Gda[{ctx}]", (Gda,), {"ctx": ctx})
        return object.__new__(Gda._of_context.setdefault(ctx, kind))

    def __init__(self, dev_comm: Any, ctx: int = 0) -> None:
        super().__init__(dev_comm)


class DevComm(_Methods):
    """A device communicator, from `ptr` of the host's device communicator."""

    def __init__(self, ptr: Any) -> None:
        super().__init__(ptr)

    @property
    def ptr(self) -> Any:
        """The word it was made from: an address in device memory, an `fx.Int64`."""
        return self.word

    @property
    def dev_comm(self) -> Any:
        """The same, as the device table names it."""
        return self.word

    def lsa(self) -> Lsa:
        """Loads and stores to memory of this node; always there."""
        return Lsa(self)

    def sdma(self) -> Sdma:
        """Copies by engines; without SDMA in the communicator its calls are refused."""
        return Sdma(self)

    def tdm(self) -> Tdm:
        """Copies through the block's shared memory; always there."""
        return Tdm(self)

    def gda(self, ctx: int = 0) -> Gda:
        """The network; without GDA in the communicator its calls are refused.

        ctx  a Python int; counts modulo the communicator's contexts
        """
        return Gda(self, ctx)


add_methods(Window, ("win",))
add_methods(DevComm, ("dev_comm",))
add_methods(Lsa, ("dev_comm",))
add_methods(Sdma, ("dev_comm",))
add_methods(Tdm, ("dev_comm",))
add_methods(Gda, ("dev_comm", "ctx"))
