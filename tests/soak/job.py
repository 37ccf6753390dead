"""One job: ranks that move patterns between each other's windows, and the truth about what must be where.

The truth is a seed for each cell of each rank's copy of each window, or None while a put is under way. It is the
director's alone: workers are told what to put and what to expect."""

import asyncio
import signal

from node import GPUS, PATIENCE_S, Process, Wrong

# Which errors may come of which call, and when; everything else is one too many. With "lost" the error must come after
# a rank was killed, and where it names a rank, name one of those; who joins late may miss one that knows already.
ALLOWED = {
    ("attach", "CCO_UNAVAILABLE"): "no daemon",  # Between two; the worker tries again.
    ("join", "CCO_RESOURCE_EXHAUSTED"): "memory or quota",
    ("window", "CCO_RESOURCE_EXHAUSTED"): "memory or quota",
    ("external", "CCO_RESOURCE_EXHAUSTED"): "memory or quota",
    ("join", "CCO_DEADLINE_EXCEEDED"): "lost",  # It was killed before it came.
    ("join", "CCO_ABORTED"): "lost",
    ("window", "CCO_ABORTED"): "lost",
    ("external", "CCO_ABORTED"): "lost",
    ("barrier", "CCO_ABORTED"): "lost",
    ("wait", "PEER_LOST"): "lost",
}
CELLS = 8
CELL_BYTES = (64, 4096, 40960, 262144)
MOST_WINDOWS = 5


class Refused(Exception):
    """Memory or a quota has run out: all ranks learn it, and go on without."""


class Lost(Exception):
    """A rank was killed; the group's calls have ended as they should."""


class Worker:
    """A client process, which is one rank."""

    def __init__(self, job, rank):
        self.job, self.rank, self.process = job, rank, None
        self.windows = set()

    async def start(self, program, environment, user):
        self.process = await Process.start(
            program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment, user=user,
            group=user, extra_groups=None if user is None else [])

    def is_lost(self):
        return self.rank in self.job.lost

    def runs(self):
        return self.process is not None and self.process.runs()

    def kill(self):
        self.job.lost.add(self.rank)
        self.process.signal(signal.SIGKILL)

    async def tell(self, *words):
        """Its answer, judged."""
        try:
            self.process.child.stdin.write((" ".join(map(str, words)) + "\n").encode())
            line = await asyncio.wait_for(self.process.child.stdout.readline(), 2 * PATIENCE_S)
        except asyncio.TimeoutError:
            raise Wrong(f"{self.job.name}, rank {self.rank}: no answer to {words}") from None
        except ConnectionError:
            line = b""
        answer = line.decode().split(maxsplit=3)
        self.job.counts["commands"] += 1
        if answer == ["ok"]:
            return
        if not answer and self.is_lost():
            raise Lost
        if not answer or answer[0] != "error":
            raise Wrong(f"{self.job.name}, rank {self.rank}: {line.decode().strip() or 'it died'} ({words})")
        self.judge(words[0], answer[1], int(answer[2]), line.decode().strip())

    def judge(self, call, status, rank, text):
        why = ALLOWED.get((call, status))
        lost = self.job.lost
        missing = lost | self.job.told if (call, status) == ("join", "CCO_DEADLINE_EXCEEDED") else lost
        if why is None or why == "lost" and (not lost or rank >= 0 and rank not in missing):
            raise Wrong(f"{self.job.name}, rank {self.rank}, lost {sorted(lost)}: {call}: {text}")
        if why == "lost":
            self.job.told.add(self.rank)
        self.job.counts[f"{call}: {status} ({why})"] += 1
        raise Lost if why == "lost" else Refused

    async def attach(self):
        while True:
            try:
                return await self.tell("attach")
            except Refused:
                await asyncio.sleep(0.05)

    async def leave(self):
        await self.tell("leave")
        self.process.child.stdin.close()

    async def expect_end(self):
        code = await self.process.wait()
        if code != 0 and not (self.is_lost() and code == -signal.SIGKILL):
            raise Wrong(f"{self.job.name}, rank {self.rank}: it ended with {code}")


class Job:
    def __init__(self, number, rng, counts, program, environment, users):
        self.number, self.rng, self.counts = number, rng, counts
        self.name = f"job-{number}"
        self.lost = set()
        self.told = set()  # Ranks whose calls have ended as another was lost: these do not come again.
        self.truth = {}  # By window: its cells' size, and for each rank the seeds of its cells.
        self.signals = []
        self.made = 0
        self.seeds = 0
        self.program, self.environment, self.user = program, environment, rng.choice(users)
        self.workers = [Worker(self, rank) for rank in range(rng.randint(2, 4))]

    def alive(self):
        return [worker for worker in self.workers if not worker.is_lost()]

    async def all(self, act, workers=None):
        """`act(worker)` of all at once. The worst outcome is everybody's."""
        outcomes = await asyncio.gather(*map(act, workers or self.workers), return_exceptions=True)
        for kind in (Wrong, Exception, Lost, Refused):
            for outcome in outcomes:
                if isinstance(outcome, kind) and (kind is not Exception or not isinstance(outcome, (Lost, Refused))):
                    raise outcome
        return outcomes

    async def run(self):
        self.signals = [0] * len(self.workers)
        await self.all(lambda worker: worker.start(self.program, self.environment, self.user))
        try:
            await self.set_up()
            for _ in range(self.rng.randint(3, 25)):
                await self.rng.choice((self.add_window, self.drop_window, self.exchange, self.exchange, self.verify,
                                       self.meet, self.pause))()
            if self.rng.random() < 0.3:  # As a job that its launcher ends.
                for worker in self.alive():
                    worker.kill()
        except (Lost, Refused):
            pass
        await self.end()
        self.counts["jobs"] += 1

    async def set_up(self):
        await self.all(lambda worker: worker.attach())
        first = self.rng.randrange(GPUS)
        await self.all(lambda worker: worker.tell("join", self.name, worker.rank, len(self.workers),
                                                  (first + worker.rank) % GPUS, self.number % 65535 + 1))
        await self.add_window()

    async def add_window(self):
        if len(self.truth) == MOST_WINDOWS:
            return
        self.made += 1
        name, cell_bytes = f"w{self.made}", self.rng.choice(CELL_BYTES)
        kind = self.rng.choice(("window", "window", "external"))
        seeds = [[None] * CELLS for _ in self.workers]

        async def make(worker):
            await worker.tell(kind, name, CELLS * cell_bytes)
            worker.windows.add(name)

        try:
            await self.all(make)
        except Refused:
            if any(name in worker.windows for worker in self.workers):
                raise Wrong(f"{self.name}: some ranks have {name}, and some were refused it") from None
            return
        self.counts["windows" if kind == "window" else "windows of external memory"] += 1
        self.truth[name] = (cell_bytes, seeds)
        await self.put_all([(worker, name, worker.rank, cell) for worker in self.workers for cell in range(CELLS)])

    async def drop_window(self):
        if self.truth:
            name = self.rng.choice(sorted(self.truth))
            del self.truth[name]
            for worker in self.workers:
                worker.windows.discard(name)
            await self.all(lambda worker: worker.tell("destroy", name))

    async def exchange(self):
        """Puts into cells of all ranks by all ranks, each cell once; signals; then others look."""
        cells = [(name, rank, cell) for name in sorted(self.truth) for rank in range(len(self.workers))
                 for cell in range(CELLS)]
        chosen = self.rng.sample(cells, min(len(cells), self.rng.randint(1, 40)))
        await self.put_all([(self.rng.choice(self.workers), *place) for place in chosen])
        await self.all(lambda worker: self.check(worker, chosen[worker.rank::len(self.workers)]))

    async def put_all(self, puts):
        async def put_own(worker):
            for putter, name, rank, cell in puts:
                if putter is not worker:
                    continue
                cell_bytes, seeds = self.truth[name]
                self.seeds += 1
                seed, seeds[rank][cell] = self.seeds, None
                await worker.tell("put", name, rank, cell * cell_bytes, cell_bytes, seed)
                seeds[rank][cell] = seed
                self.counts["puts"] += 1
                self.counts["bytes put"] += cell_bytes

        for _, _, rank, _ in puts:
            self.signals[rank] += 1
        await self.all(put_own)
        await self.all(lambda worker: worker.tell("wait", self.signals[worker.rank]))

    async def check(self, reader, places):
        for name, rank, cell in places:
            cell_bytes, seeds = self.truth[name]
            seed = seeds[rank][cell]
            if name in reader.windows and seed is not None:
                await reader.tell("check", name, rank, cell * cell_bytes, cell_bytes, seed)
                self.counts["bytes checked"] += cell_bytes

    async def check_all(self, reader):
        await self.check(reader, [(name, rank, cell) for name in sorted(self.truth)
                                  for rank in range(len(self.workers)) for cell in range(CELLS)])

    async def verify(self):
        await self.check_all(self.rng.choice(self.workers))

    async def meet(self):
        await self.all(lambda worker: worker.tell("barrier"))

    async def pause(self):
        await asyncio.sleep(self.rng.uniform(0, 0.5))

    async def end(self):
        """Whoever lives finds all memory as it was, that of the lost included; and all end."""
        async def end_one(worker):
            try:
                await self.check_all(worker)
                if self.lost:
                    self.counts["survivors that found all memory as it was"] += 1
                await worker.leave()
            except Lost:
                pass

        await self.all(end_one)
        await self.all(lambda worker: worker.expect_end())
