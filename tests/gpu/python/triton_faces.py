#!/usr/bin/env python3
"""Goal    every method of `cco.triton` does on a GPU what the table says, and a put through it is as fast as from C++.
Method  two ranks in one process, on one GPU or two: one kernel for each method, made from the table; results, bytes and
        signals are compared. Then puts of 256 MiB in turn with cco-bench's, which puts them by a C++ kernel.

  triton_faces.py [--bench cco-bench] [--json FILE]    a cco-memd with driver cuda serves $CCO_SOCKET; $CCO_LIBRARY and
                                                       $CCO_BITCODE_DIR as for the package; cco-bench is looked for
                                                       on PATH and beside the library

Kernels that wait for each other run at the same time only once both have been loaded: CUDA loads none meanwhile.
"""

import argparse
import ctypes
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Behind what is installed: a wheel has its library and bitcode inside.
sys.path += [str(ROOT / "client/python"), str(ROOT / "tests/python")]

import torch  # noqa: E402
import triton  # noqa: E402

import cco as host  # noqa: E402
from table_checks import EVERY_METHOD, GRID, Pair, both  # noqa: E402
from triton_kernels import Kernels  # noqa: E402

TARGET = 0.95
PUT_BYTES = 256 << 20


class GpuPair(Pair):
    """Calls are kernels, each rank's on a stream of its own."""

    def __init__(self):
        super().__init__(torch.cuda.device_count())
        driver = self.ranks[0].client.driver
        if driver != "cuda":
            sys.exit(f"the daemon's driver is {driver}; this needs a GPU")
        self.kernels = Kernels()
        self.streams = [torch.cuda.Stream(device=rank.group.device) for rank in self.ranks]
        # Made once: while a kernel waits for another one, nothing is allocated and no device is waited for.
        self.outs = [torch.zeros(1, dtype=torch.int64, device=f"cuda:{rank.group.device}") for rank in self.ranks]
        torch.cuda.synchronize()

    def start(self, rank, row, arguments, warps, grid):
        """One call at a time by each rank."""
        with torch.cuda.device(self.ranks[rank].group.device), torch.cuda.stream(self.streams[rank]):
            self.outs[rank].fill_(-2)
            self.kernels.launch(f"{row.face}.{row.method}", grid, warps, self.outs[rank], arguments)
        return self.outs[rank]

    def finish(self, handles):
        for rank in self.ranks:
            torch.cuda.synchronize(rank.group.device)
        return [int(out[0]) & (1 << 64) - 1 if int(out[0]) < -1 else int(out[0]) for out in handles]

    def view(self, rank, offset, nbytes):
        return torch.from_dlpack(self.ranks[rank].window.view(shape=(nbytes,), offset=offset))

    def read(self, rank, offset, nbytes):
        copy = self.view(rank, offset, nbytes).cpu()
        return ctypes.string_at(copy.data_ptr(), nbytes)

    def write(self, rank, offset, data):
        self.view(rank, offset, len(data)).copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        torch.cuda.synchronize(self.ranks[rank].group.device)


def find_bench(named):
    """The path of cco-bench: as named, on PATH, in the library's prefix or its build folder."""
    folder = Path(host.library_path()).resolve().parent
    places = [named] if named else [shutil.which("cco-bench"), *(up / "bin/cco-bench" for up in folder.parents),
                                    folder.parent / "bench/cco-bench"]
    for place in places:
        if place and Path(place).is_file():
            return str(place)
    sys.exit(f"no cco-bench, beside which a put is measured: looked at {', '.join(map(str, filter(None, places)))}; "
             "give --bench")


def bench_put_us(bench):
    """cco-bench's medians for PUT_BYTES: of the put by the C++ kernel, and of a stream copy beside it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([bench, "put", "--min-bytes", str(PUT_BYTES), "--max-bytes", str(PUT_BYTES), "--json",
                        file.name], check=True, timeout=120, stdout=subprocess.DEVNULL)
        measured = json.loads(Path(file.name).read_text(encoding="utf-8"))["measurements"]
    found = next(m for m in measured if int(m["size_bytes"]) == PUT_BYTES and m["baseline"] == "stream copy")
    return found["time"]["median"], found["baseline_time"]["median"]


def median_us(stream, operation, repetitions=30):
    """On the GPU's clock. The GPU is kept busy until the operation is queued: Python's launch is not measured."""
    times = []
    for index in range(repetitions + 5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1_000_000)
        begin.record(stream)
        operation()
        end.record(stream)
        end.synchronize()
        if index >= 5:
            times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def triton_put_us(pair, windows):
    """The same through cco.triton, with the same blocks and threads, and by torch's copy."""
    own = pair.ranks[0]
    blocks = 2 * torch.cuda.get_device_properties(own.group.device).multi_processor_count
    window = windows[0]
    arguments = {"dev_comm": own.comm.device_ptr, "peer": 1, "dst_win": window.device_ptr, "dst_off": PUT_BYTES,
                 "src_win": window.device_ptr, "src_off": 0, "nbytes": PUT_BYTES, "coop": GRID}
    out = torch.full((1,), -1, dtype=torch.int64, device=f"cuda:{own.group.device}")
    source = torch.from_dlpack(window.view(shape=(PUT_BYTES,)))
    copy = torch.from_dlpack(windows[0].view(1, shape=(PUT_BYTES,), offset=PUT_BYTES))
    torch.cuda.synchronize(own.group.device)
    stream = pair.streams[0]
    with torch.cuda.device(own.group.device), torch.cuda.stream(stream):
        copied = median_us(stream, lambda: copy.copy_(source))
        put = median_us(stream, lambda: pair.kernels.launch("Lsa.put", blocks, 16, out, arguments))
    assert int(out[0]) == 0
    return put, copied


def measure_put(pair, bench):
    """Three rounds in turn: the C++ put's time by Triton's, as such and in units of a stream copy; the lower counts."""
    windows = both(lambda rank: host.Window(pair.ranks[rank].group, "big", 2 * PUT_BYTES))
    source = torch.from_dlpack(windows[0].view(shape=(PUT_BYTES,)))
    source.copy_(torch.arange(PUT_BYTES // 8, device=source.device).view(torch.uint8))
    rounds = []
    for _ in range(3):
        cpp, cpp_copy = bench_put_us(bench)
        put, copy = triton_put_us(pair, windows)
        rounds.append({"cpp_us": cpp, "cpp_copy_us": cpp_copy, "triton_us": put, "torch_copy_us": copy,
                       "ratio": min(cpp / put, (cpp / cpp_copy) / (put / copy))})
    arrived = torch.from_dlpack(windows[1].view(shape=(PUT_BYTES,), offset=PUT_BYTES))
    assert torch.equal(arrived.to(source.device), source), "the put's bytes are not the source's"
    ratio = statistics.median(one["ratio"] for one in rounds)
    print(f"put of {PUT_BYTES >> 20} MiB, Triton's speed by C++'s: {ratio:.3f} (at least {TARGET}); {rounds}",
          flush=True)
    return {"bytes": PUT_BYTES, "rounds": rounds, "ratio": ratio, "target": TARGET, "met": ratio >= TARGET}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", help="path of cco-bench")
    parser.add_argument("--json", help="where results go")
    options = parser.parse_args()
    bench = find_bench(options.bench)
    pair = GpuPair()
    result = {"torch": torch.__version__, "triton": triton.__version__, "gpus": torch.cuda.device_count(), "checks": []}
    for name in pair.run():
        result["checks"].append(name)
        print(f"{name.removeprefix('check_')}: right", flush=True)
    print(f"all {len(EVERY_METHOD)} methods were called", flush=True)
    result["put"] = measure_put(pair, bench)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2), encoding="utf-8")
    pair.close()
    return 0 if result["put"]["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
