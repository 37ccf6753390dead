"""Groups: the ranks that reach each other's memory, and how they find each other."""

from __future__ import annotations

import ctypes
import enum
from typing import Any, NamedTuple, TypeVar

from cco import _abi
from cco._arguments import encode, expect, fill, fit, raw_bytes
from cco._library import library
from cco._owner import Owner
from cco.client import Client
from cco.errors import FailedPrecondition, InvalidArgument, Status


SomeId = TypeVar("SomeId", bound="UniqueId")


class UniqueId:
    """A secret of 128 bytes by which ranks find each other: one makes it and gives it to all.

    `bytes(uid)` and `UniqueId.from_bytes()`, or pickle, carry it. Immutable.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        checked = raw_bytes(raw, ctypes.sizeof(_abi.UniqueId), "raw", "a unique id")
        self._raw = _abi.UniqueId.from_buffer_copy(checked)

    @classmethod
    def create(cls: type[SomeId]) -> SomeId:
        """A fresh one. Needs no daemon."""
        made = _abi.UniqueId()
        library().check(library().cco_unique_id_create(ctypes.byref(made)))
        return cls(bytes(made))

    @classmethod
    def from_bytes(cls: type[SomeId], raw: bytes) -> SomeId:
        """InvalidArgument, which is a ValueError: not 128 bytes."""
        return cls(raw)

    @property
    def ptr(self) -> int:
        """Address of the 128 bytes, while this object is alive."""
        return ctypes.addressof(self._raw)

    def __bytes__(self) -> bytes:
        return bytes(self._raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UniqueId) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __getstate__(self) -> bytes:
        return bytes(self)

    def __setstate__(self, raw: bytes) -> None:
        self._raw = _abi.UniqueId.from_buffer_copy(raw)

    def __repr__(self) -> str:
        return "<cco.UniqueId>"  # A secret: not shown.


class Environment(NamedTuple):
    """What the launcher says of this process."""

    rank: int
    size: int
    local_rank: int  # On this node; rank, if the launcher does not say.
    local_size: int
    launcher: str  # "cco", "torchrun", "openmpi", "pmi", "slurm"
    job: str  # Names this job; empty if the launcher gives it no name.


def environment() -> Environment:
    """Of ccoctl run, torchrun, Open MPI, MPICH and Slurm, the first whose variables are set.

    NotFound: none's are. InvalidArgument: they make no sense.
    """
    found = _abi.Environment()
    library().check(library().cco_environment_get(ctypes.byref(found)))
    return Environment(
        found.rank,
        found.size,
        found.local_rank,
        found.local_size,
        found.launcher.decode(),
        found.job.decode("utf-8", "surrogateescape"),
    )


class Condition(enum.IntFlag):
    """What the daemon would have this rank act upon before it has to; of its GPU."""

    DRAINING = _abi.CONDITION_DRAINING  #: An operator takes the GPU out of service: leave.
    MEMORY_PRESSURE = _abi.CONDITION_MEMORY_PRESSURE  #: Memory is short there.


class Group(Owner):
    """One rank's membership in a group. Forming it is collective. Thread safe.

    rank, size   None: from the launcher's variables
    name         of the group, within this user's groups; or
    unique_id    instead of a name; neither: the launcher's name for the job
    device       whose memory this rank brings, an ordinal of this process; None: by local rank
    gpu_uuid     the same by UUID
    slot_bytes   address space per rank, a multiple of 4 GiB, the same on every rank; 0: the largest
                 GPU's memory rounded up
    lsa_size     ranks per LSA team, a divisor of size; 0: $CCO_LSA_SIZE, else all of the node
    lease        a lease's token; None: $CCO_LEASE, else the cgroup's, if any
    timeout_ms   0: one minute

    Calls matched by order (barriers, communicators, unnamed windows) are made one at a time by a
    rank. Every collective call may raise Aborted: a rank is lost, or somebody aborted.

    Raises InvalidArgument (ranks disagree, neither or both of name and unique_id), AlreadyExists
    (somebody else is this rank), NotFound (device, launcher, lease), FailedPrecondition (a peer
    cannot be reached), DeadlineExceeded (a rank never came: `rank`).
    """

    _kind = "group"
    _destroy = "cco_group_destroy"
    _own_client: Client | None = None  # Made by from_env(), and closed with this.

    def __init__(
        self,
        client: Client,
        *,
        rank: int | None = None,
        size: int | None = None,
        name: str | None = None,
        unique_id: UniqueId | None = None,
        device: int | None = None,
        gpu_uuid: str | None = None,
        slot_bytes: int = 0,
        lsa_size: int = 0,
        lease: str | None = None,
        timeout_ms: int = 0,
    ) -> None:
        expect(client, Client, "client")
        if unique_id is not None:
            expect(unique_id, UniqueId, "unique_id", "a cco.UniqueId: UniqueId.from_bytes(raw)")
        if (rank is None) != (size is None):
            raise InvalidArgument(
                Status.INVALID_ARGUMENT, f"rank {rank} and size {size}: give both, or neither"
            )
        options = fill(
            _abi.GroupOptions,
            rank=_abi.RANK_FROM_ENVIRONMENT if rank is None else rank,
            size=0 if size is None else size,
            device=_abi.DEVICE_BY_LOCAL_RANK if device is None else device,
            gpu_uuid=encode(gpu_uuid, "gpu_uuid"),
            name=encode(name, "name"),
            unique_id=None if unique_id is None else ctypes.pointer(unique_id._raw),
            slot_bytes=slot_bytes,
            timeout_ms=timeout_ms,
            lsa_size=lsa_size,
            lease=encode(lease, "lease"),
        )
        out = ctypes.c_void_p()
        library().check(
            library().cco_group_create(client.handle, ctypes.byref(options), ctypes.byref(out))
        )
        self._begin(client, out)

    @classmethod
    def from_env(
        cls,
        *,
        socket_path: str | None = None,
        rank: int | None = None,
        size: int | None = None,
        name: str | None = None,
        unique_id: UniqueId | None = None,
        device: int | None = None,
        gpu_uuid: str | None = None,
        slot_bytes: int = 0,
        lsa_size: int = 0,
        lease: str | None = None,
        timeout_ms: int = 0,
    ) -> Group:
        """The group of all ranks that the launcher started, in one call: client included.

        `socket_path` is the client's, the others are Group()'s. Closing the group closes the
        client.
        """
        client = Client(socket_path=socket_path)
        try:
            made = cls(
                client,
                rank=rank,
                size=size,
                name=name,
                unique_id=unique_id,
                device=device,
                gpu_uuid=gpu_uuid,
                slot_bytes=slot_bytes,
                lsa_size=lsa_size,
                lease=lease,
                timeout_ms=timeout_ms,
            )
        except BaseException:
            client.close()
            raise
        made._own_client = client
        return made

    def _begin(self, client: Client, out: ctypes.c_void_p) -> None:
        self._own(out.value, client)
        self.client = client
        info = self._info()
        self.rank: int = info.rank
        self.size: int = info.size
        self.lsa_rank: int = info.lsa_rank
        self.lsa_size: int = info.lsa_size
        self.lsa_first: int = info.lsa_first  #: World rank of LSA rank 0.
        self.device: int = info.device
        self.group_id: int = info.group_id
        self.generation: int = info.generation
        self.flat_base: int = info.flat_base  #: Address of LSA rank 0's slot in this process.
        self.slot_bytes: int = info.slot_bytes

    def _info(self) -> Any:
        info = _abi.GroupInfo()
        library().check(library().cco_group_get_info(self.handle, ctypes.byref(info)))
        return info

    @property
    def slab_count(self) -> int:
        """Mapped so far, the control region included."""
        return int(self._info().slab_count)

    def close(self) -> None:
        super().close()
        if self._own_client is not None:
            self._own_client.close()

    def barrier(self, timeout_ms: int = 0) -> None:
        """Waits for all ranks, not for kernels. Collective; 0: one minute."""
        timeout_ms = fit(ctypes.c_uint32, timeout_ms, "timeout_ms")
        library().check(library().cco_group_barrier(self.handle, timeout_ms))

    def agree(self, problem: str | None = None, timeout_ms: int = 0) -> None:
        """A barrier that raises FailedPrecondition on every rank if a rank has a `problem`.

        With that rank's number and text. Before a call that needs something of every rank.
        """
        timeout_ms = fit(ctypes.c_uint32, timeout_ms, "timeout_ms")
        library().check(
            library().cco_group_agree(self.handle, encode(problem, "problem"), timeout_ms)
        )

    def check(self) -> None:
        """Aborted, once a rank is lost or somebody aborted. Cheap: ask as often as you like."""
        library().check(library().cco_group_check(self.handle))

    def conditions(self) -> Condition:
        """Those that hold now. Cheap."""
        found = ctypes.c_uint32()
        library().check(library().cco_group_get_conditions(self.handle, ctypes.byref(found)))
        return Condition(found.value)

    def abort(self) -> None:
        """Ends the group's collective calls and device waits, on every rank, for good."""
        library().check(library().cco_group_abort(self.handle))

    def shrink(self, timeout_ms: int = 0) -> Group:
        """The live ranks go on in a new group with the memory they have. Collective over them.

        This group, its windows and communicators are closed then. Named windows come along:
        `Window.open()`. Kernels that use this group must have ended. 0: one minute.

        Aborted: a rank was lost meanwhile, try again. FailedPrecondition: tensors of this group's
        windows are alive, whose addresses would be void (nobody was asked then); or memory of a
        live rank is gone.
        """
        options = fill(_abi.ShrinkOptions, timeout_ms=timeout_ms)
        if self.export_count != 0:
            raise FailedPrecondition(
                Status.FAILED_PRECONDITION,
                f"{self.export_count} tensors or arrays of this group's windows are alive; their "
                "addresses would be void: let go of them first",
            )
        out = ctypes.c_void_p()
        library().check(
            library().cco_group_shrink(self.handle, ctypes.byref(options), ctypes.byref(out))
        )
        made = type(self).__new__(type(self))
        made._begin(self.client, out)
        made._own_client, self._own_client = self._own_client, None
        self.close()
        return made

    def _describe(self) -> str:
        return f" rank {self.rank} of {self.size}" if self._handle is not None else ""
