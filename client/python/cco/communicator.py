"""MORI CCO's Python interface, over Client, Group, Window, Memory and Comm.

The names, arguments and defaults of `mori.cco`; what differs is listed in docs/core.md.
"""

from __future__ import annotations

from ctypes import c_uint32, c_uint64
from types import TracebackType
from typing import Any, Callable, TypeVar

from cco import _abi
from cco._arguments import expect, fit, integer
from cco._owner import OfThisProcess, Owner
from cco.client import Client, Memory
from cco.errors import Error, FailedPrecondition, InvalidArgument, Status
from cco.group import Group, UniqueId
from cco.window import Comm, Window

GDA_CONNECTION_NONE = _abi.GDA_CONNECT_NONE
GDA_CONNECTION_FULL = _abi.GDA_CONNECT_FULL
GDA_CONNECTION_CROSSNODE = _abi.GDA_CONNECT_CROSS_NODE
GDA_CONNECTION_RAIL = _abi.GDA_CONNECT_RAIL

_TIMEOUT_MS = 300_000
_BARRIER_TIMEOUT_MS = 3_600_000  # The longest there is: MORI's waits for ever.
_SLOT_UNIT_BYTES = 4 << 30

Result = TypeVar("Result")


def get_unique_id() -> UniqueId:
    """A fresh secret by which ranks find each other: one makes it and gives it to the others."""
    return UniqueId.create()


# Field -> its limits, both inclusive.
_REQUIREMENTS = {
    "gda_connection_type": (GDA_CONNECTION_NONE, GDA_CONNECTION_RAIL),
    "gda_context_count": (0, 64),
    "gda_signal_count": (0, 65536),
    "gda_counter_count": (0, 65536),
    "gda_queue_depth": (0, 32768),
    "gda_traffic_class": (-1, 255),
    "lsa_barrier_count": (0, 4096),
    "rail_gda_barrier_count": (0, 4096),
    "sdma_queue_count": (0, 8),
    "barrier_count": (0, 4096),
    "signal_count": (0, 65536),
}


class CCODevCommRequirements:
    """What `create_dev_comm()` is asked for; the fields are read and written, and there are no more.

    MORI's fields have MORI's defaults. `signal_count` is an addition: signals that stores raise.
    Their limits hold wherever the ranks are, whether or not a transport is used.
    """

    __slots__ = tuple(_REQUIREMENTS)

    def __init__(self) -> None:
        self.gda_connection_type = GDA_CONNECTION_CROSSNODE  #: GDA_CONNECTION_*
        self.gda_context_count = 4  #: Queue pairs per peer, to 64; 0: 4.
        self.gda_signal_count = 16  #: Per rank, to 65536.
        self.gda_counter_count = 16  #: Per rank, to 65536.
        self.gda_queue_depth = 0  #: Operations per queue pair, a power of two, 16 to 32768; 0: 1024.
        self.gda_traffic_class = -1  #: Of the packets, to 255; -1: the provider's default.
        self.lsa_barrier_count = 0  #: Over the ranks of an LSA team, to 4096.
        self.rail_gda_barrier_count = 0  #: Over the ranks with this LSA rank, to 4096.
        self.sdma_queue_count = 0  #: Per peer, to 8; 0: the default, and SDMA may be missing.
        self.barrier_count = 0  #: Over all ranks, to 4096.
        self.signal_count = 0  #: Per rank, to 65536.

    def __setattr__(self, name: str, value: int) -> None:
        if name not in _REQUIREMENTS:
            fields = ", ".join(_REQUIREMENTS)
            raise AttributeError(f"CCODevCommRequirements has no {name}; its fields are {fields}")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _REQUIREMENTS)
        return f"<cco.CCODevCommRequirements {fields}>"

    def _options(self, group: Group) -> dict[str, Any]:
        """For Comm(). InvalidArgument: over a limit. TypeError: no integer."""
        for name, (low, high) in _REQUIREMENTS.items():
            integer(getattr(self, name), name, low, high)
        depth = self.gda_queue_depth
        if depth != 0 and (depth < 16 or depth & (depth - 1) != 0):
            raise InvalidArgument(
                Status.INVALID_ARGUMENT,
                f"gda_queue_depth is {depth}; it takes a power of two, 16 to 32768, or 0",
            )
        has_other_nodes = group.lsa_size != group.size
        options: dict[str, Any] = {
            "signal_count": self.signal_count,
            "barrier_count": self.lsa_barrier_count,
            "transports": _abi.TRANSPORT_SDMA,
            "sdma_queue_count": self.sdma_queue_count,
        }
        # Where there is nobody to connect to, there is no GDA, and all ranks are one LSA team.
        if self.gda_connection_type != GDA_CONNECTION_FULL and (
            self.gda_connection_type == GDA_CONNECTION_NONE or not has_other_nodes
        ):
            options["barrier_count"] += self.barrier_count
            return options
        options.update(
            transports=_abi.TRANSPORT_SDMA | _abi.TRANSPORT_GDA,
            gda_connection=self.gda_connection_type,
            gda_context_count=self.gda_context_count,
            gda_signal_count=self.gda_signal_count,
            gda_counter_count=self.gda_counter_count,
            gda_queue_depth=self.gda_queue_depth,
            gda_traffic_class=self.gda_traffic_class,
            rail_barrier_count=self.rail_gda_barrier_count if has_other_nodes else 0,
            world_barrier_count=self.barrier_count,
        )
        return options


class CCOResource(OfThisProcess):
    """What a Communicator has given out. close() may be called again; so may the communicator's."""

    def __init__(self, communicator: Communicator, *owners: Owner) -> None:
        self._communicator: Communicator | None = communicator
        self._owners = owners
        communicator._track(self)

    @property
    def is_valid(self) -> bool:
        """Whether neither it nor its communicator has been closed. All else needs that, or raises
        FailedPrecondition, a RuntimeError."""
        return self._communicator is not None and self._communicator.is_valid

    def _live(self, what: Callable[[], Result]) -> Result:
        if not self.is_valid:
            raise FailedPrecondition(
                Status.FAILED_PRECONDITION, f"this {type(self).__name__} has been closed"
            )
        return what()

    def close(self) -> None:
        """Local; kernels that use it must have ended."""
        communicator, self._communicator = self._communicator, None
        if communicator is not None:
            communicator._forget(self)
        for owner in self._owners:
            owner.close()

    def __enter__(self) -> CCOResource:
        return self._live(lambda: self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AllocatedMemory(CCOResource):
    """Memory of this rank alone, not zeroed; `memory` is the cco.Memory."""

    def __init__(self, communicator: Communicator, memory: Memory | None) -> None:
        super().__init__(communicator, *([memory] if memory is not None else []))
        self._memory = memory

    @property
    def memory(self) -> Memory | None:
        """The cco.Memory below, closed with this; None: of 0 bytes."""
        return self._live(lambda: self._memory)

    @property
    def ptr(self) -> int:
        """Its address, for kernels and copies of this process; 0: of 0 bytes."""
        return self._live(lambda: self._memory.ptr if self._memory is not None else 0)

    @property
    def size(self) -> int:
        """In bytes, as asked for."""
        return self._live(lambda: self._memory.size_bytes if self._memory is not None else 0)


class RegisteredWindow(CCOResource):
    """A window of memory that alloc_mem() gave; `window` is the cco.Window."""

    def __init__(self, communicator: Communicator, window: Window, ptr: int) -> None:
        super().__init__(communicator, window)
        self._window = window
        self._ptr = ptr

    @property
    def window(self) -> Window:
        """The cco.Window below, closed with this: views, peers' addresses, DLPack."""
        return self._live(lambda: self._window)

    @property
    def handle(self) -> int:
        """What kernels take: the address of the window's descriptor."""
        return self.window.device_ptr

    @property
    def local_ptr(self) -> int:
        """Address of this rank's memory, as register_window() was given it."""
        return self._live(lambda: self._ptr)

    @property
    def size(self) -> int:
        """In bytes, on each rank."""
        return self.window.size_bytes


class ImportedWindow(RegisteredWindow):
    """A window of memory that somebody else has allocated; `local_ptr` is a second address."""

    def __init__(self, communicator: Communicator, window: Window, ext_ptr: int) -> None:
        super().__init__(communicator, window, window.address())
        self._ext_ptr = ext_ptr

    @property
    def ext_ptr(self) -> int:
        """The address that register_external_window() was given."""
        return self._live(lambda: self._ext_ptr)


class DevCommHandle(CCOResource):
    """A device communicator; `comm` is the cco.Comm."""

    def __init__(self, communicator: Communicator, comm: Comm) -> None:
        super().__init__(communicator, comm)
        self._comm = comm

    @property
    def comm(self) -> Comm:
        """The cco.Comm below, closed with this."""
        return self._live(lambda: self._comm)

    @property
    def ptr(self) -> int:
        """What kernels take: the address of a cco_device_comm in device memory."""
        return self.comm.device_ptr

    @property
    def rank(self) -> int:
        """This rank, 0 to world_size - 1."""
        return self.comm.group.rank

    @property
    def world_size(self) -> int:
        """Ranks of the communicator."""
        return self.comm.group.size

    @property
    def lsa_size(self) -> int:
        """Ranks whose memory loads and stores of this rank reach, itself among them."""
        return self.comm.group.lsa_size

    @property
    def lsa_rank(self) -> int:
        """This rank among those, 0 to lsa_size - 1."""
        return self.comm.group.lsa_rank

    @property
    def flat_base(self) -> int:
        """Address of LSA rank 0's memory in this process."""
        return self.comm.group.flat_base

    @property
    def per_rank_size(self) -> int:
        """Bytes from one LSA rank's memory to the next one's."""
        return self.comm.group.slot_bytes


class Communicator(OfThisProcess):
    """One rank of a communicator: a client and a group of its own, and all that came of them.

    Collective: init(), register_window(), register_external_window(), create_dev_comm(), barrier();
    every rank calls them in the same order, one at a time. A rank whose arguments make no sense
    takes part: all ranks raise, and hear its number and reason. A call ends after five minutes at
    the latest, barrier() after an hour, and at once when a rank is lost. Everything else is local
    and may come from any thread. Errors are cco.Error, which are RuntimeErrors.
    """

    DEFAULT_PER_RANK_VMM = 4 << 30

    def __init__(self, client: Client, group: Group) -> None:
        self._client = client
        self._group: Group | None = group
        self._resources: list[CCOResource] = []

    @staticmethod
    def get_unique_id() -> UniqueId:
        """As cco.get_unique_id()."""
        return get_unique_id()

    @classmethod
    def init(
        cls,
        nranks: int,
        rank: int,
        unique_id: UniqueId,
        per_rank_vmm: int = DEFAULT_PER_RANK_VMM,
    ) -> Communicator:
        """Attaches this rank. Collective.

        per_rank_vmm  address space for each rank's memory in bytes, rounded up to 4 GiB; 0: the
                      largest GPU's memory

        The device is the one that the calling thread has made current; where none is, or on the
        `host` driver, that of the local rank. The daemon is found as by Client().
        """
        nranks = fit(c_uint32, nranks, "nranks")
        rank = fit(c_uint32, rank, "rank")
        per_rank_vmm = fit(c_uint64, per_rank_vmm, "per_rank_vmm")
        expect(unique_id, UniqueId, "unique_id", "a cco.UniqueId: UniqueId.from_bytes(raw)")
        units = (per_rank_vmm + _SLOT_UNIT_BYTES - 1) // _SLOT_UNIT_BYTES
        client = Client()
        try:
            group = Group(
                client,
                rank=rank,
                size=nranks,
                unique_id=unique_id,
                slot_bytes=units * _SLOT_UNIT_BYTES,
                device=_abi.DEVICE_CURRENT,
                timeout_ms=_TIMEOUT_MS,
            )
        except BaseException:
            client.close()
            raise
        return cls(client, group)

    @property
    def group(self) -> Group:
        """The cco.Group below. FailedPrecondition, a RuntimeError: destroyed."""
        return self._get("get group")

    def _get(self, what: str) -> Group:
        group = self._group
        if group is None:
            raise FailedPrecondition(
                Status.FAILED_PRECONDITION, f"Cannot {what}: Communicator has been destroyed"
            )
        return group

    @property
    def is_valid(self) -> bool:
        """Whether destroy() has not been called."""
        return self._group is not None

    @property
    def rank(self) -> int:
        """This rank, 0 to nranks - 1. FailedPrecondition, a RuntimeError: destroyed."""
        return self._get("get rank").rank

    @property
    def nranks(self) -> int:
        """Ranks of the communicator. FailedPrecondition, a RuntimeError: destroyed."""
        return self._get("get nranks").size

    @property
    def ptr(self) -> int:
        """The group's handle in cco's C interface."""
        return self._get("get ptr").handle

    def alloc_mem(self, size: int) -> AllocatedMemory:
        """`size` bytes of this rank's device, not zeroed; 0 bytes have the address 0. Local."""
        group = self._get("allocate memory")
        size = fit(c_uint64, size, "size")
        memory = Memory(self._client, size, device=group.device) if size != 0 else None
        return AllocatedMemory(self, memory)

    def register_window(self, ptr: int, size: int) -> RegisteredWindow:
        """A window of `size` bytes from `ptr` on, an address that alloc_mem() gave. Collective."""
        group = self._get("register window")

        def prepare() -> Memory:
            fit(c_uint64, ptr, "ptr")
            fit(c_uint64, size, "size")
            for resource in self._tracked():
                if isinstance(resource, AllocatedMemory) and resource.is_valid:
                    memory = resource.memory
                    if memory is not None and memory.ptr == ptr and 0 < size <= memory.size_bytes:
                        return memory
            raise InvalidArgument(
                Status.INVALID_ARGUMENT,
                f"{size} bytes at {ptr:#x}: no live alloc_mem() has given that address and as many "
                "bytes; memory of others takes register_external_window()",
            )

        memory = self._together(group, prepare)
        window = Window.register(group, None, size, memory.external, timeout_ms=_TIMEOUT_MS)
        return RegisteredWindow(self, window, ptr)

    def register_external_window(self, ext_ptr: int, size: int) -> ImportedWindow:
        """A window of memory that somebody else has allocated, a torch tensor's for instance.

        ext_ptr  may lie inside the allocation, at a multiple of 16 bytes. How the memory has to be
                 made: Memory.at(), whose errors say what to change.

        Collective. Nothing is copied, and the memory lives until both owners have given it up.
        """
        group = self._get("register external window")

        def prepare() -> Memory:
            fit(c_uint64, ext_ptr, "ext_ptr")
            fit(c_uint64, size, "size")
            return Memory.at(self._client, ext_ptr, size, device=group.device)

        with self._together(group, prepare, Memory.close) as memory:
            window = Window.register(group, None, size, memory.external, timeout_ms=_TIMEOUT_MS)
        return ImportedWindow(self, window, ext_ptr)

    def create_dev_comm(self, requirements: CCODevCommRequirements | None = None) -> DevCommHandle:
        """A device communicator for kernels. Collective, with equal requirements on every rank."""
        group = self._get("create dev comm")
        wanted = requirements if requirements is not None else CCODevCommRequirements()

        def prepare() -> dict[str, Any]:
            return expect(wanted, CCODevCommRequirements, "requirements")._options(group)

        options = self._together(group, prepare)
        try:
            comm = Comm(group, timeout_ms=_TIMEOUT_MS, **options)
        except FailedPrecondition:
            if wanted.sdma_queue_count != 0:
                raise
            # Nobody has asked for SDMA by name; every rank has got the same answer.
            options["transports"] &= ~_abi.TRANSPORT_SDMA
            comm = Comm(group, timeout_ms=_TIMEOUT_MS, **options)
        return DevCommHandle(self, comm)

    def barrier(self) -> None:
        """Waits for all ranks, not for kernels. Collective."""
        self._get("barrier").barrier(_BARRIER_TIMEOUT_MS)

    def close_all_resources(self) -> None:
        """Closes what was given out and is open, the last first."""
        for resource in reversed(self._tracked()):
            resource.close()

    def destroy(self) -> None:
        """Ends what is left, the group and the session. Local; again: nothing."""
        group, self._group = self._group, None
        if group is None:
            return
        self.close_all_resources()
        group.close()
        self._client.close()

    def __enter__(self) -> Communicator:
        self._get("enter")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.destroy()

    @staticmethod
    def _together(
        group: Group, prepare: Callable[[], Result], undo: Callable[[Result], None] | None = None
    ) -> Result:
        """This rank's part of a collective call; raises on every rank if one rank's part does."""
        try:
            result = prepare()
        except Exception as error:
            try:
                group.agree(str(getattr(error, "reason", error)) or repr(error), _TIMEOUT_MS)
            except Error:
                pass  # The others hear of it; here it is the rank's own error that counts.
            raise
        try:
            group.agree(None, _TIMEOUT_MS)
        except BaseException:
            if undo is not None:
                undo(result)
            raise
        return result

    # Without a lock, which a forked child might find held: each is one step of the list.

    def _tracked(self) -> list[CCOResource]:
        return list(self._resources)

    def _track(self, resource: CCOResource) -> None:
        self._resources.append(resource)

    def _forget(self, resource: CCOResource) -> None:
        try:
            self._resources.remove(resource)
        except ValueError:
            pass  # Another thread was first.
