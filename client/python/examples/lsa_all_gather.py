#!/usr/bin/env python3
"""An all-gather by stores: each rank writes its shard into every rank's window, and checks all of them.

    ccoctl run -n 4 -- python3 lsa_all_gather.py [BYTES]
    torchrun --nproc-per-node 4 lsa_all_gather.py [BYTES]

BYTES is the size of a shard, a multiple of 4, 1 MiB by default.
"""

import sys

import cco
from hello_window import array_of, settle


def pattern(rank, count):
    """What rank `rank` contributes: numbers that no other rank has, each at its place."""
    return range(rank * count, (rank + 1) * count)


def main():
    shard_bytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20
    if shard_bytes <= 0 or shard_bytes % 4 != 0:
        sys.exit(f"{shard_bytes} bytes: a shard takes a positive multiple of 4")
    count = shard_bytes // 4
    with cco.Group.from_env() as group, cco.Window(group, "gather", shard_bytes * group.size) as window:
        offset = group.rank * shard_bytes
        mine = array_of(group, window.view(dtype="int32", shape=count, offset=offset))
        fill(group, mine, pattern(group.rank, count))
        for peer in range(group.size):
            if peer != group.rank:
                array_of(group, window.view(peer, dtype="int32", shape=count, offset=offset))[:] = mine
        settle(group)
        everything = array_of(group, window.view(dtype="int32"))
        wrong = mismatches(group, everything, pattern(0, count * group.size))
        print(f"rank {group.rank} of {group.size}: {shard_bytes} bytes from each rank, {wrong} values wrong, on "
              f"{group.client.driver}", flush=True)
        del mine, everything
        group.barrier()
        return 0 if wrong == 0 else 1


def fill(group, array, numbers):
    if group.client.driver == "host":
        import numpy

        array[:] = numpy.arange(numbers.start, numbers.stop, dtype=numpy.int32)
    else:
        import torch

        torch.arange(numbers.start, numbers.stop, dtype=torch.int32, out=array)


def mismatches(group, array, numbers):
    if group.client.driver == "host":
        import numpy

        return int((array != numpy.arange(numbers.start, numbers.stop, dtype=numpy.int32)).sum())
    import torch

    expected = torch.arange(numbers.start, numbers.stop, dtype=torch.int32, device=array.device)
    return int((array != expected).sum())


if __name__ == "__main__":
    sys.exit(main())
