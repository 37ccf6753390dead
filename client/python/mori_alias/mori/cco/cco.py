"""MORI CCO's low-level module: functions over plain addresses. Failures are cco.Error."""

from __future__ import annotations

from ctypes import addressof

from cco._owner import OfThisProcess
from cco.client import Memory
from cco.communicator import (
    GDA_CONNECTION_CROSSNODE,
    GDA_CONNECTION_FULL,
    GDA_CONNECTION_NONE,
    GDA_CONNECTION_RAIL,
    AllocatedMemory,
    CCODevCommRequirements,
    CCOResource,
    Communicator,
    DevCommHandle,
    ImportedWindow,
    RegisteredWindow,
)
from cco.errors import InvalidArgument, Status
from cco.group import UniqueId as _UniqueId
from mori.cco.communicator import Communicator as _Communicator
from mori.cco.communicator import UniqueId, allocate_window, get_unique_id

__all__ = [
    "Comm",
    "DevComm",
    "DevCommRequirements",
    "GDA_CONNECTION_CROSSNODE",
    "GDA_CONNECTION_FULL",
    "GDA_CONNECTION_NONE",
    "GDA_CONNECTION_RAIL",
    "UniqueId",
    "barrier_all",
    "comm_create",
    "comm_destroy",
    "dev_comm_create",
    "dev_comm_destroy",
    "get_unique_id",
    "mem_alloc",
    "mem_free",
    "mem_import",
    "window_deregister",
    "window_register",
    "window_register_external",
    "window_register_ptr",
]

DevCommRequirements = CCODevCommRequirements


class Comm(OfThisProcess):
    """One rank's communicator, as comm_create() gives it. It lives until comm_destroy()."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    @property
    def ptr(self) -> int:
        """The group's handle in cco's C interface."""
        return self._communicator.ptr


class DevComm(OfThisProcess):
    """A device communicator, as dev_comm_create() gives it."""

    def __init__(self, handle: DevCommHandle, gda_conn_type: int) -> None:
        self._handle = handle
        self._host = handle.comm.device
        group = handle.comm.group
        self.rank, self.world_size = group.rank, group.size
        self.lsa_rank, self.lsa_size = group.lsa_rank, group.lsa_size
        self.my_node_start = group.lsa_first
        self.gda_conn_type = gda_conn_type
        self.flat_base, self.per_rank_size = group.flat_base, group.slot_bytes

    @property
    def ptr(self) -> int:
        """The address of a cco_device_comm in device memory."""
        return self._handle.ptr

    @property
    def host_ptr(self) -> int:
        """The address of the same struct on the host, while this object is alive."""
        return addressof(self._host)


def comm_create(uid: _UniqueId, n_ranks: int, rank: int, per_rank_vmm_size: int) -> Comm:
    """Collective; see Communicator.init()."""
    return Comm(_Communicator.init(n_ranks, rank, uid, per_rank_vmm_size))


def comm_destroy(comm: Comm) -> None:
    """Ends what is left of it, too."""
    comm._communicator.destroy()


def _close(
    comm: Comm, what: str, kinds: tuple[type[CCOResource], ...], key: str, value: int
) -> None:
    for resource in comm._communicator._tracked():
        if isinstance(resource, kinds) and resource.is_valid and getattr(resource, key) == value:
            resource.close()
            return
    raise InvalidArgument(
        Status.INVALID_ARGUMENT, f"{value:#x} is no {what} of this communicator, or has ended"
    )


def mem_alloc(comm: Comm, size: int) -> int:
    """An address of this rank's memory; 0 for 0 bytes."""
    return comm._communicator.alloc_mem(size).ptr


def mem_import(comm: Comm, external_ptr: int, size: int) -> int:
    """A second address of memory that somebody else has allocated; ends with mem_free()."""
    communicator = comm._communicator
    group = communicator.group
    memory = Memory.at(group.client, external_ptr, size, device=group.device)
    return AllocatedMemory(communicator, memory).ptr


def mem_free(comm: Comm, ptr: int) -> None:
    """0 is allowed. A window of it goes on until window_deregister()."""
    if ptr != 0:
        _close(comm, "memory", (AllocatedMemory,), "ptr", ptr)


def window_register(comm: Comm, size: int) -> tuple[int, int]:
    """mem_alloc(), then window_register_ptr(): the window and the address. Collective."""
    memory, window = allocate_window(comm._communicator, size)
    return window.handle, memory.ptr


def window_register_ptr(comm: Comm, ptr: int, size: int) -> int:
    """The window's handle. Collective; see Communicator.register_window()."""
    return comm._communicator.register_window(ptr, size).handle


def window_register_external(comm: Comm, external_ptr: int, size: int) -> tuple[int, int]:
    """Window and second address. Collective; see Communicator.register_external_window()."""
    window = comm._communicator.register_external_window(external_ptr, size)
    return window.handle, window.local_ptr


def window_deregister(comm: Comm, win: int) -> None:
    """Local."""
    _close(comm, "window", (RegisteredWindow, ImportedWindow), "handle", win)


def dev_comm_create(comm: Comm, reqs: CCODevCommRequirements) -> DevComm:
    """Collective; see Communicator.create_dev_comm()."""
    return DevComm(comm._communicator.create_dev_comm(reqs), reqs.gda_connection_type)


def dev_comm_destroy(comm: Comm, dev_comm: DevComm) -> None:
    """Local; again: nothing."""
    dev_comm._handle.close()


def barrier_all(comm: Comm) -> None:
    """Waits for all ranks, not for kernels. Collective."""
    comm._communicator.barrier()
