"""The node under test: a daemon whose state outlives it, with tenants, and what it says that it holds."""

import asyncio
import contextlib
import json
import os
import signal
import time

PATIENCE_S = 60 * float(os.environ.get("CCO_TEST_TIME_FACTOR", "1"))
GPUS = 2
# Small enough that memory runs out now and then, and so do the first tenant's windows.
CONFIG = """
driver: "host"
host {{ device_count: {gpus} bytes_per_device: 50331648 }}
socket_path: "{folder}/memd.sock"
socket_mode: "0666"
state_dir: "{folder}/state"
tenants {{ name: "first" uid: 1000 quotas {{ windows: 6 groups: 8 sessions: 64 bytes_per_gpu: 25165824 }} }}
tenants {{ name: "second" uid: 1001 }}
"""


class Wrong(Exception):
    """Something that must not be: the soak has failed."""


class Process:
    """A child, with a pidfd: signals by asyncio may take away the exit status that its wait() waits for."""

    @classmethod
    async def start(cls, *command, **options):
        process = cls()
        process.child = await asyncio.create_subprocess_exec(*command, **options)
        process.pidfd = os.pidfd_open(process.child.pid)
        return process

    def runs(self):
        return self.child.returncode is None

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):  # It has just ended.
            signal.pidfd_send_signal(self.pidfd, number)

    async def wait(self):
        """Its exit code, or minus the signal. Once."""
        try:
            code = await asyncio.wait_for(self.child.wait(), PATIENCE_S)
            if self.child.stdin is not None:
                self.child.stdin.close()
                # Words that it did not live to hear: else they are complained of when nobody expects it.
                with contextlib.suppress(OSError):
                    await asyncio.wait_for(self.child.stdin.wait_closed(), PATIENCE_S)
        except asyncio.TimeoutError:
            raise Wrong(f"process {self.child.pid} does not end") from None
        os.close(self.pidfd)
        return code


async def poll_until(what, done):
    deadline = time.monotonic() + PATIENCE_S
    while not await done():
        if time.monotonic() > deadline:
            raise Wrong(f"{PATIENCE_S:.0f} s are over: {what}")
        await asyncio.sleep(0.02)


class Node:
    def __init__(self, build, folder):
        self.memd = f"{build}/daemon/cco-memd"
        self.ccoctl = f"{build}/client/ctl/ccoctl"
        self.folder = folder
        self.socket = f"{folder}/memd.sock"
        self.daemon = None
        with open(f"{folder}/memd.textproto", "w", encoding="utf-8") as config:
            config.write(CONFIG.format(folder=folder, gpus=GPUS))

    async def start(self):
        with open(f"{self.folder}/log", "ab") as log:
            self.daemon = await Process.start(
                "setpriv", "--pdeathsig", "KILL", self.memd, "--config", f"{self.folder}/memd.textproto", stderr=log)

    async def end(self, number):
        """By this signal, and by nothing else."""
        if not self.daemon.runs():
            raise Wrong(f"the daemon has ended by itself: {self.daemon.child.returncode}")
        self.daemon.signal(number)
        code = await self.daemon.wait()
        # One that is not yet up when it is told to stop has no handler for it.
        if code != -number and (number == signal.SIGKILL or code != 0):
            raise Wrong(f"the daemon ended with {code} after signal {number}")

    async def ledger(self):
        """What the daemon holds, once it answers; its watcher's own session is one of the sessions."""
        answer = {}

        async def ask():
            ccoctl = await asyncio.create_subprocess_exec(
                self.ccoctl, "--socket", self.socket, "status", "--json",
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
            text, _ = await ccoctl.communicate()
            if ccoctl.returncode != 0:
                return False
            node = json.loads(text)
            answer.update({key: int(node.get(f"{key}_count", 0)) for key in ("session", "group", "window")})
            answer["fds"] = int(node["open_fds"])
            for key in ("slab_count", "slab_bytes", "quarantined_bytes", "held_bytes", "reserved_bytes", "kept_bytes",
                        "waiting_count"):
                answer[key] = sum(int(gpu.get(key, 0)) for gpu in node["gpus"])
            return True

        await poll_until("the daemon does not answer", ask)
        return answer

    async def expect_nothing_left(self, most_fds):
        """With all clients gone; asked until it is so, for their ends are noticed one by one."""
        seen = {}

        async def is_empty():
            seen.update(await self.ledger())
            return seen["session"] == 1 and seen["fds"] <= most_fds and not any(
                value for key, value in seen.items() if key not in ("session", "fds"))

        try:
            await poll_until("", is_empty)
        except Wrong:
            raise Wrong(f"with all clients gone the daemon holds {seen}; {most_fds} fds at the start") from None

    def keeper(self):
        """Its pid, or None."""
        try:
            with open(f"{self.folder}/state/keeper.lock", encoding="utf-8") as lock:
                pid = int(lock.read())
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                return pid if b"cco-keeper" in line.read() else None
        except (OSError, ValueError):
            return None

    def log_count(self, text):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as log:
            return sum(text in line for line in log)
