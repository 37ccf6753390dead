"""Goal    nothing that a program does with its objects crashes, hangs or leaks: any order of closing, twice; garbage
        collection in any order; exit with live handles; fork; tensors that outlive their window.
Method  the daemon's own ledger says what is left; scripts in processes of their own end as they should."""

import copy
import ctypes
import gc
import itertools
import os
import pickle
import subprocess
import sys
import sysconfig
import threading
import warnings
from pathlib import Path

import pytest

import cco
from cco import _dlpack
from conftest import PATIENCE_S, child_environment, poll_until

numpy = pytest.importorskip("numpy")


def make():
    client = cco.Client()
    group = cco.Group(client, rank=0, size=1, name="g")
    made = {"client": client, "group": group, "window": cco.Window(group, "w", 4096),
            "comm": cco.Comm(group, signal_count=1), "memory": cco.Memory(client, 4096)}
    made["registered"] = cco.Window.register(group, "r", 4096, made["memory"].external)
    return made


def test_every_order_of_closing_twice(daemon):
    for order in itertools.permutations(["client", "group", "window", "comm"]):
        made = make()
        for _ in range(2):
            for name in order:
                made[name].close()
                assert made[name].closed
        for one in made.values():
            assert one.closed, "what a closed client had is closed"
            with pytest.raises(cco.FailedPrecondition, match="has been closed"):
                one.handle
        daemon.expect_nothing_left()


def test_a_closed_object_says_what_is_closed(daemon):
    made = make()
    made["group"].close()
    for call, text in ((made["window"].info, "the group of this window"), (made["group"].barrier, "this group"),
                       (lambda: made["window"].device_ptr, "the group"), (lambda: made["comm"].device, "the group"),
                       (made["window"].view, "the group"), (made["window"].__enter__, "the group")):
        with pytest.raises(cco.FailedPrecondition, match=text):
            call()
    made["client"].close()
    daemon.expect_nothing_left()


def test_an_unclosed_object_warns_once_and_names_itself(daemon):
    with cco.Client() as client:
        group = cco.Group(client, rank=0, size=1, name="g")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del group
            gc.collect()
        assert [str(one.message) for one in caught] == ["unclosed <cco.Group rank 0 of 1>"]
        assert caught[0].category is ResourceWarning
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = make()
        made["client"].close()  # Its end is theirs.
        del made
        gc.collect()
    daemon.expect_nothing_left()


def test_a_window_that_one_rank_gives_up_is_the_others_still(ranks):
    def body(rank):
        with cco.Client() as client, cco.Group(client, rank=rank, size=2, name="g") as group:
            window = cco.Window(group, "w", 64)
            window.view().numpy()[:] = rank + 1
            group.barrier()
            if rank == 0:
                window.close()
            group.barrier()
            if rank == 1:
                assert window.view(0).numpy()[0] == 1
                window.close()
            group.barrier()

    ranks(2, body)


def handles(made):
    """One of each class that stands for something of this process, by name."""
    communicator = cco.Communicator.init(1, 0, cco.get_unique_id())
    memory = communicator.alloc_mem(4096)
    window = communicator.register_window(memory.ptr, 4096)
    external = communicator.register_external_window(memory.ptr, 4096)
    found = [*made.values(), made["window"].view(), communicator, memory, window, external,
             communicator.create_dev_comm(), cco.Attachment(made["client"], made["kept"].grant("us"))]
    return {type(one).__name__: one for one in found}


def test_nothing_is_copied_or_pickled(make_daemon):
    """Goal    a copy would be closed beside its original, and what is unpickled elsewhere is an address of nothing.
    Method  every public class but those of plain data."""
    make_daemon(f'tenants {{ name: "us" uid: {os.getuid()} }}')
    made = make()
    made["kept"] = cco.Window(made["group"], "kept", 64, keep_ms=1)
    found = handles(made)
    plain = {name for name in cco.__all__ if isinstance(getattr(cco, name), type) and issubclass(
        getattr(cco, name), (tuple, int, BaseException, ctypes.Structure))}
    classes = {name for name in cco.__all__ if isinstance(getattr(cco, name), type)}
    assert classes - plain == found.keys() | {"UniqueId", "CCODevCommRequirements", "CCOResource"}
    for name, one in found.items():
        attempts = [lambda: copy.copy(one), lambda: copy.deepcopy(one), lambda: copy.deepcopy([one])]
        attempts += [lambda protocol=protocol: pickle.dumps(one, protocol) for protocol in range(6)]
        for attempt in attempts:
            with pytest.raises(TypeError, match=f"a cco.{name} is neither copied nor pickled.*UniqueId travels"):
                attempt()
    secret = cco.get_unique_id()
    for one in (secret, made["memory"].external, made["client"].gpu(0), made["window"].info(), cco.Condition.DRAINING,
                cco.NotFound(cco.Status.NOT_FOUND, "x", 1).args):
        assert pickle.loads(pickle.dumps(one)) == copy.copy(one) == copy.deepcopy(one) == one
    found["Communicator"].destroy()
    made["client"].close()


# ---- Exports ----


def test_an_array_keeps_its_memory(daemon):
    for export in (lambda window: window.view().numpy(), numpy.from_dlpack):
        client = cco.Client()
        group = cco.Group(client, rank=0, size=1, name="g")
        window = cco.Window(group, "w", 4096)
        array = export(window)
        array[:] = 5
        part = array[7:9]
        del array
        gc.collect()
        assert (client.export_count, group.export_count, window.export_count) == (1, 1, 1)
        for one in (window, group, client):
            one.close()
        with pytest.raises(cco.FailedPrecondition):
            window.view()
        assert list(part) == [5, 5] and daemon.counts()["window"] == 1
        del part
        gc.collect()
        assert window.export_count == 0
        daemon.expect_nothing_left()


def test_a_group_with_live_arrays_is_not_shrunk(daemon):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        window = cco.Window(group, "w", 4096)
        array = window.view().numpy()
        with pytest.raises(cco.FailedPrecondition, match="1 tensors or arrays"):
            group.shrink()
        del array
        with group.shrink() as survivors, cco.Window.open(survivors, "w") as again:
            assert again.info().is_found and window.closed


def test_a_capsule_that_nobody_takes_keeps_nothing(daemon):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        window = cco.Window(group, "w", 4096)
        for options in ({}, {"max_version": (1, 0)}):
            capsule = window.__dlpack__(**options)
            assert window.export_count == 1
            del capsule
            gc.collect()
            assert window.export_count == 0
        window.close()


def test_exports_end_in_any_thread(daemon):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        window = cco.Window(group, "w", 4096)
        arrays = [numpy.from_dlpack(window) for _ in range(64)]
        window.close()
        threads = [threading.Thread(target=arrays.pop) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        gc.collect()
        assert window.export_count == 0 and not _dlpack._lent
        poll_until("the window is still there", lambda: daemon.counts()["window"] == 0)


# ---- Calls that other threads are in ----


def raised_by(call):
    try:
        call()
    except cco.Error as error:
        return error
    return None


class Waiting:
    """A call in another thread, begun; `ended()` is what it has raised."""

    def __init__(self, call):
        self._call, self._error, self.begun = call, None, threading.Event()
        self.thread = threading.Thread(target=self._body, daemon=True)
        self.thread.start()

    def _body(self):
        self.begun.set()
        self._error = raised_by(self._call)

    def ended(self):
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self._error


def test_close_while_another_thread_forms_a_group(daemon):
    """Goal    close() returns at once; the call ends by its own time as if nothing had been, and nothing is left."""
    client = cco.Client()
    waiting = Waiting(lambda: cco.Group(client, rank=0, size=2, name="g", timeout_ms=3000))
    poll_until("the rank has not joined", lambda: daemon.counts()["group"] == 1)
    client.close()
    assert waiting.thread.is_alive(), "close() has waited for the call"
    assert daemon.counts()["session"] == 1, "the session ends with its last call"
    error = waiting.ended()
    assert isinstance(error, cco.DeadlineExceeded) and error.rank == 1
    daemon.expect_nothing_left()


def test_a_group_that_forms_when_its_client_is_closed(daemon):
    client = cco.Client()
    waiting = Waiting(lambda: cco.Group(client, rank=0, size=2, name="g", timeout_ms=20_000))
    poll_until("the rank has not joined", lambda: daemon.counts()["group"] == 1)
    client.close()
    with cco.Client() as other:
        try:
            cco.Group(other, rank=1, size=2, name="g", timeout_ms=20_000).close()
        except cco.Aborted:
            pass  # The first has left already.
        error = waiting.ended()
    assert isinstance(error, (cco.InvalidArgument, cco.Aborted)), error
    daemon.expect_nothing_left()


def test_close_and_abort_while_another_thread_waits_at_a_barrier(ranks, daemon):
    def body(rank):
        with cco.Client() as client:
            group = cco.Group(client, rank=rank, size=2, name="g", timeout_ms=20_000)
            group.barrier()
            if rank == 0:
                waiting = Waiting(lambda: group.barrier(60_000))
                waiting.begun.wait()
                group.abort()  # It is at the barrier, or comes there now.
                assert isinstance(waiting.ended(), cco.Aborted)
                group.close()
            else:
                poll_until("nobody has aborted", lambda: isinstance(raised_by(group.check), cco.Aborted))

    ranks(2, body)
    daemon.expect_nothing_left()


# ---- Exit and fork ----


class Run:
    """A script that has ended; `asked` is what `asked()` gave after its first line."""

    def __init__(self, script, flags, asked):
        child = subprocess.Popen([sys.executable, *flags, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, env=child_environment())
        first = child.stdout.readline() if asked else ""
        self.asked = asked() if asked else None
        rest, self.stderr = child.communicate("", timeout=PATIENCE_S)
        self.stdout, self.returncode = first + rest, child.returncode


def run(script, *flags, expect=0, asked=None):
    ended = Run(script, flags, asked)
    assert ended.returncode == expect, ended.stderr
    return ended


LIVE = """
import sys, threading, cco
client = cco.Client()
group = cco.Group(client, rank=0, size=1, name="g")
window = cco.Window(group, "w", 4096)
comm = cco.Comm(group, signal_count=1)
memory = cco.Memory(client, 4096)
"""


@pytest.mark.parametrize("end", [
    "pass",
    "sys.exit(0)",
    "import numpy; kept = window.view().numpy()",
    "import numpy; kept = numpy.from_dlpack(window); cycle = [kept]; cycle.append(cycle)",
    "import builtins, numpy; builtins.kept = numpy.from_dlpack(window)",
    "capsule = window.__dlpack__()",
    "import builtins; builtins.capsule = window.__dlpack__(max_version=(1, 0))",
    "import ctypes; ctypes.pythonapi.Py_IncRef(ctypes.py_object(window.__dlpack__()))",
    "class Late:\n    def __del__(self): window.close(); client.close()\nlate = Late()",
    "import atexit, numpy\natexit.register(lambda: numpy.from_dlpack(window))",
    "del client, group, window, comm, memory",
    "def late():\n    try:\n        while True: group.barrier()\n    except cco.Error: pass\n"
    "threading.Thread(target=late, daemon=True).start()",
    "import numpy; kept = window.view().numpy(); window.close(); group.close(); client.close()",
])
def test_exit_with_live_handles(daemon, end):
    ended = run(f"{LIVE}\n{end}\n", "-X", "dev", "-W", "ignore::ResourceWarning")
    assert ended.stderr == "", ended.stderr
    daemon.expect_nothing_left()


HOLDER = r"""
#include <Python.h>
#include <stdint.h>
static void* held;
static void (**deleter)(void*);
void hold(PyObject* capsule) {
  held = PyCapsule_GetPointer(capsule, "dltensor");
  deleter = (void (**)(void*))((char*)held + 56);  /* DLManagedTensor.deleter */
  PyCapsule_SetName(capsule, "used_dltensor");
}
__attribute__((destructor)) static void at_exit(void) {
  if (held != 0 && *deleter != 0) (*deleter)(held);
}
"""


def test_a_consumer_that_outlives_the_interpreter(daemon, tmp_path):
    """As C++ statics that hold tensors: they let go of them when there is no interpreter any more."""
    include = sysconfig.get_path("include")
    if not os.path.exists(f"{include}/Python.h"):
        pytest.skip(f"no Python.h in {include}")
    library = tmp_path / "holder.so"
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{include}", "-x", "c", "-", "-o", str(library)], input=HOLDER,
                   text=True, check=True)
    ended = run(f"{LIVE}\nimport ctypes\nholder = ctypes.PyDLL({str(library)!r})\n"
                "holder.hold(ctypes.py_object(window.__dlpack__()))\nassert window.export_count == 1\n",
                "-W", "ignore::ResourceWarning")
    assert ended.stderr == ""
    daemon.expect_nothing_left()


def test_collection_in_any_order_ends_nothing_that_kernels_may_use(daemon):
    ended = run("""
import gc, itertools, json, subprocess, sys, cco
orders = list(itertools.permutations(range(4)))
for number, order in enumerate(orders):
    client = cco.Client()
    group = cco.Group(client, rank=0, size=1, name=f"g{number}")
    made = [client, group, cco.Window(group, "w", 64), cco.Comm(group, signal_count=1)]
    del client, group
    for place in order:
        made[place] = None
        gc.collect()
print(len(orders), flush=True)
sys.stdin.read()
""", "-W", "ignore::ResourceWarning", asked=lambda: daemon.counts())
    assert int(ended.stdout) == ended.asked["session"] == ended.asked["group"] == 24
    daemon.expect_nothing_left()


def test_exit_when_the_daemon_has_gone(daemon):
    """A program whose daemon is dead ends by itself, and says nothing."""
    ended = run(LIVE + f"""
import os, signal
os.kill({daemon.process.pid}, signal.SIGKILL)
""", "-W", "ignore::ResourceWarning")
    assert ended.stderr == ""


def test_exit_of_one_rank_is_no_loss_for_the_other(ranks, daemon):
    """Goal    a program that ends without close() has left, and is not taken for lost.
    Method  rank 1 is a process that ends with live handles after a barrier; rank 0 then checks its group."""
    script = """
import cco
client = cco.Client()
group = cco.Group(client, rank=1, size=2, name="g", timeout_ms=20000)
window = cco.Window(group, "w", 64)
group.barrier()
"""
    with cco.Client() as client:
        child = subprocess.Popen([sys.executable, "-c", script], env=child_environment())
        with cco.Group(client, rank=0, size=2, name="g", timeout_ms=20_000) as group:
            with cco.Window(group, "w", 64):
                group.barrier()
                assert child.wait(PATIENCE_S) == 0
                poll_until("the other is still there", lambda: daemon.counts()["session"] == 1)
                group.check()


def test_unhandled_error_ends_with_its_text(daemon):
    ended = run(f"{LIVE}\ncco.Window(group, 'w', 0)", expect=1)
    assert "cco.errors.InvalidArgument: INVALID_ARGUMENT: " in ended.stderr


FORK = LIVE + """
import os, numpy
array = numpy.from_dlpack(window)
child = os.fork()
if child == 0:
    code = 1
    try:
        for call in (group.barrier, lambda: window.info(), lambda: cco.Client()):
            try:
                call()
            except cco.FailedPrecondition as error:
                assert "fork" in str(error), error
            else:
                raise AssertionError("a forked child was served")
        del array
        window.close(); group.close(); client.close()
        code = 0
    finally:
        {leave}
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
group.barrier()
array[:] = 1
assert window.info().size_bytes == 4096
"""


@pytest.mark.parametrize("leave", ["os._exit(code)", "sys.exit(code)"])
def test_a_forked_child_is_refused_and_harms_nobody(daemon, leave):
    ended = run(FORK.replace("{leave}", leave), "-W", "ignore::DeprecationWarning")
    assert ended.stderr == ""
    daemon.expect_nothing_left()


LOCKS = {}  # Module -> the script's line that takes its lock in the child; every lock there is has to be here.
LOCKS["_owner"] = "window.close()"
LOCKS["_dlpack"] = "_dlpack._made = None; _dlpack._queue()"
LOCKS["_library"] = "_library._loaded = None; _library.library()"
LOCKS["torch"] = "cco.torch._registered.add('x'); cco.torch.register_symm_backend('x')"


@pytest.mark.parametrize("module", LOCKS)
def test_a_fork_while_another_thread_holds_a_lock(daemon, module):
    """Method  a thread holds the lock, as it may at a fork; the child must not wait for it."""
    if module == "torch":
        pytest.importorskip("torch")
    ended = run(LIVE + f"""
import os, signal
import cco.{module}
from cco import _dlpack, _library
held, over = threading.Event(), threading.Event()
def holding():
    with cco.{module}._lock:
        held.set()
        over.wait()
threading.Thread(target=holding, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    {LOCKS[module]}
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
over.set()
assert code == 0, code
""", "-W", "ignore::ResourceWarning", "-W", "ignore::DeprecationWarning")
    assert ended.stderr == ""


def test_every_lock_is_tried_at_a_fork():
    package = Path(cco.__file__).parent
    for path in package.rglob("*.py"):
        made = path.read_text(encoding="utf-8").count("Lock()")
        module = path.relative_to(package).with_suffix("").as_posix().removesuffix("/__init__")
        # Made twice: at import, and in the child.
        assert made == (2 if module in LOCKS else 0), f"{path} makes locks {made} times"


def test_fork_before_the_first_client(daemon):
    run("import cco, os\nchild = os.fork()\nwith cco.Client() as client: client.gpu(0)\n"
        "assert child == 0 or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0")
    daemon.expect_nothing_left()


def test_multiprocessing_spawn(daemon, tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text('''
import multiprocessing
import cco

def rank(number, secret):
    with cco.Client() as client, cco.Group(client, rank=number, size=2, unique_id=secret) as group:
        with cco.Window(group, None, 8) as window:
            window.view(dtype="int64").numpy()[0] = number
            group.barrier()
            assert [window.view(peer, dtype="int64").numpy()[0] for peer in range(2)] == [0, 1]
            group.barrier()

if __name__ == "__main__":
    secret = cco.UniqueId.create()
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=rank, args=(number, secret)) for number in range(2)]
    for one in ranks: one.start()
    for one in ranks: one.join()
    assert [one.exitcode for one in ranks] == [0, 0]
''')
    ended = subprocess.run([sys.executable, str(script)], env=child_environment(), capture_output=True, text=True,
                           timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    daemon.expect_nothing_left()


def test_nothing_is_left_of_many_rounds(daemon):
    """Descriptors of this process, and what the daemon holds."""
    def once():
        made = make()
        array = numpy.from_dlpack(made["window"])
        made["client"].close()
        del array

    once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        once()
    poll_until("descriptors are left", lambda: len(os.listdir("/proc/self/fd")) <= before)
    daemon.expect_nothing_left()
