"""A process's session with the node's daemon, and memory of its own."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

from cco import _abi
from cco._arguments import encode_path, expect, fill, fit
from cco._library import library
from cco._owner import Owner
from cco.views import Place, View


class Gpu(NamedTuple):
    """A GPU that this process sees."""

    device: int  # This process's ordinal.
    total_bytes: int
    granularity_bytes: int  # Of slabs.
    uuid: str  # Names the GPU between processes.
    pci_bus_id: str  # Empty on host.
    name: str
    arch: str  # "sm_90", "gfx942", "host"


class ExternalMemory(NamedTuple):
    """A part of an allocation, as `Window.register()` takes it. The fd is borrowed."""

    fd: int  # An export of the allocation for this GPU driver.
    allocation_bytes: int  # Of the whole allocation.
    allocation_offset: int = 0  # Where in it the window begins, a multiple of 16.


class Client(Owner):
    """This process's session with cco-memd; one is enough for a process. Thread safe.

    socket_path  None: $CCO_SOCKET, else /run/cco/memd.sock
    timeout_ms   for calls that wait for no other rank; 0: 5000

    Raises InvalidArgument, Unavailable (nobody listens), PermissionDenied, FailedPrecondition (this
    process was forked from one that had a client, or cannot open the daemon's GPU driver).
    """

    _kind = "client"
    _destroy = "cco_client_destroy"

    def __init__(
        self, *, socket_path: str | os.PathLike[str] | None = None, timeout_ms: int = 0
    ) -> None:
        options = fill(
            _abi.ClientOptions,
            timeout_ms=timeout_ms,
            socket_path=encode_path(socket_path, "socket_path"),
        )
        out = ctypes.c_void_p()
        library().check(library().cco_client_create(ctypes.byref(options), ctypes.byref(out)))
        self._own(out.value, None)
        info = _abi.ClientInfo()
        library().check(library().cco_client_get_info(self.handle, ctypes.byref(info)))
        self.gpu_count: int = info.gpu_count  #: That this process sees.
        self.driver: str = info.driver.decode()  #: "host", "cuda", "hip"
        self.driver_version: str = info.driver_version.decode()  #: Of the library below it.

    @property
    def daemon_version(self) -> str:
        """Of the cco-memd that has this session now, "0.1.0"; another one after a restart."""
        return str(self._info().daemon_version.decode())

    @property
    def incarnation(self) -> int:
        """Of the daemon: another one after a restart that kept no state."""
        return int(self._info().incarnation)

    def _info(self) -> Any:
        info = _abi.ClientInfo()
        library().check(library().cco_client_get_info(self.handle, ctypes.byref(info)))
        return info

    def gpu(self, device: int) -> Gpu:
        """NotFound: no such device in this process."""
        info = _abi.GpuInfo()
        device = fit(ctypes.c_int32, device, "device")
        library().check(library().cco_client_get_gpu(self.handle, device, ctypes.byref(info)))
        return Gpu(
            info.device,
            info.total_bytes,
            info.granularity_bytes,
            info.uuid.decode(),
            info.pci_bus_id.decode(),
            info.name.decode(),
            info.arch.decode(),
        )

    def _describe(self) -> str:
        return f" driver {self.driver}" if self._handle is not None else ""


class Memory(Owner):
    """Device memory of this process alone, which can become a window later. Local. Thread safe.

    Not zeroed. It is this process's own, not the daemon's: close() unmaps it, and windows of it go
    on. Raises NotFound (no such device), ResourceExhausted, InvalidArgument (size_bytes is 0).

    ptr         its address, for kernels and copies of this process
    size_bytes  as asked for
    external    what Window.register() takes
    """

    _kind = "memory"
    _destroy = "cco_memory_destroy"

    def __init__(self, client: Client, size_bytes: int, *, device: int = 0) -> None:
        expect(client, Client, "client")
        device = fit(ctypes.c_int32, device, "device")
        size_bytes = fit(ctypes.c_uint64, size_bytes, "size_bytes")
        out = ctypes.c_void_p()
        library().check(
            library().cco_memory_create(client.handle, device, size_bytes, ctypes.byref(out))
        )
        self._begin(client, out)

    @classmethod
    def at(cls, client: Client, address: int, size_bytes: int, *, device: int = 0) -> Memory:
        """Memory that somebody else in this process has allocated, under a second address.

        With CUDA's or HIP's virtual memory management and a handle that can be exported as a file
        descriptor; on host, a shared mapping of a memfd whose descriptor is open. `address` may lie
        inside the allocation. Nothing is copied, and it lives until both owners have given it up.

        InvalidArgument: no such memory, not exportable, or not within one allocation; the reason
        says what to change.
        """
        expect(client, Client, "client")
        device = fit(ctypes.c_int32, device, "device")
        address = fit(ctypes.c_uint64, address, "address")
        size_bytes = fit(ctypes.c_uint64, size_bytes, "size_bytes")
        out = ctypes.c_void_p()
        library().check(
            library().cco_memory_import(
                client.handle, device, address, size_bytes, ctypes.byref(out)
            )
        )
        made = cls.__new__(cls)
        made._begin(client, out)
        return made

    def _begin(self, client: Client, out: ctypes.c_void_p) -> None:
        self._own(out.value, client)
        info = _abi.MemoryInfo()
        library().check(library().cco_memory_get_info(self.handle, ctypes.byref(info)))
        self.ptr: int = info.address
        self.size_bytes: int = info.size_bytes
        self.device: int = info.device
        self.external = ExternalMemory(info.fd, info.allocation_bytes, info.allocation_offset)
        self._driver = client.driver

    def view(self, *, dtype: Any = "uint8", shape: Any = None, offset: int = 0) -> View:
        """As a tensor; `offset` in bytes, shape None: all from there on."""
        self.handle  # noqa: B018: raises
        place = Place(self.ptr, self.size_bytes, self._driver, self.device)
        return View(self, place, dtype, shape, offset)

    def _describe(self) -> str:
        return f" of {self.size_bytes} bytes at {self.ptr:#x}" if self._handle is not None else ""
