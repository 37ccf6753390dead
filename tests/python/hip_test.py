"""Goal    the package does with the hip driver what it does on host, as far as that can be told without an AMD GPU.
Method  daemon and client on the stand-in for AMD's library that the contract tests use, whose memory is real."""

import ctypes

import pytest

import cco
from conftest import BUILD, run_threads

FAKE = BUILD / "tests" / "contract" / "fake_hip" / "libamdhip64-fake.so"


@pytest.fixture
def hip(make_daemon, monkeypatch):
    if not FAKE.exists():
        pytest.skip(f"no {FAKE}")
    monkeypatch.setenv("CCO_HIP_LIBRARY", str(FAKE))
    monkeypatch.setenv("FAKE_HIP_DEVICES", "4")
    return make_daemon(driver="hip")


def test_the_current_device_is_the_communicators(hip):
    runtime = ctypes.CDLL(str(FAKE))
    secret = cco.get_unique_id()

    def body(rank):
        assert runtime.hipSetDevice(3 - rank) == 0
        with cco.Communicator.init(2, rank, secret) as comm:
            device = comm.group.device
            assert comm.group.client.driver == "hip"
            comm.barrier()
            return device

    assert run_threads(2, body) == [3, 2]
    hip.expect_nothing_left()


def test_views_are_on_the_gpu(hip):
    def body(rank):
        with cco.Client() as client, cco.Group(client, rank=rank, size=2, name="g", device=rank) as group:
            with cco.Window(group, "w", 4096) as window, cco.Memory(client, 8192, device=rank) as memory:
                for view in (window.view(1 - rank, dtype="bfloat16"), memory.view(dtype="bfloat16")):
                    assert view.__dlpack_device__() == (10, rank)
                    assert not hasattr(view, "__array_interface__")
                view = window.view(1 - rank, dtype="float32", shape=(2, 3))
                assert view.__cuda_array_interface__["data"] == (window.address(1 - rank), False)
                with pytest.raises(cco.FailedPrecondition, match="GPU memory"):
                    view.numpy()
                group.barrier()
                ctypes.c_uint32.from_address(window.address(1 - rank)).value = 7 + rank  # As the stand-in allows.
                group.barrier()
                assert ctypes.c_uint32.from_address(window.address()).value == 8 - rank
                group.barrier()

    run_threads(2, body)


def test_memory_of_others(hip):
    def body(rank):
        with cco.Client() as client, cco.Group(client, rank=rank, size=2, name="g", device=rank) as group:
            with cco.Memory(client, 1 << 21, device=rank) as foreign:
                address = foreign.ptr + 4096
                ctypes.c_uint32.from_address(address).value = 20 + rank
                with cco.Memory.at(client, address, 4096, device=rank) as memory:
                    assert memory.external.allocation_offset == 4096 and memory.ptr != address
                    window = cco.Window.register(group, None, 4096, memory.external)
            group.barrier()
            assert ctypes.c_uint32.from_address(window.address(1 - rank)).value == 21 - rank
            group.barrier()
            window.close()
            own = ctypes.create_string_buffer(64)
            with pytest.raises(cco.InvalidArgument, match="hipMalloc.*hipMemCreate.*expandable_segments"):
                cco.Memory.at(client, ctypes.addressof(own), 64, device=rank)

    run_threads(2, body)
