"""Deadlines that hold whatever the event loop does."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.waiting import reached

from toolexec import Exec
from toolexec.errors import ClosedError, CodeTimeoutError
from toolexec.model.declare import declare
from toolexec.process.caller_runs import CallerRuns
from toolexec.runtime.containers.bubblewrap import BubblewrapBackend
from toolexec.runtime.runs import Alarms, Deadline
from toolexec.runtime.unsafe_host import UnsafeHostBackend
from toolexec.runtime.wasm.guest_run import GuestRuns
from toolexec.runtime.wasm.instance import Instance

LONG = 30


def test_they_ring_in_order() -> None:
    """The one that is due first, first; in a thread of their own."""
    alarms, rang, done = Alarms(), [], threading.Event()
    now, gate = monotonic(), threading.Event()
    alarms.at(now - 1, lambda: gate.wait(LONG))  # until all are there
    alarms.at(now + 0.02, done.set)
    alarms.at(now + 0.01, lambda: rang.append((2, threading.current_thread().name)))
    alarms.at(now, lambda: rang.append((1, threading.current_thread().name)))
    gate.set()
    assert done.wait(LONG)
    assert rang == [(1, "toolexec-alarms"), (2, "toolexec-alarms")]


def test_one_that_is_off_does_not_ring() -> None:
    """However many there are; the thread keeps none of them for long."""
    alarms, rang, done = Alarms(), [], threading.Event()
    for _ in range(3000):
        alarms.at(monotonic() + LONG, lambda: rang.append("never")).off()
    assert len(alarms._alarms) < 2000
    alarm = alarms.at(monotonic(), done.set)
    assert done.wait(LONG)
    assert (alarm.is_off, rang) == (True, [])


def test_one_that_fails_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """The exception is logged."""
    alarms, done = Alarms(), threading.Event()
    alarms.at(monotonic() - 1, lambda: 1 // 0)
    alarms.at(monotonic(), done.set)
    assert done.wait(LONG)
    assert "a deadline could not be kept" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_has_its_own() -> None:
    """Those of its parent are the parent's business."""
    alarms, first = Alarms(), threading.Event()
    alarms.at(monotonic(), first.set)
    assert first.wait(LONG)
    child = os.fork()
    if child == 0:
        done = threading.Event()
        alarms.at(monotonic(), done.set)
        os._exit(0 if done.wait(10) else 1)
    assert os.waitpid(child, 0)[1] == 0


async def test_python_is_stopped_while_the_event_loop_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stands still until the guest has ended, and the guest ends all the same."""
    ended, held = threading.Event(), []
    original = Instance.run

    def run(instance: Instance, frame: str) -> Any:
        try:
            return original(instance, frame)
        finally:
            ended.set()

    async def block() -> None:
        """Block the loop soon."""
        ended.clear()
        asyncio.get_running_loop().call_later(0.05, lambda: held.append(ended.wait(LONG)))

    monkeypatch.setattr(Instance, "run", run)
    async with Exec() as ex:
        ex.add(declare(block, "kit:block"))
        result = await ex.execute_code("tools.kit.block()\nwhile True:\n    pass", timeout=1)
    assert isinstance(result.error, CodeTimeoutError)
    assert held == [True]


async def test_other_guests_are_stopped_too() -> None:
    """Those of JavaScript and modules."""
    stopped, ended, held = threading.Event(), threading.Event(), []

    def work() -> bool:
        found = stopped.wait(LONG)
        ended.set()
        return found

    runs = GuestRuns(1)
    asyncio.get_running_loop().call_later(0.01, lambda: held.append(ended.wait(LONG)))
    due = monotonic() + 0.1
    outcome = await runs.run(work, stop=stopped.set, ends=lambda: due)
    await runs.aclose()
    assert (outcome, held) == ((True, True), [True])


async def test_what_ended_in_time_is_not_late() -> None:
    """Its deadline has nothing to stop."""
    stops: list[int] = []
    runs = GuestRuns(1)
    outcome = await runs.run(lambda: "done", stop=lambda: stops.append(1), ends=lambda: monotonic() + LONG)
    assert outcome == ("done", False)
    await runs.aclose()
    assert stops == []


def _children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended in the meantime
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def _has_ended(pid: int) -> bool:
    """Return whether a child of ours has ended; it is not reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _wait_for(processes: set[int]) -> bool:
    """Wait until they have ended, and hold up everything else in this thread."""
    until = monotonic() + LONG
    while not all(map(_has_ended, processes)) and monotonic() < until:
        time.sleep(0.01)
    return all(map(_has_ended, processes))


HOSTS = ["unsafe_host", pytest.param("bubblewrap", marks=pytest.mark.full)]


def _exec_on(kind: str) -> Exec:
    if kind == "unsafe_host":
        return Exec(runtime_backends=[UnsafeHostBackend()], security_profile="dev", unsafe_opt_in=True)
    from tests.engines.bubblewrap import require_bwrap

    require_bwrap()
    return Exec(runtime_backends=[BubblewrapBackend()])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", HOSTS)
async def test_processes_are_stopped_while_the_event_loop_is_blocked(kind: str) -> None:
    """The loop stands still until the program's processes have ended, and they end all the same, at their limit."""
    before, held = _children(), []

    async def block() -> None:
        """Block the loop soon."""
        started = _children() - before
        asyncio.get_running_loop().call_later(0.05, lambda: held.append((bool(started), _wait_for(started))))

    async with _exec_on(kind) as ex:
        ex.add(declare(block, "kit:block"))
        result = await ex.execute_code("tools.kit.block()\nwhile True:\n    pass", timeout=2)
    assert isinstance(result.error, CodeTimeoutError)
    assert held == [(True, True)]


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize(("code", "message"), [("os._exit(3)", "exit code 3"), ("os.kill(os.getpid(), 11)", "signal")])
async def test_a_crash_in_time_is_no_deadline_however_late_it_is_received(code: str, message: str) -> None:
    """A crash before the limit is reported as a crash."""
    before = _children()

    async def block() -> None:
        """Block the loop soon, until after the limit."""
        started = _children() - before

        def hold() -> None:
            _wait_for(started)
            time.sleep(1.5)

        asyncio.get_running_loop().call_later(0.05, hold)

    async with _exec_on("unsafe_host") as ex:
        ex.add(declare(block, "kit:block"))
        result = await ex.execute_code(f"import os, time\ntools.kit.block()\ntime.sleep(0.1)\n{code}", timeout=1.5)
    assert not isinstance(result.error, CodeTimeoutError)
    assert message in str(result.error)


async def test_a_deadline_that_is_off_stops_nothing() -> None:
    """A cancelled deadline stops nothing, due or not."""
    stops: list[int] = []
    deadline = Deadline(monotonic() + LONG, lambda: stops.append(1))
    deadline.off()
    deadline._ring()
    assert (stops, deadline.late, deadline.passed.cancelled()) == ([], False, True)


async def test_a_deadline_tells_the_event_loop() -> None:
    """After it has stopped what it is for."""
    stops: list[str] = []
    deadline = Deadline(monotonic(), lambda: stops.append(threading.current_thread().name))
    await deadline.passed
    deadline.off()
    assert (stops, deadline.late) == (["toolexec-alarms"], True)


class TestRunsOfCallers:
    """Work in the tasks of its callers."""

    async def test_closing_stops_work_and_leaves_its_caller_uncancelled(self) -> None:
        """Callers get a ClosedError, after the work has cleaned up, and can go on."""
        runs, begun, steps = CallerRuns(), asyncio.Event(), list[str]()

        async def work() -> None:
            try:
                begun.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                steps.append("cleaned up")

        async def caller() -> int:
            with pytest.raises(ClosedError, match="was closed"):
                await runs.run(work())
            await asyncio.sleep(0)
            task = asyncio.current_task()
            assert task is not None
            return task.cancelling()

        task = asyncio.create_task(caller())
        await reached(begun, task)
        await runs.aclose()
        assert steps == ["cleaned up"]
        assert await task == 0
        assert len(runs) == 0

    async def test_a_cancelled_caller_stays_cancelled_though_its_work_is_closed_too(self) -> None:
        """Callers see their own cancellation, not the closing, where both happen at once."""
        runs, begun = CallerRuns(), asyncio.Event()

        async def work() -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(runs.run(work()))
        await reached(begun, task)
        task.cancel()
        await runs.aclose()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    async def test_work_within_work_ends_with_it(self) -> None:
        """Work that a program starts in the same task is stopped once, together with the program."""
        runs, begun = CallerRuns(), asyncio.Event()

        async def inner() -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(runs.run(runs.run(inner())))
        await reached(begun, task)
        await runs.aclose()
        with pytest.raises(ClosedError):
            await task
        assert task.cancelling() == 0

    async def test_work_around_what_was_stopped_goes_on_with_that(self) -> None:
        """The innermost work is stopped, with the notes of its cancellation; closing waits for what is around it."""
        runs, begun, steps = CallerRuns(), asyncio.Event(), list[str]()

        async def inner() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as cancelled:
                cancelled.add_note("a note")
                raise

        async def outer() -> list[str]:
            with pytest.raises(ClosedError) as stopped:
                await runs.run(inner())
            for _ in range(3):
                await asyncio.sleep(0)
            steps.append("went on")
            return stopped.value.__notes__

        task = asyncio.create_task(runs.run(outer()))
        await reached(begun, task)
        assert await runs.aclose()
        assert steps == ["went on"]
        assert await task == ["a note"]

    async def test_work_that_closes_what_it_runs_in_goes_on(self) -> None:
        """Closing does not wait for the work that it is called from."""
        runs = CallerRuns()

        async def work() -> str:
            await runs.aclose()
            return "went on"

        assert await runs.run(work()) == "went on"
