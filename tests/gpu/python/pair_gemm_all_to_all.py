#!/usr/bin/env python3
"""GEMM and all-to-all, fused against one after the other, on as many GPUs as there are ranks.

    ccoctl run -n 2 -- python3 pair_gemm_all_to_all.py [--json FILE] [--rows 1024,2048,...]

Each rank multiplies A [M, 2048] by B [2048, 7168], bf16: the second matrix of a mixture-of-experts layer of hidden
size 7168. Block r of the result's rows belongs to rank r, which gets it in its window [rank, M / ranks, 7168].

fused   the GEMM's epilogue stores each tile into the window of the rank that it belongs to
split   the same GEMM into memory of its own, then a copy of each block (torch, by copy engines or a kernel)
cublas  torch.matmul, then the same copies

All end with the same barrier between ranks. A time is the slowest rank's, by events, the median of interleaved
repetitions. Every byte received is compared with torch.matmul of the sender's operands before anything is timed.
"""

import argparse
import json
import statistics
import sys

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import cco
from cco import triton as device

HIDDEN, INNER = 7168, 2048
BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M = 128, 256, 64, 8
REPETITIONS, WARM_UP = 15, 3


@triton.jit
def gemm(a, b, own, window, rank, rows, hidden, inner, rows_each, ranks: tl.constexpr, fused: tl.constexpr,
         block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr):
    """C = A x B by tiles of block_m x block_n; one program per multiprocessor takes tile after tile."""
    tiles_m = rows // block_m
    tiles_n = hidden // block_n
    tiles = tiles_m * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        group = tile // (group_m * tiles_n)
        first = group * group_m
        in_group = min(tiles_m - first, group_m)
        tile_m = first + (tile % (group_m * tiles_n)) % in_group
        tile_n = (tile % (group_m * tiles_n)) // in_group
        if fused:
            # Tiles of all ranks take turns, so that the links are busy all the time, and each rank begins elsewhere.
            tile_m = (tile_m % ranks + rank + 1) % ranks * (tiles_m // ranks) + tile_m // ranks
        sum_of_products = tl.zeros((block_m, block_n), dtype=tl.float32)
        for k in range(0, inner, block_k):
            sum_of_products = tl.dot(a.load([tile_m * block_m, k]), b.load([k, tile_n * block_n]), sum_of_products)
        result = sum_of_products.to(tl.bfloat16)
        row = tile_m * block_m
        if fused:
            owner = row // rows_each
            place = (rank * rows_each + row % rows_each).to(tl.int64) * hidden * 2
            to = device.Window.lsa_ptr(window, owner, place).to(tl.pointer_type(tl.bfloat16))
        else:
            to = own + row.to(tl.int64) * hidden
        inside = tl.arange(0, block_m)[:, None] * hidden + tile_n * block_n + tl.arange(0, block_n)[None, :]
        tl.store(tl.multiple_of(to, 16) + inside, result)  # Or the stores would be of two bytes each.


@triton.jit
def meet(comm, status):
    """What every rank stored before is there for all after it."""
    tl.store(status, device.status_of(device.Lsa.barrier(comm, 0, 5_000_000_000, coop=device.CoopScope.BLOCK)))


class Problem:
    """One size, on this rank."""

    def __init__(self, group, comm, rows):
        self.group, self.comm, self.rows = group, comm, rows
        self.rows_each = rows // group.size
        torch.cuda.set_device(group.device)
        self.window = cco.Window(group, f"rows {rows}", rows * HIDDEN * 2)
        self.received = self.of(group.rank)
        self.blocks = [self.of(peer)[group.rank] for peer in range(group.size)]
        self.a, self.b = self.operands(group.rank)
        self.product = torch.empty(rows, HIDDEN, dtype=torch.bfloat16, device="cuda")
        self.status = torch.full((1,), -1, dtype=torch.int32, device="cuda")
        self.processors = torch.cuda.get_device_properties(group.device).multi_processor_count
        self.extern = device.get_extern_libs()

    def of(self, peer):
        shape = (self.group.size, self.rows_each, HIDDEN)
        return torch.from_dlpack(self.window.view(peer, dtype="bfloat16", shape=shape))

    def operands(self, rank):
        random = torch.Generator(device="cuda").manual_seed(1000 + rank)
        a = torch.randn(self.rows, INNER, generator=random, dtype=torch.bfloat16, device="cuda")
        b = torch.randn(INNER, HIDDEN, generator=random, dtype=torch.bfloat16, device="cuda")
        return a, b / INNER ** 0.5

    def gemm(self, fused):
        a = TensorDescriptor.from_tensor(self.a, [BLOCK_M, BLOCK_K])
        b = TensorDescriptor.from_tensor(self.b, [BLOCK_K, BLOCK_N])
        gemm[(self.processors,)](
            a, b, self.product, self.window.device_ptr, self.group.rank, self.rows, HIDDEN, INNER, self.rows_each,
            self.group.size, fused, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, num_warps=8, num_stages=3,
            extern_libs=self.extern)

    def send(self):
        parts = self.product.view(self.group.size, self.rows_each, HIDDEN)
        for step in range(1, self.group.size + 1):  # The own block last: the links are what takes time.
            peer = (self.group.rank + step) % self.group.size
            self.blocks[peer].copy_(parts[peer], non_blocking=True)

    def fused(self):
        self.gemm(True)
        self.meet()

    def split(self):
        self.gemm(False)
        self.send()
        self.meet()

    def cublas(self):
        torch.matmul(self.a, self.b, out=self.product)
        self.send()
        self.meet()

    def meet(self):
        meet[(1,)](self.comm.device_ptr, self.status, num_warps=4, extern_libs=self.extern)

    def check(self, way):
        """All that this rank has received, against the product of who sent it."""
        self.received.zero_()
        torch.cuda.synchronize()
        self.group.barrier()
        getattr(self, way)()
        torch.cuda.synchronize()
        status = int(self.status)
        if status != device.WaitStatus.ARRIVED:
            sys.exit(f"{way}, {self.rows} rows: the barrier ended with status {status}")
        for sender in range(self.group.size):
            a, b = self.operands(sender)
            first = self.group.rank * self.rows_each
            expected = torch.matmul(a[first:first + self.rows_each], b).float()
            worst = (self.received[sender].float() - expected).abs().max().item()
            if not worst <= 0.05:  # bf16 has 8 bits: values of about 4 are rounded by 1/64.
                sys.exit(f"{way}, {self.rows} rows: what rank {sender} sent differs by {worst}")
        self.group.barrier()

    def time_us(self, way):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        self.group.barrier()
        self.meet()  # Ranks begin together.
        start.record()
        getattr(self, way)()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1000

    def close(self):
        del self.received, self.blocks
        torch.cuda.synchronize()
        self.group.barrier()
        self.window.close()


def slowest(group, board, values):
    """Per value the greatest of all ranks', on every rank. `board`: a window of 64 doubles per rank."""
    count = len(values)
    for peer in range(group.size):
        shape = (group.size, 64)
        torch.from_dlpack(board.view(peer, dtype="float64", shape=shape))[group.rank, :count] = torch.tensor(
            values, dtype=torch.float64, device="cuda")
    torch.cuda.synchronize()
    group.barrier()
    mine = torch.from_dlpack(board.view(dtype="float64", shape=(group.size, 64)))
    found = mine[:, :count].max(dim=0).values.tolist()
    torch.cuda.synchronize()
    group.barrier()
    return found


def measure(group, comm, board, rows):
    problem = Problem(group, comm, rows)
    ways = ("fused", "split", "cublas")
    for way in ways:
        problem.check(way)
    times = {way: [] for way in ways}
    for repetition in range(WARM_UP + REPETITIONS):
        for way in ways:
            took = problem.time_us(way)
            if repetition >= WARM_UP:
                times[way].append(took)
    result = {"rows": rows}
    for way in ways:
        result[f"{way}_us"] = statistics.median(slowest(group, board, times[way]))
    problem.close()
    flops = 2 * rows * HIDDEN * INNER
    result["split_by_fused"] = result["split_us"] / result["fused_us"]
    result["cublas_by_fused"] = result["cublas_us"] / result["fused_us"]
    result["fused_tflops"] = flops / result["fused_us"] / 1e6
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures there")
    parser.add_argument("--rows", default="1024,2048,4096,8192,16384,32768", help="M, a list")
    options = parser.parse_args()
    with cco.Group.from_env() as group, cco.Window(group, "board", group.size * 512) as board:
        if group.client.driver != "cuda":
            sys.exit(f"this takes GPUs, and cco-memd's driver is {group.client.driver}")
        torch.cuda.set_device(group.device)
        with cco.Comm(group, barrier_count=1) as comm:
            results = []
            for rows in map(int, options.rows.split(",")):
                if rows % (BLOCK_M * group.size):
                    sys.exit(f"{rows} rows: a multiple of {BLOCK_M * group.size} is needed")
                results.append(measure(group, comm, board, rows))
                if group.rank == 0:
                    one = results[-1]
                    print(f"M {rows:6}  fused {one['fused_us']:8.1f} us  split {one['split_us']:8.1f} us "
                          f"({one['split_by_fused']:.3f})  cublas {one['cublas_us']:8.1f} us "
                          f"({one['cublas_by_fused']:.3f})  every byte checked", flush=True)
        if group.rank == 0 and options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({"device": torch.cuda.get_device_name(), "ranks": group.size, "hidden": HIDDEN,
                           "inner": INNER, "torch": torch.__version__, "triton": triton.__version__,
                           "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
