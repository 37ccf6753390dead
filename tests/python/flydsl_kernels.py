"""The kernels that flydsl_test.py compiles; run as a script, it launches each once."""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr.extern import ffi

from cco import device
from cco import flydsl as cco

BOUND = ("dev_comm", "win", "ctx")  # What handles stand for.


def required(operation, window, word, index):
    """Arguments of a row's method that have no default; a choice of entry point is left out."""
    selecting = {name for axis in operation.axes for name in axis.arguments}
    types = {parameter.name: parameter.c_type for parameter in operation.parameters}
    values = {}
    for argument in operation.signature:
        name = argument.name
        if argument.default is None and name not in BOUND and name not in selecting:
            kind = "window" if name.endswith("win") else types[name]
            values[name] = {"window": window, "u64": word, "int": index}[kind]
    if operation.method == "lsa_ptr":
        values["peer_lsa_rank"] = values.pop("peer")
    return values


def ask(handle, operation, arguments):
    """Calls a row's method, or reads its property."""
    if isinstance(getattr(type(handle), operation.method), property):
        return getattr(handle, operation.method)
    return getattr(handle, operation.method)(**arguments)


def launch(kernel):
    """Compiles a kernel; with COMPILE_ONLY that is all."""
    @flyc.jit
    def run(dev_comm: fx.Int64, win: fx.Int64, n: fx.Int64, i: fx.Int32, stream=fx.Stream(None)):
        kernel(dev_comm, win, n, i).launch(grid=(1, 1, 1), block=[256, 1, 1], stream=stream)

    run(0, 0, 0, 0)


def ask_all(comm, win, n, i):
    handles = {"DevComm": comm, "Window": cco.Window(win), "Lsa": comm.lsa(), "Sdma": comm.sdma(),
               "Tdm": comm.tdm(), "Gda": comm.gda()}
    for face, handle in handles.items():
        for operation in device.methods(face).values():
            choice = {"team": cco.Team.RAIL} if operation.base.startswith("cco_team") else {}
            ask(handle, operation, {**required(operation, win, n, i), **choice})


@flyc.kernel(known_block_size=[256, 1, 1])
def every_method(dev_comm: fx.Int64, win: fx.Int64, n: fx.Int64, i: fx.Int32):
    ask_all(cco.DevComm(dev_comm), win, n, i)


@flyc.kernel(known_block_size=[256, 1, 1])
def handles(dev_comm: fx.Int64, win: fx.Int64, n: fx.Int64, i: fx.Int32):
    comm = cco.DevComm(dev_comm)
    window = cco.Window(win)
    gda = comm.gda(2)
    if fx.thread_idx.x == 0:
        gda.signal(comm.rank)
        gda = comm.gda(2)  # What an `if` assigns, FlyDSL carries out of it.
    for peer in range(0, comm.world_size, 1):
        gda.put(peer, window, 0, win, 1 << 40, i, timeout_ns=1000)
    gda.flush()


@flyc.kernel(known_block_size=[256, 1, 1])
def put_and_signal(dev_comm: fx.Int64, win: fx.Int64, n: fx.Int64, i: fx.Int32):
    lsa = cco.DevComm(dev_comm).lsa()
    lsa.put(i, win, 0, win, n, n)
    lsa.signal(i, 3)


@flyc.kernel(known_block_size=[256, 1, 1])
def wait(dev_comm: fx.Int64, win: fx.Int64, n: fx.Int64, i: fx.Int32):
    lsa = cco.DevComm(dev_comm).lsa()
    result = lsa.wait_signal(3, n, timeout_ns=1000, coop=cco.CoopScope.THREAD)
    if cco.status_of(result) == cco.WaitStatus.ARRIVED:
        lsa.put_value(i, win, 0, lsa.get_value(i, win, 8))
    else:
        lsa.put_value(i, win, 8, cco.rank_of(result), nbytes=4)


@flyc.kernel(known_block_size=[256, 1, 1])
def engine_put(dev_comm: fx.Int64, win: fx.Int64, n: fx.Int64, i: fx.Int32):
    sdma = cco.DevComm(dev_comm).sdma()
    sdma.put(i, win, 0, win, n, n, 0)
    sdma.quiet(i)


@flyc.kernel(known_block_size=[256, 1, 1])
def by_name(dev_comm: fx.Int64, win: fx.Int64, n: fx.Int64, i: fx.Int32):
    cco.call("cco_sdma_put__warp_ns", dev_comm, i, win, n, cco.Window(win), 0, n, 0, 1)


@flyc.kernel(known_block_size=[256, 1, 1])
def not_linked(dev_comm: fx.Int64, win: fx.Int64, n: fx.Int64, i: fx.Int32):
    ffi("cco_not_there", ["int32"], "void")(i)


def expect(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"accepted what should be a {kind.__name__}: {words}")


def try_wrong_arguments(comm, win, lane):
    gda, sdma, window = comm.gda(), comm.sdma(), cco.Window(win)

    def put(nbytes, **choices):
        gda.put(0, window, 0, window, 0, nbytes, **choices)

    expect(TypeError, "coop", lambda: put(8, coop=lane))
    expect(TypeError, "coop", lambda: put(8, coop=fx.Int32(1)))
    expect(TypeError, "coop", lambda: put(8, coop=True))
    expect(TypeError, "thread_mode", lambda: put(8, thread_mode=lane))
    expect(TypeError, "signal_op", lambda: put(8, signal_op=lane))
    expect(TypeError, "signal_op", lambda: put(8, signal_op=None))
    expect(ValueError, "coop takes THREAD, WARP, BLOCK", lambda: put(8, coop=4))
    expect(ValueError, "signal_op takes 0, 1, 2", lambda: put(8, signal_op=-1))
    for coop in (cco.CoopScope.WARP, cco.CoopScope.BLOCK):
        expect(ValueError, "AGGREGATE",
               lambda: put(8, coop=coop, thread_mode=cco.ThreadMode.AGGREGATE))
    expect(ValueError, "coop takes THREAD, WARP, BLOCK", lambda: put(8, coop=cco.CoopScope.GRID))
    expect(ValueError, "signal_op takes 1, 2", lambda: gda.signal(0, signal_op=cco.SignalOp.NONE))
    expect(TypeError, "nbytes", lambda: put(8.0))
    expect(TypeError, "nbytes", lambda: put(fx.Float32(8.0)))
    expect(TypeError, "nbytes", lambda: put("8"))
    expect(TypeError, "dst_win", lambda: gda.put(0, None, 0, window, 0, 8))
    expect(TypeError, "nbytes", lambda: gda.put_value(0, window, 0, 1, nbytes=lane))
    expect(ValueError, "1, 2, 4 or 8 bytes", lambda: gda.put_value(0, window, 0, 1, nbytes=3))
    expect(TypeError, "ctx", lambda: comm.gda(lane))
    expect(TypeError, "ctx", lambda: comm.gda(True))
    expect(TypeError, "signal", lambda: sdma.put(0, win, 0, win, 0, 8, 0, signal=lane))
    expect(ValueError, "signal takes NONE", lambda: sdma.put(0, win, 0, win, 0, 8, 0, signal=4))
    expect(ValueError, "aggregate takes", lambda: put(8, aggregate=2))
    expect(TypeError, "64 bits", lambda: cco.DevComm(lane))
    expect(TypeError, "64 bits", lambda: cco.Window(lane))
    expect(TypeError, "positional", lambda: gda.put(0, window, 0, window, 0, 8, 1))
    expect(TypeError, "peer", lambda: gda.flush_peer())
    expect(KeyError, "cco_no_such", lambda: cco.call("cco_no_such"))
    expect(TypeError, "takes 2 arguments", lambda: cco.call("cco_gda_flush__warp", 1))
    expect(ValueError, "version 6", lambda: cco.find_cco_bitcode(5))


@flyc.kernel(known_block_size=[256, 1, 1])
def refused(dev_comm: fx.Int64, win: fx.Int64, n: fx.Int64, i: fx.Int32):
    try_wrong_arguments(cco.DevComm(dev_comm), win, fx.thread_idx.x)


if __name__ == "__main__":
    for one in (every_method, handles, put_and_signal, wait, engine_put, by_name, not_linked,
                refused):
        launch(one)
