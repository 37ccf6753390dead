#!/usr/bin/env python3
"""Goal    the core package does on a GPU what CI sees on the host driver: views, memory of torch's own, ends.
Method  two ranks as threads on device 0, against the daemon that runs; torch reads and writes through views of own
        and peers' copies, by DLPack and by the array interface. Prints what was verified; exit code 0, or 1.

Needs torch. Sets the allocator's variables itself. On the host driver everything but CUDA's own memory is tried.
"""

import ctypes
import faulthandler
import gc
import os
import subprocess
import sys
import threading

os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC"] = "1"

import torch  # noqa: E402: the allocator reads its variables when it is loaded.

import cco  # noqa: E402
from cco.views import Place, View  # noqa: E402

LIMIT_S = 150
TIMEOUT_MS = 20_000
TYPES = [torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def settle(group):
    """What this rank has written is there before it says so."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    group.barrier(TIMEOUT_MS)


def in_device_memory(owner, group, address, size_bytes):
    place = Place(address, size_bytes, group.client.driver, group.device)
    return bytes(torch.from_dlpack(View(owner, place, "uint8", None, 0)).cpu().tolist())


def tensors(group):
    window = cco.Window(group, "types", 1 << 20)
    peer = 1 - group.rank
    for number, dtype in enumerate(TYPES):
        own = torch.from_dlpack(window.view(dtype=dtype, shape=(16, 32), offset=4096))
        assert (own.dtype, own.shape, own.data_ptr()) == (dtype, (16, 32), window.address(offset=4096))
        own.fill_(3 * number + group.rank)
        settle(group)
        theirs = torch.from_dlpack(window.view(peer, dtype=dtype, shape=(16, 32), offset=4096))
        assert bool((theirs == 3 * number + peer).all()), f"{dtype}: {theirs[0, 0]}"
        settle(group)
    if group.client.driver != "host":
        by_interface = torch.as_tensor(window.view(peer, dtype="float32", shape=8), device=f"cuda:{group.device}")
        assert by_interface.data_ptr() == window.address(peer)
        by_interface.fill_(7 + group.rank)
        settle(group)
        assert float(torch.from_dlpack(window.view(dtype="float32", shape=8)).sum()) == 8 * (7 + peer)
        settle(group)
    kept = torch.from_dlpack(window.view(dtype="int32"))
    kept.fill_(11)
    window.close()
    assert int(kept[-1]) == 11 and window.export_count >= 1
    del own, theirs, kept
    gc.collect()
    settle(group)
    return f"{len(TYPES)} types in own and peers' copies"


def descriptors(group):
    with cco.Window(group, "descriptor", 4096) as window, cco.Comm(group, signal_count=4, barrier_count=1) as comm:
        for owner in (window, comm):
            expected = bytes(owner.device)
            assert in_device_memory(owner, group, owner.device_ptr, len(expected)) == expected, type(owner).__name__
        settle(group)
    return "descriptors of window and communicator in device memory"


def registered(group, memory, fill):
    """A window of `memory`, which `fill(value)` writes through its owner's own address."""
    fill(20 + group.rank)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    with cco.Window.register(group, None, 4096, memory.external) as window:
        memory.close()  # The window keeps it.
        settle(group)
        theirs = torch.from_dlpack(window.view(1 - group.rank))
        assert bool((theirs == 21 - group.rank).all()), f"read {theirs[0]}"
        theirs[:8] = 40 + group.rank
        settle(group)
        own = torch.from_dlpack(window.view())
        assert bool((own[:8] == 41 - group.rank).all())
        settle(group)


def memory_of_the_process(group):
    memory = cco.Memory(group.client, 100_000, device=group.device)
    tensor = torch.from_dlpack(memory.view(shape=4096))
    registered(group, memory, tensor.fill_)
    return "memory of the process as a window"


def memory_of_torch(group):
    """A tensor of torch's own allocator, from inside it: nothing is copied."""
    if group.client.driver == "host":
        return "memory of torch: left out, on the host driver it is no memfd"
    # Enough that the last ones lie in further allocations of their segments, of 2 MiB and of 20 MiB.
    kept = [torch.zeros(size, dtype=torch.uint8, device=f"cuda:{group.device}")
            for size in [1 << 20] * 5 + [12 << 20] * 3]
    for tensor in kept:
        part = tensor[16 * 1024:16 * 1024 + 4096]
        registered(group, cco.Memory.at(group.client, part.data_ptr(), 4096, device=group.device), part.fill_)
        assert bool((part[:8] == 41 - group.rank).all()), "the window is other memory than the tensor"
        assert int(tensor.sum()) == int(part.sum()), "it wrote beside the tensor's part"
    return f"{len(kept)} tensors of torch's expandable segments as windows, from inside"


def memory_in_two_allocations(group):
    """A tensor that spans two is refused, or is all there: never another one's memory."""
    if group.client.driver == "host":
        return "memory in two allocations: left out, as above"
    tensor = torch.zeros(50 << 20, dtype=torch.uint8, device=f"cuda:{group.device}")
    try:
        memory = cco.Memory.at(group.client, tensor.data_ptr(), tensor.nbytes, device=group.device)
    except cco.InvalidArgument as error:
        assert "one allocation" in error.reason, error
        return "a tensor that spans two allocations is refused"
    with memory:
        same = torch.from_dlpack(memory.view())
        for place in (0, 25 << 20, tensor.nbytes - 1):
            tensor[place] = 5
            torch.cuda.synchronize()
            assert int(same[place]) == 5, f"byte {place} is other memory than the tensor's"
        del same
    return "a tensor of 50 MiB is one allocation, and all there"


def memory_that_cannot_be(group):
    if group.client.driver != "cuda":
        return "memory that cannot be exported: left out, this is not cuda"
    cuda, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 21)) == 0
    try:
        cco.Memory.at(group.client, address.value, 4096, device=group.device).close()
    except cco.InvalidArgument as error:
        assert "cudaMalloc" in error.reason and "expandable_segments" in error.reason, error
    else:
        raise AssertionError("memory of cuMemAlloc() was taken")
    assert cuda.cuMemFree_v2(address) == 0
    return "memory of cuMemAlloc() is refused, and the error says what to change"


STEPS = [tensors, descriptors, memory_of_the_process, memory_of_torch, memory_in_two_allocations,
         memory_that_cannot_be]
EXIT = """
import torch, cco
group = cco.Group(cco.Client(), rank=0, size=1, name="exit")
kept = torch.from_dlpack(cco.Window(group, "w", 1 << 20).view(dtype="float32"))
kept.fill_(1)
"""


def rank(number, secret, told, failed):
    try:
        if torch.cuda.is_available():
            torch.cuda.set_device(0)
        with cco.Client() as client:
            with cco.Group(client, rank=number, size=2, unique_id=secret, device=0, timeout_ms=TIMEOUT_MS) as group:
                told[number] = [f"on {client.driver}, {client.gpu(0).name}"] + [step(group) for step in STEPS]
    except BaseException as error:
        failed.append((number, error))
        raise


def main():
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    secret, told, failed = cco.UniqueId.create(), {}, []
    ranks = [threading.Thread(target=rank, args=(number, secret, told, failed)) for number in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    if failed:
        return 1
    for line in told[0]:
        print(f"verified: {line}")
    ended = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if ended.returncode != 0 or ended.stderr:
        print(f"an exit with live tensors ends with {ended.returncode}: {ended.stderr}", file=sys.stderr)
        return 1
    print("verified: an exit with live tensors is silent")
    return 0


if __name__ == "__main__":
    sys.exit(main())
