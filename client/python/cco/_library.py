"""libcco_client.so: found, loaded once, and asked."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from cco import _abi
from cco.errors import FailedPrecondition, NotFound, Status, error_of

SONAME = "libcco_client.so.0"
VERSION = (0, 1)  # Of the library's interface, major and minor, that this package was written for.


def _carried() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", SONAME)


def _find() -> str:
    """What to load: a path, or a name that the dynamic linker looks for."""
    named = os.environ.get("CCO_LIBRARY")
    if named is not None:
        if os.path.isfile(named):
            return os.path.abspath(named)
        raise NotFound(
            Status.NOT_FOUND,
            f"CCO_LIBRARY is {named!r}, which is no file: name a libcco_client.so, or unset it",
        )
    carried = _carried()
    return carried if os.path.exists(carried) else SONAME


def _path_in_memory() -> str:
    """The file behind a library that the dynamic linker has found by its name."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").split(maxsplit=5)[-1]
            if os.path.basename(path).startswith("libcco_client.so"):
                return path
    return SONAME


class Library:
    """The functions of cco.h as attributes, with their prototypes. Thread safe.

    Calls release the GIL. A function that returns a cco_status is called through check().
    """

    def __init__(self) -> None:
        name = _find()
        try:
            self._dll = ctypes.CDLL(name)
        except OSError as error:
            tried = (
                f"$CCO_LIBRARY (not set), {_carried()} (not there), {SONAME} as the dynamic linker "
                f"finds it" if name == SONAME else name
            )
            raise NotFound(
                Status.NOT_FOUND,
                f"cannot load libcco_client: tried {tried}: {error}. Install cco, or set "
                "CCO_LIBRARY to the path of libcco_client.so",
            ) from None
        self.path = name if name != SONAME else _path_in_memory()
        found = (self.version() // 10000, self.version() // 100 % 100)
        if found != VERSION:
            raise FailedPrecondition(
                Status.FAILED_PRECONDITION,
                f"{self.path} has version {found[0]}.{found[1]}, this package needs "
                f"{VERSION[0]}.{VERSION[1]}: install the two together, or set CCO_LIBRARY",
            )

    def version(self) -> int:
        return int(self.cco_version())

    def __getattr__(self, name: str) -> Any:
        if name not in _abi.PROTOTYPES:
            raise AttributeError(name)
        result, arguments = _abi.PROTOTYPES[name]
        try:
            function = getattr(self._dll, name)
        except AttributeError:
            raise FailedPrecondition(
                Status.FAILED_PRECONDITION,
                f"{self.path} has no {name}: it is older than this package; install the two "
                "together, or set CCO_LIBRARY",
            ) from None
        function.restype, function.argtypes = result, arguments
        setattr(self, name, function)
        return function

    def check(self, code: int) -> None:
        """Raises what the last call on this thread has failed with, unless `code` is OK."""
        if code != 0:
            text = self.cco_error_message().decode("utf-8", "replace")
            rank = int(self.cco_error_rank())
            raise error_of(code, text, rank if rank >= 0 else None)


_lock = threading.Lock()
_loaded: Library | None = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # Another thread of the parent may have held it.


os.register_at_fork(after_in_child=_after_fork)


def library() -> Library:
    """The library, loaded at its first use: importing cco alone loads nothing."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = Library()
    return _loaded


def library_path() -> str:
    """Which libcco_client.so this process uses; loads it.

    The first of: $CCO_LIBRARY (set and wrong is an error), the one that the wheel carries
    (cco/lib), an installed one as the dynamic linker finds it. NotFound: there is none.
    """
    return library().path


def version() -> str:
    """Of the library at run time, "0.1.0"."""
    number = library().version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
