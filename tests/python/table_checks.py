"""What every method of the device table does, tried by two ranks of one process, whoever makes the calls: kernels on a
GPU (tests/gpu/python/triton_faces.py), or this process on the host driver (entry_points_test.py)."""

import random
import threading

import cco as host
from cco import device

TEN_SECONDS = 10_000_000_000
THREAD, WARP, BLOCK, GRID = range(4)
ARRIVED, TIMED_OUT, _, REFUSED = range(4)
EVERY_METHOD = {f"{row.face}.{row.method}" for row in device.OPERATIONS if row.face}


class Rank:
    """One rank with what kernels need."""

    def __init__(self, number, secret, devices):
        self.client = host.Client()
        self.group = host.Group(self.client, rank=number, size=2, unique_id=secret, device=number % devices)
        self.window = host.Window(self.group, "table", 1 << 20)
        self.comm = host.Comm(self.group, signal_count=8, barrier_count=2,
                              transports=host.TRANSPORT_SDMA | host.TRANSPORT_GDA, sdma_queue_count=2,
                              gda_connection=host.GDA_CONNECT_FULL, gda_provider="proxy", gda_signal_count=8,
                              gda_counter_count=4, rail_barrier_count=2, world_barrier_count=1)


def both(function):
    """`function(rank)` for both ranks at the same time: collective calls."""
    results, failures = [None, None], []

    def body(rank):
        try:
            results[rank] = function(rank)
        except BaseException as error:  # Raised again below.
            failures.append(error)

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), f"a collective call does not end within 120 s; failed so far: {failures}"
    for error in failures:
        raise error
    return results


class Pair:
    """Both ranks, and calls by them. Who makes calls and reaches memory is the subclass's:

    start(rank, row, arguments, warps, grid)    begins a call; finish(handles) gives the results, as integers
    read(rank, offset, nbytes), write(rank, offset, data)    the rank's own copy of its window
    """

    def __init__(self, devices):
        secret = host.UniqueId.create()
        self.ranks = both(lambda rank: Rank(rank, secret, devices))
        self.called = set()

    def close(self):
        for rank in self.ranks:
            rank.client.close()

    def begin(self, rank, method, warps=4, grid=1, **arguments):
        namespace, _, name = method.partition(".")
        row = device.methods(namespace)[name]
        given = {argument.name: argument.default for argument in row.signature}
        for name in given:
            if name == "dev_comm":
                given[name] = self.ranks[rank].comm.device_ptr
            elif name.endswith("win"):
                given[name] = self.ranks[rank].window.device_ptr
        assert set(arguments) <= set(given), f"{method} takes {list(given)}, not {list(arguments)}"
        given.update(arguments)
        assert None not in given.values(), f"{method}: {given}"
        self.called.add(method)
        return self.start(rank, row, given, warps, grid)

    def call(self, rank, method, **arguments):
        return self.finish([self.begin(rank, method, **arguments)])[0]

    def expect(self, rank, method, wanted, **arguments):
        found = self.call(rank, method, **arguments)
        assert found == wanted, f"rank {rank}: {method}({arguments}) is {found:#x}, not {wanted:#x}"

    def expect_status(self, rank, method, wanted, **arguments):
        found = self.call(rank, method, **arguments)
        assert device.status_of(found) == wanted, f"rank {rank}: {method}({arguments}) is {found:#x}"

    def together(self, method, **arguments):
        """A call in which both ranks meet: one alone runs out of time, then both go on with that round."""
        for rank in (0, 1):  # Loads the kernel that will wait.
            self.expect_status(rank, method, REFUSED, index=96, timeout_ns=TEN_SECONDS, **arguments)
        self.expect_status(0, method, TIMED_OUT, index=0, timeout_ns=1000, **arguments)
        handles = [self.begin(rank, method, index=0, timeout_ns=TEN_SECONDS, **arguments) for rank in (1, 0)]
        results = self.finish(handles)
        assert results == [0, 0], f"{method}: {results}"

    def fill(self, rank, seed):
        """Other bytes each time, also with each rank."""
        self.write(rank, 0, random.Random(seed * 2 + rank).randbytes(self.ranks[rank].window.size_bytes))

    def expect_copy(self, source_rank, source_off, to_rank, to_off, nbytes):
        same = self.read(source_rank, source_off, nbytes) == self.read(to_rank, to_off, nbytes)
        assert same, f"{nbytes} bytes of rank {source_rank} at rank {to_rank}: not the same"

    def run(self):
        """Every check, and that they have left out no method."""
        for check in CHECKS:
            check(self)
            yield check.__name__
        assert self.called == EVERY_METHOD, f"never called: {sorted(EVERY_METHOD - self.called)}"


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
    pair.fill(0, 9)
    own = pair.ranks[0].window.address(0)
    pair.expect(0, "Lsa.put_from", 0, peer=1, dst_off=0, src_ptr=own + 21, nbytes=20_000)
    pair.expect_copy(0, 21, 1, 0, 20_000)
    pair.expect(0, "Lsa.get_to", 0, peer=1, dst_ptr=own + half + 5, src_off=0, nbytes=20_000)
    pair.expect_copy(1, 0, 0, half + 5, 20_000)
    value = 0x1122334455667788
    for nbytes in (1, 2, 4, 8):
        pair.fill(1, nbytes)
        before = bytearray(pair.read(1, 0, 32))
        pair.expect(0, "Lsa.put_value", 0, peer=1, dst_off=8, value=value, nbytes=nbytes)
        low = value & ((1 << (8 * nbytes)) - 1)
        before[8:8 + nbytes] = low.to_bytes(nbytes, "little")
        assert pair.read(1, 0, 32) == before, f"a value of {nbytes} bytes"
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
        assert pair.read(1, 64, nbytes) == low
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
