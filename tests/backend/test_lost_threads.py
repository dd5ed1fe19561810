"""Threads that hang in calls which were given up are replaced, up to a bound; what never began says so."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec, LocalBackend, tool
from toolexec.backend import BackendRegistry
from toolexec.errors import BackendBusyError, ExecutionError, HandlerError, ToolTimeoutError
from toolexec.model.call import ToolCall
from toolexec.process.threads import NoThreadError, WorkerThreads
from toolexec.process.workers import WorkerProcesses

SHORT = 0.05


class Gate:
    """Functions that hang until it is opened; `entered` counts them."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)

    def wait(self, _: Any = None) -> str:
        """Hang."""
        self.entered.release()
        self.opened.wait(60)
        return "late"


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that is opened in the end."""
    gate = Gate()
    yield gate
    gate.opened.set()


def make_exec(gate: Gate, threads: int, spare: int) -> Exec:
    """An Exec whose sync tools have few threads."""
    local = LocalBackend(threads=threads)
    local._threads = WorkerThreads(threads, spare)
    backends = BackendRegistry()
    backends.register(local)
    ex = Exec(backends=backends)

    @tool("t:hang")
    def hang() -> str:
        """Hangs."""
        return gate.wait()

    @tool("t:quick")
    def quick() -> str:
        """Answers at once."""
        return "quick"

    ex.add(hang)
    ex.add(quick)
    return ex


async def hang(ex: Exec, gate: Gate, calls: int) -> None:
    """Have so many calls hang past their limit, one after the other."""
    while calls:
        result = await ex.run_tool("t:hang", timeout=SHORT)
        assert isinstance(result.error, ToolTimeoutError)
        if result.error.outcome == "not_sent":  # no thread has begun it in so short a time, and none is lost
            assert not gate.entered.acquire(blocking=False)
            continue
        assert gate.entered.acquire(timeout=10)
        calls -= 1


async def test_hung_handlers_do_not_stop_others(gate: Gate) -> None:
    """More sync handlers than there are threads hang, and the next sync tool answers all the same."""
    async with make_exec(gate, threads=2, spare=8) as ex:
        await hang(ex, gate, 6)
        result = await ex.run_tool("t:quick")
        assert result.value == "quick"


async def test_lost_threads_are_shown(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """The status counts the lost threads as long as there are any, and a log warns of many."""
    async with make_exec(gate, threads=2, spare=8) as ex:
        with caplog.at_level(logging.WARNING, "toolexec.process.threads"):
            await hang(ex, gate, 8)
        (status,) = ex.backend_statuses()
        assert status.info == {"lost_threads": 8}
        assert [record.getMessage() for record in caplog.records] == [
            "8 worker threads are lost: their calls were given up, but their functions go on"
        ]
        gate.opened.set()
        await until(lambda: not ex.backend_statuses()[0].info)


async def test_a_pool_without_spare_threads_refuses_at_once(gate: Gate) -> None:
    """When every thread hangs and none may be replaced, a call is refused, though it has no time limit at all."""
    async with make_exec(gate, threads=1, spare=1) as ex:
        await hang(ex, gate, 2)
        with pytest.raises(BackendBusyError, match="was not called: all threads of backend local hang in 2") as caught:
            await ex.run_tool("t:quick")
        assert caught.value.outcome == "not_sent"
        assert caught.value.retryable
        assert caught.value.details["lost_threads"] == 2
        gate.opened.set()
        await until(lambda: not ex.local._threads.lost)
        assert (await ex.run_tool("t:quick")).value == "quick"


async def test_calls_that_wait_when_the_last_thread_hangs(gate: Gate) -> None:
    """Refuses calls at that moment instead of making them wait for their own limits."""
    async with make_exec(gate, threads=1, spare=0) as ex:
        hanging = asyncio.ensure_future(ex.run_tool("t:hang", timeout=SHORT * 20))
        await until(lambda: gate.entered.acquire(blocking=False))
        with pytest.raises(BackendBusyError):
            await ex.run_tool("t:quick", timeout=60)
        assert not (await hanging).ok


async def test_a_call_that_waits_past_its_limit_never_began(gate: Gate) -> None:
    """Its error says so, names what it waited for, and the function is never called."""
    async with make_exec(gate, threads=1, spare=1) as ex:
        hanging = asyncio.ensure_future(ex.run_tool("t:hang", timeout=60))
        await until(lambda: gate.entered.acquire(blocking=False))
        error = (await ex.run_tool("t:hang", timeout=SHORT)).error
        assert isinstance(error, ToolTimeoutError)
        assert error.outcome == "not_sent"
        assert error.to_dict()["outcome"] == "not_sent"
        assert error.to_dict()["details"] == {"timeout": SHORT, "waited_for": "a free worker thread"}
        assert "was not called" in error.message
        gate.opened.set()
        assert (await hanging).value == "late"
        assert not gate.entered.acquire(timeout=SHORT)


async def test_a_killable_call_that_waits_for_a_process_never_began() -> None:
    """A call for which no worker process is free by its limit says so."""
    processes = WorkerProcesses(limit=1)
    call = ToolCall("x")
    async with processes._slot():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT):
                await processes.run("x", ("math", "sqrt", False), {}, call)
    assert call.waiting == "a free worker process"


async def test_a_nested_call_that_never_began_says_nothing_of_the_outer_one(gate: Gate) -> None:
    """A handler that raises the error of an inner call has itself begun."""
    async with make_exec(gate, threads=1, spare=0) as ex:

        async def outer() -> None:
            (await ex.run_tool("t:quick", timeout=SHORT)).raise_for_error()

        async def busy() -> None:
            await ex.run_tool("t:quick")

        ex.add(outer, "t:outer")
        ex.add(busy, "t:busy")
        hanging = asyncio.ensure_future(ex.run_tool("t:hang"))
        await until(lambda: gate.entered.acquire(blocking=False))
        error = (await ex.run_tool("t:outer")).error
        assert isinstance(error, HandlerError)
        assert error.outcome != "not_sent"
        assert isinstance(error.__cause__, ToolTimeoutError)
        assert error.__cause__.outcome == "not_sent"
        hanging.cancel()
        await asyncio.wait([hanging])
        error = (await ex.run_tool("t:busy")).error
        assert isinstance(error, HandlerError)
        assert error.outcome != "not_sent"
        assert isinstance(error.__cause__, BackendBusyError)


class TestWorkerThreads:
    """The pool by itself."""

    async def test_there_are_never_more_than_limit_and_spare(self, gate: Gate) -> None:
        """However many calls are given up."""
        pool = WorkerThreads(2, spare=3)
        before = {*threading.enumerate()}  # others may end meanwhile
        for _ in range(5):
            work = asyncio.ensure_future(pool.run(gate.wait))
            await until(lambda: gate.entered.acquire(blocking=False))
            work.cancel()
            await asyncio.wait([work])
        assert len({*threading.enumerate()} - before) == 5
        assert pool.lost == 5
        with pytest.raises(NoThreadError):
            await pool.run(gate.wait)
        with pytest.raises(NoThreadError):
            pool.start(lambda: None)

    async def test_lost_threads_end_with_their_function(self, gate: Gate) -> None:
        """The pool is back at its limit when the functions have returned."""
        pool = WorkerThreads(1, spare=4)
        before = {*threading.enumerate()}  # others may end meanwhile
        for _ in range(4):
            work = asyncio.ensure_future(pool.run(gate.wait))
            await until(lambda: gate.entered.acquire(blocking=False))
            work.cancel()
            await asyncio.wait([work])
        gate.opened.set()
        assert await pool.run(lambda: 7) == 7
        await until(lambda: not pool.lost and len({*threading.enumerate()} - before) <= 1)
        pool.close()

    async def test_a_job_that_is_abandoned_before_it_begins(self, gate: Gate) -> None:
        """An abandoned job is never called, and costs no thread."""
        pool = WorkerThreads(1)
        first = pool.start(gate.wait)
        assert gate.entered.acquire(timeout=10)
        second = pool.start(gate.wait)
        pool.abandon(second)
        assert pool.lost == 0
        pool.abandon(first)
        assert pool.lost == 1
        gate.opened.set()
        await until(lambda: not pool.lost)
        assert not gate.entered.acquire(blocking=False)

    async def test_a_generator_in_a_thread(self, gate: Gate) -> None:
        """Its call begins with its first step: one that hangs there is given up, and another tool still answers."""
        async with make_exec(gate, threads=1, spare=2) as ex:

            def numbers() -> Iterator[int]:
                yield 1
                gate.wait()
                yield 2

            ex.add(numbers, "t:numbers")
            events = [event async for event in ex.stream_tool("t:numbers", timeout=SHORT * 4)]
            assert [event.kind for event in events] == ["chunk", "error"]
            assert isinstance(events[-1].error, ExecutionError)
            assert events[-1].error.outcome != "not_sent"
            assert (await ex.run_tool("t:quick")).value == "quick"
