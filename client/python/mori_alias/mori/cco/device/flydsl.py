"""MORI's name for `cco.flydsl`."""

from cco.flydsl import *  # noqa: F403
from cco.flydsl import __all__ as _of_cco
from mori.cco.device.bitcode import find_cco_bitcode, get_bitcode_path  # They take code objects of Triton, too.
from mori.cco.device.ops import SdmaOptFlags

__all__ = [*_of_cco, "SdmaOptFlags", "find_cco_bitcode", "get_bitcode_path"]
