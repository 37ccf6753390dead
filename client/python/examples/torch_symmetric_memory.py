#!/usr/bin/env python3
"""torch and cco share memory both ways: a symmetric tensor of torch in cco's heap words, and cco's windows as tensors.

    ccoctl run -n 2 -- python3 torch_symmetric_memory.py
    torchrun --nproc-per-node 2 torch_symmetric_memory.py

GPU tensors with a cco-memd for GPUs, CPU tensors with the driver `host`. Each rank checks all bytes it gets.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import cco
import cco.torch

COUNT = 4096


def main():
    with cco.Group.from_env() as group:
        begin_torch(group)
        device = torch.device("cpu")
        if group.client.driver != "host":
            device = torch.device("cuda", group.device)
            torch.cuda.set_device(device)
            symm_mem.set_backend("CCO")
        checks = [torch_to_cco(group, device), tensor_to_window(group, device), window_to_tensor(group)]
        print(f"rank {group.rank} of {group.size} on {device}: {', '.join(checks)}", flush=True)
        dist.barrier()
        dist.destroy_process_group()
    return 0


def begin_torch(group):
    """A gloo group of the same ranks: under torchrun by its variables, else by a store that rank 0 opens."""
    if "MASTER_ADDR" in os.environ:
        dist.init_process_group("gloo")
        return
    with cco.Window(group, "port", 8) as window:
        board = cco.torch.tensor(window, (1,), torch.int64, rank=0)
        store = None
        if group.rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, group.size, True, wait_for_workers=False)
            board.fill_(store.port)
        settle(group)
        if store is None:
            store = dist.TCPStore("127.0.0.1", int(board.item()), group.size, False)
        settle(group)
        del board
    dist.init_process_group("gloo", store=store, rank=group.rank, world_size=group.size)


def torch_to_cco(group, device):
    """Symmetric memory through torch's own interface; the back-end is cco."""
    tensor = symm_mem.empty(COUNT, dtype=torch.int32, device=device).fill_(group.rank)
    handle = symm_mem.rendezvous(tensor, dist.group.WORLD)
    settle(group)
    for peer in range(group.size):
        theirs = handle.get_buffer(peer, (COUNT,), torch.int32)
        assert torch.equal(theirs, torch.full_like(theirs, peer)), f"rank {peer}'s tensor holds {theirs}"
    settle(group)
    # Bytes, then a signal: ranks take turns, so that this also runs where they share a GPU.
    for sender in range(group.size):
        receiver = (sender + 1) % group.size
        if group.rank == sender and sender != receiver:
            handle.get_buffer(receiver, (COUNT,), torch.int32).fill_(1000 + sender)
            handle.put_signal(receiver)
        settle(group)
        if group.rank == receiver and sender != receiver:
            handle.wait_signal(sender, timeout_ms=10000)
            assert (tensor == 1000 + sender).all().item(), tensor
        settle(group)
    place = cco.torch.window(tensor)
    assert place.size_bytes >= tensor.nbytes and place.device_ptr != 0
    return f"symmetric tensor at byte {place.offset} of a window"


def tensor_to_window(group, device):
    """A part of a tensor that is there already becomes a window."""
    whole = symm_mem.empty(2 * COUNT, dtype=torch.int32, device=device).fill_(-1)
    part = whole[COUNT:]
    with cco.torch.register(group, part, "part of a tensor") as window:
        peer = (group.rank + 1) % group.size
        theirs = cco.torch.tensor(window, (COUNT,), torch.int32, rank=peer)
        theirs.fill_(group.rank)
        settle(group)
        sender = (group.rank - 1) % group.size
        assert (part == sender).all().item() and (whole[:COUNT] == -1).all().item(), whole
        settle(group)
        del theirs
    return "a peer wrote half of a tensor through a window"


def window_to_tensor(group):
    """A window of cco's heap as a tensor."""
    with cco.Window(group, "heap", 4 * COUNT) as window:
        mine = cco.torch.tensor(window, (COUNT,), torch.float32)
        mine.copy_(torch.arange(COUNT) + group.rank)
        settle(group)
        total = sum(cco.torch.tensor(window, (COUNT,), torch.float32, rank=peer) for peer in range(group.size))
        expected = group.size * torch.arange(COUNT) + sum(range(group.size))
        assert torch.equal(total.cpu(), expected.to(torch.float32)), total
        settle(group)
        del mine
    return "all ranks' windows add up"


def settle(group):
    """What was launched has ended, on every rank."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    group.barrier()


if __name__ == "__main__":
    sys.exit(main())
