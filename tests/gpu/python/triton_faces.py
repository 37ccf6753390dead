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
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "client/python"), str(ROOT / "tests/python")]

import torch  # noqa: E402
import triton  # noqa: E402

import cco as host  # noqa: E402
from cco import device  # noqa: E402
from triton_kernels import Kernels  # noqa: E402

TARGET = 0.95
PUT_BYTES = 256 << 20
TEN_SECONDS = 10_000_000_000
THREAD, WARP, BLOCK, GRID = range(4)
ARRIVED, TIMED_OUT, _, REFUSED = range(4)


class Rank:
    """One rank with what kernels need, and a stream of its own."""

    def __init__(self, number, secret, devices):
        self.number = number
        self.client = host.Client()
        if self.client.driver != "cuda":
            sys.exit(f"the daemon's driver is {self.client.driver}; this needs a GPU")
        self.group = host.Group(self.client, rank=number, size=2, unique_id=secret, device=number % devices)
        self.window = host.Window(self.group, "faces", 1 << 20)
        self.comm = host.Comm(self.group, signal_count=8, barrier_count=2,
                              transports=host.TRANSPORT_SDMA | host.TRANSPORT_GDA, sdma_queue_count=2,
                              gda_connection=host.GDA_CONNECT_FULL, gda_provider="proxy", gda_signal_count=8,
                              gda_counter_count=4, rail_barrier_count=2, world_barrier_count=1)
        torch.cuda.set_device(self.group.device)
        self.stream = torch.cuda.Stream()
        self.bytes = torch.from_dlpack(self.window.view())

    def close(self):
        self.bytes = None
        self.client.close()


class Pair:
    """Both ranks, and calls of methods by them."""

    def __init__(self):
        devices = torch.cuda.device_count()
        secret = host.UniqueId.create()
        made = [None, None]
        failures = []

        def make(number):
            try:
                made[number] = Rank(number, secret, devices)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=make, args=(number,), daemon=True) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        if failures or None in made:
            raise SystemExit(f"no pair of ranks: {failures or 'not within 120 s'}")
        self.ranks = made
        self.kernels = Kernels()
        self.called = set()

    def start(self, rank, method, *, warps=4, grid=1, **arguments):
        """Launches; the result is there after synchronise()."""
        own = self.ranks[rank]
        out = torch.full((1,), -2, dtype=torch.int64, device=f"cuda:{own.group.device}")
        torch.cuda.synchronize(own.group.device)
        namespace, _, short = method.partition(".")
        for argument in device.methods(namespace)[short].signature:
            if argument.name == "dev_comm":
                arguments["dev_comm"] = own.comm.device_ptr
            elif argument.name.endswith("win"):
                arguments[argument.name] = own.window.device_ptr
        with torch.cuda.device(own.group.device), torch.cuda.stream(own.stream):
            self.kernels.launch(method, grid, warps, out, arguments)
        self.called.add(method)
        return out

    def call(self, rank, method, **arguments):
        """One call, to its end; the result as a number."""
        return self.finish(self.start(rank, method, **arguments))[0]

    def finish(self, *outs):
        for rank in self.ranks:
            torch.cuda.synchronize(rank.group.device)
        return [int(out[0]) for out in outs]

    def expect(self, rank, method, wanted, **arguments):
        found = self.call(rank, method, **arguments)
        assert found == wanted, f"rank {rank}: {method}({arguments}) is {found:#x}, not {wanted:#x}"

    def expect_status(self, rank, method, wanted, **arguments):
        found = self.call(rank, method, **arguments)
        assert device.status_of(found) == wanted, f"rank {rank}: {method}({arguments}) is {found:#x}"

    def together(self, method, **arguments):
        """A call in which both ranks meet: one alone runs out of time, then both go on with that round."""
        for rank in (0, 1):  # Loads the kernel that will wait, as it is: 96 is a multiple of 16 like 0.
            self.expect_status(rank, method, REFUSED, index=96, timeout_ns=TEN_SECONDS, **arguments)
        self.expect_status(0, method, TIMED_OUT, index=0, timeout_ns=1000, **arguments)
        outs = [self.start(rank, method, index=0, timeout_ns=TEN_SECONDS, **arguments) for rank in (1, 0)]
        results = self.finish(*outs)
        assert results == [0, 0], f"{method}: {results}"

    def fill(self, rank, seed):
        """Other bytes each time, also with each rank."""
        generator = torch.Generator().manual_seed(seed * 2 + rank)
        own = self.ranks[rank]
        own.bytes.copy_(torch.randint(0, 256, own.bytes.shape, generator=generator, dtype=torch.uint8))
        torch.cuda.synchronize(own.group.device)

    def expect_copy(self, source_rank, source_off, to_rank, to_off, nbytes):
        source = self.ranks[source_rank].bytes[source_off:source_off + nbytes].cpu()
        copy = self.ranks[to_rank].bytes[to_off:to_off + nbytes].cpu()
        assert torch.equal(source, copy), f"{nbytes} bytes of rank {source_rank} at rank {to_rank}: not the same"


def check_devcomm(pair):
    for rank in (0, 1):
        for method, wanted in (("rank", rank), ("lsa_rank", rank), ("world_size", 2), ("lsa_size", 2), ("lsa_first", 0),
                               ("abort_word", 0), ("system_fence", 0)):
            pair.expect(rank, f"DevComm.{method}", wanted)
        pair.expect(rank, "DevComm.transports", 0xF, peer=1 - rank)
        pair.expect(rank, "DevComm.transports", 0, peer=7)
        for team, size, own, first in ((0, 2, rank, 0), (1, 2, rank, 0), (2, 0, -1, 2), (3, 0, -1, 2 + rank)):
            pair.expect(rank, "DevComm.team_size", size, team=team)
            pair.expect(rank, "DevComm.team_rank", own, team=team)
            pair.expect(rank, "DevComm.team_to_world", first, team=team, team_rank=0)


def check_window(pair):
    for rank in (0, 1):
        window = pair.ranks[rank].window
        pair.expect(rank, "Window.lsa_ptr", window.address(1 - rank, 48), peer=1 - rank, offset=48)
        pair.expect(rank, "Window.local_ptr", window.address(rank, 16), offset=16)
        pair.expect(rank, "Window.size", window.size_bytes)


def check_lsa_copies(pair):
    half, size = 1 << 19, 100_003
    for coop, warps, grid in ((THREAD, 1, 1), (WARP, 1, 1), (BLOCK, 8, 1), (GRID, 4, 5)):
        for method, first, second in (("put", 0, 1), ("get", 1, 0)):
            pair.fill(0, coop)
            pair.fill(1, coop)
            pair.expect(0, f"Lsa.{method}", 0, peer=1, dst_off=half + 3, src_off=3, nbytes=size, coop=coop, warps=warps,
                        grid=grid)
            pair.expect_copy(first, 3, second, half + 3, size)
    plain = torch.arange(5000, dtype=torch.int32, device=f"cuda:{pair.ranks[0].group.device}")
    pair.expect(0, "Lsa.put_from", 0, peer=1, dst_off=0, src_ptr=plain.data_ptr(), nbytes=20_000)
    back = torch.zeros_like(plain)
    pair.expect(0, "Lsa.get_to", 0, peer=1, dst_ptr=back.data_ptr(), src_off=0, nbytes=20_000)
    assert torch.equal(plain, back)
    value = 0x1122334455667788
    for nbytes in (1, 2, 4, 8):
        pair.fill(1, nbytes)
        before = pair.ranks[1].bytes[:32].clone()
        pair.expect(0, "Lsa.put_value", 0, peer=1, dst_off=8, value=value, nbytes=nbytes)
        low = value & ((1 << (8 * nbytes)) - 1)
        before[8:8 + nbytes] = torch.tensor(list(low.to_bytes(nbytes, "little")), dtype=torch.uint8)
        assert torch.equal(before, pair.ranks[1].bytes[:32]), f"a value of {nbytes} bytes"
        pair.expect(0, "Lsa.get_value", low, peer=1, src_off=8, nbytes=nbytes)
    pair.expect_status(0, "Lsa.put", REFUSED, peer=2, dst_off=0, src_off=0, nbytes=1)
    pair.expect_status(0, "Lsa.put", REFUSED, peer=1, dst_off=1, src_off=0, nbytes=1 << 20)
    pair.expect_status(0, "Lsa.get", REFUSED, peer=1, dst_off=1, src_off=0, nbytes=1 << 20)


def check_lsa_signals(pair):
    pair.expect(0, "Lsa.signal", 0, peer=1, signal_id=2, delta=5)
    pair.expect(0, "Lsa.signal_set", 0, peer=1, signal_id=3, value=9, coop=WARP, warps=1)
    pair.expect(1, "Lsa.read_signal", 5, signal_id=2)
    pair.expect(1, "Lsa.wait_signal", 0, signal_id=3, least=9, timeout_ns=TEN_SECONDS)
    pair.expect_status(1, "Lsa.wait_signal", TIMED_OUT, signal_id=2, least=6, timeout_ns=1_000_000)
    pair.expect_status(1, "Lsa.wait_signal", REFUSED, signal_id=8, least=0, timeout_ns=0)
    word = pair.call(0, "Lsa.signal_ptr", peer=1, signal_id=2)
    control = pair.ranks[0].comm.device.control
    assert word == control.win_base + (control.stride_4g << 32) + pair.ranks[0].comm.device.signal_offset + 16
    for rank in (0, 1):
        pair.expect(rank, "Lsa.barrier_arrive", 0, index=1)
    for rank in (0, 1):
        pair.expect(rank, "Lsa.barrier_wait", 0, index=1, timeout_ns=TEN_SECONDS)
    pair.together("Lsa.barrier")


def check_tdm(pair):
    half, size = 1 << 19, 300_016
    for method, first, second in (("put", 0, 1), ("get", 1, 0)):
        pair.fill(0, 31)
        pair.fill(1, 31)
        for share in (0, 1):
            pair.expect(0, f"Tdm.{method}", 0, peer=1, dst_off=half, src_off=16, nbytes=size, share=share, shares=2,
                        timeout_ns=TEN_SECONDS)
        pair.expect_copy(first, 16, second, half, size)
    pair.expect_status(0, "Tdm.put", REFUSED, peer=1, dst_off=0, src_off=0, nbytes=16, share=2, shares=2)


def check_sdma(pair):
    half, size = 1 << 19, 200_001
    one_warp = {"coop": WARP, "warps": 1, "timeout_ns": TEN_SECONDS}
    pair.expect(0, "Sdma.queue_count", 2)
    pair.fill(0, 41)
    pair.fill(1, 41)
    pair.expect(0, "Sdma.put", 0, peer=1, dst_off=half, src_off=1, nbytes=size, qid=1, signal=2, **one_warp)
    pair.expect(1, "Sdma.wait_signal", 0, sender=0, qid=1, least=1, **one_warp)
    pair.expect_copy(0, 1, 1, half, size)
    pair.expect(1, "Sdma.read_signal", 1, sender=0, qid=1)
    pair.expect(0, "Sdma.signal", 0, peer=1, qid=1, **one_warp)
    pair.expect(1, "Sdma.wait_signal", 0, sender=0, qid=1, least=2, **one_warp)
    pair.expect(0, "Sdma.get", 0, peer=1, dst_off=half, src_off=5, nbytes=size, qid=0, signal=1, aggregate=1,
                **one_warp)
    pair.expect(0, "Sdma.commit", 0, peer=1, qid=0, **one_warp)
    pair.expect(0, "Sdma.quiet_queue", 0, peer=1, qid=0, **one_warp)
    pair.expect_copy(1, 5, 0, half, size)
    pair.expect(0, "Sdma.quiet", 0, peer=1, **one_warp)
    pair.expect_status(0, "Sdma.put", REFUSED, peer=1, dst_off=0, src_off=0, nbytes=1, qid=2, **one_warp)


def check_gda_copies(pair):
    half, size = 1 << 19, 70_001
    block = {"coop": BLOCK, "timeout_ns": TEN_SECONDS}
    pair.fill(0, 51)
    pair.fill(1, 51)
    pair.expect(0, "Gda.connected", 1, peer=1)
    pair.expect(0, "Gda.connected", 0, peer=2)
    pair.expect(0, "Gda.put", 0, peer=1, dst_off=half, src_off=7, nbytes=size, signal_op=1, signal_id=4, **block)
    pair.expect(0, "Gda.flush_peer", 0, peer=1, **block)
    pair.expect(1, "Gda.wait_signal", 0, signal_id=4, least=1, **block)
    pair.expect_copy(0, 7, 1, half, size)
    value = 0x8877665544332211 - (1 << 64)
    for nbytes in (1, 2, 4, 8):
        pair.expect(0, "Gda.put_value", 0, peer=1, dst_off=64, value=value, nbytes=nbytes, **block)
        pair.expect(0, "Gda.flush", 0, **block)
        low = (value & ((1 << (8 * nbytes)) - 1)).to_bytes(nbytes, "little")
        assert bytes(pair.ranks[1].bytes[64:64 + nbytes].cpu().tolist()) == low
    pair.expect(0, "Gda.get", 0, peer=1, remote_off=9, local_off=half, nbytes=size, **block)
    pair.expect(0, "Gda.flush", 0, **block)
    pair.expect_copy(1, 9, 0, half, size)
    pair.expect_status(0, "Gda.put", REFUSED, peer=1, dst_off=0, src_off=0, nbytes=1 << 21, **block)


def check_gda_signals(pair):
    block = {"coop": BLOCK, "timeout_ns": TEN_SECONDS}
    pair.expect(0, "Gda.signal", 0, peer=1, signal_op=2, signal_id=5, signal_val=40, **block)
    pair.expect(1, "Gda.wait_signal_at_least", 0, signal_id=5, least=40, **block)
    pair.expect(1, "Gda.read_signal", 40, signal_id=5)
    pair.expect(1, "Gda.wait_signal", 0, signal_id=5, least=15, **block)
    pair.expect(1, "Gda.read_signal", 25, signal_id=5)
    pair.expect(1, "Gda.reset_signal", 0, signal_id=5)
    pair.expect(1, "Gda.read_signal", 0, signal_id=5)
    pair.expect_status(1, "Gda.wait_signal", TIMED_OUT, signal_id=5, least=1, coop=BLOCK, timeout_ns=1_000_000)
    pair.expect(0, "Gda.counter", 0, counter_id=1, **block)
    pair.expect(0, "Gda.read_counter", 1, counter_id=1)
    pair.expect(0, "Gda.wait_counter", 0, counter_id=1, least=1, **block)
    pair.expect(0, "Gda.reset_counter", 0, counter_id=1)
    pair.expect(0, "Gda.read_counter", 0, counter_id=1)
    pair.together("Gda.barrier", team=0)
    pair.together("Gda.world_barrier")


CHECKS = (check_devcomm, check_window, check_lsa_copies, check_lsa_signals, check_tdm, check_sdma, check_gda_copies,
          check_gda_signals)


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
    with torch.cuda.device(own.group.device), torch.cuda.stream(own.stream):
        copied = median_us(own.stream, lambda: copy.copy_(source))
        put = median_us(own.stream, lambda: pair.kernels.launch("Lsa.put", blocks, 16, out, arguments))
    assert int(out[0]) == 0
    return put, copied


def measure_put(pair, bench):
    """Three rounds in turn: the C++ put's time by Triton's, as such and in units of a stream copy; the lower counts."""
    windows = [None, None]

    def make(rank):
        windows[rank] = host.Window(pair.ranks[rank].group, "big", 2 * PUT_BYTES)

    threads = [threading.Thread(target=make, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
    pair = Pair()
    result = {"torch": torch.__version__, "triton": triton.__version__, "gpus": torch.cuda.device_count(),
              "checks": []}
    for check in CHECKS:
        check(pair)
        result["checks"].append(check.__name__)
        print(f"{check.__name__.removeprefix('check_')}: right", flush=True)
    every = {f"{row.face}.{row.method}" for row in device.OPERATIONS if row.face}
    assert pair.called == every, f"never called: {sorted(every - pair.called)}"
    print(f"all {len(every)} methods were called", flush=True)
    result["put"] = measure_put(pair, bench)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2), encoding="utf-8")
    for rank in pair.ranks:
        rank.close()
    return 0 if result["put"]["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
