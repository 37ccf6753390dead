"""Goal    a consumer may let go of a tensor anywhere: while an exception is pending, in threads, after a fork, at
        exit. The exception arrives as it was, and the memory is given back.
Method  scripts in processes of their own, because what goes wrong there ends the interpreter."""

import subprocess
import sys

import pytest

from conftest import PATIENCE_S, child_environment

pytest.importorskip("numpy")

BEGIN = """
import ctypes, gc, os, signal, sys, threading
import numpy
import cco
client = cco.Client()
group = cco.Group(client, rank=0, size=1, name="g")
window = cco.Window(group, "w", 4096)
def take(*arguments): pass
"""


def run(script):
    """Its standard output; it has to succeed and to say nothing else."""
    flags = ["-X", "faulthandler", "-W", "ignore::DeprecationWarning"]  # That one is about fork() with threads.
    ended = subprocess.run([sys.executable, *flags, "-c", BEGIN + script], env=child_environment(),
                           capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), f"{ended.stdout}{ended.stderr}"
    return ended.stdout


# By what has to be imported: what is made from a window, and how it ends.
MADE = {
    "numpy": ["window.__dlpack__()", "window.__dlpack__(max_version=(1, 0))", "numpy.from_dlpack(window)",
              "numpy.asarray(window)", "window.view().numpy()", "numpy.asarray(window.view())"],
    "torch": ["torch.from_dlpack(window.view())"],
    "cco.torch": ["cco.torch.tensor(window)"],
}
LINES = {framework: [
    *((f"take({one}, 1 / 0)", "ZeroDivisionError: division by zero") for one in made),
    *((f"[{one}, missing]", "NameError: name 'missing' is not defined") for one in made),
    *((f"{one}[99999]", "IndexError: index 99999 is out of bounds for ") for one in made if "__dlpack__" not in one),
] for framework, made in MADE.items()}
LINES["numpy"] += [
    ("numpy.from_dlpack(window) + numpy.zeros(3)", "ValueError: operands could not be broadcast"),
    ('numpy.from_dlpack(window.view(dtype="bfloat16"))', ""),  # Its words are NumPy's.
]
LINES["torch"] += [
    ("torch.equal(torch.from_dlpack(window.view()), missing)", "NameError: "),
    ('[torch.from_dlpack(window.view(dtype="bfloat16")) for _ in range(40)].missing', "AttributeError: "),
]


@pytest.mark.parametrize("framework", LINES)
def test_an_exception_on_its_way(daemon, framework):
    """Method  each line raises while it alone holds what was made from the window; twice, as caches may differ.
    A line says its name first, so that the last one is known if the interpreter dies."""
    pytest.importorskip(framework.rpartition(".")[2])
    told = run(f"""
import {framework}
def once(line):
    try:
        eval(line)
    except Exception as error:
        print(f"  {{type(error).__name__}}: {{error}}".splitlines()[0], flush=True)
    gc.collect()
    assert window.export_count == 0, window.export_count
for line in {[line for line, _ in LINES[framework]]!r}:
    print(line, flush=True)
    once(line)
    once(line)
for one in (window, group, client): one.close()
""").splitlines()
    assert told[::3] == [line for line, _ in LINES[framework]], told
    for place, (line, expected) in enumerate(LINES[framework]):
        for one in told[3 * place + 1:3 * place + 3]:
            assert one.strip().startswith(expected) and "SystemError" not in one, f"{line}: {one}"
    daemon.expect_nothing_left()


def test_the_interpreter_takes_back_by_itself(daemon):
    """Goal    nobody has to ask: the last tensor of a closed window ends it.
    Method  only counts that ask for no releases are looked at."""
    run("""
arrays = [numpy.from_dlpack(window) for _ in range(1000)]
window.close()
arrays.clear()
for _ in range(1000):
    if window._handle is None: break
assert window._handle is None and window._exports == 0
""")


def test_many_at_once_from_threads(daemon):
    """Goal    more releases than the interpreter has places for pending calls, by threads, with exceptions pending."""
    run("""
arrays = [[numpy.from_dlpack(window) for _ in range(100)] for _ in range(8)]
begin = threading.Barrier(8)
def release(mine):
    begin.wait()
    while mine:
        try:
            take(mine.pop(), mine.pop(), 1 / 0)
        except ZeroDivisionError:
            pass
threads = [threading.Thread(target=release, args=(mine,)) for mine in arrays]
for thread in threads: thread.start()
window.close()
for thread in threads: thread.join()
assert window.export_count == 0 and window._handle is None
""")
    daemon.expect_nothing_left()


def test_no_place_for_a_pending_call(daemon):
    """Method  the main thread waits in C while another fills the interpreter's queue and then lets go of a tensor:
    the next call of an owner takes it back, and later ones come back by themselves."""
    run("""
Work = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
nothing = Work(lambda _: 0)
failures = []
def fill():
    try:
        array = numpy.from_dlpack(window)
        for _ in range(10_000):
            if ctypes.pythonapi.Py_AddPendingCall(nothing, None) != 0: break
        else:
            raise AssertionError("the queue has no end")
        del array
        assert window._exports == 1, "a pending call has run: the test tests nothing"
        assert window.export_count == 0
    except BaseException as error:
        failures.append(error)
    finally:
        done.release()
done = threading.Lock()
done.acquire()
thread = threading.Thread(target=fill)
thread.start()
done.acquire()  # In C, without a look at pending calls.
thread.join()
assert not failures, failures
array = numpy.from_dlpack(window)
del array
for _ in range(1000):
    if window._exports == 0: break
assert window._exports == 0
""")


NO_INTERPRETER = """
libc = ctypes.CDLL(None)
START = ctypes.CFUNCTYPE(None)
def address(function): return ctypes.cast(function, ctypes.c_void_p)
def managed(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    found = get(capsule, b"dltensor")
    rename(capsule, used)
    return found
used = b"used_dltensor"
deleter = ctypes.c_void_p.from_address
"""


def test_a_thread_without_the_interpreter(daemon):
    """Method  threads that libc starts call the deleter themselves, as C++ consumers do."""
    run(NO_INTERPRETER + """
held = [managed(window.__dlpack__()) for _ in range(100)]
assert window.export_count == 100
threads = []
for one in held:
    thread = ctypes.c_uint64()
    code = libc.pthread_create(ctypes.byref(thread), None, deleter(one + 56), ctypes.c_void_p(one))
    assert code == 0
    threads.append(thread)
for thread in threads: libc.pthread_join(thread, None)
assert window.export_count == 0
""")


def test_a_forked_child_lets_go(daemon):
    """Goal    neither the child's releases, nor those that the parent had noted down, do anything to the parent.
    Method  the child forked while a thread was in the interpreter's queue of pending calls would wait there for
    ever; so it must not go there: it counts only once it asks."""
    run("""
array, kept = numpy.from_dlpack(window), numpy.from_dlpack(window)
child = os.fork()
if child == 0:
    signal.alarm(20)
    del array
    for _ in range(1000): take()
    code = int(window._exports != 2)
    code += 2 * int(window.export_count != 1)
    window.close(); group.close(); client.close()
    os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert window.export_count == 2
kept[:] = 1
group.barrier()
""")


@pytest.mark.parametrize("made", ["numpy.from_dlpack(window)", "window.__dlpack__()"])
def test_threads_that_let_go_at_exit(daemon, made):
    """Method  threads go on releasing while the interpreter ends, and an exception leaves the program."""
    run(f"""
def release():
    while True:
        try:
            take({made}, 1 / 0)
        except ZeroDivisionError:
            pass
        except cco.Error:
            return
for _ in range(4): threading.Thread(target=release, daemon=True).start()
while window._exports == 0: pass
take({made}, sys.exit(0))
""")
    daemon.expect_nothing_left()
