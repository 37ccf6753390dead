"""Owners of handles: closed once, in any order, by whoever, and never while exports are used."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from types import TracebackType
from typing import Any, ClassVar, NoReturn, SupportsIndex, TypeVar

from cco import _dlpack
from cco._library import library
from cco.errors import FailedPrecondition, Status

Self = TypeVar("Self", bound="Owner")

# Reentrant: garbage collection, or a pending call, may release an export in this thread meanwhile.
_lock = threading.RLock()
# Owners without a parent, by handle: ended at the process's exit.
_roots: dict[int, weakref.ref[Owner]] = {}


class OfThisProcess:
    """What is neither copied nor pickled: it stands for something of this process, once."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"a cco.{type(self).__name__} is neither copied nor pickled: it stands for something of "
            "this process. Make it in the process that uses it; a cco.UniqueId travels"
        )


class Owner(OfThisProcess):
    """Owns one handle of the C interface. Thread safe.

    A context manager. close() gives the handle up, may be called again, and ends everything below
    it: a closed client ends its groups, a closed group its windows and communicators. It waits for
    nobody: a call that another thread is in goes on to its own end, its timeout_ms at the latest,
    and keeps what it uses until then (Group.abort() ends those that wait for other ranks). Garbage
    collection ends nothing, because kernels may still use what nobody names any more: an owner that
    is collected unclosed gives a ResourceWarning, and lives on until its parent is closed, or the
    process ends.

    While tensors or arrays made from it are alive (its exports), close() voids it, and its memory
    stays mapped until the last of them is gone; so do the parents. In a forked child closing gives
    nothing up: the library refuses it there.
    """

    _kind: ClassVar[str]
    _destroy: ClassVar[str]

    # As class attributes: __del__ may come before __init__ has ended.
    _handle: int | None = None
    _closed: bool = False
    _exports: int = 0
    _parent: Owner | None = None

    def _own(self, handle: int | None, parent: Owner | None) -> None:
        assert handle is not None
        self._handle = handle
        self._parent = parent
        if parent is None:
            with _lock:
                _roots[handle] = weakref.ref(self)

    @property
    def handle(self) -> int:
        """The C interface's handle. FailedPrecondition: closed, or its parent is."""
        _dlpack.drain()  # Every call comes by here: what is free by now is so for it.
        return self._usable()

    def _usable(self) -> int:
        owner: Owner | None = self
        while owner is not None:
            if owner._closed:
                what = f"this {self._kind}"
                if owner is not self:
                    what = f"the {owner._kind} of {what}"
                raise FailedPrecondition(
                    Status.FAILED_PRECONDITION, f"{what} has been closed: make another one"
                )
            owner = owner._parent
        assert self._handle is not None
        return self._handle

    @property
    def closed(self) -> bool:
        """Whether it, or what it belongs to, has been closed."""
        return self._closed or (self._parent is not None and self._parent.closed)

    @property
    def export_count(self) -> int:
        """How many live tensors and arrays were made from it or from what belongs to it."""
        _dlpack.drain()
        return self._exports

    def close(self) -> None:
        """Gives it up. Local; kernels that use it must have ended. Never fails, may be repeated."""
        _dlpack.drain()
        with _lock:
            self._closed = True
            ended = self._ended()
        _destroy_all(ended)

    def _ended(self) -> list[tuple[str, int]]:
        """With the lock: what of this owner and its parents can be destroyed, and was not."""
        found: list[tuple[str, int]] = []
        owner: Owner | None = self
        while owner is not None:
            if owner._closed and owner._exports == 0 and owner._handle is not None:
                found.append((owner._destroy, owner._handle))
                _roots.pop(owner._handle, None)
                owner._handle = None
            owner = owner._parent
        return found

    def _retain(self) -> None:
        """Counts an export. FailedPrecondition: closed."""
        _dlpack.drain()
        with _lock:
            self._usable()
            owner: Owner | None = self
            while owner is not None:
                owner._exports += 1
                owner = owner._parent

    def _release(self) -> None:
        """Uncounts an export; may come from any thread, also from a weak reference's callback."""
        with _lock:
            owner: Owner | None = self
            while owner is not None:
                owner._exports -= 1
                owner = owner._parent
            ended = self._ended()
        _destroy_all(ended)

    def __enter__(self: Self) -> Self:
        self.handle  # noqa: B018: raises
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if self._handle is not None and not self.closed:
            _warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<cco.{type(self).__name__}{self._describe()}{state}>"

    def _describe(self) -> str:
        """For repr(): begins with a blank, asks nobody."""
        return ""


def _destroy_all(ended: list[tuple[str, int]]) -> None:
    if ended:
        functions = library()
        for destroy, handle in ended:
            getattr(functions, destroy)(handle)


def _leave() -> None:
    """At exit: the session ends in order, so that no peer takes this rank for lost.

    Clients whose memory is still exported are left to the end of the process.
    """
    _dlpack.disarm()
    with _lock:
        roots = [(handle, reference()) for handle, reference in _roots.items()]
    for handle, root in roots:
        if root is None:
            _destroy_all([("cco_client_destroy", handle)])
        else:
            root.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # Another thread of the parent may have held it.


atexit.register(_leave)
os.register_at_fork(after_in_child=_after_fork)
