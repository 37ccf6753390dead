"""What kernel languages need of cco, by MORI's names: `mori.cco.device.flydsl` for FlyDSL, `mori.ir.triton.cco` for
Triton, and what both are made of."""

from mori.cco.device.bitcode import find_cco_bitcode, get_bitcode_path
from mori.cco.device.ops import CCO_DEVICE_FUNCTIONS, CoopScope, SdmaOptFlags, SignalOp, ThreadMode

__all__ = [
    "CCO_DEVICE_FUNCTIONS",
    "CoopScope",
    "SdmaOptFlags",
    "SignalOp",
    "ThreadMode",
    "find_cco_bitcode",
    "get_bitcode_path",
]
