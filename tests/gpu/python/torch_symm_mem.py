#!/usr/bin/env python3
"""Goal    torch's symmetric memory over cco does on GPUs what torch's own does, and ends in any order.
Method  pairs of processes, one pair for each part, against the daemon that CCO_SOCKET names; they share one GPU where
        there is one. There their kernels wait for each other only with a time limit, in time slices.

    torch_symm_mem.py [--json FILE] [PART...]     prints what it verified; exit code 1: something failed
"""

import argparse
import ctypes
import faulthandler
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

SIZE = 2
PART_S = 90
WAIT_MS = 20000  # For signals that do come: time slices of a shared GPU are long.


# ---- Of the parent ----


def run_pair(script, part, *arguments, allowed=(0, 0), seconds=PART_S, **variables):
    """Runs `script --rank R --part PART FOLDER ARGUMENTS` as two processes; (ok, output of both)."""
    with tempfile.TemporaryDirectory(prefix="cco-torch-") as folder:
        children = [
            subprocess.Popen([sys.executable, script, "--rank", str(rank), "--folder", folder, part, *arguments],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, **variables})
            for rank in range(SIZE)]
        deadline = time.monotonic() + seconds
        texts = []
        try:
            for child in children:
                texts.append(child.communicate(timeout=max(1, deadline - time.monotonic()))[0])
        except subprocess.TimeoutExpired:
            texts.append(f"not ended after {seconds} s")
        finally:
            for child in children:
                child.kill()
                child.wait(10)
        codes = tuple(child.returncode for child in children)
        text = "\n".join(texts)
        return codes == tuple(allowed), text if codes == tuple(allowed) else f"{text}\nexit codes {codes}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--folder")
    parser.add_argument("parts", nargs="*")
    asked = parser.parse_args()
    if asked.rank is not None:
        return PARTS[asked.parts[0]](begin(asked.rank, asked.folder))
    results = {}
    for part in asked.parts or PARTS:
        began = time.monotonic()
        variables = VARIABLES.get(part, {})
        ok, text = run_pair(__file__, part, allowed=(0, 9) if part == "lost" else (0, 0), **variables)
        results[part] = {"ok": ok, "seconds": round(time.monotonic() - began, 1)}
        print(f"{'ok  ' if ok else 'FAIL'} {part}: {(PARTS[part].__doc__ or '').strip()}")
        shown = [line for line in text.splitlines() if not ok or line.startswith(("skipped", "note"))]
        print("".join(f"       {line}\n" for line in shown), end="", flush=True)
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0 if all(one["ok"] for one in results.values()) else 1


# ---- Of a rank ----


class Rank:
    """One rank: `device`, torch's group of both, and modules under their usual names."""

    def __init__(self, rank, folder):
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem

        self.rank, self.peer, self.torch, self.dist, self.symm_mem = rank, 1 - rank, torch, dist, symm_mem
        self.gpus = torch.cuda.device_count()
        self.device = torch.device("cuda", rank % self.gpus)
        torch.cuda.set_device(self.device)
        dist.init_process_group("gloo", store=store_for(dist, rank, folder), rank=rank, world_size=SIZE)
        self.group = dist.group.WORLD

    def use_cco(self):
        import cco.torch

        self.cco = cco
        self.symm_mem.set_backend("CCO")
        return self

    def made(self, count, dtype=None):
        """A tensor and its handle; zeroed on both ranks when it returns."""
        tensor = self.symm_mem.empty(count, dtype=dtype or self.torch.int32, device=self.device).zero_()
        handle = self.symm_mem.rendezvous(tensor, self.group)
        self.settle()
        return tensor, handle

    def settle(self):
        """Both GPUs are done with what was launched, and both ranks know."""
        self.torch.cuda.synchronize()
        self.dist.barrier()


def store_for(dist, rank, folder):
    """A TCPStore, as torchrun gives: rank 0 has its server, on a port that the other learns from a file."""
    meeting = dist.FileStore(f"{folder}/port", SIZE)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, SIZE, True, wait_for_workers=False)
        meeting.set("port", str(store.port))
        return store
    return dist.TCPStore("127.0.0.1", int(meeting.get("port")), SIZE, False)


def begin(rank, folder):
    faulthandler.enable()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    warnings.simplefilter("ignore", FutureWarning)
    return Rank(rank, folder)


def basics(me):
    """tensors, peers' copies, pads, offsets, cco's window of the same bytes"""
    me.use_cco()
    torch = me.torch
    assert me.symm_mem.get_backend(me.device) == "CCO"
    for count in (1, 1000, 1 << 20, 40 << 20):
        tensor, handle = me.made(count)
        assert (handle.rank, handle.world_size) == (me.rank, SIZE)
        pad = handle.get_signal_pad(me.rank, dtype=torch.int32)
        assert not pad.any().item() and handle.signal_pad_ptrs[me.rank] == pad.data_ptr()
        theirs = handle.get_buffer(me.peer, (count,), torch.int32)
        theirs.copy_(torch.arange(count, dtype=torch.int32, device=me.device) + me.rank)
        me.settle()
        expected = torch.arange(count, dtype=torch.int32, device=me.device) + me.peer
        assert torch.equal(tensor, expected), f"{count}: {tensor} instead of {expected}"
        place = me.cco.torch.window(tensor, me.group)
        assert place.device_ptr and place.comm_ptr and place.size_bytes >= tensor.nbytes
        table = torch.empty(2 * SIZE, dtype=torch.int64)
        copy_from_device(table, handle.buffer_ptrs_dev)
        assert table.tolist() == handle.buffer_ptrs + handle.signal_pad_ptrs
        me.settle()
    whole, _ = me.made(1 << 16)
    part = whole[4096:]
    handle = me.symm_mem.rendezvous(part, me.group)
    handle.get_remote_tensor(me.peer, (16,), torch.int32).fill_(5 + me.rank)
    me.settle()
    assert (whole == 5 + me.peer).sum().item() == 16
    me.settle()
    return 0


def copy_from_device(host, address):
    libcuda = ctypes.CDLL("libcuda.so.1")
    assert libcuda.cuMemcpyDtoH_v2(ctypes.c_void_p(host.data_ptr()), ctypes.c_uint64(address),
                                   ctypes.c_size_t(host.nbytes)) == 0


def signals(me):
    """put_signal and wait_signal one after the other; barrier; channels"""
    me.use_cco()
    torch = me.torch
    tensor, handle = me.made(1024)
    for turn in range(10):  # One rank's kernels at a time.
        for sender in range(SIZE):
            if me.rank == sender:
                handle.get_buffer(me.peer, (1024,), torch.int32).fill_(turn * 2 + sender)
                handle.put_signal(me.peer, channel=3)
            me.settle()
            if me.rank != sender:
                handle.wait_signal(me.peer, channel=3, timeout_ms=WAIT_MS)
                assert (tensor == turn * 2 + sender).all().item()
            me.settle()
    for turn in range(20):  # Both at once, bounded.
        handle.get_buffer(me.peer, (1024,), torch.int32).fill_(1000 + turn)
        handle.barrier(channel=turn % 3, timeout_ms=WAIT_MS)
        assert (tensor == 1000 + turn).all().item()
        handle.barrier(channel=3, timeout_ms=WAIT_MS)
    me.settle()
    assert not handle.get_signal_pad(me.rank, dtype=torch.int32).any().item()
    for channel in (-1, handle.signal_pad_size // 4 // SIZE):
        try:
            handle.barrier(channel=channel)
        except RuntimeError as error:
            assert "channels 0 to" in str(error)
        else:
            raise AssertionError(f"channel {channel} was taken")
    me.settle()
    return 0


def graphs(me):
    """stores and barriers in a captured graph, replayed"""
    me.use_cco()
    torch = me.torch
    tensor, handle = me.made(1024)
    graph, total = torch.cuda.CUDAGraph(), torch.zeros(1, dtype=torch.int64, device=me.device)
    with torch.cuda.graph(graph):
        handle.get_buffer(me.peer, (1024,), torch.int32).add_(1)
        handle.barrier(channel=4, timeout_ms=WAIT_MS)
        total.add_(tensor.sum())
        handle.barrier(channel=5, timeout_ms=WAIT_MS)
    tensor.zero_()
    me.settle()
    for _ in range(10):
        graph.replay()
    me.settle()
    assert total.item() == 1024 * sum(range(1, 11)), total.item()
    assert not handle.get_signal_pad(me.rank, dtype=torch.int32).any().item()
    me.settle()
    print("note: all replays were right", flush=True)
    del graph
    me.settle()
    print("note: the graph has ended", flush=True)
    return 0


def operations(me):
    """torch's own symmetric operations through this back-end: two GPUs"""
    me.use_cco()
    if me.gpus < 2:
        print("skipped: torch's kernels wait for each other without a limit, which takes two GPUs")
        return 0
    torch, name = me.torch, me.group.group_name
    for dtype in (torch.float32, torch.bfloat16):
        tensor, _ = me.made(8192, dtype)
        for operation in ("one_shot_all_reduce", "two_shot_all_reduce_"):
            tensor.fill_(me.rank + 1)
            me.settle()
            summed = getattr(torch.ops.symm_mem, operation)(tensor, "sum", name)
            torch.cuda.synchronize()
            assert (summed == 3).all().item(), operation
            me.settle()
    shard = torch.full((64, 64), float(me.rank), device=me.device)
    gathered = torch.ops.symm_mem._low_contention_all_gather(shard, name)
    torch.ops._c10d_functional.wait_tensor(gathered)
    assert gathered[:64].eq(0).all().item() and gathered[64:].eq(1).all().item()
    weight = torch.eye(64, device=me.device)
    _, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(shard, [weight], 0, name)
    assert product[:64].eq(0).all().item() and product[64:].eq(1).all().item()
    me.settle()
    return 0


def late(me):
    """a wait whose signal never comes ends the stream with an error, in time"""
    me.use_cco()
    _, handle = me.made(16)
    began = time.monotonic()
    if me.rank == 0:
        handle.wait_signal(1, channel=0, timeout_ms=300)
        try:
            me.torch.cuda.synchronize()
        except RuntimeError:
            assert time.monotonic() - began < 30
        else:
            raise AssertionError("the wait came back well")
    me.dist.barrier()
    os._exit(0)  # Rank 0's GPU context is gone, as after every trap.


def lost(me):
    """a rank that dies ends the other's kernel, and calls after that name it"""
    me.use_cco()
    _, handle = me.made(16)
    me.dist.barrier()
    if me.rank == 1:
        os._exit(9)
    began = time.monotonic()
    try:
        handle.wait_signal(1, channel=0)  # Its limit is ten minutes.
        me.torch.cuda.synchronize()
    except RuntimeError:
        assert time.monotonic() - began < 60
    else:
        raise AssertionError("the wait came back well")
    try:
        handle.barrier()
    except RuntimeError as error:
        assert "rank 1" in str(error), error
    else:
        raise AssertionError("a barrier without the peer came back well")
    os._exit(0)


def teardown(me):
    """ends in any order, again and again: no memory is left; everything is alive at exit"""
    me.use_cco()
    torch, p2p = me.torch, me.symm_mem._SymmetricMemory.empty_strided_p2p
    bytes_each = 512 << 20

    def turn(order):
        tensor = p2p((bytes_each,), (1,), torch.uint8, me.device)
        handle = me.symm_mem.rendezvous(tensor, me.group)
        handle.get_buffer(me.peer, (16,), torch.uint8).fill_(7)
        me.settle()
        if order == 0:
            del tensor
            handle.get_buffer(me.peer, (16,), torch.uint8).fill_(8)
            torch.cuda.synchronize()
            del handle
        elif order == 1:
            del handle, tensor
        elif me.rank == 0:
            del handle, tensor
            gc.collect()
            me.dist.barrier()
        else:
            me.dist.barrier()
            handle.get_buffer(0, (16,), torch.uint8).fill_(9)  # It has let go; the memory is there.
            torch.cuda.synchronize()
            del handle, tensor
        gc.collect()
        me.settle()

    for order in range(3):
        turn(order)
    # The other rank's too, where it shares this GPU: both are settled.
    before = torch.cuda.mem_get_info(me.device)[0]
    me.settle()
    for order in range(12):
        turn(order % 3)
    after = torch.cuda.mem_get_info(me.device)[0]
    assert before - after < bytes_each // 4, f"{(before - after) >> 20} MiB are gone after 12 turns"
    left = me.cco.torch.counts()
    assert left.tensors == 0 and left.chunks <= 1, left
    global KEPT
    KEPT = me.made(1000) + me.made(64 << 20)
    me.dist.destroy_process_group()
    return 0


def external_own(me):
    """a tensor of this back-end becomes a second window, at an offset; windows become tensors"""
    me.use_cco()
    whole, _ = me.made(1 << 20)
    register_and_check(me, whole[1 << 12:])
    plain = me.torch.zeros(1 << 20, device=me.device)
    with cco_group(me) as group:
        refused(me, group, plain)
        with me.cco.Window(group, "heap", 1 << 20) as heap:
            me.cco.torch.tensor(heap, (512, 512), me.torch.float32).fill_(me.rank + 1)
            me.settle()
            theirs = me.cco.torch.tensor(heap, (512, 512), me.torch.float32, rank=me.peer)
            assert theirs.sum().item() == 512 * 512 * (me.peer + 1)
            del theirs
            me.settle()
    return 0


def external_torch(me):
    """a tensor of torch's own back-end \"CUDA\" becomes a window, at an offset"""
    import cco.torch

    # The default: this release cannot be asked for it by name.
    assert me.symm_mem.get_backend(me.device) == "CUDA"

    me.cco = cco
    register_and_check(me, me.symm_mem.empty(1 << 20, dtype=me.torch.int32, device=me.device)[1 << 12:])
    return 0


def external_expandable(me):
    """a tensor of the caching allocator with expandable segments becomes a window; one without does not"""
    import cco.torch

    me.cco = cco
    before = me.torch.zeros(1 << 16, dtype=me.torch.int32, device=me.device)  # So that it is at an offset.
    register_and_check(me, me.torch.zeros(1 << 18, dtype=me.torch.int32, device=me.device)[16:])
    large = me.torch.zeros(100 << 20, dtype=me.torch.uint8, device=me.device)  # Of several segments.
    with cco_group(me) as group:
        refused(me, group, large)
    del before
    return 0


def communicator(me):
    """a Communicator's windows of tensors by address and bytes, at offsets: own back-end, expandable segments"""
    torch = me.use_cco().torch
    own = me.symm_mem.empty(1 << 20, dtype=torch.int32, device=me.device)
    segment = torch.zeros(1 << 18, dtype=torch.int32, device=me.device)
    across = torch.zeros(100 << 20, dtype=torch.uint8, device=me.device)  # Of several segments.
    secret = [me.cco.get_unique_id() if me.rank == 0 else None]
    me.dist.broadcast_object_list(secret, src=0)
    with me.cco.Communicator.init(SIZE, me.rank, secret[0]) as comm:
        for tensor in (own, own[1 << 12:], segment, segment[16:1 << 17]):
            tensor.fill_(me.rank + 1)
            me.settle()
            window = comm.register_external_window(tensor.data_ptr(), tensor.nbytes)
            assert (window.ext_ptr, window.size) == (tensor.data_ptr(), tensor.nbytes) and window.handle
            theirs = me.cco.torch.tensor(window.window, tensor.shape, torch.int32, rank=me.peer)
            assert (theirs == me.peer + 1).all().item()
            me.settle()
            theirs[-1] = 77
            me.settle()
            assert tensor[-1].item() == 77
            del theirs
            window.close()
        try:
            comm.register_external_window(across.data_ptr(), across.nbytes)
        except me.cco.Error as error:
            assert error.code == me.cco.Status.INVALID_ARGUMENT and "allocation" in error.reason, error
            if me.rank == 0:
                print(f"note: refused as it should be: {error.reason[:300]}")
        else:
            raise AssertionError("memory of several allocations was taken")
    return 0


def cco_group(me):
    me.turns = getattr(me, "turns", 0) + 1
    name = [f"torch-{os.getpid()}-{me.turns}"]
    me.dist.broadcast_object_list(name, src=0)
    client = me.cco.Client()
    return me.cco.Group(client, rank=me.rank, size=SIZE, name=name[0], device=me.device.index)


def register_and_check(me, tensor):
    torch = me.torch
    with cco_group(me) as group:
        tensor.fill_(me.rank + 1)
        me.settle()
        with me.cco.torch.register(group, tensor, "external") as window:
            theirs = me.cco.torch.tensor(window, (tensor.numel(),), torch.int32, rank=me.peer)
            assert (theirs == me.peer + 1).all().item()
            me.settle()
            theirs[-1] = 77
            me.settle()
            assert tensor[-1].item() == 77 and (tensor == me.rank + 1).sum().item() == tensor.numel() - 1
            del theirs
            me.settle()


def refused(me, group, tensor):
    try:
        me.cco.torch.register(group, tensor)
    except me.cco.Error as error:
        assert "symm_mem.empty()" in str(error) and "expandable_segments" in str(error), error
        if me.rank == 0:
            print(f"note: refused as it should be: {error.reason[:300]}")
    else:
        raise AssertionError("it was taken")


VARIABLES = {
    "external_expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "communicator": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    # torch refuses ranks that share a GPU unless it is told not to.
    "external_torch": {"TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1"},
}
PARTS = {part.__name__: part for part in (basics, signals, graphs, operations, late, lost, teardown, external_own,
                                          external_torch, external_expandable, communicator)}

if __name__ == "__main__":
    sys.exit(main())
