#!/usr/bin/env python3
"""Every rank gathers every rank's shard, by one FlyDSL kernel; checks every byte.

    ccoctl run -n 4 -- python3 flydsl_all_gather.py [--stores]
    torchrun --nproc-per-node 4 flydsl_all_gather.py [--stores]
    COMPILE_ONLY=1 FLYDSL_GPU_ARCH=gfx942 python3 flydsl_all_gather.py    # no GPU, no daemon

Copy engines move the shards. With --stores a block for each peer does, by loads and stores, and the
kernel itself waits for all peers, ten seconds at most. On AMD GPUs; besides flydsl, and numpy and
torch, which flydsl imports, it needs libamdhip64.so alone.
"""

import argparse
import array
import ctypes
import os
import sys

import flydsl.compiler as flyc
import flydsl.expr as fx

import cco
import cco.flydsl

SHARD_WORDS = 1 << 17
SHARD_BYTES = SHARD_WORDS * 8
TEN_SECONDS = 10_000_000_000


@flyc.kernel(known_block_size=[64, 1, 1])
def by_engines_kernel(dev_comm: fx.Int64, window: fx.Int64, shard_bytes: fx.Int64):
    """Thread t puts this rank's shard into the window of the t-th rank after it, and waits until
    the engine has moved it. For up to 65 ranks."""
    comm = cco.flydsl.DevComm(dev_comm)
    sdma = comm.sdma()
    step = fx.thread_idx.x + 1
    if step < comm.lsa_size:
        peer = (comm.lsa_rank + step) % comm.lsa_size
        shard = fx.Int64(comm.lsa_rank) * shard_bytes
        sdma.put(peer, window, shard, window, shard, shard_bytes)
        sdma.quiet(peer)


@flyc.jit
def by_engines(
    dev_comm: fx.Int64, window: fx.Int64, shard_bytes: fx.Int64, stream=fx.Stream(None)
):
    by_engines_kernel(dev_comm, window, shard_bytes).launch(
        grid=(1, 1, 1), block=[64, 1, 1], stream=stream
    )


@flyc.kernel(known_block_size=[256, 1, 1])
def by_stores_kernel(dev_comm: fx.Int64, window: fx.Int64, shard_bytes: fx.Int64):
    """Block b stores this rank's shard into the window of the b-th rank after it, and signals that
    rank. The first block then waits for the signals of all others, and leaves what came of it
    behind the shards: 0 is "arrived"."""
    comm = cco.flydsl.DevComm(dev_comm)
    lsa = comm.lsa()
    others = comm.lsa_size - 1
    peer = (comm.lsa_rank + 1 + fx.block_idx.x) % comm.lsa_size
    shard = fx.Int64(comm.lsa_rank) * shard_bytes
    lsa.put(peer, window, shard, window, shard, shard_bytes)
    lsa.signal(peer)
    if fx.block_idx.x == 0:
        result = lsa.wait_signal(0, others, timeout_ns=TEN_SECONDS)
        lsa.put_value(comm.lsa_rank, window, fx.Int64(comm.lsa_size) * shard_bytes, result)


@flyc.jit
def by_stores(
    dev_comm: fx.Int64,
    window: fx.Int64,
    shard_bytes: fx.Int64,
    blocks: fx.Int32,
    stream=fx.Stream(None),
):
    by_stores_kernel(dev_comm, window, shard_bytes).launch(
        grid=(blocks, 1, 1), block=[256, 1, 1], stream=stream
    )


class Hip:
    """The calls of libamdhip64.so that this needs, on one device."""

    def __init__(self, device):
        self._library = ctypes.CDLL(os.environ.get("CCO_HIP_LIBRARY", "libamdhip64.so.7"))
        self._call("hipSetDevice", device)

    def _call(self, name, *arguments):
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            sys.exit(f"{name}: HIP error {status}")

    def copy(self, to, source, size):
        """Between addresses of host or device; done when it returns."""
        addresses = ctypes.c_void_p(to), ctypes.c_void_p(source)
        self._call("hipMemcpy", *addresses, ctypes.c_size_t(size), 4)  # 4: by what they are.

    def synchronize(self):
        self._call("hipDeviceSynchronize")


def shard_of(rank):
    """Words that no other rank has, each at its place."""
    return array.array("Q", range(rank * SHARD_WORDS, (rank + 1) * SHARD_WORDS))


def gather(group, stores):
    """Runs the kernel as one rank; returns whether all is right."""
    hip = Hip(group.device)
    transports = 0 if stores else cco.TRANSPORT_SDMA
    size = group.size * SHARD_BYTES + 8
    with cco.Window(group, "gather", size) as window, cco.Comm(
        group, signal_count=1, transports=transports
    ) as comm:
        mine = shard_of(group.rank)
        place = window.address(offset=group.rank * SHARD_BYTES)
        hip.copy(place, mine.buffer_info()[0], SHARD_BYTES)
        words = (comm.device_ptr, window.device_ptr, SHARD_BYTES)
        group.barrier()  # Nobody is written to before it has begun.
        if stores and group.size > 1:
            by_stores(*words, group.size - 1)
        elif not stores:
            by_engines(*words)
        hip.synchronize()
        group.barrier()  # Only now have all engines moved all shards.
        found = array.array("Q", bytes(size))
        hip.copy(found.buffer_info()[0], window.address(), size)
        group.barrier()
    result = found.pop()
    shards = [found[rank * SHARD_WORDS : (rank + 1) * SHARD_WORDS] for rank in range(group.size)]
    wrong = [rank for rank, shard in enumerate(shards) if shard != shard_of(rank)]
    told = f"shards {wrong} are wrong, wait result {result:#x}" if wrong or result else "all right"
    how = "stores" if stores else "engines"
    print(f"rank {group.rank} of {group.size}: {SHARD_BYTES} bytes of each by {how}, {told}")
    return not wrong and result == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", action="store_true", help="no copy engines: blocks store")
    stores = parser.parse_args().stores
    if os.environ.get("COMPILE_ONLY") == "1":
        by_engines(0, 0, 0)
        by_stores(0, 0, 0, 1)
        print(f"compiled with {cco.flydsl.find_cco_bitcode()}; nothing has run")
        return 0
    with cco.Group.from_env() as group:
        if group.client.driver != "hip":
            print(f"this needs AMD GPUs, and the daemon's driver is {group.client.driver}")
            return 1
        if group.lsa_size != group.size:
            print(f"this gathers within a node, and {group.lsa_size} of {group.size} ranks are on it")
            return 1
        os.environ.setdefault("FLYDSL_GPU_ARCH", group.client.gpu(group.device).arch.split(":")[0])
        return 0 if gather(group, stores) else 1


if __name__ == "__main__":
    sys.exit(main())
