"""`mori.allocator` over cco.torch: importing it registers torch's symmetric memory back-end "MORI".

    import mori.allocator
    symm_mem.set_backend("MORI")

What differs from MORI's: signal pads, `barrier()`, `put_signal()` and `wait_signal()` always work, memory is given
back when its last user has gone (MORI_SYMM_TEARDOWN is not looked at), and tensors need not be at the same place in
each rank's memory. Tensors share windows: in what `window_handle()` gives, a tensor begins at `window(tensor).offset`,
not at 0, and kernels have to add that.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

with warnings.catch_warnings():
    # What it says of its own name is said below of this one.
    warnings.filterwarnings("ignore", "cco.torch has not registered its back-end", RuntimeWarning)
    from cco import torch as _torch
from cco.torch import handle_type, signal_pad_supported, window

__all__ = [
    "SYMM_BACKEND_NAME",
    "dev_comm",
    "handle_type",
    "register_symm_backend",
    "signal_pad_supported",
    "window",
    "window_handle",
]

SYMM_BACKEND_NAME = "MORI"


def register_symm_backend() -> str:
    """Makes the back-end known as "MORI" and returns that; again: nothing happens. Raises as cco.torch's."""
    return _torch.register_symm_backend(SYMM_BACKEND_NAME)


def window_handle(tensor: torch.Tensor, signal_pad: bool = False, group: Any = None) -> int:
    """What kernels take for the window of a tensor that has met its peers in `group`; None: the default one.

    ValueError: of a signal pad, which has no window of its own here; kernels take `handle.signal_pad_ptrs_dev`.
    """
    if signal_pad is not False:
        raise ValueError(f"signal_pad={signal_pad!r}: pads have no windows of their own, take the rendezvous' "
                         "signal_pad_ptrs_dev. A group is given as group=")
    return _torch.window_handle(tensor, group)


def dev_comm(group_name: Any, key: str = "default", lsa_barrier_count: int = 1) -> int:
    """A device communicator of a group, as `cco.torch.group_dev_comm()`. The group's first rendezvous comes before.

    `dev_comm(tensor)`: of the default group.
    """
    if isinstance(group_name, torch.Tensor):
        return _torch.dev_comm(group_name)
    return _torch.group_dev_comm(group_name, key, lsa_barrier_count)


try:
    register_symm_backend()
except (RuntimeError, OSError) as _error:
    warnings.warn(
        f"mori.allocator has not registered its back-end: {_error}. Once that is mended, call "
        "mori.allocator.register_symm_backend()",
        RuntimeWarning,
        stacklevel=2,
    )
