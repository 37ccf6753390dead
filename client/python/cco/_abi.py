"""Structs, constants and prototypes of `cco/cco.h` and `cco/device/abi.h`, as ctypes.

tests/python/abi_test.py compares every layout, constant and prototype here with the headers.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_ubyte,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

# ---- Constants, named as in the headers without CCO_ ----

ABI_VERSION = 4
MAX_RANKS = 1024
RANK_FROM_ENVIRONMENT = 0xFFFFFFFF
DEVICE_BY_LOCAL_RANK = -1
DEVICE_CURRENT = -2
TRANSPORT_LSA = 0x1
TRANSPORT_SDMA = 0x2
TRANSPORT_TDM = 0x4
TRANSPORT_GDA = 0x8
ACCESS_READ = 1
ACCESS_READ_WRITE = 2
CONDITION_DRAINING = 0x1
CONDITION_MEMORY_PRESSURE = 0x2
GDA_CONNECT_NONE = 0
GDA_CONNECT_FULL = 1
GDA_CONNECT_CROSS_NODE = 2
GDA_CONNECT_RAIL = 3


# ---- Structs: the same names in CamelCase, the same fields ----


class Sized(Structure):
    """A struct that begins with struct_size; it is filled in here."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class ClientOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("timeout_ms", c_uint32), ("socket_path", c_char_p)]


class ClientInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("gpu_count", c_uint32),
        ("incarnation", c_uint64),
        ("daemon_version", c_char * 32),
        ("driver", c_char * 16),
        ("driver_version", c_char * 80),
    ]


class GpuInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("device", c_int32),
        ("total_bytes", c_uint64),
        ("granularity_bytes", c_uint64),
        ("uuid", c_char * 64),
        ("pci_bus_id", c_char * 32),
        ("name", c_char * 96),
        ("arch", c_char * 32),
    ]


class UniqueId(Structure):
    _fields_ = [("bytes", c_ubyte * 128)]


class Environment(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("rank", c_uint32),
        ("size", c_uint32),
        ("local_rank", c_uint32),
        ("local_size", c_uint32),
        ("launcher", c_char * 16),
        ("job", c_char * 64),
    ]


class GroupOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("rank", c_uint32),
        ("size", c_uint32),
        ("device", c_int32),
        ("gpu_uuid", c_char_p),
        ("name", c_char_p),
        ("unique_id", POINTER(UniqueId)),
        ("slot_bytes", c_uint64),
        ("timeout_ms", c_uint32),
        ("lsa_size", c_uint32),
        ("lease", c_char_p),
    ]


class ShrinkOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("timeout_ms", c_uint32)]


class GroupInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("rank", c_uint32),
        ("size", c_uint32),
        ("lsa_rank", c_uint32),
        ("lsa_size", c_uint32),
        ("lsa_first", c_uint32),
        ("device", c_int32),
        ("slab_count", c_uint32),
        ("group_id", c_uint64),
        ("generation", c_uint64),
        ("flat_base", c_uint64),
        ("slot_bytes", c_uint64),
    ]


class WindowOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("timeout_ms", c_uint32),
        ("size_bytes", c_uint64),
        ("alignment_bytes", c_uint64),
        ("wait_for_memory_ms", c_uint32),
        ("reserved", c_uint32),
        ("keep_ms", c_uint64),
    ]


class ExternalMemory(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("fd", c_int32),
        ("allocation_bytes", c_uint64),
        ("allocation_offset", c_uint64),
    ]


class MemoryInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("device", c_int32),
        ("address", c_uint64),
        ("size_bytes", c_uint64),
        ("fd", c_int32),
        ("reserved", c_uint32),
        ("allocation_bytes", c_uint64),
        ("allocation_offset", c_uint64),
    ]


class WindowInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("is_found", c_uint32),
        ("window_id", c_uint64),
        ("generation", c_uint64),
        ("size_bytes", c_uint64),
        ("offset", c_uint64),
    ]


class GrantToken(Structure):
    _fields_ = [("bytes", c_ubyte * 16)]


class AttachmentInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("access", c_uint32),
        ("size_bytes", c_uint64),
        ("rank_count", c_uint32),
        ("is_enforced", c_uint32),
    ]


class CommOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("signal_count", c_uint32),
        ("barrier_count", c_uint32),
        ("timeout_ms", c_uint32),
        ("transports", c_uint32),
        ("sdma_queue_count", c_uint32),
        ("sdma_provider", c_char_p),
        ("gda_provider", c_char_p),
        ("gda_connection", c_uint32),
        ("gda_context_count", c_uint32),
        ("gda_signal_count", c_uint32),
        ("gda_counter_count", c_uint32),
        ("gda_queue_depth", c_uint32),
        ("gda_traffic_class", c_int32),
        ("rail_barrier_count", c_uint32),
        ("world_barrier_count", c_uint32),
    ]


class WindowDevice(Structure):
    """A window as a kernel sees it: `cco_window_device`, for kernels that take it by value."""

    _fields_ = [
        ("abi_version", c_uint32),
        ("transports", c_uint32),
        ("win_base", c_uint64),
        ("stride_4g", c_uint32),
        ("lsa_rank", c_uint32),
        ("remote_keys", c_uint64),
        ("local_key", c_uint32),
        ("lsa_size", c_uint32),
        ("size_bytes", c_uint64),
        ("generation", c_uint64),
        ("peer_bases", c_uint64),
        ("incarnation", c_uint64),
        ("reserved", c_uint64 * 3),
    ]


class ReleaseHeader(Structure):
    _fields_ = [("next", c_void_p), ("queue", c_void_p)]


class ReleaseQueueOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("schedule", c_void_p),
        ("released", c_void_p),
        ("capsule_is_valid", c_void_p),
        ("capsule_pointer", c_void_p),
    ]


class DeviceComm(Structure):
    """A group as a kernel sees it: `cco_device_comm`, for kernels that take it by value."""

    _fields_ = [
        ("abi_version", c_uint32),
        ("transports", c_uint32),
        ("rank", c_uint32),
        ("world_size", c_uint32),
        ("lsa_rank", c_uint32),
        ("lsa_size", c_uint32),
        ("lsa_first", c_uint32),
        ("signal_count", c_uint32),
        ("barrier_count", c_uint32),
        ("clock_khz", c_uint32),
        ("flat_base", c_uint64),
        ("slot_bytes", c_uint64),
        ("signal_offset", c_uint64),
        ("barrier_offset", c_uint64),
        ("abort_word", c_uint64),
        ("peer_transports", c_uint64),
        ("generation", c_uint64),
        ("incarnation", c_uint64),
        ("sdma", c_uint64),
        ("gda", c_uint64),
        ("reserved", c_uint64 * 2),
        ("control", WindowDevice),
    ]


# ---- Prototypes: result, arguments. A handle is a number, never dereferenced. ----

_Handle = c_void_p
_Out = POINTER(c_void_p)

PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "cco_error_message": (c_char_p, []),
    "cco_error_rank": (c_int32, []),
    "cco_status_name": (c_char_p, [c_int]),
    "cco_version": (c_uint32, []),
    "cco_client_create": (c_int, [POINTER(ClientOptions), _Out]),
    "cco_client_destroy": (None, [_Handle]),
    "cco_client_get_info": (c_int, [_Handle, POINTER(ClientInfo)]),
    "cco_client_get_gpu": (c_int, [_Handle, c_int32, POINTER(GpuInfo)]),
    "cco_unique_id_create": (c_int, [POINTER(UniqueId)]),
    "cco_environment_get": (c_int, [POINTER(Environment)]),
    "cco_group_create": (c_int, [_Handle, POINTER(GroupOptions), _Out]),
    "cco_group_shrink": (c_int, [_Handle, POINTER(ShrinkOptions), _Out]),
    "cco_group_destroy": (None, [_Handle]),
    "cco_group_get_info": (c_int, [_Handle, POINTER(GroupInfo)]),
    "cco_group_barrier": (c_int, [_Handle, c_uint32]),
    "cco_group_agree": (c_int, [_Handle, c_char_p, c_uint32]),
    "cco_group_check": (c_int, [_Handle]),
    "cco_group_get_conditions": (c_int, [_Handle, POINTER(c_uint32)]),
    "cco_group_abort": (c_int, [_Handle]),
    "cco_window_create": (c_int, [_Handle, c_char_p, POINTER(WindowOptions), _Out]),
    "cco_window_open": (c_int, [_Handle, c_char_p, _Out]),
    "cco_window_register": (
        c_int,
        [_Handle, c_char_p, POINTER(WindowOptions), POINTER(ExternalMemory), _Out],
    ),
    "cco_window_destroy": (None, [_Handle]),
    "cco_window_get_info": (c_int, [_Handle, POINTER(WindowInfo)]),
    "cco_window_get_device": (c_int, [_Handle, POINTER(WindowDevice)]),
    "cco_window_get_device_pointer": (c_int, [_Handle, _Out]),
    "cco_window_get_address": (c_int, [_Handle, c_uint32, c_uint64, _Out]),
    "cco_window_grant": (c_int, [_Handle, c_char_p, c_uint32, POINTER(GrantToken)]),
    "cco_window_revoke": (c_int, [_Handle, POINTER(GrantToken)]),
    "cco_memory_create": (c_int, [_Handle, c_int32, c_uint64, _Out]),
    "cco_memory_import": (c_int, [_Handle, c_int32, c_void_p, c_uint64, _Out]),
    "cco_memory_destroy": (None, [_Handle]),
    "cco_memory_get_info": (c_int, [_Handle, POINTER(MemoryInfo)]),
    "cco_attachment_create": (c_int, [_Handle, POINTER(GrantToken), c_int32, _Out]),
    "cco_attachment_destroy": (None, [_Handle]),
    "cco_attachment_get_info": (c_int, [_Handle, POINTER(AttachmentInfo)]),
    "cco_attachment_get_address": (c_int, [_Handle, c_uint32, c_uint64, _Out]),
    "cco_comm_create": (c_int, [_Handle, POINTER(CommOptions), _Out]),
    "cco_comm_destroy": (None, [_Handle]),
    "cco_comm_check": (c_int, [_Handle]),
    "cco_comm_get_device": (c_int, [_Handle, POINTER(DeviceComm)]),
    "cco_comm_get_device_pointer": (c_int, [_Handle, _Out]),
    "cco_release_queue_create": (c_int, [POINTER(ReleaseQueueOptions), _Out]),
    "cco_release_queue_drain": (c_int32, [_Handle]),
    "cco_release_queue_close": (None, [_Handle]),
    "cco_release": (None, [c_void_p]),
    "cco_release_capsule": (None, [c_void_p]),
}
