#!/usr/bin/env python3
"""A matrix product whose epilogue is the all-gather: each rank multiplies its rows, and stores tiles into all windows.

    ccoctl run -n 2 -- python3 triton_gemm_all_gather.py [ROWS]
    torchrun --nproc-per-node 2 triton_gemm_all_gather.py [ROWS]

ROWS, of each rank, is a multiple of 64, 512 by default. The product is compared with torch.matmul: its values are whole
numbers that float16 holds exactly, so they have to be equal. Ranks may share a GPU.
"""

import sys

import torch
import triton
import triton.language as tl

import cco as host
from cco import triton as cco

COLUMNS = 512
DEPTH = 256
TILE = 64


@triton.jit
def multiply(a, b, dev_comm, window, first_row, columns, depth, size, out, TILE: tl.constexpr):
    """One tile of this rank's rows of a @ b, into the same place of every rank's window; then a signal to each."""
    row = tl.program_id(0) // (columns // TILE) * TILE
    column = tl.program_id(0) % (columns // TILE) * TILE
    rows = row + tl.arange(0, TILE)[:, None]
    lanes = column + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for k in range(0, depth, TILE):
        inner = k + tl.arange(0, TILE)
        total += tl.dot(tl.load(a + rows * depth + inner[None, :]), tl.load(b + inner[:, None] * columns + lanes))
    tile = total.to(tl.float16)
    problems = tl.cast(0, tl.uint64)
    for peer in range(size):
        copy = cco.Window.lsa_ptr(window, peer).to(tl.pointer_type(tl.float16))
        tl.store(copy + (first_row + rows) * columns + lanes, tile)
        # Publishes what the whole block has stored.
        problems |= cco.Lsa.signal(dev_comm, peer, signal_id=0, coop=cco.CoopScope.BLOCK)
    tl.store(out + tl.program_id(0), problems)


@triton.jit
def await_tiles(dev_comm, tiles, out):
    """Until that many tiles have come from all ranks together."""
    tl.store(out, cco.Lsa.wait_signal(dev_comm, 0, tiles, timeout_ns=10_000_000_000, coop=cco.CoopScope.BLOCK))


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    if rows <= 0 or rows % TILE != 0:
        sys.exit(f"{rows} rows: it takes a positive multiple of {TILE}")
    with host.Group.from_env() as group, host.Window(group, "product", 2 * rows * group.size * COLUMNS) as window:
        with host.Comm(group, signal_count=1) as comm:
            if group.client.driver == "host":
                sys.exit("Triton kernels need a GPU, and the daemon's driver is host")
            return run(group, window, comm, rows)


def run(group, window, comm, rows):
    torch.cuda.set_device(group.device)
    generator = torch.Generator().manual_seed(1)  # The same on every rank.
    a = torch.randint(-1, 2, (rows * group.size, DEPTH), generator=generator).half().cuda()
    b = torch.randint(-1, 2, (DEPTH, COLUMNS), generator=generator).half().cuda()
    mine = a[group.rank * rows:(group.rank + 1) * rows]
    tiles = rows // TILE * (COLUMNS // TILE)
    results = torch.full((tiles + 1,), -1, dtype=torch.int64, device="cuda")
    libraries = cco.get_extern_libs()
    multiply[(tiles,)](mine, b, comm.device_ptr, window.device_ptr, group.rank * rows, COLUMNS, DEPTH, group.size,
                       results, TILE=TILE, num_warps=4, extern_libs=libraries)
    torch.cuda.synchronize()
    group.barrier()  # Where ranks share a GPU, none waits in a kernel before the others have stored.
    await_tiles[(1,)](comm.device_ptr, tiles * group.size, results[tiles:], num_warps=1, extern_libs=libraries)
    torch.cuda.synchronize()
    for result in results.tolist():
        if result != 0:
            sys.exit(f"rank {group.rank}: status {host.device.status_of(result)}, rank {host.device.rank_of(result)}")
    product = torch.from_dlpack(window.view(dtype="float16", shape=(rows * group.size, COLUMNS)))
    wrong = int((product != torch.matmul(a, b)).sum())
    print(f"rank {group.rank} of {group.size}: {rows * group.size} x {COLUMNS} product, {wrong} values wrong",
          flush=True)
    del product
    group.barrier()  # Nobody leaves while a neighbour still reads.
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
