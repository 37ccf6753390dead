#!/usr/bin/env python3
"""Every rank writes into its right neighbour's window and checks what came from the left.

    ccoctl run -n 4 -- python3 hello_window.py
    torchrun --nproc-per-node 4 hello_window.py

With the host driver by NumPy; on GPUs by torch.
"""

import sys

import cco


def array_of(group, view):
    """The memory itself, nothing is copied."""
    if group.client.driver == "host":
        return view.numpy()
    import torch

    return torch.from_dlpack(view)


def settle(group):
    """What this rank has written is there before it says so."""
    if group.client.driver != "host":
        import torch

        torch.cuda.synchronize(group.device)
    group.barrier()


def main():
    with cco.Group.from_env() as group, cco.Window(group, "hello", 8) as window:
        right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        array_of(group, window.view(right, dtype="int64"))[0] = 1000 + group.rank
        settle(group)
        received = int(array_of(group, window.view(dtype="int64"))[0])
        print(f"rank {group.rank} of {group.size}: {received} from rank {left} on {group.client.driver}", flush=True)
        group.barrier()  # Nobody leaves while a neighbour still reads.
        return 0 if received == 1000 + left else 1


if __name__ == "__main__":
    sys.exit(main())
