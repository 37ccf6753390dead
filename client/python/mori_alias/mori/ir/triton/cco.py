"""MORI's `mori.ir.triton.cco`: cco.triton under that name. Kernels written for it need no edit.

A call's result, which in MORI is always 0, is a wait result here: 0 as long as all goes well.
"""

from cco.triton import (
    CoopScope,
    DevComm,
    Gda,
    Lsa,
    Sdma,
    SignalOp,
    Tdm,
    ThreadMode,
    Window,
    get_extern_libs,
)

__all__ = [
    "CoopScope",
    "DevComm",
    "Gda",
    "Lsa",
    "Sdma",
    "SignalOp",
    "Tdm",
    "ThreadMode",
    "Window",
    "get_extern_libs",
]
