"""cco's Communicator with what MORI's has beyond it: `alloc_window()`, and unique ids of the low-level module."""

from __future__ import annotations

import cco
from cco.communicator import (
    AllocatedMemory,
    CCODevCommRequirements,
    CCOResource,
    DevCommHandle,
    ImportedWindow,
    RegisteredWindow,
)

__all__ = [
    "AllocatedMemory",
    "AllocatedWindow",
    "CCODevCommRequirements",
    "CCOResource",
    "Communicator",
    "DevCommHandle",
    "ImportedWindow",
    "RegisteredWindow",
    "UniqueId",
    "get_unique_id",
]


class UniqueId(cco.UniqueId):
    """As cco.UniqueId, with the names of MORI's high and low level: here they are one class."""

    def tobytes(self) -> bytes:
        """The 128 bytes."""
        return bytes(self)

    @classmethod
    def frombytes(cls, raw: bytes) -> UniqueId:
        """ValueError: not 128 bytes."""
        return cls(raw)

    @property
    def ptr(self) -> UniqueId:  # type: ignore[override]
        """What the low-level `comm_create()` takes, as in MORI: this. (cco.UniqueId.ptr is an address.)"""
        return self


def get_unique_id() -> UniqueId:
    """A fresh secret by which ranks find each other: one makes it and gives it to the others."""
    return UniqueId.create()


class Communicator(cco.Communicator):
    """cco.Communicator under MORI's names."""

    @staticmethod
    def get_unique_id() -> UniqueId:
        return get_unique_id()

    def alloc_window(self, size: int) -> AllocatedWindow:
        """alloc_mem(), then register_window(). Collective."""
        return AllocatedWindow(self, *allocate_window(self, size))


def allocate_window(communicator: cco.Communicator, size: int) -> tuple[AllocatedMemory, RegisteredWindow]:
    """Memory and its window. Collective: a rank without memory is heard by all."""
    memory = communicator._together(
        communicator.group, lambda: communicator.alloc_mem(size), AllocatedMemory.close
    )
    try:
        return memory, communicator.register_window(memory.ptr, size)
    except BaseException:
        memory.close()
        raise


class AllocatedWindow(RegisteredWindow):
    """A window with its memory: close() ends both."""

    def __init__(self, communicator: Communicator, memory: AllocatedMemory, window: RegisteredWindow) -> None:
        super().__init__(communicator, window.window, memory.ptr)
        self._parts = (window, memory)

    def close(self) -> None:
        super().close()
        for part in self._parts:
            part.close()
