"""Fixtures: a real cco-memd on the host driver, ranks as threads, ranks as processes.

`CCO_BUILD_DIR` names the build folder (tests/python/run sets it). The package is taken from the source tree.
"""

import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CCO_BUILD_DIR", SOURCE / "build" / "dev"))
PYTHON_PATH = [SOURCE / "client" / "python", SOURCE / "client" / "python" / "mori_alias"]
LIBRARY = BUILD / "client" / "src" / "libcco_client.so"
MEMD = BUILD / "daemon" / "cco-memd"
CCOCTL = BUILD / "client" / "ctl" / "ccoctl"
PATIENCE_S = 60 * float(os.environ.get("CCO_TEST_TIME_FACTOR", "1"))

sys.path[:0] = [str(path) for path in PYTHON_PATH]
os.environ.setdefault("CCO_LIBRARY", str(LIBRARY))
# No launcher's variables, whatever starts the tests.
for _name in list(os.environ):
    if re.match(r"(RANK|WORLD_SIZE|LOCAL_RANK|OMPI_|PMI_|SLURM_|CCO_RANK|CCO_SIZE|CCO_SOCKET)", _name):
        del os.environ[_name]


def child_environment(**more):
    """What a child process needs to import the package and to find the library."""
    paths = [*map(str, PYTHON_PATH), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1", **more}


def poll_until(what, done):
    """For what no event tells: the daemon notices the end of processes one by one."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"{PATIENCE_S:.0f} s are over: {what}"
        threading.Event().wait(0.01)


class Daemon:
    """One cco-memd with a folder of its own. `socket` is where it listens."""

    def __init__(self, config="", devices=2, bytes_per_device=256 << 20, driver="host"):
        self.folder = Path(tempfile.mkdtemp(prefix="cco-py-"))
        self.socket = str(self.folder / "memd.sock")
        self._config = self.folder / "memd.textproto"
        self._config.write_text(
            f'driver: "{driver}"\nhost {{ device_count: {devices} bytes_per_device: {bytes_per_device} }}\n'
            f'socket_path: "{self.socket}"\n{config}\n', encoding="utf-8")
        self.process = None
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self):
        """Returns once it serves."""
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        path = str(self.folder / "notify")
        Path(path).unlink(missing_ok=True)
        told.bind(path)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(MEMD), "--config", str(self._config)],
                stderr=log, env={**os.environ, "NOTIFY_SOCKET": path})
        pidfd = os.pidfd_open(self.process.pid)
        deadline = time.monotonic() + PATIENCE_S
        try:
            while True:
                ready, _, _ = select.select([told, pidfd], [], [], max(0, deadline - time.monotonic()))
                if told not in ready:
                    raise AssertionError(f"cco-memd does not start: {self.log()}")
                if b"READY=1" in told.recv(4096):
                    return
        finally:
            os.close(pidfd)
            told.close()

    def log(self):
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def ccoctl(self, *arguments):
        """Its standard output; it has to succeed."""
        ended = subprocess.run([str(CCOCTL), "--socket", self.socket, *arguments], capture_output=True, text=True,
                               timeout=PATIENCE_S, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def counts(self):
        """Sessions other than the one that asks, groups, windows, and bytes of slabs."""
        node = json.loads(self.ccoctl("status", "--json"))
        found = {key: int(node.get(f"{key}_count", 0)) for key in ("session", "group", "window")}
        found["session"] -= 1
        found["slab_bytes"] = sum(int(gpu.get("slab_bytes", 0)) for gpu in node["gpus"])
        return found

    def expect_nothing_left(self):
        poll_until("something is left in cco-memd", lambda: not any(self.counts().values()))

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"cco-memd does not stop: {self.log()}") from None
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def make_daemon(monkeypatch):
    """Makes daemons as they are asked for; `CCO_SOCKET` names the latest. They end with the test."""
    made = []

    def make(*arguments, **options):
        made.append(Daemon(*arguments, **options))
        monkeypatch.setenv("CCO_SOCKET", made[-1].socket)
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def daemon(make_daemon):
    """A daemon with two devices of 256 MiB, which `cco.Client()` finds."""
    return make_daemon()


def run_threads(count, function, timeout_s=PATIENCE_S):
    """Calls `function(rank)` in a thread for each rank; their results in order.

    The first exception that is nobody else's consequence is raised, else the first.
    """
    results, failures = [None] * count, {}

    def body(rank):
        try:
            results[rank] = function(rank)
        except BaseException as error:  # Raised again below, in the test's thread.
            failures[rank] = error

    threads = [threading.Thread(target=body, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    late = [thread.name for thread in threads if thread.is_alive()]
    assert not late, f"after {timeout_s:.0f} s still running: {', '.join(late)}; failed so far: {failures}"
    for error in failures.values():
        if isinstance(error, AssertionError):
            raise error
    for error in failures.values():
        raise error
    return results


@pytest.fixture
def ranks(daemon):
    """`ranks(n, function)`: ranks as threads of this process, with a daemon; see run_threads()."""
    return run_threads


class Ended:
    """One process that has ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


def run_processes(count, script, *arguments, job="job", check=True, timeout_s=PATIENCE_S, **variables):
    """Runs `script` (a path, or Python source) as `count` ranks, as `ccoctl run` would start them."""
    command = [sys.executable, *(["-c", script] if "\n" in str(script) else [str(script)]), *map(str, arguments)]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment(
            CCO_RANK=str(rank), CCO_SIZE=str(count), CCO_LOCAL_RANK=str(rank), CCO_LOCAL_SIZE=str(count), CCO_JOB=job,
            **variables))
        for rank in range(count)]
    deadline = time.monotonic() + timeout_s
    ended = []
    try:
        for child in children:
            out, err = child.communicate(timeout=max(0.01, deadline - time.monotonic()))
            ended.append(Ended(child.returncode, out, err))
    finally:
        for child in children:
            child.kill()
            child.wait(PATIENCE_S)
    if check:
        for rank, one in enumerate(ended):
            assert one.code == 0, f"rank {rank} ended with {one.code}:\n{one.out}{one.err}"
    return ended


@pytest.fixture
def processes(daemon):
    """`processes(n, script, *arguments)`: ranks as processes, with a daemon; see run_processes()."""
    return run_processes
