"""`mori.allocator` over cco.torch: importing it registers torch's symmetric memory back-end "MORI".

    import mori.allocator
    symm_mem.set_backend("MORI")

What differs from MORI's: signal pads, `barrier()`, `put_signal()` and `wait_signal()` always work, memory is given
back when its last user has gone (MORI_SYMM_TEARDOWN is not looked at), and tensors need not be at the same place in
each rank's memory. Tensors share windows: in what `window_handle()` gives, a tensor begins at `window(tensor).offset`,
not at 0, and kernels have to add that. `dev_comm()` takes a tensor, not a group and a key.
"""

from __future__ import annotations

import warnings

from cco import torch as _torch
from cco.torch import dev_comm, handle_type, signal_pad_supported, window, window_handle

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


try:
    register_symm_backend()
except (RuntimeError, OSError) as _error:
    warnings.warn(f"mori.allocator has not registered its back-end: {_error}", RuntimeWarning, stacklevel=2)
