#!/usr/bin/env python3
"""A put with a signal in one Triton kernel, a wait in another: each rank sends to its right neighbour, by GDA.

    ccoctl run -n 2 -- python3 triton_put_wait.py [BYTES]
    torchrun --nproc-per-node 2 triton_put_wait.py [BYTES]

BYTES is a multiple of 4, 1 MiB by default. Ranks may share a GPU.
"""

import sys

import torch
import triton
import triton.language as tl

import cco as host
from cco import triton as cco

@triton.jit
def send(dev_comm, window, peer, from_offset, to_offset, nbytes, results):
    """Puts, raises the peer's signal 0 behind the bytes, and waits until they may be overwritten."""
    put = cco.Gda.put(dev_comm, peer, window, to_offset, window, from_offset, nbytes,
                      signal_op=cco.SignalOp.INC, signal_id=0, coop=cco.CoopScope.BLOCK)
    flush = cco.Gda.flush_peer(dev_comm, peer, coop=cco.CoopScope.BLOCK, timeout_ns=10_000_000_000)
    tl.store(results, put)
    tl.store(results + 1, flush)


@triton.jit
def receive(dev_comm, window, offset, count, wrong, results, first, BLOCK: tl.constexpr):
    """Waits for the signal, then counts the values that are not `first`, `first` + 1, ..."""
    arrived = cco.Gda.wait_signal(dev_comm, 0, 1, coop=cco.CoopScope.BLOCK, timeout_ns=10_000_000_000)
    tl.store(results, arrived)
    if arrived == 0:
        values = cco.Window.local_ptr(window, offset).to(tl.pointer_type(tl.int32))
        found = 0
        for start in range(0, count, BLOCK):
            place = start + tl.arange(0, BLOCK)
            value = tl.load(values + place, mask=place < count, other=0)
            found += tl.sum(((value != first + place) & (place < count)).to(tl.int32))
        tl.store(wrong, found)


def expect_arrived(what, results):
    """Wait results are 0, or say what became of the call, and which rank it is about."""
    for result in results.tolist():
        if result != 0:
            sys.exit(f"{what}: status {host.device.status_of(result)}, rank {host.device.rank_of(result)}")


def main():
    nbytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20
    if nbytes <= 0 or nbytes % 4 != 0:
        sys.exit(f"{nbytes} bytes: it takes a positive multiple of 4")
    # One context, as the kernels use: each is proven when the communicator is made, slowly where ranks share a GPU.
    with host.Group.from_env() as group, host.Window(group, "put_wait", 2 * nbytes) as window, host.Comm(
            group, transports=host.TRANSPORT_GDA, gda_connection=host.GDA_CONNECT_FULL, gda_context_count=1,
            gda_signal_count=1) as comm:
        if group.client.driver == "host":
            sys.exit("Triton kernels need a GPU, and the daemon's driver is host")
        torch.cuda.set_device(group.device)
        right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        count = nbytes // 4
        outgoing = torch.from_dlpack(window.view(dtype="int32", shape=count))
        outgoing.copy_(torch.arange(group.rank * 1000, group.rank * 1000 + count, dtype=torch.int32))
        results = torch.full((3,), -1, dtype=torch.int64, device="cuda")
        wrong = torch.full((1,), -1, dtype=torch.int32, device="cuda")
        libraries = cco.get_extern_libs()
        send[(1,)](comm.device_ptr, window.device_ptr, right, 0, nbytes, nbytes, results, num_warps=4,
                   extern_libs=libraries)
        torch.cuda.synchronize()
        expect_arrived("send", results[:2])
        group.barrier()  # Where ranks share a GPU, none waits in a kernel before the others have sent.
        receive[(1,)](comm.device_ptr, window.device_ptr, nbytes, count, wrong, results[2:], left * 1000, BLOCK=1024,
                      num_warps=4, extern_libs=libraries)
        torch.cuda.synchronize()
        expect_arrived("receive", results[2:])
        print(f"rank {group.rank} of {group.size}: {nbytes} bytes from rank {left}, {int(wrong)} values wrong",
              flush=True)
        del outgoing
        group.barrier()  # Nobody leaves while a neighbour still reads.
        return 0 if int(wrong) == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
