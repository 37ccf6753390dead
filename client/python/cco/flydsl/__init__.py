"""cco's device primitives in FlyDSL kernels.

    import flydsl.expr as fx
    import cco.flydsl as cco

    @flyc.kernel
    def kernel(dev_comm: fx.Int64, win: fx.Int64):
        sdma = cco.DevComm(dev_comm).sdma()
        ...

Handles are made in the kernel, of its arguments, whose type is `fx.Int64`: `ptr` of the host's
device communicator and `handle` of its window. `cco.DevComm` is the start of all transports.

Needs the package flydsl, 0.2.2 or later. Compiled for gfx942 and gfx950; see docs/flydsl.md.
"""

try:
    import flydsl.compiler  # noqa: F401
except ImportError as error:
    raise ImportError(
        "cco.flydsl needs the package flydsl, 0.2.2 or later, and what that imports without "
        f"saying so, numpy and torch, any build of it: pip install flydsl numpy torch ({error})"
    ) from error

from cco.device import NEVER
from cco.flydsl._link import call, find_cco_bitcode
from cco.flydsl.handles import (
    CoopScope,
    DevComm,
    Gda,
    Lsa,
    Sdma,
    SdmaSignal,
    SignalOp,
    Tdm,
    Team,
    ThreadMode,
    WaitStatus,
    Window,
    rank_of,
    status_of,
)

get_bitcode_path = find_cco_bitcode

__all__ = [
    "CoopScope",
    "DevComm",
    "Gda",
    "Lsa",
    "NEVER",
    "Sdma",
    "SdmaSignal",
    "SignalOp",
    "Tdm",
    "Team",
    "ThreadMode",
    "WaitStatus",
    "Window",
    "call",
    "find_cco_bitcode",
    "get_bitcode_path",
    "rank_of",
    "status_of",
]
