"""Windows, the use of other tenants' windows, and device communicators."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

from cco import _abi, _owner
from cco._arguments import encode, expect, fill, fit, raw_bytes
from cco._library import library
from cco._owner import Owner
from cco.client import Client, ExternalMemory
from cco.errors import OutOfRange, Status
from cco.group import Group
from cco.views import Place, View


class WindowInfo(NamedTuple):
    """A window as the daemon has it."""

    window_id: int  # As `ccoctl windows` shows it.
    generation: int
    size_bytes: int
    offset: int  # In every rank's slot; of external memory: in rank 0's.
    is_found: bool  # Its contents are those of an earlier use.


class Window(Owner):
    """One rank's use of a window: the same range of the symmetric heap on every rank. Thread safe.

    Making one is collective, matched by `name`; with None by order, the same on every rank.
    Contents are what earlier windows of the same group left there, else zero.

    size_bytes          per rank, the same on every rank, from 1
    alignment_bytes     a power of two, 256 to 1 GiB; 0: 256
    wait_for_memory_ms  how long to wait for memory that others have, within timeout_ms; 0: not
    keep_ms             how long its memory is kept once nobody uses it, up to 30 days; 0: not
    timeout_ms          0: one minute

    Raises InvalidArgument (ranks disagree: `rank`), AlreadyExists, ResourceExhausted, Aborted,
    FailedPrecondition (keep_ms: kept with another size), DeadlineExceeded (a rank never came).

    close() is local: kernels that use it, and what they posted, must have ended.
    """

    _kind = "window"
    _destroy = "cco_window_destroy"
    _is_export = False  # Counts itself: who has its CUDA array interface keeps no view.

    def __init__(
        self,
        group: Group,
        name: str | None,
        size_bytes: int,
        *,
        alignment_bytes: int = 0,
        wait_for_memory_ms: int = 0,
        keep_ms: int = 0,
        timeout_ms: int = 0,
    ) -> None:
        expect(group, Group, "group")
        options = fill(
            _abi.WindowOptions,
            timeout_ms=timeout_ms,
            size_bytes=size_bytes,
            alignment_bytes=alignment_bytes,
            wait_for_memory_ms=wait_for_memory_ms,
            keep_ms=keep_ms,
        )
        out = ctypes.c_void_p()
        library().check(
            library().cco_window_create(
                group.handle, encode(name, "name"), ctypes.byref(options), ctypes.byref(out)
            )
        )
        self._begin(group, name, options.size_bytes, out)

    @classmethod
    def open(cls, group: Group, name: str) -> Window:
        """One that came along when the group was shrunk. Local; once for each.

        NotFound: no heap window of that name. AlreadyExists: it has been opened.
        """
        expect(group, Group, "group")
        expect(name, str, "name", "a str")
        out = ctypes.c_void_p()
        library().check(
            library().cco_window_open(group.handle, encode(name, "name"), ctypes.byref(out))
        )
        made = cls.__new__(cls)
        made._begin(group, name, 0, out)
        made.size_bytes = made.info().size_bytes
        return made

    @classmethod
    def register(
        cls,
        group: Group,
        name: str | None,
        size_bytes: int,
        memory: ExternalMemory,
        *,
        timeout_ms: int = 0,
    ) -> Window:
        """A window of memory that each rank already has: `Memory.external`, or an export's fd.

        Collective as Window(); allocations and offsets may differ between ranks. Nothing is copied,
        and the memory lives until the last user has gone.

        InvalidArgument: not memory of this driver, too small, or out of range.
        """
        expect(group, Group, "group")
        expect(memory, ExternalMemory, "memory", "a cco.ExternalMemory: Memory.external")
        options = fill(_abi.WindowOptions, timeout_ms=timeout_ms, size_bytes=size_bytes)
        external = fill(_abi.ExternalMemory, **memory._asdict())
        out = ctypes.c_void_p()
        library().check(
            library().cco_window_register(
                group.handle,
                encode(name, "name"),
                ctypes.byref(options),
                ctypes.byref(external),
                ctypes.byref(out),
            )
        )
        made = cls.__new__(cls)
        made._begin(group, name, options.size_bytes, out)
        return made

    def _begin(
        self, group: Group, name: str | None, size_bytes: int, out: ctypes.c_void_p
    ) -> None:
        self._own(out.value, group)
        self.group = group
        self.name = name
        self.size_bytes = size_bytes  #: Per rank.

    def info(self) -> WindowInfo:
        """As the daemon has it. Local, cheap; FailedPrecondition: closed."""
        found = _abi.WindowInfo()
        library().check(library().cco_window_get_info(self.handle, ctypes.byref(found)))
        return WindowInfo(
            found.window_id,
            found.generation,
            found.size_bytes,
            found.offset,
            bool(found.is_found),
        )

    @property
    def device(self) -> _abi.WindowDevice:
        """For kernels that take the struct by value; a fresh copy. Valid until close()."""
        found = _abi.WindowDevice()
        library().check(library().cco_window_get_device(self.handle, ctypes.byref(found)))
        return found

    @property
    def device_ptr(self) -> int:
        """Address of the same struct in device memory, for kernels that take a pointer."""
        out = ctypes.c_void_p()
        library().check(library().cco_window_get_device_pointer(self.handle, ctypes.byref(out)))
        return out.value or 0

    def address(self, rank: int | None = None, offset: int = 0) -> int:
        """Of byte `offset` in a rank's copy, for kernels and copies of this process.

        rank    in the group, of this rank's LSA team; None: this rank
        offset  in bytes

        OutOfRange: no such rank in the team, or offset >= size.
        """
        group = self.group
        if rank is not None:
            rank = fit(ctypes.c_int32, rank, "rank")
        lsa_rank = group.lsa_rank if rank is None else rank - group.lsa_first
        if not 0 <= lsa_rank < group.lsa_size:
            last = group.lsa_first + group.lsa_size - 1
            raise OutOfRange(
                Status.OUT_OF_RANGE,
                f"rank {rank} is not in this rank's LSA team, {group.lsa_first} to {last}",
            )
        offset = fit(ctypes.c_uint64, offset, "offset")
        out = ctypes.c_void_p()
        library().check(
            library().cco_window_get_address(self.handle, lsa_rank, offset, ctypes.byref(out))
        )
        return out.value or 0

    def view(
        self,
        rank: int | None = None,
        *,
        dtype: Any = "uint8",
        shape: Any = None,
        offset: int = 0,
    ) -> View:
        """A rank's copy as a tensor: this rank's, or a peer's of the LSA team.

        dtype   a name, or NumPy's or torch's type
        shape   None: all elements from `offset` on, along one axis
        offset  in bytes

        OutOfRange: as address(), or it takes more bytes than there are.
        """
        place = Place(
            self.address(rank), self.size_bytes, self.group.client.driver, self.group.device
        )
        return View(self, place, dtype, shape, offset)

    # This rank's copy as bytes, for consumers that take the window itself.

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.view().__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        """See View.__dlpack__()."""
        return self.view().__dlpack__(**options)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """On GPUs. Consumers keep this object, so from here on it is an export while it lives."""
        found = self.view()._cuda_interface()
        with _owner._lock:
            if not self._is_export:
                self._retain()
                self._is_export = True
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For numpy.asarray(), on the `host` driver; see View.numpy()."""
        return self.view().__array__(dtype, copy)

    def __del__(self, _ending: Any = sys.is_finalizing) -> None:
        if self._is_export and not _ending():
            self._release()
        super().__del__()

    def grant(self, tenant: str, access: int = _abi.ACCESS_READ) -> bytes:
        """A secret of 16 bytes with which processes of `tenant` attach to this window. Local.

        access  ACCESS_READ (who enforces it: see cco.h) or ACCESS_READ_WRITE

        InvalidArgument: no such access, no name of a tenant. FailedPrecondition: the window shares
        its memory with others (create it with keep_ms), or access that is not enforced is not
        allowed here.
        """
        token = _abi.GrantToken()
        expect(tenant, str, "tenant", "a str")
        access = fit(ctypes.c_uint32, access, "access")
        library().check(
            library().cco_window_grant(
                self.handle, encode(tenant, "tenant"), access, ctypes.byref(token)
            )
        )
        return bytes(token)

    def revoke(self, token: bytes) -> None:
        """Voids a grant; who is attached stays so. NotFound: no such grant of this window."""
        library().check(library().cco_window_revoke(self.handle, ctypes.byref(grant_token(token))))

    def _describe(self) -> str:
        named = "" if self.name is None else f" {self.name!r}"
        return f"{named} of {self.size_bytes} bytes" if self._handle is not None else ""


def grant_token(raw: bytes) -> _abi.GrantToken:
    """InvalidArgument: not 16 bytes."""
    checked = raw_bytes(raw, ctypes.sizeof(_abi.GrantToken), "token", "a grant's token")
    return _abi.GrantToken.from_buffer_copy(checked)


class Attachment(Owner):
    """This process's use of a window that another tenant has granted. Local. Thread safe.

    Every rank's copy is mapped for `device`, an ordinal of this process. The memory stays its
    owners', and there until this is closed, whatever becomes of them.

    Raises NotFound (no such device; the token is void, or not for this process's tenant),
    FailedPrecondition (this device cannot reach that memory, or some of it is gone).
    """

    _kind = "attachment"
    _destroy = "cco_attachment_destroy"

    def __init__(self, client: Client, token: bytes, *, device: int = 0) -> None:
        out = ctypes.c_void_p()
        expect(client, Client, "client")
        device = fit(ctypes.c_int32, device, "device")
        library().check(
            library().cco_attachment_create(
                client.handle, ctypes.byref(grant_token(token)), device, ctypes.byref(out)
            )
        )
        self._own(out.value, client)
        self.device = device
        self._driver = client.driver
        info = _abi.AttachmentInfo()
        library().check(library().cco_attachment_get_info(self.handle, ctypes.byref(info)))
        self.size_bytes: int = info.size_bytes  #: Of the window, per rank.
        self.rank_count: int = info.rank_count
        self.access: int = info.access  #: ACCESS_READ or ACCESS_READ_WRITE
        self.is_enforced: bool = bool(info.is_enforced)  #: False: only this library keeps to it.

    def address(self, rank: int, offset: int = 0) -> int:
        """Of byte `offset` in a rank's copy. OutOfRange: no such rank, or offset >= size."""
        out = ctypes.c_void_p()
        rank = fit(ctypes.c_uint32, rank, "rank")
        offset = fit(ctypes.c_uint64, offset, "offset")
        library().check(
            library().cco_attachment_get_address(self.handle, rank, offset, ctypes.byref(out))
        )
        return out.value or 0

    def view(self, rank: int, *, dtype: Any = "uint8", shape: Any = None, offset: int = 0) -> View:
        """A rank's copy as a tensor; see Window.view(). Stores to one for reading fault."""
        read_only = self.access == _abi.ACCESS_READ
        place = Place(self.address(rank), self.size_bytes, self._driver, self.device, read_only)
        return View(self, place, dtype, shape, offset)


class Comm(Owner):
    """One rank's use of a device communicator: signals, barriers and queues. Thread safe.

    Making one is collective, matched by order, with the same counts on every rank.

    signal_count   8-byte signals per rank, 0 to 65536
    barrier_count  LSA barriers that may be in use at once, 0 to 4096
    transports     TRANSPORT_SDMA | TRANSPORT_GDA: what must be there as well as LSA and TDM
    sdma_*, gda_*, rail_barrier_count, world_barrier_count   see cco_comm_options in cco.h
    timeout_ms     0: one minute

    Raises InvalidArgument (a count over its limit, ranks disagree), FailedPrecondition (a transport
    is not to be had: the reason says what was tried).
    """

    _kind = "communicator"
    _destroy = "cco_comm_destroy"

    def __init__(
        self,
        group: Group,
        *,
        signal_count: int = 0,
        barrier_count: int = 0,
        transports: int = 0,
        sdma_queue_count: int = 0,
        sdma_provider: str | None = None,
        gda_provider: str | None = None,
        gda_connection: int = 0,
        gda_context_count: int = 0,
        gda_signal_count: int = 0,
        gda_counter_count: int = 0,
        gda_queue_depth: int = 0,
        gda_traffic_class: int = -1,
        rail_barrier_count: int = 0,
        world_barrier_count: int = 0,
        timeout_ms: int = 0,
    ) -> None:
        expect(group, Group, "group")
        options = fill(
            _abi.CommOptions,
            signal_count=signal_count,
            barrier_count=barrier_count,
            timeout_ms=timeout_ms,
            transports=transports,
            sdma_queue_count=sdma_queue_count,
            sdma_provider=encode(sdma_provider, "sdma_provider"),
            gda_provider=encode(gda_provider, "gda_provider"),
            gda_connection=gda_connection,
            gda_context_count=gda_context_count,
            gda_signal_count=gda_signal_count,
            gda_counter_count=gda_counter_count,
            gda_queue_depth=gda_queue_depth,
            gda_traffic_class=gda_traffic_class,
            rail_barrier_count=rail_barrier_count,
            world_barrier_count=world_barrier_count,
        )
        out = ctypes.c_void_p()
        library().check(
            library().cco_comm_create(group.handle, ctypes.byref(options), ctypes.byref(out))
        )
        self._own(out.value, group)
        self.group = group

    @property
    def device(self) -> _abi.DeviceComm:
        """For kernels that take the struct by value; a fresh copy. Valid until close()."""
        found = _abi.DeviceComm()
        library().check(library().cco_comm_get_device(self.handle, ctypes.byref(found)))
        return found

    @property
    def device_ptr(self) -> int:
        """Address of the same struct in device memory, for kernels that take a pointer."""
        out = ctypes.c_void_p()
        library().check(library().cco_comm_get_device_pointer(self.handle, ctypes.byref(out)))
        return out.value or 0

    def check(self) -> None:
        """Internal, once a transport has reported an error to a kernel. Cheap."""
        library().check(library().cco_comm_check(self.handle))
