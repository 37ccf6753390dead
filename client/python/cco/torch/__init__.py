"""torch's symmetric memory over cco, and torch tensors as windows.

    import cco.torch
    symm_mem.set_backend("CCO")
    tensor = symm_mem.empty(1024, device="cuda")
    handle = symm_mem.rendezvous(tensor, dist.group.WORLD)

Importing this registers the back-end "CCO" for GPU tensors, and for CPU tensors (cco-memd with the driver
`host`), for which torch has none. That takes a small extension, compiled once per release of torch: see
`cco.torch.build`. If it cannot be had, the import warns, and `register_symm_backend()` raises the reason.

docs/torch.md says what goes on below, what it costs, and what differs from torch's own back-ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import warnings
from typing import Any, NamedTuple

import torch

import cco
from cco.torch import _build

__all__ = [
    "SYMM_BACKEND_NAME",
    "Counts",
    "TensorWindow",
    "counts",
    "dev_comm",
    "group_dev_comm",
    "handle_type",
    "register",
    "register_symm_backend",
    "signal_pad_supported",
    "tensor",
    "window",
    "window_handle",
]

SYMM_BACKEND_NAME = "CCO"  #: For `symm_mem.set_backend()`.

_OF_TORCH = ("CUDA", "NCCL", "NVSHMEM")  # Programs that ask for these mean torch's.

_lock = threading.Lock()
_registered: set[str] = set()
_extension: ctypes.CDLL | None = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # Another thread of the parent may have held it.


os.register_at_fork(after_in_child=_after_fork)


class TensorWindow(NamedTuple):
    """Where a symmetric tensor lies, in cco's words. Valid as long as the tensor or its handle is."""

    handle: int  # cco_window*
    device_ptr: int  # Of the window's descriptor, for kernels: `cco_window_device*`, MORI's ccoWindow_t.
    offset: int  # In bytes: of the tensor in the window, the same on every rank whose view of it is the same.
    size_bytes: int  # Of the memory from there on.
    group: int  # cco_group*
    comm: int  # cco_comm*
    comm_ptr: int  # Of the device communicator, for kernels: `cco_device_comm*`.


class Counts(NamedTuple):
    """What this process has of the back-end."""

    tensors: int
    chunks: int  # Allocations that tensors share; one stays for each device that was used.
    chunk_bytes: int
    groups: int  # Process groups that tensors have met in, and that torch still has.


class _Window(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in TensorWindow._fields]


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Counts._fields]


def _loaded() -> ctypes.CDLL:
    """The extension; built if need be. Call with _lock."""
    global _extension
    if _extension is None:
        made = ctypes.CDLL(_build.find_or_build())
        for name in ("cco_torch_load", "cco_torch_register", "cco_torch_find", "cco_torch_find_comm",
                     "cco_torch_count"):
            getattr(made, name).restype = ctypes.c_char_p
        folder = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "lib")
        _check(made.cco_torch_load(cco.library_path().encode(), folder.encode()))
        # Tensors may be freed after this by whatever ends later; a forked child has only copies.
        atexit.register(made.cco_torch_exit)
        os.register_at_fork(after_in_child=made.cco_torch_exit)
        _extension = made
    return _extension


def _check(problem: bytes | None) -> None:
    if problem is not None:
        raise RuntimeError(problem.decode("utf-8", "replace"))


def register_symm_backend(name: str = SYMM_BACKEND_NAME) -> str:
    """Makes the back-end known to torch as `name`, and returns that; again: nothing happens.

    Thread safe. Raises ValueError (no name, or one of torch's own back-ends), cco.torch.build.BuildError (no compiler,
    or it failed), cco.NotFound (no libcco_client), RuntimeError (libcco_client is older than this package).
    """
    if not isinstance(name, str) or not name or name in _OF_TORCH:
        raise ValueError(f"a back-end cannot be registered as {name!r}: give a name that is none of torch's own, "
                         f"{', '.join(_OF_TORCH)}")
    with _lock:
        if name not in _registered:
            _check(_loaded().cco_torch_register(name.encode()))
            _registered.add(name)
    return name


def handle_type(device_index: int = 0) -> str:
    """How memory travels between processes: "posix_fd", on every device."""
    del device_index
    return "posix_fd"


def signal_pad_supported() -> bool:
    """Whether `barrier()`, `put_signal()` and `wait_signal()` work: True."""
    return True


def _group_name(group: Any) -> str:
    if group is None:
        group = torch.distributed.group.WORLD
    if group is None:
        raise RuntimeError("no group was given, and there is no default process group: call "
                           "torch.distributed.init_process_group() and symm_mem.rendezvous() before, or give a group")
    return group if isinstance(group, str) else str(group.group_name)


def _check_tensor(tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"takes a torch.Tensor, not {tensor!r}: make one by symm_mem.empty()")


def window(tensor: torch.Tensor, group: Any = None) -> TensorWindow:
    """Where a tensor that has been through `symm_mem.rendezvous(tensor, group)` lies. Local.

    group  a process group or its name; None: the default one

    RuntimeError: it has not; no group, and no default one. TypeError: no tensor.
    """
    _check_tensor(tensor)
    found = _Window()
    address = ctypes.c_void_p(tensor.data_ptr())
    with _lock:
        extension = _loaded()
    _check(extension.cco_torch_find(address, _group_name(group).encode(), ctypes.byref(found)))
    return TensorWindow(*(int(getattr(found, name)) for name in TensorWindow._fields))


def window_handle(tensor: torch.Tensor, group: Any = None) -> int:
    """`window(tensor, group).device_ptr`: what kernels take. The tensor begins at `.offset` in it."""
    return window(tensor, group).device_ptr


def dev_comm(tensor: torch.Tensor, group: Any = None) -> int:
    """`window(tensor, group).comm_ptr`: the device communicator, for kernels. It has one LSA barrier."""
    return window(tensor, group).comm_ptr


def group_dev_comm(group: Any = None, key: str = "default", lsa_barrier_count: int = 1) -> int:
    """A device communicator of a group, for kernels: one for each `key` and number of LSA barriers, 0 to 4096.

    Collective when it is asked for first, and it lives as long as torch's group. RuntimeError: no tensor has been
    through rendezvous() in the group yet.
    """
    found = ctypes.c_uint64()
    with _lock:
        extension = _loaded()
    _check(extension.cco_torch_find_comm(_group_name(group).encode(), key.encode(), ctypes.c_uint32(lsa_barrier_count),
                                         ctypes.byref(found)))
    return found.value


def counts() -> Counts:
    """What this process has of the back-end. Local; thread safe."""
    found = _Counts()
    with _lock:
        extension = _loaded()
    _check(extension.cco_torch_count(ctypes.byref(found)))
    return Counts(*(int(getattr(found, name)) for name in Counts._fields))


def tensor(
    source: cco.Window | cco.Memory,
    shape: Any = None,
    dtype: torch.dtype = torch.uint8,
    *,
    rank: int | None = None,
    offset: int = 0,
) -> torch.Tensor:
    """A window, or memory, as a tensor; nothing is copied. It stays mapped while the tensor is alive.

    source  of the driver `host` for CPU tensors, else on this process's GPU
    shape   None: all elements from `offset` on
    rank    whose copy of the window; None: this rank's
    offset  in bytes, a multiple of the element's size

    cco.OutOfRange: it does not fit, or no such rank in the LSA team.
    """
    if isinstance(source, cco.Window):
        view = source.view(rank, dtype=dtype, shape=shape, offset=offset)
    else:
        view = source.view(dtype=dtype, shape=shape, offset=offset)
    made: torch.Tensor = torch.from_dlpack(view)
    return made


_HINT = (
    "A tensor can become a window if its memory can be exported: make it by symm_mem.empty() (any back-end), or "
    "run with PYTORCH_ALLOC_CONF=expandable_segments:True (before torch 2.9 PYTORCH_CUDA_ALLOC_CONF), where a tensor "
    "must lie in one segment (2 MiB for tensors up to 1 MiB, 20 MiB for larger ones)"
)


def register(group: cco.Group, tensor: torch.Tensor, name: str | None = None, *, timeout_ms: int = 0) -> cco.Window:
    """Makes a window of a tensor that each rank already has; nothing is copied. Collective.

    tensor  contiguous, of the same size in bytes on every rank; it may begin inside an allocation, at a multiple
            of 16 bytes from its beginning, elsewhere on each rank
    name    of the window; None: matched by order

    The window keeps the memory: the tensor may go, though torch's allocator may then give the memory to others.

    Raises TypeError (no group, no tensor), ValueError (not contiguous, or empty), cco.InvalidArgument (not memory that
    can be exported: the reason says what to change), cco.FailedPrecondition on the other ranks then, and what
    cco.Window.register() raises.
    """
    if not isinstance(group, cco.Group):
        raise TypeError(f"takes a cco.Group, not {group!r}: make one by cco.Group.from_env(), or of a process group's "
                        "rank and size")
    memory: cco.Memory | None = None
    failure: Exception | None = None
    try:
        _check_tensor(tensor)
        if not tensor.is_contiguous() or tensor.nbytes == 0:
            raise ValueError(f"a window takes a contiguous tensor with elements, not one of {tuple(tensor.shape)} "
                             f"with strides {tensor.stride()}")
        memory = cco.Memory.at(group.client, tensor.data_ptr(), tensor.nbytes, device=group.device)
    except cco.InvalidArgument as error:
        failure = cco.InvalidArgument(error.code, f"{error.reason}. {_HINT}", error.rank)
    except Exception as error:  # Whatever it is: raised below, once the others know.
        failure = error
    try:
        # Before a call that needs all: a rank that cannot must not leave the others waiting.
        group.agree(None if failure is None else str(failure)[:1000], timeout_ms)
        assert memory is not None
        return cco.Window.register(group, name, tensor.nbytes, memory.external, timeout_ms=timeout_ms)
    except cco.Error:
        if failure is not None:
            raise failure from None
        raise
    finally:
        if memory is not None:
            memory.close()  # The window has the memory now; this was a second address of it.


def _register_at_import() -> None:
    try:
        register_symm_backend()
    except (RuntimeError, OSError) as error:
        warnings.warn(
            f"cco.torch has not registered its back-end: {error}. Once that is mended, call "
            "cco.torch.register_symm_backend()",
            RuntimeWarning,
            stacklevel=3,
        )


_register_at_import()
