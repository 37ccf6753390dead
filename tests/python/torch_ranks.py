"""One rank of a test in torch_test.py: `torch_ranks.py SCENARIO FOLDER`, rank and size from CCO_RANK and CCO_SIZE."""

import ctypes
import faulthandler
import gc
import os
import random
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch._C._distributed_c10d import _SymmetricMemory

import cco
import cco.torch

RANK, SIZE = int(os.environ["CCO_RANK"]), int(os.environ["CCO_SIZE"])
CPU = torch.device("cpu")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)


def meet(folder, turn=0):
    """A store of all ranks, another for each `turn`."""
    patience = timedelta(seconds=60)
    meeting = dist.FileStore(f"{folder}/port{turn}", SIZE)
    if RANK == 0:
        store = dist.TCPStore("127.0.0.1", 0, SIZE, True, patience, wait_for_workers=False)
        meeting.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(meeting.get("port")), SIZE, False, patience)
    return store


def begin(folder, turn=0):
    """The default process group, anew for each `turn`."""
    dist.init_process_group("gloo", store=meet(folder, turn), rank=RANK, world_size=SIZE)
    return dist.group.WORLD


def refused(function, *parts):
    """Calls it: it has to raise, with all of `parts` in the text."""
    try:
        function()
    except (RuntimeError, TypeError, ValueError) as error:
        missing = [part for part in parts if part not in str(error)]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"not refused; expected {parts}")


def bytes_at(address, count):
    return bytes((ctypes.c_ubyte * count).from_address(address))


def check_pads(handle):
    """All signals have been taken, on every rank: looked at while nobody signals."""
    dist.barrier()
    assert not any(handle.get_signal_pad(peer).any() for peer in range(handle.world_size))
    dist.barrier()


def check_copies(handle, tensor, group):
    """Each rank writes its global rank; everybody reads everybody's copy, in the group's order."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    assert (handle.rank, handle.world_size) == (rank, size)
    tensor.fill_(RANK + 1)
    handle.barrier()
    for peer in range(size):
        theirs = handle.get_buffer(peer, tensor.shape, tensor.dtype)
        assert theirs.unique().tolist() == [dist.get_global_rank(group, peer) + 1], (peer, theirs)
    handle.barrier()


def basics(folder):
    group = begin(folder)
    assert symm_mem.get_backend(CPU) == "CCO"
    tensor = symm_mem.empty(1000, dtype=torch.int32, device="cpu")
    handle = symm_mem.rendezvous(tensor, group)
    check_copies(handle, tensor, group)
    assert handle.buffer_ptrs[RANK] == tensor.data_ptr() and handle.buffer_size == tensor.nbytes
    table = ctypes.c_uint64 * SIZE
    assert list(table.from_address(handle.buffer_ptrs_dev)) == handle.buffer_ptrs
    assert list(table.from_address(handle.signal_pad_ptrs_dev)) == handle.signal_pad_ptrs
    assert handle.signal_pad_size >= 1024
    assert not _SymmetricMemory.has_multicast_support(torch._C._autograd.DeviceType.CPU, 0)
    assert handle.multicast_ptr == 0
    pad = handle.get_signal_pad(0)
    assert pad.numel() * pad.element_size() == handle.signal_pad_size
    check_pads(handle)
    # A second rendezvous is the same memory, and a view of the tensor has the same peers.
    assert symm_mem.rendezvous(tensor, group).buffer_ptrs == handle.buffer_ptrs
    assert symm_mem.rendezvous(tensor[10:20], group).buffer_ptrs == handle.buffer_ptrs
    empty = symm_mem.empty(0, device="cpu")
    assert symm_mem.rendezvous(empty, group).world_size == SIZE
    named = _SymmetricMemory.empty_strided_p2p((8,), (1,), torch.float32, CPU, group.group_name)
    assert _SymmetricMemory.rendezvous(named).world_size == SIZE

    # A ring of signals, each after its bytes; then barriers on two channels, each with its own bytes.
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for turn in range(50):
        handle.get_buffer(right, (1,), torch.int32, 3).fill_(turn * SIZE + RANK)
        handle.put_signal(right, channel=1)
        handle.wait_signal(left, channel=1)
        assert tensor[3].item() == turn * SIZE + left
        handle.barrier(channel=turn % 2 * 2)
    check_pads(handle)

    # In cco's own words: the same bytes lie in a window at one offset.
    place = cco.torch.window(tensor, group)
    assert place.size_bytes == tensor.nbytes
    view = cco.torch.window(tensor[10:20], group)
    assert (view.offset, view.size_bytes) == (place.offset + 40, tensor.nbytes - 40)
    tensor.fill_(RANK + 7)
    handle.barrier()
    address = ctypes.c_void_p()
    library = ctypes.CDLL(cco.library_path())
    for peer in range(SIZE):
        code = library.cco_window_get_address(ctypes.c_void_p(place.handle), ctypes.c_uint32(peer),
                                              ctypes.c_uint64(place.offset), ctypes.byref(address))
        assert code == 0 and bytes_at(address.value, 4) == (peer + 7).to_bytes(4, "little")
    assert cco.torch.window_handle(tensor, group) == place.device_ptr != 0
    assert cco.torch.dev_comm(tensor, group) == place.comm_ptr != 0
    handle.barrier()
    dist.destroy_process_group()


def groups(folder):
    """Subgroups before WORLD, in any order; a group whose order is not the ranks'."""
    world = begin(folder)
    low, high = dist.new_group([0, 1]), dist.new_group([1, 2])
    kept = []
    order = {0: [low, world], 1: [low, high, world], 2: [high, world]}[RANK]
    for group in order + order:
        tensor = symm_mem.empty(16, dtype=torch.int64, device="cpu")
        handle = symm_mem.rendezvous(tensor, group)
        check_copies(handle, tensor, group)
        kept.append((tensor, handle))
    # One tensor in two groups.
    shared = symm_mem.empty(16, dtype=torch.int64, device="cpu")
    check_copies(symm_mem.rendezvous(shared, world), shared, world)
    if RANK < 2:
        check_copies(symm_mem.rendezvous(shared, low), shared, low)
    # Last rank first: peer index 0 is global rank 2.
    store = dist.PrefixStore("turned", dist.distributed_c10d._get_default_store())
    _SymmetricMemory.set_group_info("turned", SIZE - 1 - RANK, SIZE, store)
    turned = symm_mem.empty(16, dtype=torch.int64, device="cpu")
    handle = _SymmetricMemory.rendezvous(turned, "turned")  # Some releases take process groups only above this.
    turned.fill_(RANK)
    handle.barrier()
    found = [handle.get_buffer(peer, (1,), torch.int64).item() for peer in range(SIZE)]
    assert found == [2, 1, 0] and handle.rank == SIZE - 1 - RANK, found
    handle.barrier()
    dist.barrier()
    dist.destroy_process_group()


def histories(folder):
    """Ranks that have used different amounts of memory before: tensors meet all the same."""
    group = begin(folder)
    random.seed(RANK)
    odd = [symm_mem.empty(random.randrange(1, 5000), device="cpu") for _ in range(random.randrange(3, 40))]
    if RANK == 1:
        odd.append(symm_mem.empty(70 << 20, dtype=torch.uint8, device="cpu"))  # A chunk of its own.
    live = []
    for turn in range(15):
        random.seed(turn)
        count = random.choice([1, 100, 4096, 1 << 16, 5 << 20])
        tensor = symm_mem.empty(count, dtype=torch.int32, device="cpu")
        handle = symm_mem.rendezvous(tensor, group)
        assert cco.torch.window(tensor, group).offset % 256 == 0
        check_copies(handle, tensor, group)
        live.append((tensor, handle))
        if len(live) > 5:
            live.pop(random.randrange(len(live)))
        random.seed(turn * SIZE + RANK)
        for _ in range(random.randrange(3)):  # Not the same on each rank.
            odd.append(symm_mem.empty(random.randrange(1, 100000), device="cpu"))
        if len(odd) > 2:
            odd.pop(random.randrange(len(odd)))
    dist.barrier()
    for tensor, handle in live:
        check_copies(handle, tensor, group)
    dist.destroy_process_group()


def errors(folder):
    group = begin(folder)
    tensor = symm_mem.empty(64, dtype=torch.uint8, device="cpu")
    handle = symm_mem.rendezvous(tensor, group)
    other = symm_mem.empty(64 + RANK, dtype=torch.uint8, device="cpu")
    refused(lambda: symm_mem.rendezvous(other, group), "rank 1 of group", "65 bytes", "rank 0 one of 64")
    refused(lambda: _SymmetricMemory.rendezvous(torch.empty(4), group.group_name), "not memory of this back-end")
    refused(lambda: cco.torch.window(tensor, "no such group"), "no such group")
    channels = handle.signal_pad_size // 4 // SIZE
    for channel in (-1, channels, channels * SIZE, 2**31 - 1):
        refused(lambda: handle.barrier(channel=channel), f"channel {channel}", f"0 to {channels - 1}")
    refused(lambda: handle.put_signal(SIZE), f"no rank {SIZE}")
    refused(lambda: handle.wait_signal(-1), "no rank -1")
    handle.barrier(channel=channels - 1)
    if hasattr(symm_mem, "set_signal_pad_size"):
        usual = symm_mem.get_signal_pad_size()
        symm_mem.set_signal_pad_size(4)
        narrow = symm_mem.rendezvous(symm_mem.empty(64, device="cpu"), group)
        symm_mem.set_signal_pad_size(usual)
        refused(narrow.barrier, "4 bytes has none for a group of 2", "set_signal_pad_size()")
    began = time.monotonic()
    refused(lambda: handle.wait_signal((RANK + 1) % SIZE, timeout_ms=300), "no signal within 300 ms")
    check_others_run(lambda: handle.wait_signal((RANK + 1) % SIZE, timeout_ms=300))
    handle.put_signal((RANK + 1) % SIZE, channel=3)
    refused(lambda: handle.put_signal((RANK + 1) % SIZE, channel=3, timeout_ms=300), "has not been waited for")
    assert 0.6 <= time.monotonic() - began < 20
    dist.barrier()  # Nobody waits for the first signal before the second has been refused.
    # Still of use after all that.
    handle.wait_signal((RANK - 1) % SIZE, channel=3)
    check_copies(handle, tensor, group)
    dist.destroy_process_group()


def check_others_run(wait):
    """Other threads of Python go on while one waits."""
    over, turns = threading.Event(), []

    def count():
        while not over.wait(0.005):
            turns.append(1)

    thread = threading.Thread(target=count)
    thread.start()
    refused(wait, "no signal")
    seen = len(turns)
    over.set()
    thread.join()
    assert seen > 5, f"another thread had {seen} turns in 300 ms"


def absent(folder):
    """A rank that never comes is named; one that dies ends the others' waits."""
    group = begin(folder)
    if RANK == 0:
        late = symm_mem.empty(64, device="cpu")
        store = dist.distributed_c10d._get_default_store()
        usual = store.timeout
        store.set_timeout(timedelta(seconds=2))  # For this one: what follows may be slow on a busy machine.
        refused(lambda: symm_mem.rendezvous(late, group), "these ranks have not come: 1")
        store.set_timeout(usual)
    dist.barrier()
    own = dist.new_group([0, 1])
    tensor = symm_mem.empty(64, device="cpu")
    handle = symm_mem.rendezvous(tensor, own)
    if RANK == 1:
        os._exit(0)
    refused(lambda: handle.barrier(timeout_ms=60000), "rank 1")
    refused(lambda: handle.barrier(), "ABORTED")
    assert tensor.fill_(1).sum().item() == 64  # Its memory stays.


def teardown(folder):
    """Any order of ends, twice; counts go back; nothing crashes at exit with everything alive."""
    orders = ["tensor first", "handle first", "group first", "peer keeps", "never met"]
    for turn, order in enumerate(orders + orders):
        group = begin(folder, turn)
        tensor = symm_mem.empty(40 << 20, dtype=torch.uint8, device="cpu")  # A chunk of its own.
        small = symm_mem.empty(8, device="cpu")
        handle = symm_mem.rendezvous(small, group)
        if order != "never met":
            handle = symm_mem.rendezvous(tensor, group)
            handle.barrier()
        if order == "tensor first":
            del tensor
            assert handle.get_buffer((RANK + 1) % SIZE, (4,), torch.uint8).numel() == 4
            del handle
        elif order == "handle first":
            del handle
            del tensor
        elif order == "group first":
            dist.destroy_process_group()
            handle.barrier()
            del tensor, handle
        elif order == "peer keeps":
            # Rank 0 lets go and says so; the others go on with its memory, legally.
            tensor.fill_(RANK + 1)
            handle.barrier()
            if RANK == 0:
                del tensor, handle
                gc.collect()
            dist.barrier()
            if RANK != 0:
                assert handle.get_buffer(0, (5,), torch.uint8).tolist() == [1] * 5
                handle.get_buffer(0, (5,), torch.uint8).fill_(9)
                del tensor, handle
            dist.barrier()
        else:
            del tensor, handle
        del small
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
        gc.collect()
    del group
    gc.collect()
    unused = symm_mem.empty(1, device="cpu")
    del unused
    left = cco.torch.counts()
    assert (left.tensors, left.chunks, left.groups) == (0, 1, 0), left
    # A child has only copies: its end changes nothing here.
    group = begin(folder, len(orders) * 2)
    global KEPT  # Dies with the process.
    KEPT = [symm_mem.empty(100, device="cpu"), symm_mem.empty(40 << 20, dtype=torch.uint8, device="cpu")]
    KEPT.append(symm_mem.rendezvous(KEPT[0], group))
    KEPT.append(symm_mem.rendezvous(KEPT[1], group))
    child = os.fork()
    if child == 0:
        KEPT.clear()
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    check_copies(KEPT[2], KEPT[0], group)
    KEPT.append(_SymmetricMemory.empty_strided_p2p((8,), (1,), torch.float32, CPU, group.group_name, 77))
    # No farewell: everything is alive when the interpreter ends.


def external(folder):
    """torch tensors as windows, and windows as tensors."""
    begin(folder)
    with cco.Group.from_env() as group:
        whole = symm_mem.empty(10000, dtype=torch.uint8, device="cpu")
        part = whole[256 + 16 * RANK:][:1000]
        part.fill_(RANK + 1)
        with cco.torch.register(group, part, "part") as window:
            group.barrier()
            peer = (RANK + 1) % SIZE
            theirs = cco.torch.tensor(window, (250,), torch.int32, rank=peer)
            assert theirs.view(torch.uint8).unique().tolist() == [peer + 1]
            group.barrier()
            cco.torch.tensor(window, rank=peer, offset=999).fill_(100 + RANK)
            group.barrier()
            assert part[999].item() == 100 + (RANK - 1) % SIZE
            part = whole = None  # The window has the memory.
            group.barrier()
            assert theirs.view(torch.uint8)[0].item() == peer + 1
            del theirs
        with cco.Window(group, "heap", 4096) as heap:
            own = cco.torch.tensor(heap, (32, 32), torch.float32)
            own.fill_(float(RANK))
            group.barrier()
            assert cco.torch.tensor(heap, (32, 32), torch.float32, rank=peer).sum().item() == 1024.0 * peer
            group.barrier()
            del own
        plain = torch.zeros(4096)
        if RANK == 0:
            refused(lambda: cco.torch.register(group, plain), "symm_mem.empty()", "expandable_segments")
        else:
            good = symm_mem.empty(4096, device="cpu")
            refused(lambda: cco.torch.register(group, good), "FAILED_PRECONDITION", "symm_mem.empty()")
        refused(lambda: cco.torch.register(group, torch.zeros(4, 4).t()), "contiguous")
        # Whatever is wrong on one rank, the others hear it.
        refused(lambda: cco.torch.register(group, None if RANK == 0 else whole), "symm_mem.empty()")
        refused(lambda: cco.torch.register(None, whole), "cco.Group, not None", "from_env()")
    dist.destroy_process_group()


def misuse(folder):
    """Each error says what to do next."""
    tensor = symm_mem.empty(4, device="cpu")
    for ask in (cco.torch.window, cco.torch.window_handle, cco.torch.dev_comm):
        refused(lambda: ask(tensor), "init_process_group()", "rendezvous()")
        refused(lambda: ask(None, "0"), "torch.Tensor, not None")
    refused(lambda: cco.torch.group_dev_comm(), "init_process_group()")
    for name in ("CUDA", "NCCL", "NVSHMEM", "", None, 5):
        refused(lambda: cco.torch.register_symm_backend(name), repr(name), "CUDA, NCCL, NVSHMEM")
    group = begin(folder)
    refused(lambda: cco.torch.group_dev_comm(group), "rendezvous()")
    refused(lambda: cco.torch.window(tensor), "rendezvous()")
    # What torch itself does by the back-end's name; docs/torch.md has what to use instead.
    if hasattr(symm_mem, "put_signal"):
        handle = symm_mem.rendezvous(tensor, group)
        refused(lambda: symm_mem.put_signal(tensor, handle, 0), "unsupported backend: CCO")
        refused(lambda: symm_mem.wait_signal(handle, 0), "unsupported backend: CCO")
    if hasattr(symm_mem, "get_mem_pool"):
        refused(lambda: symm_mem.get_mem_pool(CPU), "MemPool")
    dist.destroy_process_group()


def communicator(folder):
    """Tensors as windows of a cco.Communicator, as programs for MORI make them: address and bytes."""
    begin(folder)
    secret = [cco.get_unique_id() if RANK == 0 else None]
    dist.broadcast_object_list(secret, src=0)
    peer = (RANK + 1) % SIZE
    with cco.Communicator.init(SIZE, RANK, secret[0]) as comm, cco.Client() as client:
        of_cco = cco.torch.tensor(cco.Memory(client, 1 << 20, device=comm.group.device), (1 << 18,), torch.int32)
        symmetric = symm_mem.empty(4096, dtype=torch.int32, device="cpu")
        for tensor in (of_cco, of_cco[1024:2048], symmetric, symmetric[4 * (RANK + 1):][:1000]):
            tensor.fill_(100 + RANK)
            window = comm.register_external_window(tensor.data_ptr(), tensor.nbytes)
            assert (window.ext_ptr, window.size) == (tensor.data_ptr(), tensor.nbytes) and window.handle
            comm.barrier()
            theirs = cco.torch.tensor(window.window, tensor.shape, torch.int32, rank=peer)
            assert theirs.unique().tolist() == [100 + peer]
            comm.barrier()
            theirs[-1] = 200 + RANK
            comm.barrier()
            assert tensor[-1].item() == 200 + (RANK - 1) % SIZE
            del theirs
            window.close()
        plain = torch.zeros(4096)
        refused(lambda: comm.register_external_window(plain.data_ptr(), plain.nbytes), "INVALID_ARGUMENT",
                f"{plain.data_ptr():#x}")
        del of_cco, tensor
    dist.destroy_process_group()


def mori(folder):
    import mori.allocator as allocator

    assert allocator.SYMM_BACKEND_NAME == allocator.register_symm_backend() == "MORI"
    assert allocator.handle_type() == "posix_fd" and allocator.signal_pad_supported() is True
    symm_mem.set_backend("MORI")
    symm_mem.set_backend("CCO")
    symm_mem.set_backend("MORI")
    group = begin(folder)
    tensor = symm_mem.empty(64, dtype=torch.int32, device="cpu")
    handle = symm_mem.rendezvous(tensor, group.group_name)
    check_copies(handle, tensor, group)
    assert allocator.window_handle(tensor) != 0
    refused(lambda: allocator.window_handle(tensor, signal_pad=True), "signal_pad_ptrs_dev")
    # As MORI's: by the group's name and a key. Each is a communicator of its own, made once, by all ranks.
    usual = allocator.dev_comm(group.group_name)
    assert usual == allocator.dev_comm(group.group_name, "default", 1) == allocator.dev_comm(group, key="default")
    large = allocator.dev_comm(group.group_name, "large", lsa_barrier_count=3)
    assert len({0, usual, large, allocator.dev_comm(tensor), allocator.dev_comm(group.group_name, "other")}) == 5
    for address, barriers in ((usual, 1), (large, 3)):
        device = cco.DeviceComm.from_address(address)
        assert (device.rank, device.barrier_count) == (RANK, barriers)
    refused(lambda: allocator.dev_comm("no such group"), "no such group")
    refused(lambda: allocator.dev_comm(group.group_name, "vast", 5000), "5000")
    dist.destroy_process_group()


if __name__ == "__main__":
    faulthandler.dump_traceback_later(float(os.environ.get("PATIENCE_S", "50")), exit=True)
    globals()[sys.argv[1]](sys.argv[2])
