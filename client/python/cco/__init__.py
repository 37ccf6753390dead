"""cco: a node-wide symmetric heap for communicating GPU kernels; Python over `cco/cco.h`.

    with cco.Group.from_env() as group, cco.Window(group, "mailbox", 4096) as window:
        window.view(rank=(group.rank + 1) % group.size, dtype="int32").numpy()[0] = group.rank
        group.barrier()

No framework is imported here, and libcco_client.so is loaded at its first use.
"""

from cco._abi import (
    ABI_VERSION,
    ACCESS_READ,
    ACCESS_READ_WRITE,
    DEVICE_BY_LOCAL_RANK,
    DEVICE_CURRENT,
    GDA_CONNECT_CROSS_NODE,
    GDA_CONNECT_FULL,
    GDA_CONNECT_NONE,
    GDA_CONNECT_RAIL,
    MAX_RANKS,
    TRANSPORT_GDA,
    TRANSPORT_LSA,
    TRANSPORT_SDMA,
    TRANSPORT_TDM,
    DeviceComm,
    WindowDevice,
)
from cco._library import library_path, version
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
    get_unique_id,
)
from cco.client import Client, ExternalMemory, Gpu, Memory
from cco.errors import (
    Aborted,
    AlreadyExists,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Status,
    Unavailable,
)
from cco.group import Condition, Environment, Group, UniqueId, environment
from cco.views import View
from cco.window import Attachment, Comm, Window, WindowInfo

__version__ = "0.1.0"

__all__ = [
    "ABI_VERSION",
    "ACCESS_READ",
    "ACCESS_READ_WRITE",
    "Aborted",
    "AllocatedMemory",
    "AlreadyExists",
    "Attachment",
    "CCODevCommRequirements",
    "CCOResource",
    "Client",
    "Comm",
    "Communicator",
    "Condition",
    "DEVICE_BY_LOCAL_RANK",
    "DEVICE_CURRENT",
    "DeadlineExceeded",
    "DevCommHandle",
    "DeviceComm",
    "Environment",
    "Error",
    "ExternalMemory",
    "FailedPrecondition",
    "GDA_CONNECTION_CROSSNODE",
    "GDA_CONNECTION_FULL",
    "GDA_CONNECTION_NONE",
    "GDA_CONNECTION_RAIL",
    "GDA_CONNECT_CROSS_NODE",
    "GDA_CONNECT_FULL",
    "GDA_CONNECT_NONE",
    "GDA_CONNECT_RAIL",
    "Gpu",
    "Group",
    "ImportedWindow",
    "Internal",
    "InvalidArgument",
    "MAX_RANKS",
    "Memory",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "RegisteredWindow",
    "ResourceExhausted",
    "Status",
    "TRANSPORT_GDA",
    "TRANSPORT_LSA",
    "TRANSPORT_SDMA",
    "TRANSPORT_TDM",
    "Unavailable",
    "UniqueId",
    "View",
    "Window",
    "WindowDevice",
    "WindowInfo",
    "environment",
    "get_unique_id",
    "library_path",
    "version",
]
