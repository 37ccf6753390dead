"""DLPack capsules, in pure Python: what torch.from_dlpack() and numpy.from_dlpack() take.

The structs are this module's until the consumer calls their deleter, which gives the export back.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32
from ctypes import c_uint64, c_void_p
from typing import Any, Callable

CPU, CUDA, ROCM = 1, 2, 10  # DLDeviceType.
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_VERSION = (1, 0)

_Deleter = CFUNCTYPE(None, c_void_p)


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


# What consumers hold, by the struct's address: the struct, its shape and strides, what to call.
_live: dict[int, tuple[Any, Any, Callable[[], None]]] = {}
_lock = threading.Lock()
_armed = True


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # Another thread of the parent may have held it.


os.register_at_fork(after_in_child=_after_fork)


def _delete(address: int | None) -> None:
    if address is not None:
        # pop() is one step of the interpreter: a lock could be held by this very thread.
        entry = _live.pop(address, None)
        if entry is not None:
            entry[2]()


_delete_in_c = _Deleter(_delete)
_delete_address = ctypes.cast(_delete_in_c, c_void_p).value

_api = ctypes.pythonapi
_new_capsule = _api.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [c_void_p, ctypes.c_char_p, c_void_p]
# With the capsule as a plain address: its destructor must not touch its reference count.
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [c_void_p, ctypes.c_char_p]
_get_pointer = _api.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = c_void_p, [c_void_p, ctypes.c_char_p]

_NAMES = (b"dltensor", b"dltensor_versioned")  # The strings outlive all capsules.


def _end_capsule(capsule: int) -> None:
    """A capsule that nobody has consumed ends."""
    for name in _NAMES:
        if _is_valid(capsule, name):
            _delete(_get_pointer(capsule, name))


_end_capsule_in_c = _Deleter(_end_capsule)

# Consumers may call these when this module is gone.
for _callback in (_delete_in_c, _end_capsule_in_c, *_NAMES):
    _api.Py_IncRef(ctypes.py_object(_callback))


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
    rank = len(shape)
    numbers = (c_int64 * (2 * max(rank, 1)))()
    stride = 1
    for axis in reversed(range(rank)):
        numbers[axis], numbers[rank + axis] = shape[axis], stride
        stride *= shape[axis]
    shapes = ctypes.cast(numbers, POINTER(c_int64))
    strides = ctypes.cast(ctypes.byref(numbers, 8 * rank), POINTER(c_int64))
    tensor = _Tensor(address, *device, rank, *element, 1, shapes, strides, 0)
    managed: _Managed | _ManagedVersioned
    if versioned:
        flags = _READ_ONLY if read_only else 0
        managed = _ManagedVersioned(*_VERSION, None, None, flags, tensor)
    else:
        managed = _Managed(tensor, None, None)
    key = ctypes.addressof(managed)
    with _lock:
        _live[key] = (managed, numbers, release)
        if _armed:
            managed.deleter = _delete_address
        else:
            _abandon(key)
    return _new_capsule(key, _NAMES[versioned], ctypes.cast(_end_capsule_in_c, c_void_p))


def _abandon(key: int) -> None:
    managed, numbers, _ = _live[key]
    managed.deleter = None
    for kept in (managed, numbers):
        _api.Py_IncRef(ctypes.py_object(kept))


def disarm() -> None:
    """From here on no consumer calls back into this interpreter, which is ending.

    What is alive stays alive until the process ends.
    """
    global _armed
    with _lock:
        _armed = False
        for key in list(_live):
            _abandon(key)
