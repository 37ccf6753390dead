#!/usr/bin/env python3
"""Goal    rendezvous through cco takes at most half of the time that torch's own CUDA back-end takes, in one run.
Method  pairs of processes, one pair for each back-end, on two GPUs or sharing one; new allocations each time; medians.

    torch_figures.py [--json FILE]     prints a table; exit code 1: a figure could not be measured
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from torch_symm_mem import begin, run_pair

MIB = 1 << 20
SIZES = (MIB // 64, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
TURNS = 15


def measure(me, backend):
    """Milliseconds of the first and of later calls, by size; barriers in a graph, if each rank has a GPU."""
    if backend == "CCO":
        me.use_cco()
    else:
        assert me.symm_mem.get_backend(me.device) == backend  # torch's default.
    torch, p2p = me.torch, me.symm_mem._SymmetricMemory.empty_strided_p2p
    torch.zeros(1, device=me.device)
    figures, kept = {}, []
    for size in SIZES:
        empty_ms, rendezvous_ms = [], []
        for turn in range(TURNS):
            me.settle()
            began = time.perf_counter()
            tensor = p2p((size,), (1,), torch.uint8, me.device)
            made = time.perf_counter()
            me.dist.barrier()
            met = time.perf_counter()
            handle = me.symm_mem.rendezvous(tensor, me.group)
            ended = time.perf_counter()
            empty_ms.append(1e3 * (made - began))
            rendezvous_ms.append(1e3 * (ended - met))
            kept.append((tensor, handle))
        me.settle()
        figures[str(size)] = {
            "first_empty_ms": empty_ms[0], "empty_ms": statistics.median(empty_ms[1:]),
            "first_rendezvous_ms": rendezvous_ms[0], "rendezvous_ms": statistics.median(rendezvous_ms[1:]),
        }
        if size > MIB:
            kept = kept[-1:]
    if me.gpus >= 2:
        figures["barrier_us"] = barrier_us(me, kept[-1][1])
    return figures


def barrier_us(me, handle):
    torch, count = me.torch, 200
    graph = torch.cuda.CUDAGraph()
    handle.barrier(channel=0)
    me.settle()
    with torch.cuda.graph(graph):
        for _ in range(count):
            handle.barrier(channel=0)
    times = []
    for _ in range(10):
        me.settle()
        begin_event, end_event = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        handle.barrier(channel=0)
        begin_event.record()
        graph.replay()
        end_event.record()
        torch.cuda.synchronize()
        times.append(begin_event.elapsed_time(end_event) * 1e3 / count)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--folder")
    parser.add_argument("backend", nargs="?")
    asked = parser.parse_args()
    if asked.rank is not None:
        figures = measure(begin(asked.rank, asked.folder), asked.backend)
        if asked.rank == 0:
            print("figures " + json.dumps(figures), flush=True)
        return 0
    found = {}
    for backend in ("CUDA", "CCO"):
        # torch refuses ranks that share a GPU unless it is told not to.
        ok, text = run_pair(__file__, backend, seconds=120, TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES="1")
        lines = [line for line in text.splitlines() if line.startswith("figures ")]
        if not ok or not lines:
            print(f"{backend} could not be measured:\n{text}")
            return 1
        found[backend] = json.loads(lines[0].removeprefix("figures "))
    print(f"{'bytes':>12} {'what':>12} {'torch CUDA ms':>14} {'cco ms':>10} {'ratio':>7}")
    ratios = {}
    for size in map(str, SIZES):
        for what in ("first_empty", "empty", "first_rendezvous", "rendezvous"):
            torch_ms, cco_ms = (found[name][size][f"{what}_ms"] for name in ("CUDA", "CCO"))
            ratios[f"{what}_{size}"] = cco_ms / torch_ms
            print(f"{size:>12} {what:>16} {torch_ms:>10.3f} {cco_ms:>10.3f} {cco_ms / torch_ms:>7.2f}")
    if "barrier_us" in found["CCO"]:
        torch_us, cco_us = found["CUDA"]["barrier_us"], found["CCO"]["barrier_us"]
        print(f"barrier in a graph: torch {torch_us:.2f} us, cco {cco_us:.2f} us")
    goal = {size: ratios[f"rendezvous_{size}"] for size in map(str, SIZES)}
    print("rendezvous, later, at most half of torch's: " +
          ", ".join(f"{int(size) / MIB:g} MiB {ratio:.2f} ({'met' if ratio <= 0.5 else 'missed'})"
                    for size, ratio in goal.items()))
    if asked.json:
        Path(asked.json).write_text(json.dumps({"figures": found, "ratios": ratios}, indent=1), encoding="utf-8")
    return 0 if all(ratio <= 0.5 for ratio in goal.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
