"""Worker threads: they run, queue, end, and never hold up the process."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import pytest
from tests.waiting import until

from toolexec.errors import ConfigurationError
from toolexec.process import threads
from toolexec.process.threads import WorkerThreads


@pytest.fixture
def pool() -> Any:
    """A pool that is closed in the end."""
    pool = WorkerThreads()
    yield pool
    pool.close()


def workers(pool: WorkerThreads) -> int:
    """Return how many threads a pool has."""
    return pool._threads


async def test_a_function_runs_in_another_thread(pool: WorkerThreads) -> None:
    """The result comes back, and the event loop's thread is not the one at work."""
    assert await pool.run(threading.get_ident) != threading.get_ident()
    assert await pool.run(max, 3, 5) == 5


async def test_an_exception_comes_back_as_it_is(pool: WorkerThreads) -> None:
    """The very exception is raised, with the traceback of the function."""
    error = ValueError("no")

    def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="no") as caught:
        await pool.run(fail)
    assert caught.value is error
    assert "fail" in [frame.name for frame in caught.traceback]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
async def test_exceptions_beyond_exception_come_back_too(pool: WorkerThreads, kind: type[BaseException]) -> None:
    """An exception that would end a thread or a loop reaches the caller, and the pool goes on."""

    def fail() -> None:
        raise kind

    with pytest.raises(kind):
        await pool.run(fail)
    assert await pool.run(int) == 0


async def test_stop_iteration_is_not_lost(pool: WorkerThreads) -> None:
    """Python turns a StopIteration that leaves a coroutine into a RuntimeError; its cause says so."""
    with pytest.raises(RuntimeError) as caught:
        await pool.run(next, iter(()))
    assert isinstance(caught.value.__cause__, StopIteration)


async def test_the_context_travels(pool: WorkerThreads) -> None:
    """The function sees the caller's context variables, and its changes stay its own."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("caller")

    def look() -> str:
        seen = variable.get()
        variable.set("thread")
        return seen

    assert await pool.run(look) == "caller"
    assert variable.get() == "caller"


async def test_threads_are_reused(pool: WorkerThreads) -> None:
    """One call after the other needs one thread."""
    for _ in range(20):
        await pool.run(int)
    assert workers(pool) == 1


async def test_as_many_threads_as_calls_at_once_up_to_the_limit() -> None:
    """Calls that wait for each other all get a thread; those beyond the limit queue and finish."""
    pool = WorkerThreads(limit=8)
    barrier = threading.Barrier(8)
    results = await asyncio.gather(*(pool.run(barrier.wait, 30) for _ in range(80)))
    assert sorted(results) == sorted(list(range(8)) * 10)
    assert workers(pool) == 8
    pool.close()
    await until(lambda: workers(pool) == 0)


async def test_a_hundred_blocking_calls_queue_and_finish() -> None:
    """More calls than threads: none is lost, none is done twice."""
    pool = WorkerThreads()
    done: list[int] = []
    gate = threading.Event()

    def work(number: int) -> int:
        gate.wait(30)
        done.append(number)
        return number

    calls = [asyncio.ensure_future(pool.run(work, number)) for number in range(100)]
    await until(lambda: workers(pool) == 64)
    gate.set()
    assert await asyncio.gather(*calls) == list(range(100))
    assert sorted(done) == list(range(100))
    pool.close()


async def test_cancelling_stops_waiting(pool: WorkerThreads) -> None:
    """The caller goes on at once; the function finishes unheard, and the thread serves again."""
    gate, started = threading.Event(), threading.Event()

    def work() -> str:
        started.set()
        gate.wait(30)
        return "late"

    task = asyncio.ensure_future(pool.run(work))
    await until(started.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert await pool.run(int) == 0


async def test_a_call_cancelled_in_the_queue_is_never_made() -> None:
    """A call that waits for a thread and is cancelled does not run when one is free."""
    pool = WorkerThreads(limit=1)
    gate = threading.Event()
    called: list[str] = []
    first = asyncio.ensure_future(pool.run(gate.wait, 30))
    second = asyncio.ensure_future(pool.run(called.append, "second"))
    await until(lambda: workers(pool) == 1)
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):  # before the gate opens: until then it is in the queue for certain
        await second
    gate.set()
    await first
    await pool.run(called.append, "third")
    assert called == ["third"]
    pool.close()


async def test_one_that_blocks_holds_up_no_other(pool: WorkerThreads) -> None:
    """The other threads go on serving."""
    gate = threading.Event()
    blocked = asyncio.ensure_future(pool.run(gate.wait, 30))
    assert await asyncio.gather(*(pool.run(int) for _ in range(50))) == [0] * 50
    assert not blocked.done()
    gate.set()
    await blocked


async def test_idle_threads_end_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that is not used has no threads, and makes new ones when it is used again."""
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.02)
    pool = WorkerThreads()
    await asyncio.gather(*(pool.run(time.sleep, 0.01) for _ in range(5)))
    await until(lambda: workers(pool) == 0)
    assert await pool.run(int) == 0


async def test_no_call_is_lost_while_threads_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that end because they were idle race with calls that arrive just then."""
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.0005)
    pool = WorkerThreads(limit=4)
    async with asyncio.timeout(60):
        for round_number in range(300):
            assert await asyncio.gather(*(pool.run(int, n) for n in range(round_number % 6))) == list(
                range(round_number % 6)
            )
            await asyncio.sleep(0.0005 * (round_number % 3))
    await until(lambda: workers(pool) == 0)


async def test_no_call_is_lost_while_the_pool_is_closed(pool: WorkerThreads) -> None:
    """Closing ends idle threads only: calls before, during and after it are made, though one thread is blocked."""
    gate = threading.Event()
    blocked = asyncio.ensure_future(pool.run(gate.wait, 60))
    async with asyncio.timeout(60):
        for _ in range(200):
            before = asyncio.ensure_future(pool.run(int))
            await asyncio.sleep(0)
            pool.close()
            after = asyncio.ensure_future(pool.run(int))
            pool.close()
            assert await asyncio.gather(before, after) == [0, 0]
    gate.set()
    await blocked
    pool.close()
    await until(lambda: workers(pool) == 0)


async def test_calls_that_wait_for_each_other_after_closing() -> None:
    """A closed pool that is used again still has room for as many calls at once as it may."""
    pool = WorkerThreads(limit=3)
    for _ in range(50):
        barrier = threading.Barrier(3)
        await asyncio.gather(*(pool.run(barrier.wait, 30) for _ in range(3)))
        pool.close()
    await until(lambda: workers(pool) == 0)


async def test_a_busy_thread_ends_after_its_call_when_the_pool_is_closed() -> None:
    """Closing does not wait, and leaves no thread in the end."""
    pool = WorkerThreads()
    gate = threading.Event()
    call = asyncio.ensure_future(pool.run(gate.wait, 30))
    await until(lambda: workers(pool) == 1)
    pool.close()
    gate.set()
    assert await call is True
    await until(lambda: workers(pool) == 0)


@pytest.mark.full
async def test_arguments_and_results_are_let_go(pool: WorkerThreads) -> None:
    """An idle thread keeps nothing of its last call alive."""

    class Thing:
        pass

    async def use() -> weakref.ref[Any]:
        thing = Thing()
        await pool.run(lambda given: given, thing)
        return weakref.ref(thing)

    kept = await use()
    await until(lambda: gc.collect() >= 0 and kept() is None)


async def test_a_failure_needs_no_garbage_collector(pool: WorkerThreads) -> None:
    """An exception does not form a ring with the frames that it passes."""

    class CountedError(Exception):
        pass

    def fail() -> None:
        raise CountedError

    gc.disable()
    try:
        try:
            await pool.run(fail)
        except CountedError as error:
            kept = weakref.ref(error)
        await until(lambda: kept() is None)
    finally:
        gc.enable()


async def test_when_no_thread_can_be_started_the_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call waits for ever; once threads can be started again, so can calls."""
    pool = WorkerThreads()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            await pool.run(int)
    assert await pool.run(int) == 0
    assert workers(pool) == 1
    pool.close()


async def test_a_caller_that_does_not_wait_gets_the_failure(
    pool: WorkerThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass what a function raises, and why it was never called, to the second function."""
    failures: list[BaseException] = []
    error = ValueError("no")

    def fail() -> None:
        raise error

    pool.start(failures.clear, failures.append)
    pool.start(fail, failures.append)
    await until(lambda: failures == [error])

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    WorkerThreads().start(fail, failures.append)
    assert [type(each) for each in failures] == [ValueError, RuntimeError]


async def test_when_no_more_threads_can_be_started_the_others_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that gets no thread of its own waits for one of those that there are."""
    pool = WorkerThreads()
    gate = threading.Event()
    first = asyncio.ensure_future(pool.run(gate.wait, 30))
    await until(lambda: workers(pool) == 1)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    second = asyncio.ensure_future(pool.run(int))
    await asyncio.sleep(0)
    assert not second.done()
    gate.set()
    assert await asyncio.gather(first, second) == [True, 0]
    pool.close()


def test_a_loop_that_is_closed_early_harms_nobody() -> None:
    """The answer to a loop that has gone is dropped, and the pool serves the next loop."""
    pool = WorkerThreads()
    gate, started = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        gate.wait(30)

    async def leave() -> None:
        task = asyncio.ensure_future(pool.run(work))
        await until(started.is_set)
        task.cancel()

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(pool.run(int)) == 0
    pool.close()


def test_two_loops_at_once_share_a_pool() -> None:
    """Every loop gets its own answers."""
    pool = WorkerThreads(limit=4)
    results: dict[int, list[int]] = {}

    async def use(offset: int) -> None:
        results[offset] = await asyncio.gather(*(pool.run(int, offset + n) for n in range(100)))

    loops = [threading.Thread(target=asyncio.run, args=(use(offset),)) for offset in (0, 1000)]
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join(60)
    pool.close()
    assert results == {offset: list(range(offset, offset + 100)) for offset in (0, 1000)}


def test_a_pool_needs_a_thread() -> None:
    """A limit below one makes no sense."""
    with pytest.raises(ConfigurationError, match="at least 1 thread"):
        WorkerThreads(0)


def test_the_interpreter_exits_while_a_function_blocks() -> None:
    """A function that never returns does not keep the process alive."""
    script = """
import asyncio, threading
from toolexec.process.threads import WorkerThreads

async def main():
    pool = WorkerThreads()
    task = asyncio.ensure_future(pool.run(threading.Event().wait))
    assert await pool.run(int) == 0
    task.cancel()
    print("leaving")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")


async def test_a_thread_is_free_by_the_time_that_its_job_reports_the_end(pool: WorkerThreads) -> None:
    """The next job that is started then needs no second thread, however often."""
    loop = asyncio.get_running_loop()
    seen: list[int] = []
    for number in range(50):
        done: asyncio.Future[int] = loop.create_future()

        def work(number: int = number) -> int:
            seen.append(threading.get_ident())
            return number

        def report(value: int, done: asyncio.Future[int] = done) -> None:
            loop.call_soon_threadsafe(done.set_result, value)

        pool.start(work, done=report)
        assert await done == number
    assert len(set(seen)) == 1
    assert workers(pool) == 1
