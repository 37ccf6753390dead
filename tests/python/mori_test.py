"""Goal    programs for MORI's Python API run with no edit: its names, properties, defaults and errors.
Method  each name of its API, with ranks as threads and as processes; what a program of it does, under the alias."""

import ctypes
import importlib.util
import inspect
import pickle
import sys

import pytest

import cco
import mori.cco
import mori.cco.cco as low
import mori.cco.device
from cco import device
from conftest import BUILD, run_processes, run_threads
from mori.cco.device import ops

numpy = pytest.importorskip("numpy")
MiB = 1 << 20


def communicators(body, count=2, **options):
    """Runs `body(communicator)` on a thread for each rank."""
    secret = mori.cco.Communicator.get_unique_id()

    def one(rank):
        with mori.cco.Communicator.init(count, rank, secret, **options) as comm:
            result = body(comm)
            comm.barrier()
            return result

    return run_threads(count, one)


def bytes_at(address, count):
    return (ctypes.c_ubyte * count).from_address(address)


LOW = ("UniqueId Comm DevCommRequirements DevComm get_unique_id comm_create comm_destroy mem_alloc mem_import mem_free "
       "window_register window_register_ptr window_register_external window_deregister dev_comm_create "
       "dev_comm_destroy barrier_all")
CONNECTIONS = "GDA_CONNECTION_NONE GDA_CONNECTION_FULL GDA_CONNECTION_CROSSNODE GDA_CONNECTION_RAIL"
CORE = (f"Communicator CCODevCommRequirements UniqueId get_unique_id CCOResource AllocatedMemory RegisteredWindow "
        f"ImportedWindow DevCommHandle {CONNECTIONS}")
HIGH = f"{CORE} AllocatedWindow"
BITCODE = "find_cco_bitcode get_bitcode_path"
ENUMERATIONS = "CoopScope SignalOp ThreadMode SdmaOptFlags"
NAMESPACES = "DevComm Window Gda Sdma"
# Each module of MORI's, its names, and the package that it is for. Functions of the Triton module: see triton_test.py.
MODULES = [
    ("mori.cco", f"{HIGH} {LOW}", "cco"),
    ("mori.cco.cco", f"{LOW} {CONNECTIONS}", "cco"),
    ("mori.cco.device", f"{BITCODE} CCO_DEVICE_FUNCTIONS {ENUMERATIONS}", "cco"),
    ("mori.cco.device.bitcode", BITCODE, "cco"),
    ("mori.cco.device.ops", f"CCO_DEVICE_FUNCTIONS CCO_DEVICE_FUNCTIONS_BY_SYMBOL {ENUMERATIONS}", "cco"),
    ("mori.cco.device.flydsl", f"{NAMESPACES} {ENUMERATIONS} {BITCODE}", "flydsl"),
    ("mori.ir.triton.cco", f"{NAMESPACES} {ENUMERATIONS} get_extern_libs get_cco_extern_libs", "triton"),
    ("mori.allocator", "SYMM_BACKEND_NAME register_symm_backend handle_type signal_pad_supported window_handle "
     "dev_comm", "torch"),
]


@pytest.mark.parametrize("module, names, package", MODULES, ids=[module for module, *_ in MODULES])
def test_names(module, names, package):
    """In a process of its own: what one of them imports must not be what makes another one work."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"no {package}")
    program = f"import {module} as m\nprint([n for n in {names.split()} if n not in m.__all__ or not hasattr(m, n)])"
    (ended,) = run_processes(1, program, timeout_s=100, XDG_CACHE_HOME=str(BUILD / "python-cache"))
    assert ended.out.strip() == "[]", f"{module} lacks {ended.out}"


def test_values_and_signatures():
    assert set(CORE.split()) <= set(cco.__all__)
    assert (mori.cco.GDA_CONNECTION_NONE, mori.cco.GDA_CONNECTION_FULL, mori.cco.GDA_CONNECTION_CROSSNODE,
            mori.cco.GDA_CONNECTION_RAIL) == (0, 1, 2, 3)
    assert list(inspect.signature(mori.cco.Communicator.init).parameters) == [
        "nranks", "rank", "unique_id", "per_rank_vmm"]
    assert mori.cco.Communicator.DEFAULT_PER_RANK_VMM == 4 << 30


def test_device_functions():
    """The 67 symbols that MORI has, as device_table_test.py compares them with MORI's list, and the fence."""
    table = ops.CCO_DEVICE_FUNCTIONS
    rows = {symbol.name: symbol for symbol in device.symbols()}
    assert len(table) == 68 == len(ops.CCO_DEVICE_FUNCTIONS_BY_SYMBOL)
    assert {entry["symbol"] for entry in table.values()} == {"cco_system_fence"} | {
        symbol.name for symbol in rows.values() if symbol.operation.of_mori}
    for name, entry in table.items():
        assert entry["symbol"].replace("__", "_") == f"cco_{name}"
        types = {"uint64": "u64", "int32": "int", "void": "void"}
        assert rows[entry["symbol"]].prototype == (
            f"{types[entry['ret']]} {entry['symbol']}({', '.join(types[arg] for arg in entry['args'])})")
    for name in ("devcomm_lsa_rank", "lsa_ptr", "gda_put_iw_inc", "gda_put_value_at_none", "gda_wait_signal_warp",
                 "sdma_put_thread", "sdma_get_block_ns", "sdma_quiet_queue", "gda_flush_peer_block", "system_fence"):
        assert name in table
    assert {name for name, entry in table.items() if entry["pure"]} == {
        "lsa_ptr", "devcomm_rank", "devcomm_world_size", "devcomm_lsa_rank", "devcomm_lsa_size"}


@pytest.mark.parametrize("find", ["find_cco_bitcode", "get_bitcode_path"])
def test_bitcode_is_found_without_a_kernel_language(find, tmp_path, monkeypatch):
    """As where neither FlyDSL nor Triton is installed. 5 is Triton's code object version, 6 FlyDSL's."""
    for name in ("flydsl", "triton"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("FLYDSL_GPU_ARCH", "ARCH", "MORI_CCO_BC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CCO_BITCODE_DIR", str(tmp_path))
    search = getattr(mori.cco.device, find)
    monkeypatch.setenv("FLYDSL_GPU_ARCH", "gfx950:sramecc+")
    (tmp_path / "cco_gfx950.bc").write_bytes(b"BC")
    assert search() == search(6) == search(cov=5) == str(tmp_path / "cco_gfx950.bc")
    with pytest.raises(ValueError, match="code object version 4.*5, Triton's, and 6, FlyDSL's"):
        search(cov=4)
    monkeypatch.setenv("MORI_CCO_BC", str(tmp_path / "cco_gfx950.bc"))
    monkeypatch.setenv("FLYDSL_GPU_ARCH", "gfx1")
    assert search(5) == str(tmp_path / "cco_gfx950.bc")
    monkeypatch.delenv("MORI_CCO_BC")
    with pytest.raises(ValueError, match="gfx1"):
        search()


def test_bitcode_for_no_gpu_says_what_to_do(daemon, monkeypatch):
    for name in ("FLYDSL_GPU_ARCH", "ARCH", "MORI_CCO_BC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(FileNotFoundError, match='triton: .*daemon: .*driver "host".*Set FLYDSL_GPU_ARCH'):
        mori.cco.device.find_cco_bitcode(cov=5)
    monkeypatch.setenv("CCO_SOCKET", "/nonexistent")
    with pytest.raises(FileNotFoundError, match="daemon: .*/nonexistent"):
        mori.cco.device.find_cco_bitcode(cov=5)


def test_requirements_have_moris_defaults():
    wanted = mori.cco.CCODevCommRequirements()
    assert {key: getattr(wanted, key) for key in wanted.__slots__ if key != "signal_count"} == {
        "gda_connection_type": 2, "gda_context_count": 4, "gda_signal_count": 16, "gda_counter_count": 16,
        "gda_queue_depth": 0, "gda_traffic_class": -1, "lsa_barrier_count": 0, "rail_gda_barrier_count": 0,
        "sdma_queue_count": 0, "barrier_count": 0}


def test_unique_ids():
    secret = mori.cco.get_unique_id()
    assert pickle.loads(pickle.dumps(secret)) == secret and len(bytes(secret)) == 128 and secret.ptr
    assert mori.cco.UniqueId.from_bytes(bytes(secret)) == secret
    lower = low.UniqueId.frombytes(low.UniqueId.create().tobytes())
    assert len(lower.tobytes()) == 128
    # Whichever way an id is got, it has the names of both levels, also behind pickle.
    for made in (secret, lower, mori.cco.Communicator.get_unique_id(), mori.cco.UniqueId.create(), secret.ptr,
                 pickle.loads(pickle.dumps(secret)), low.UniqueId.frombytes(secret.tobytes()),
                 mori.cco.UniqueId.from_bytes(bytearray(128))):
        assert mori.cco.UniqueId.from_bytes(made.tobytes()) == made and made.ptr == made
    with pytest.raises(ValueError):
        low.UniqueId.frombytes(b"short")


def test_what_a_program_does(daemon):
    """Memory, its window, a device communicator; each rank writes into its peer and looks at its own."""
    def body(comm):
        assert (comm.nranks, comm.is_valid) == (2, True) and comm.ptr
        memory = comm.alloc_mem(MiB)
        assert memory.size == MiB and memory.ptr and memory.is_valid
        window = comm.register_window(memory.ptr, memory.size)
        assert (window.size, window.local_ptr) == (MiB, memory.ptr)
        wanted = mori.cco.CCODevCommRequirements()
        wanted.gda_connection_type = mori.cco.GDA_CONNECTION_NONE
        wanted.lsa_barrier_count = 1
        dev_comm = comm.create_dev_comm(wanted)
        assert (dev_comm.rank, dev_comm.world_size) == (dev_comm.lsa_rank, dev_comm.lsa_size) == (comm.rank, 2)
        assert dev_comm.per_rank_size == 4 << 30 and dev_comm.flat_base
        on_device = cco.DeviceComm.from_address(dev_comm.ptr)
        assert (on_device.rank, on_device.barrier_count) == (comm.rank, 1)
        descriptor = cco.WindowDevice.from_address(window.handle)
        assert descriptor.size_bytes == MiB and descriptor.lsa_rank == comm.rank
        peer = descriptor.win_base + (1 - comm.rank) * (descriptor.stride_4g << 32)
        bytes_at(peer, MiB)[5] = 10 + comm.rank
        comm.barrier()
        assert bytes_at(memory.ptr, MiB)[5] == 10 + 1 - comm.rank
        comm.barrier()
        for resource in (dev_comm, window, memory):
            resource.close()
            resource.close()
            assert not resource.is_valid
        with pytest.raises(RuntimeError, match="closed"):
            memory.ptr
        with pytest.raises(RuntimeError, match="closed"):
            window.handle

    communicators(body)
    daemon.expect_nothing_left()


@pytest.mark.parametrize("given", [lambda secret: secret, lambda secret: secret.ptr], ids=["id", "ptr"])
def test_a_low_level_program_with_an_id_of_the_high_level(daemon, given):
    comm = low.comm_create(given(mori.cco.get_unique_id()), 1, 0, 0)
    low.comm_destroy(comm)


def test_an_allocated_window_ends_with_its_memory(daemon):
    def body(comm):
        window = comm.alloc_window(4096)
        assert isinstance(window, mori.cco.AllocatedWindow) and window.size == 4096 and window.handle
        descriptor = cco.WindowDevice.from_address(window.handle)
        bytes_at(descriptor.win_base + (1 - comm.rank) * (descriptor.stride_4g << 32), 4096)[7] = 1 + comm.rank
        comm.barrier()
        assert bytes_at(window.local_ptr, 4096)[7] == 2 - comm.rank
        comm.barrier()
        window.close()
        window.close()
        assert not window.is_valid and comm._tracked() == []
        comm.barrier()
        with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED" if comm.rank == 0 else "rank 0"):
            comm.alloc_window(1 << 60 if comm.rank == 0 else 4096)
        assert comm._tracked() == []

    communicators(body)
    daemon.expect_nothing_left()


def test_the_default_requirements_make_a_communicator(daemon):
    def body(comm):
        with comm.create_dev_comm() as dev_comm:
            assert cco.DeviceComm.from_address(dev_comm.ptr).world_size == 2

    communicators(body)


def test_requirements_reach_the_communicator(daemon):
    def body(comm):
        wanted = mori.cco.CCODevCommRequirements()
        wanted.gda_connection_type = mori.cco.GDA_CONNECTION_FULL
        wanted.gda_signal_count, wanted.gda_counter_count, wanted.gda_context_count = 5, 6, 2
        wanted.barrier_count, wanted.lsa_barrier_count, wanted.signal_count = 2, 3, 7
        device = comm.create_dev_comm(wanted).comm.device
        assert device.gda and (device.barrier_count, device.signal_count) == (3 + 2, 7)
        words = (ctypes.c_uint32 * 14).from_address(device.gda)
        assert (words[2], words[3], words[5], words[7], words[10]) == (1, 2, 5, 6, 2)

    communicators(body)


def test_memory_of_others(daemon):
    """Each rank's window is of memory that another library made, from inside it; local_ptr is a second address."""
    def body(comm):
        with cco.Client() as other, cco.Memory(other, MiB, device=comm.rank) as foreign:
            address = foreign.ptr + 65_536
            window = comm.register_external_window(address, 4096)
            assert window.ext_ptr == address and window.local_ptr != address and window.size == 4096
            assert window.handle
            bytes_at(address, 4096)[9] = 40 + comm.rank
            comm.barrier()
            assert bytes_at(window.local_ptr, 4096)[9] == 40 + comm.rank
            assert window.window.view(1 - comm.rank).numpy()[9] == 40 + 1 - comm.rank
            comm.barrier()
        assert bytes_at(window.local_ptr, 4096)[9] == 40 + comm.rank, "the window keeps it"

    communicators(body)


def test_a_rank_that_is_wrong_is_told_and_the_others_hear_it(daemon):
    def body(comm):
        memory = comm.alloc_mem(4096)
        wrong = mori.cco.CCODevCommRequirements()
        wrong.gda_context_count = -1
        calls = [(lambda good: comm.register_window(memory.ptr + (0 if good else 1), 4096), "no live alloc_mem"),
                 (lambda good: comm.register_window(memory.ptr, 4096 if good else 8192), "8192 bytes"),
                 (lambda good: comm.create_dev_comm(None if good else wrong), "gda_context_count is -1"),
                 (lambda good: comm.register_external_window(memory.ptr if good else 16, 64), "0x10|not a shared")]
        for call, text in calls:
            with pytest.raises(cco.Error, match=text) as caught:
                call(comm.rank == 0)
            if comm.rank == 0:
                assert caught.value.rank == 1
            else:
                assert isinstance(caught.value, cco.InvalidArgument)
        assert comm.register_window(memory.ptr, 4096).size == 4096  # All is well afterwards.

    communicators(body)


def test_zero_bytes_and_freed_memory(daemon):
    def body(comm):
        empty = comm.alloc_mem(0)
        assert (empty.ptr, empty.size) == (0, 0)
        memory = comm.alloc_mem(4096)
        address = memory.ptr
        window = comm.register_window(address, 4096)
        memory.close()  # MORI's wrong order harms nobody.
        window.window.view().numpy()[:] = 3
        comm.barrier()
        assert window.window.view(1 - comm.rank).numpy()[0] == 3
        with pytest.raises(cco.Error):
            comm.register_window(address, 4096)

    communicators(body)


def test_a_destroyed_communicator_says_so(daemon):
    comm = mori.cco.Communicator.init(1, 0, mori.cco.get_unique_id())
    memory = comm.alloc_mem(64)
    window = comm.register_window(memory.ptr, 64)
    comm.close_all_resources()
    assert not memory.is_valid and not window.is_valid and comm.is_valid
    memory = comm.alloc_mem(64)
    for _ in range(2):
        comm.destroy()
        assert not comm.is_valid and not memory.is_valid
    for call in (lambda: comm.rank, lambda: comm.nranks, lambda: comm.ptr, comm.barrier, lambda: comm.alloc_mem(1),
                 lambda: comm.register_window(1, 1), lambda: comm.register_external_window(1, 1), comm.create_dev_comm,
                 comm.__enter__):
        with pytest.raises(RuntimeError, match="Cannot .*: Communicator has been destroyed"):
            call()
    daemon.expect_nothing_left()


@pytest.mark.parametrize(("nranks", "rank", "vmm", "text"), [
    (0, 0, 0, "rank 0 of 0"), (2, 2, 0, "rank 2 of 2"), (1, -1, 0, "rank is -1"), (1, 0, 2**64, "per_rank_vmm")])
def test_init_refuses(daemon, nranks, rank, vmm, text):
    with pytest.raises(cco.InvalidArgument, match=text):
        mori.cco.Communicator.init(nranks, rank, mori.cco.get_unique_id(), vmm)
    daemon.expect_nothing_left()


def test_the_low_level_module(daemon):
    secret = low.get_unique_id()

    def body(rank):
        comm = low.comm_create(secret, 2, rank, 0)
        assert comm.ptr
        made, local = low.window_register(comm, 4096)
        bytes_at(local, 4096)[0] = 50 + rank
        address = low.mem_alloc(comm, 8192)
        window = low.window_register_ptr(comm, address, 8192)
        second = low.mem_import(comm, address, 64)
        assert second not in (0, address)
        bytes_at(second, 64)[1] = 60 + rank
        assert bytes_at(address, 64)[1] == 60 + rank
        external, alias = low.window_register_external(comm, address, 4096)
        assert alias not in (address, second) and bytes_at(alias, 64)[1] == 60 + rank
        low.barrier_all(comm)
        descriptor = cco.WindowDevice.from_address(made)
        peer = descriptor.win_base + (1 - rank) * (descriptor.stride_4g << 32)
        assert bytes_at(peer, 1)[0] == 50 + 1 - rank
        low.barrier_all(comm)
        dev_comm = low.dev_comm_create(comm, low.DevCommRequirements())
        assert (dev_comm.rank, dev_comm.world_size, dev_comm.my_node_start, dev_comm.gda_conn_type) == (rank, 2, 0, 2)
        size = ctypes.sizeof(cco.DeviceComm)
        assert ctypes.string_at(dev_comm.ptr, size) == ctypes.string_at(dev_comm.host_ptr, size)
        low.dev_comm_destroy(comm, dev_comm)
        for one in (external, window, made):
            low.window_deregister(comm, one)
        with pytest.raises(RuntimeError, match="no window"):
            low.window_deregister(comm, made)
        for one in (second, address, local, 0):
            low.mem_free(comm, one)
        with pytest.raises(RuntimeError, match="no memory"):
            low.mem_free(comm, address)
        assert low.mem_alloc(comm, 0) == 0
        low.barrier_all(comm)
        for _ in range(2):
            low.comm_destroy(comm)

    run_threads(2, body)
    daemon.expect_nothing_left()
