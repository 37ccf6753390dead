"""Goal    every function of cco.h does from Python what cco.h says, and bad input is refused by what it is.
Method  ranks as threads and as processes with a real daemon; NumPy reads and writes own and peers' memory."""

import ctypes
import fcntl
import os
import pickle
import re
import signal
import threading
import time

import pytest

import cco
from conftest import poll_until, run_threads

numpy = pytest.importorskip("numpy")


def form(rank, size=2, name="g", **options):
    """A client and a group with timeouts that end a failing test."""
    client = cco.Client()
    return client, cco.Group(client, rank=rank, size=size, name=name, timeout_ms=20_000, **options)


# ---- Client ----


def test_client(daemon):
    with cco.Client() as client:
        assert (client.driver, client.gpu_count, client.daemon_version) == ("host", 2, "0.1.0")
        assert client.incarnation != 0
        gpu = client.gpu(1)
        assert (gpu.device, gpu.arch, gpu.total_bytes) == (1, "host", 256 << 20)
        assert gpu.uuid.startswith("HOST-") and gpu.granularity_bytes > 0
        with pytest.raises(cco.NotFound, match="no device 2"):
            client.gpu(2)
        assert daemon.counts()["session"] == 1
    daemon.expect_nothing_left()


def test_client_by_path(daemon, monkeypatch):
    monkeypatch.delenv("CCO_SOCKET")
    with cco.Client(socket_path=daemon.socket, timeout_ms=1000) as client:
        assert client.driver == "host"


@pytest.mark.parametrize(("path", "kind", "text"), [
    ("/nowhere/memd.sock", cco.Unavailable, "/nowhere/memd-fd.sock"),
    ("x" * 200, cco.InvalidArgument, "107"),
    ("a\0b", cco.InvalidArgument, "zero byte"),
])
def test_no_daemon(path, kind, text):
    with pytest.raises(kind, match=text) as caught:
        cco.Client(socket_path=path, timeout_ms=500)
    assert caught.value.rank is None and caught.value.reason in str(caught.value)


def test_a_stopped_daemon_ends_calls_by_their_time(daemon):
    with cco.Client(timeout_ms=300) as client:
        daemon.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        try:
            with pytest.raises(cco.DeadlineExceeded):
                cco.Group(client, rank=0, size=1, name="g", timeout_ms=300)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert time.monotonic() - begun < 10


# ---- Groups ----


def test_group(ranks):
    def body(rank):
        client, group = form(rank)
        with client, group:
            assert (group.rank, group.size, group.lsa_rank, group.lsa_size, group.lsa_first) == (rank, 2, rank, 2, 0)
            assert group.device == rank and group.slab_count >= 1
            assert group.slot_bytes % (4 << 30) == 0 and group.flat_base != 0 and group.generation != 0
            group.check()
            group.barrier()
            group.agree()
            assert group.conditions() == cco.Condition(0)
            return group.group_id

    first, second = ranks(2, body)
    assert first == second


def test_a_problem_is_heard_by_all(ranks):
    def body(rank):
        client, group = form(rank)
        with client, group:
            with pytest.raises(cco.FailedPrecondition, match="rank 1 has no shoes") as caught:
                group.agree("rank 1 has no shoes" if rank == 1 else None)
            group.barrier()
            return caught.value.rank

    assert ranks(2, body) == [1, 1]


def test_unique_id(ranks):
    secret = cco.UniqueId.create()
    assert len(bytes(secret)) == 128 and secret != cco.UniqueId.create()
    assert pickle.loads(pickle.dumps(secret)) == secret == cco.UniqueId.from_bytes(bytes(secret))
    assert hash(secret) == hash(cco.UniqueId(bytes(secret)))
    assert ctypes.string_at(secret.ptr, 128) == bytes(secret)
    assert bytes(secret).hex() not in repr(secret)
    with pytest.raises(ValueError, match="128 bytes, not 3"):
        cco.UniqueId.from_bytes(b"abc")

    def body(rank):
        with cco.Client() as client, cco.Group(client, rank=rank, size=2, unique_id=secret) as group:
            group.barrier()

    ranks(2, body)


@pytest.mark.parametrize(("options", "kind", "text"), [
    ({"rank": 0, "size": 1}, cco.InvalidArgument, "neither name nor unique_id"),
    ({"rank": 0, "size": 1, "name": "g", "unique_id": cco.UniqueId(b"x" * 128)}, cco.InvalidArgument, "both name"),
    ({"rank": 2, "size": 2, "name": "g"}, cco.InvalidArgument, "rank 2 of 2"),
    ({"rank": 0, "size": 1025, "name": "g"}, cco.InvalidArgument, "1 to 1024"),
    ({"rank": -1, "size": 1, "name": "g"}, cco.InvalidArgument, "rank is -1"),
    ({"rank": 0, "size": 2**32, "name": "g"}, cco.InvalidArgument, "size is 4294967296"),
    ({"rank": 0, "name": "g"}, cco.InvalidArgument, "give both"),
    ({"rank": 0, "size": 1, "name": ""}, cco.InvalidArgument, "0 bytes"),
    ({"rank": 0, "size": 1, "name": "n" * 128}, cco.InvalidArgument, "128 bytes"),
    ({"rank": 0, "size": 1, "name": "a\0b"}, cco.InvalidArgument, "zero byte"),
    ({"rank": 0, "size": 1, "name": "g", "device": 7}, cco.NotFound, "no device 7"),
    ({"rank": 0, "size": 1, "name": "g", "gpu_uuid": "GPU-x"}, cco.NotFound, "GPU-x"),
    ({"rank": 0, "size": 1, "name": "g", "slot_bytes": 1}, cco.InvalidArgument, "multiple of 4 GiB"),
    ({"rank": 0, "size": 4, "name": "g", "lsa_size": 3}, cco.InvalidArgument, "divisor"),
    ({"rank": 0, "size": 1, "name": "g", "lease": "xyz"}, cco.InvalidArgument, "32 hex digits"),
    ({"rank": 0, "size": 1, "name": "g", "timeout_ms": 10**7}, cco.InvalidArgument, "one hour"),
    ({"name": "g"}, cco.NotFound, "launcher"),
])
def test_group_refuses(daemon, options, kind, text):
    with cco.Client() as client, pytest.raises(kind, match=text):
        cco.Group(client, **options)


def test_a_rank_that_never_comes_is_named(daemon):
    with cco.Client() as client, pytest.raises(cco.DeadlineExceeded) as caught:
        cco.Group(client, rank=0, size=2, name="g", timeout_ms=200)
    assert caught.value.rank == 1


def test_a_rank_that_is_there_twice(daemon):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g"):
        with pytest.raises(cco.AlreadyExists):
            cco.Group(client, rank=0, size=1, name="g", timeout_ms=2000)


def test_abort_reaches_all(ranks):
    def body(rank):
        client, group = form(rank)
        with client, group:
            if rank == 1:
                group.abort()
            with pytest.raises(cco.Aborted) as caught:
                group.barrier()
            with pytest.raises(cco.Aborted):
                group.check()
            return caught.value.rank

    assert ranks(2, body) == [1, 1]


def test_the_environment(daemon, monkeypatch):
    with pytest.raises(cco.NotFound):
        cco.environment()
    with pytest.raises(cco.NotFound):
        cco.Group.from_env()
    daemon.expect_nothing_left()
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1,
                        "TORCHELASTIC_RUN_ID": "run"}.items():
        monkeypatch.setenv(name, str(value))
    found = cco.environment()
    assert (found.rank, found.size, found.local_rank, found.local_size, found.launcher) == (0, 1, 0, 1, "torchrun")
    with cco.Group.from_env() as group:
        assert (group.rank, group.size) == (0, 1)
    daemon.expect_nothing_left()
    monkeypatch.setenv("RANK", "5")
    with pytest.raises(cco.InvalidArgument):
        cco.environment()


def test_from_env_between_processes(processes):
    script = """
import cco
with cco.Group.from_env() as group, cco.Window(group, "w", 8) as window:
    window.view(dtype="int64").numpy()[0] = 100 + group.rank
    group.barrier()
    print(*(window.view(rank, dtype="int64").numpy()[0] for rank in range(group.size)))
    group.barrier()
"""
    assert [one.out for one in processes(3, script)] == ["100 101 102\n"] * 3


def test_a_lost_rank_is_named_and_survivors_go_on(processes):
    script = """
import os, signal, cco
client = cco.Client()
group = cco.Group(client, timeout_ms=20000)
window = cco.Window(group, "w", 64)
window.view(dtype="uint8").numpy()[:] = group.rank + 1
group.barrier()
if group.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        group.barrier()
except cco.Aborted as error:
    assert error.rank == 1, error
survivors = group.shrink(20000)
assert group.closed and window.closed and survivors.size == 2
try:
    window.info()
    raise SystemExit("a window of a group that was shrunk still works")
except cco.FailedPrecondition:
    pass
again = cco.Window.open(survivors, "w")
assert again.info().is_found
print(*(again.view(rank).numpy()[0] for rank in range(2)))
survivors.barrier()
survivors.close()
client.close()
"""
    ended = processes(3, script, check=False)
    assert [one.code for one in ended] == [0, -signal.SIGKILL, 0], [one.err for one in ended]
    assert [ended[0].out, ended[2].out] == ["1 3\n"] * 2


def test_the_group_of_the_environment_is_shrunk_with_its_client(daemon, monkeypatch):
    for name in ("CCO_RANK", "CCO_LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    for name in ("CCO_SIZE", "CCO_LOCAL_SIZE"):
        monkeypatch.setenv(name, "1")
    group = cco.Group.from_env(name="g", socket_path=daemon.socket)
    survivors = group.shrink()
    assert group.closed and not survivors.closed
    survivors.barrier()
    survivors.close()
    daemon.expect_nothing_left()


def test_teams_smaller_than_the_group(ranks):
    def body(rank):
        client, group = form(rank, lsa_size=1)
        with client, group, cco.Window(group, "w", 64) as window:
            assert (group.lsa_rank, group.lsa_size, group.lsa_first) == (0, 1, rank)
            assert window.address(rank) == window.address()
            with pytest.raises(cco.OutOfRange, match=f"LSA team, {rank} to {rank}"):
                window.address(1 - rank)
            group.barrier()

    ranks(2, body)


def test_a_lease_gives_the_memory(daemon):
    told = daemon.ccoctl("lease", "create", "--bytes", "64MiB", "--ttl", "1h")
    lease = re.search(r"[0-9a-f]{32}", told).group()
    with cco.Client() as client:
        with cco.Group(client, rank=0, size=1, name="g", lease=lease, device=0) as group:
            cco.Window(group, "w", 1 << 20).close()
            with pytest.raises(cco.ResourceExhausted, match="lease"):
                cco.Window(group, "too much", 65 << 20)
        with pytest.raises(cco.NotFound, match="lease"):
            cco.Group(client, rank=0, size=1, name="g", lease="0" * 32)


def test_a_condition_is_seen_and_a_window_waits_for_memory(daemon):
    """Method  rank 0 of one group has most of device 0; another group waits for as much until that is given up."""
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="has", device=0) as has:
        cco.Window(has, "w", 200 << 20).close()
        pressed = threading.Event()

        def body(rank):
            if rank == 0:
                with cco.Group(client, rank=0, size=1, name="waits", device=0) as waits:
                    cco.Window(waits, "w", 200 << 20, wait_for_memory_ms=30_000).close()
                assert pressed.is_set(), "it did not wait"
            else:
                poll_until("no memory pressure is seen",
                           lambda: has.conditions() == cco.Condition.MEMORY_PRESSURE)
                pressed.set()
                has.close()  # A group keeps its slabs.

        run_threads(2, body)


# ---- Windows ----


def test_window(ranks):
    def body(rank):
        client, group = form(rank)
        with client, group, cco.Window(group, "w", 1000, alignment_bytes=4096) as window:
            info = window.info()
            assert (info.size_bytes, info.is_found, info.offset % 4096) == (1000, False, 0)
            device = window.device
            assert (device.size_bytes, device.lsa_rank, device.lsa_size) == (1000, rank, 2)
            stride = device.stride_4g << 32
            for peer in range(2):
                assert window.address(peer, 10) == device.win_base + peer * stride + 10
            assert window.address() == window.address(rank) == window.view().ptr
            assert ctypes.string_at(window.device_ptr, ctypes.sizeof(device)) == bytes(device)
            with pytest.raises(cco.OutOfRange, match="offset 1000"):
                window.address(0, 1000)
            for wrong in (2, -1):
                with pytest.raises(cco.OutOfRange, match="LSA team, 0 to 1"):
                    window.address(wrong)
            with pytest.raises(cco.InvalidArgument):
                window.address(0, -1)
            group.barrier()

    ranks(2, body)


def test_unnamed_windows_are_matched_by_order(ranks):
    def body(rank):
        client, group = form(rank)
        with client, group:
            windows = [cco.Window(group, None, 64) for _ in range(3)]
            assert len({window.info().offset for window in windows}) == 3
            offsets = [window.info().offset for window in windows]
            group.barrier()
            return offsets

    first, second = ranks(2, body)
    assert first == second


@pytest.mark.parametrize(("name", "size", "options", "kind", "text"), [
    ("w", 0, {}, cco.InvalidArgument, "size_bytes is 0"),
    ("w", -1, {}, cco.InvalidArgument, "size_bytes is -1"),
    ("w", 2**64, {}, cco.InvalidArgument, "size_bytes is 18446744073709551616"),
    ("w", 64, {"alignment_bytes": 3}, cco.InvalidArgument, "alignment"),
    ("w", 64, {"timeout_ms": -5}, cco.InvalidArgument, "timeout_ms is -5"),
    ("w", 1 << 29, {}, cco.ResourceExhausted, "GPU|HOST|bytes"),
    ("n" * 128, 64, {}, cco.InvalidArgument, "128 bytes"),
    (None, 64, {"keep_ms": 1000}, cco.InvalidArgument, "keep"),
])
def test_window_refuses(daemon, name, size, options, kind, text):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        with pytest.raises(kind, match=text):
            cco.Window(group, name, size, **options)
        cco.Window(group, "w", 64).close()  # Nothing was changed.


def test_ranks_that_disagree_are_told_who(ranks):
    def body(rank):
        client, group = form(rank)
        with client, group:
            with pytest.raises(cco.InvalidArgument) as caught:
                cco.Window(group, "w", 64 + rank)
            group.barrier()
            return caught.value.rank

    assert ranks(2, body) == [1, 1]


def test_a_name_is_there_once(daemon):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        with cco.Window(group, "w", 64):
            with pytest.raises(cco.AlreadyExists):
                cco.Window(group, "w", 64)
            with pytest.raises(cco.NotFound):
                cco.Window.open(group, "other")


def test_a_kept_window_is_found(daemon):
    for turn in range(2):
        with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
            with cco.Window(group, "w", 64, keep_ms=60_000) as window:
                values = window.view().numpy()
                assert window.info().is_found == bool(turn) and values[5] == 7 * turn
                values[5] = 7
                del values


def test_memory_of_ones_own_becomes_a_window(ranks):
    def body(rank):
        client, group = form(rank)
        with client, group, cco.Memory(client, 100_000, device=group.device) as memory:
            assert memory.size_bytes == 100_000 and memory.external.allocation_bytes >= 100_000
            memory.view(dtype="int32", offset=4096).numpy()[:10] = rank + 1
            part = memory.external._replace(allocation_offset=4096)
            with cco.Window.register(group, "w", 40, part) as window:
                group.barrier()
                peer = window.view(1 - rank, dtype="int32").numpy()
                assert (peer == 2 - rank).all()
                group.barrier()
                window.view(dtype="int32").numpy()[0] = 77
                assert memory.view(dtype="int32", offset=4096).numpy()[0] == 77, "it was copied"
                group.barrier()
                memory.close()  # The window goes on.
                assert window.view(1 - rank, dtype="int32").numpy()[0] == 77
                del peer
                group.barrier()

    ranks(2, body)


def test_memory_of_others_by_its_address(daemon):
    import mmap

    fd = os.memfd_create("other", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 1 << 20)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    mapping = mmap.mmap(fd, 1 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    mapping[70_000:70_005] = b"hello"
    with cco.Client() as client:
        with cco.Memory.at(client, address + 65_536, 8192) as memory:
            assert memory.ptr not in (address, address + 65_536)
            assert memory.external.allocation_offset == 65_536
            assert memory.view(offset=70_000 - 65_536, shape=5).numpy().tobytes() == b"hello"
        with pytest.raises(cco.InvalidArgument, match="one allocation"):
            cco.Memory.at(client, address, (1 << 20) + 1)
        private = ctypes.create_string_buffer(4096)
        with pytest.raises(cco.InvalidArgument, match="memfd"):
            cco.Memory.at(client, ctypes.addressof(private), 16)
    os.close(fd)


@pytest.mark.parametrize(("size", "device", "kind", "text"), [
    (0, 0, cco.InvalidArgument, "size_bytes is 0"),
    (64, 2, cco.NotFound, "no device 2"),
    (64, -1, cco.NotFound, "no device -1"),
    (-1, 0, cco.InvalidArgument, "size_bytes is -1"),
])
def test_memory_refuses(daemon, size, device, kind, text):
    with cco.Client() as client, pytest.raises(kind, match=text):
        cco.Memory(client, size, device=device)


def test_register_refuses_what_is_no_memory(daemon):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        for fd, text in ((9999, "fd 9999"), (-1, "fd -1")):
            with pytest.raises(cco.InvalidArgument, match=text):
                cco.Window.register(group, "w", 64, cco.ExternalMemory(fd, 65_536))
        read_end, write_end = os.pipe()
        with pytest.raises(cco.InvalidArgument, match="a pipe"):
            cco.Window.register(group, "w", 64, cco.ExternalMemory(read_end, 65_536))
        os.close(read_end)
        os.close(write_end)


# ---- Grants ----


def test_a_grant_reaches_its_tenant_alone(make_daemon):
    tenant = f'tenants {{ name: "us" uid: {os.getuid()} }}\ntenants {{ name: "them" uid: 65000 }}'
    make_daemon(tenant)
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        with cco.Window(group, "w", 64, keep_ms=1) as window:
            window.view().numpy()[3] = 9
            token = window.grant("us", cco.ACCESS_READ_WRITE)
            assert len(token) == 16
            with cco.Attachment(client, token) as attachment:
                assert (attachment.size_bytes, attachment.rank_count) == (64, 1)
                assert (attachment.access, attachment.is_enforced) == (cco.ACCESS_READ_WRITE, True)
                attachment.view(0).numpy()[4] = 8
                assert attachment.address(0, 4) == attachment.view(0).ptr + 4
                assert list(window.view().numpy()[3:5]) == [9, 8]
                for rank, offset in ((1, 0), (0, 64)):
                    with pytest.raises(cco.OutOfRange):
                        attachment.address(rank, offset)
            reading = window.grant("us")
            with cco.Attachment(client, reading) as attachment:
                view = attachment.view(0)
                assert view.read_only and not view.numpy().flags.writeable and view.numpy()[3] == 9
            window.revoke(reading)
            with pytest.raises(cco.NotFound):
                window.revoke(reading)
            for void in (reading, window.grant("them"), b"x" * 16):
                with pytest.raises(cco.NotFound):
                    cco.Attachment(client, void)
            with pytest.raises(cco.InvalidArgument, match="16 bytes, not 3"):
                cco.Attachment(client, b"abc")
            with pytest.raises(cco.InvalidArgument, match="access is 3"):
                window.grant("us", 3)
            with pytest.raises(cco.NotFound, match="no device 9"):
                cco.Attachment(client, token, device=9)


# ---- Communicators ----


def test_comm(ranks):
    def body(rank):
        client, group = form(rank)
        with client, group, cco.Comm(group, signal_count=3, barrier_count=2) as comm:
            device = comm.device
            assert (device.rank, device.world_size, device.signal_count, device.barrier_count) == (rank, 2, 3, 2)
            assert device.transports == cco.TRANSPORT_LSA | cco.TRANSPORT_TDM
            assert ctypes.string_at(comm.device_ptr, ctypes.sizeof(device)) == bytes(device)
            comm.check()
            with cco.Comm(group, transports=cco.TRANSPORT_SDMA | cco.TRANSPORT_GDA, gda_signal_count=1,
                          world_barrier_count=1) as more:
                assert more.device.sdma and more.device.gda
                assert more.device_ptr != comm.device_ptr
                held = ctypes.string_at(more.device_ptr, ctypes.sizeof(device))
                assert held == bytes(more.device)
            group.barrier()

    ranks(2, body)


@pytest.mark.parametrize(("options", "kind", "text"), [
    ({"signal_count": 65537}, cco.InvalidArgument, "65536"),
    ({"barrier_count": 4097}, cco.InvalidArgument, "4096"),
    ({"signal_count": -1}, cco.InvalidArgument, "signal_count is -1"),
    ({"transports": 0x100}, cco.InvalidArgument, "transports is 0x100"),
    ({"world_barrier_count": 1}, cco.InvalidArgument, "GDA"),
    ({"transports": cco.TRANSPORT_SDMA, "sdma_provider": "none-such"}, cco.InvalidArgument, "none-such"),
    ({"transports": cco.TRANSPORT_SDMA, "sdma_provider": "user-queue"}, cco.FailedPrecondition, "user queues"),
])
def test_comm_refuses(daemon, options, kind, text):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        with pytest.raises(kind, match=text):
            cco.Comm(group, **options)


# ---- Threads ----


def test_calls_release_the_interpreter(ranks):
    """Goal    a rank that waits keeps nobody from working.
    Method  rank 0 enters a barrier that rank 1 enters only after it has seen rank 0's thread blocked."""
    entered = threading.Event()

    def body(rank):
        client, group = form(rank)
        with client, group:
            if rank == 0:
                entered.set()
                group.barrier()
            else:
                entered.wait(20)
                sum(range(100_000))  # Needs the interpreter while rank 0 waits in C.
                group.barrier()

    ranks(2, body)


def test_many_threads_of_one_rank(daemon):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        def body(number):
            for turn in range(20):
                with cco.Window(group, f"w{number}", 256) as window:
                    window.view().numpy()[:] = number
                    assert (window.view().numpy() == number).all()
                with pytest.raises(cco.NotFound, match=f"no device {100 + number}"):
                    client.gpu(100 + number)  # The text is this thread's own.

        run_threads(8, body)


def test_errors_travel():
    error = cco.DeadlineExceeded(cco.Status.DEADLINE_EXCEEDED, "rank 3 is late", 3)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, again.reason, again.rank, str(again)) == (
        cco.DeadlineExceeded, error.code, error.reason, 3, "DEADLINE_EXCEEDED: rank 3 is late")
    assert isinstance(error, RuntimeError)
    from cco.errors import error_of

    for status in cco.Status:
        if status != cco.Status.OK:
            assert error_of(status, "x").code == status
    assert error_of(99, "x").code == cco.Status.UNKNOWN
