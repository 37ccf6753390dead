"""Goal    every entry point of the device table does what its row says: arguments reach the right primitive in the
        right order, results come back, and what is wrong is refused.
Method  the generated functions, compiled for the host, are called from Python by two ranks with the host driver; a
        thread outside a launch is a block of one."""

import ctypes
import threading

import pytest

from conftest import BUILD
from cco import device
from table_checks import CHECKS, Pair

LIBRARY = BUILD / "device/bitcode/libcco_entry_points.so"
C_TYPES = {"u64": ctypes.c_uint64, "int": ctypes.c_int32}


class HostPair(Pair):
    """Calls are made by threads, as kernels would run."""

    def __init__(self):
        super().__init__(devices=2)
        self._library = ctypes.CDLL(str(LIBRARY))

    def function(self, row, arguments):
        values = {name: int(arguments[name]) for axis in row.axes for name in axis.arguments}
        function = getattr(self._library, row.symbol(values).name)
        function.restype = C_TYPES[row.result]
        function.argtypes = [C_TYPES[parameter.c_type] for parameter in row.parameters]
        return function

    def start(self, rank, row, arguments, warps, grid):
        function = self.function(row, arguments)
        results = []
        thread = threading.Thread(
            target=lambda: results.append(function(*(arguments[parameter.name] for parameter in row.parameters))))
        thread.start()
        return thread, results

    def finish(self, handles):
        for thread, results in handles:
            thread.join(60)
            assert results, "a call does not end within 60 s"
        return [results[0] for _, results in handles]

    def read(self, rank, offset, nbytes):
        return ctypes.string_at(self.ranks[rank].window.address(rank, offset), nbytes)

    def write(self, rank, offset, data):
        ctypes.memmove(self.ranks[rank].window.address(rank, offset), data, len(data))


@pytest.fixture
def pair(daemon):
    if not LIBRARY.exists():
        pytest.skip(f"no {LIBRARY}: build cco_entry_points")
    made = HostPair()
    yield made
    made.close()
    daemon.expect_nothing_left()


def test_every_method(pair):
    assert list(pair.run()) == [check.__name__ for check in CHECKS]


def test_mori_names_do_the_same_and_tell_nothing(pair):
    """One of each family that has two forms: bytes and signals arrive."""
    library = ctypes.CDLL(str(LIBRARY))
    pair.fill(0, 1)
    comm, window = pair.ranks[0].comm.device_ptr, pair.ranks[0].window.device_ptr

    def call(name, *arguments):
        symbol = next(one for one in device.symbols() if one.name == name)
        function = getattr(library, name)
        function.argtypes = [C_TYPES[parameter.c_type] for parameter in symbol.operation.parameters]
        function.restype = None
        function(*arguments)

    call("cco_gda_put__ib__add", comm, 0, 1, window, 4096, window, 8, 500, 3, 7)
    call("cco_gda_flush_peer__block", comm, 0, 1)
    pair.expect(1, "Gda.read_signal", 7, signal_id=3)
    pair.expect_copy(0, 8, 1, 4096, 500)
    call("cco_gda_put_value__iw__inc", comm, 1, 1, window, 0, 0x0102030405060708, 3, 0)
    call("cco_gda_flush__warp", comm, 1)
    assert pair.read(1, 0, 8) == bytes(range(8, 0, -1))
    call("cco_gda_get__it", comm, 0, 1, window, 4096, window, 9000, 500)
    call("cco_gda_signal__thread__inc", comm, 0, 1, 3, 0)
    call("cco_gda_flush__block", comm, 0)
    pair.expect_copy(1, 4096, 0, 9000, 500)
    call("cco_gda_wait_signal__warp", pair.ranks[1].comm.device_ptr, 0, 3, 9, 64)
    call("cco_gda_reset_signal", pair.ranks[1].comm.device_ptr, 0, 3)
    pair.expect(1, "Gda.read_signal", 0, signal_id=3)
    call("cco_sdma_put__block", comm, 1, window, 20000, window, 16, 700, 1, 1)
    call("cco_sdma_commit__thread", comm, 1, 1)
    call("cco_sdma_quiet_queue", comm, 1, 1)
    pair.expect_copy(0, 16, 1, 20000, 700)
    pair.expect(0, "Sdma.read_signal", 1, sender=0, qid=1)
    call("cco_sdma_get__warp_ns", comm, 1, window, 30000, window, 20000, 700, 0, 0)
    call("cco_sdma_quiet__warp", comm, 1)
    pair.expect_copy(1, 20000, 0, 30000, 700)
    pair.expect(0, "Sdma.read_signal", 0, sender=0, qid=0)
