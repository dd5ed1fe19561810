"""Programs that compute for long, and those that give way from the start on: their threads have a lower priority."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.runtime.wasm.language_kit import Kit
from tests.runtime.wasm.workers.in_workers import have_workers
from tests.waiting import until

from toolexec.runtime.priority import APART, GIVES_WAY
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.python import PythonLanguage
from toolexec.runtime.wasm.workers import long_runs as long_runs_module
from toolexec.runtime.wasm.workers.long_runs import LONG_SECONDS, LOWER, LongRuns, hurry
from toolexec.runtime.wasm.workers.pool import Workers
from toolexec.runtime.wasm.workers.process import WorkerProcess, can_start

pytestmark = pytest.mark.skipif(not can_start(), reason="there are no workers on this system")

USUAL = os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0
ORDINARY_USER = 65534
LOW = min(19, USUAL + LOWER)


def rank_of(thread: int) -> tuple[int, bool]:
    """Return how nice a thread is, and whether it has only what the others leave."""
    return os.getpriority(os.PRIO_PROCESS, thread), os.sched_getscheduler(thread) == os.SCHED_IDLE


def ranks_of(process: int) -> set[tuple[int, bool]]:
    """Return the same of all threads of a process."""
    found: set[tuple[int, bool]] = set()
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):  # it has just ended
            found.add(rank_of(int(task.name)))
    return found


def idle_in(process: int) -> int:
    """Return how many threads of a process have only what the others leave."""
    found = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):  # it has just ended
            found += rank_of(int(task.name))[1]
    return found


class Thread:
    """A thread that enters as a program, computes for long or not at all, and records its priority."""

    def __init__(self, long_runs: LongRuns, *, computes: bool, gives_way: bool = False) -> None:
        self._long_runs, self._computes, self._gives_way = long_runs, computes, gives_way
        self._enough, self._is_there = threading.Event(), threading.Event()
        self.rank = (USUAL, False)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        assert self._is_there.wait(10)

    def _work(self) -> None:
        self.watched = self._long_runs.enter(gives_way=self._gives_way)
        while self._computes and self.watched.computed < 2 * LONG_SECONDS:
            pass
        self._is_there.set()
        self._enough.wait(10)
        self.rank = rank_of(self.watched.thread)
        self._long_runs.leave(self.watched)

    def end(self) -> None:
        self._enough.set()
        self._thread.join(10)


class Silent(LongRuns):
    """It looks when the test says so."""

    def _keep(self) -> None:
        """Do nothing."""


@pytest.fixture
def long_runs() -> LongRuns:
    """Return long runs that are looked for when the test says so."""
    return Silent()


def test_who_computes_for_long_gives_way(long_runs: LongRuns) -> None:
    """A program that waits does not, however long; one that should has what is left before it computes at all."""
    busy, idle = Thread(long_runs, computes=True), Thread(long_runs, computes=False)
    polite = Thread(long_runs, computes=False, gives_way=True)
    assert (busy.watched.gives_way, idle.watched.gives_way, polite.watched.gives_way) == (False, False, True)
    assert long_runs.look() == 3
    for each in (busy, idle, polite):
        each.end()
    assert (busy.rank, idle.rank, polite.rank) == ((LOW, False), (USUAL, False), (USUAL, True))
    assert (busy.watched.gives_way, idle.watched.gives_way) == (True, False)
    assert long_runs.look() == 0


def test_it_looks_by_itself() -> None:
    """The thread that looks lowers each program that computes for long, one after the other."""
    long_runs = LongRuns()
    for _ in range(2):
        busy = Thread(long_runs, computes=True)
        ends = time.monotonic() + 10
        while not busy.watched.gives_way:
            assert time.monotonic() < ends
            time.sleep(LONG_SECONDS / 4)
        busy.end()


def test_who_leaves_the_cores_to_others_gets_one_for_its_end(long_runs: LongRuns) -> None:
    """The others of its process get one, too, as one of them may have the interpreter; they leave the cores after it."""
    one, other = (Thread(long_runs, computes=False, gives_way=True) for _ in range(2))

    def ranks() -> list[bool]:
        return [rank_of(each.watched.thread)[1] for each in (one, other)]

    long_runs.look()
    assert ranks() == [True, True]
    if not hurry(os.getpid()):
        pytest.skip("this user may not raise a priority")
    long_runs.look()
    assert ranks() == [True, True]
    long_runs.stop(one.watched)
    long_runs.look()
    assert ranks() == [False, False]
    one.end()
    long_runs.look()
    assert rank_of(other.watched.thread)[1]
    other.end()


def test_for_an_ordinary_user_they_get_none() -> None:
    """A guest of theirs has more time to end, before its worker is killed with all others in it."""
    if os.geteuid():
        pytest.skip("only root can be another user")
    program = (
        "import os, sys; found = {}; "
        "exec(compile(sys.stdin.read(), 'long_runs', 'exec'), found); hurry = found['hurry']; "
        f"os.setgid({ORDINARY_USER}); os.setuid({ORDINARY_USER}); before = hurry(os.getpid()); "
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); print(before, hurry(os.getpid()))"
    )
    said = subprocess.run(
        [sys.executable, "-I", "-c", program],
        input=Path(long_runs_module.__file__).read_text(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["True", "False"]


@pytest.fixture
async def python() -> AsyncIterator[PythonLanguage]:
    """Give the language, as it is used."""
    language = PythonLanguage(WasmConfig(pool_size=0, workers=2))
    yield language
    await language.aclose()


@pytest.fixture
async def workers(python: PythonLanguage) -> Workers:
    """Return two workers that rank their programs, and get every one."""
    await python.start_workers()
    return await have_workers(python)


@pytest.mark.full
async def test_a_long_program_leaves_no_slow_thread_behind(python: PythonLanguage, workers: Workers) -> None:
    """The thread of such a program is used by no other one; that of a short program is, as soon as one took less than
    `LONG_SECONDS` of a processor, which the first one in a worker may take on a busy machine."""
    kit = Kit()

    async def left_by(code: str) -> int:
        (await python.execute(kit.request(code, timeout=60))).raise_for_error()
        await until(lambda: not any(worker.runs for worker in workers.ready))
        return sum(len(worker._lanes) for worker in workers.ready)

    assert await left_by("for number in range(1_000_000): pass") == 0
    for _ in range(20):
        if await left_by("return 1"):
            break
    else:
        pytest.fail("no short program left its thread to the next one")
    await until(lambda: all(ranks_of(worker.pid) == {(USUAL, False)} for worker in workers.ready))


@pytest.mark.full
async def test_those_that_give_way_are_in_a_worker_of_their_own(python: PythonLanguage, workers: Workers) -> None:
    """A program beyond the part of its tenant is slow there, and holds up none of the others."""
    kit = Kit()

    async def forever(*, gives_way: bool) -> None:
        GIVES_WAY.set(gives_way)
        await python.execute(kit.request("tools.kit.wait()", timeout=60))

    def having(number: int) -> list[WorkerProcess]:
        return [worker for worker in workers.ready if worker.giving_way == number]

    running = [asyncio.create_task(forever(gives_way=True)) for _ in range(3)]
    await until(lambda: bool(having(3)))
    running += [asyncio.create_task(forever(gives_way=False)) for _ in range(2)]
    await until(lambda: having(0)[0].runs == 2)
    await until(lambda: (USUAL, True) in ranks_of(having(3)[0].pid))
    # The first program of a worker may compute for long enough to be nicer; none has only what the others leave.
    assert ranks_of(having(0)[0].pid) <= {(USUAL, False), (LOW, False)}
    for each in running:
        each.cancel()
    await asyncio.wait(running)
    await until(lambda: [worker.giving_way for worker in workers.ready] == [0, 0])


@pytest.mark.full
async def test_a_stopped_program_waits_for_no_other_one(python: PythonLanguage, workers: Workers) -> None:
    """Those that have what others leave are like others as soon as one of them is to end, be it before its process could
    notice."""
    if not hurry(os.getpid()) or os.geteuid():
        pytest.skip("this user may not raise a priority")
    kit = Kit()

    async def forever() -> None:
        GIVES_WAY.set(True)
        await python.execute(kit.request("while True: pass", timeout=60))

    running = [asyncio.create_task(forever()) for _ in range(2)]
    await until(lambda: [worker.giving_way for worker in workers.ready].count(2) == 1)
    [worker] = [worker for worker in workers.ready if worker.giving_way]
    await until(lambda: idle_in(worker.pid) == 2)
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        running[0].cancel()
        await asyncio.wait([running[0]])
        assert idle_in(worker.pid) == 0
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    await until(lambda: worker.giving_way == 1)
    await until(lambda: idle_in(worker.pid) == 1)
    running[1].cancel()
    await asyncio.wait([running[1]])
    await until(lambda: worker.giving_way == 0)
    assert worker.is_alive()


@pytest.mark.full
async def test_a_program_that_runs_alone_is_apart_where_it_should_be(python: PythonLanguage, workers: Workers) -> None:
    """Otherwise it stays in this process, where nothing could make it give way."""
    kit = Kit()
    python.company = 1

    async def alone() -> int:
        running = asyncio.create_task(python.execute(kit.request("tools.kit.wait()", timeout=60)))
        await kit.begun.wait()
        found = sum(worker.runs for worker in workers.ready)
        running.cancel()
        await asyncio.wait([running])
        kit.begun.clear()
        await until(lambda: not any(worker.runs for worker in workers.ready))
        return found

    assert await alone() == 0
    APART.set(True)
    assert await alone() == 1


@pytest.mark.full
async def test_the_first_program_that_is_apart_waits_for_a_worker(python: PythonLanguage) -> None:
    """Start one for it, though no one asked for that before, and have two from then on."""
    kit = Kit()
    APART.set(True)
    running = asyncio.create_task(python.execute(kit.request("tools.kit.wait()", timeout=60)))
    await kit.begun.wait()
    workers = python.workers
    assert workers is not None
    assert [worker.runs for worker in workers.ready][:1] == [1]
    assert (workers.least, workers.ranks) == (2, True)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.full
async def test_the_first_workers_stay(python: PythonLanguage) -> None:
    """A backend that was asked for them has two before any program, and when none has run for a while."""
    await python.start_workers()
    workers = python.workers
    assert workers is not None
    assert len(workers.ready) == 2
    workers._last -= 60
    workers.end_idle()
    assert len(workers.ready) == 2
    workers.least = 0
    workers.end_idle()
    assert workers.ready == []
