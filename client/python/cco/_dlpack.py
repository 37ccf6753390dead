"""DLPack capsules, in pure Python: what torch.from_dlpack() and numpy.from_dlpack() take.

Consumers let go of a tensor anywhere: while an exception is pending, in a thread without the
interpreter, after its end. So what they call is the library's cco_release(), which only notes the
tensor down; drain() takes it back, as a pending call of the interpreter or before the next call of
an owner, whichever is first.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32
from ctypes import c_uint64, c_void_p
from typing import Any, Callable

from cco import _abi
from cco._library import library

CPU, CUDA, ROCM = 1, 2, 10  # DLDeviceType.
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_VERSION = (1, 0)


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("type_code", c_uint8),
        ("type_bits", c_uint8),
        ("type_lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


class _Lent(Structure):
    _fields_ = [("header", _abi.ReleaseHeader), ("managed", _Managed)]


class _LentVersioned(Structure):
    _fields_ = [("header", _abi.ReleaseHeader), ("managed", _ManagedVersioned)]


# What consumers hold, by the managed tensor's address: the structs, and what to call. Each entry
# has a reference too many, so that at exit it outlives this module: consumers may still look at it.
_lent: dict[int, tuple[Any, Any, Callable[[], None]]] = {}

_api = ctypes.pythonapi
_new_capsule = _api.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [c_void_p, ctypes.c_char_p, c_void_p]
_NAMES = (b"dltensor", b"dltensor_versioned")


def _released(address: int) -> None:
    """Called by drain(), where Python may run."""
    # pop() is one step of the interpreter: a lock could be held by this very thread.
    entry = _lent.pop(address)
    try:
        entry[2]()
    finally:
        _api.Py_DecRef(ctypes.py_object(entry))


_released_in_c = CFUNCTYPE(None, c_void_p)(_released)

# Capsules that outlive this module have the names.
_api.Py_IncRef(ctypes.py_object(_NAMES))


class _Queue:
    """The library's release queue of this process."""

    def __init__(self) -> None:
        functions = library()
        options = _abi.ReleaseQueueOptions(
            schedule=_address(_api.Py_AddPendingCall),
            released=_address(_released_in_c),
            capsule_is_valid=_address(_api.PyCapsule_IsValid),
            capsule_pointer=_address(_api.PyCapsule_GetPointer),
        )
        out = c_void_p()
        functions.check(
            functions.cco_release_queue_create(ctypes.byref(options), ctypes.byref(out))
        )
        self.handle = out.value
        self.drain = functions.cco_release_queue_drain
        self.close = functions.cco_release_queue_close
        self.deleter = _address(functions.cco_release)
        self.destructor = _address(functions.cco_release_capsule)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value


_lock = threading.Lock()
_made: _Queue | None = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # Another thread of the parent may have held it.


os.register_at_fork(after_in_child=_after_fork)


def _queue() -> _Queue:
    global _made
    with _lock:
        if _made is None:
            _made = _Queue()
    return _made


def drain() -> None:
    """Takes back, in this thread, what consumers have let go of by now. Hold no lock."""
    if _lent and _made is not None:
        _made.drain(_made.handle)


def capsule(
    address: int,
    device: tuple[int, int],
    element: tuple[int, int],
    shape: tuple[int, ...],
    read_only: bool,
    versioned: bool,
    release: Callable[[], None],
) -> Any:
    """A capsule of a contiguous tensor; `release()` is called once when its consumer is done.

    device   (DLDeviceType, ordinal)
    element  (DLDataTypeCode, bits)
    """
    queue = _queue()
    rank = len(shape)
    numbers = (c_int64 * (2 * max(rank, 1)))()
    stride = 1
    for axis in reversed(range(rank)):
        numbers[axis], numbers[rank + axis] = shape[axis], stride
        stride *= shape[axis]
    shapes = ctypes.cast(numbers, POINTER(c_int64))
    strides = ctypes.cast(ctypes.byref(numbers, 8 * rank), POINTER(c_int64))
    tensor = _Tensor(address, *device, rank, *element, 1, shapes, strides, 0)
    lent: _Lent | _LentVersioned
    if versioned:
        flags = _READ_ONLY if read_only else 0
        managed = _ManagedVersioned(*_VERSION, None, queue.deleter, flags, tensor)
        lent = _LentVersioned((None, queue.handle), managed)
    else:
        lent = _Lent((None, queue.handle), _Managed(tensor, None, queue.deleter))
    key = ctypes.addressof(lent) + ctypes.sizeof(_abi.ReleaseHeader)
    entry = (lent, numbers, release)
    made = _new_capsule(key, _NAMES[versioned], queue.destructor)
    _api.Py_IncRef(ctypes.py_object(entry))
    _lent[key] = entry
    return made


def disarm() -> None:
    """From here on no consumer calls back into this interpreter, which is ending.

    What is alive stays alive until the process ends.
    """
    if _made is not None:
        _made.drain(_made.handle)
        _made.close(_made.handle)
