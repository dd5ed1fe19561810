"""A handler cannot harm its neighbours, whatever it does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.engines.programs import has_ended
from tests.waiting import until

from toolexec import Exec, LocalBackend, ToolTimeoutError, tool
from toolexec.errors import ExecutionError, HandlerError
from toolexec.model.call import ToolCall

KINDS = ["async", "thread", "inline", "generator", "inline generator", "async generator"]


@pytest.fixture
async def backend() -> Any:
    """A local backend that is closed in the end."""
    backend = LocalBackend()
    yield backend
    await backend.aclose()


def raising(kind: str, error: BaseException | type[BaseException]) -> Any:
    """A handler of some kind that raises."""

    def sync_work() -> None:
        raise error

    async def async_work() -> None:
        raise error

    def generate() -> Iterator[int]:
        yield 1
        raise error

    async def agenerate() -> AsyncIterator[int]:
        yield 1
        raise error

    function = {
        "async": async_work,
        "thread": sync_work,
        "inline": sync_work,
        "generator": generate,
        "inline generator": generate,
        "async generator": agenerate,
    }[kind]
    return tool("work", inline="inline" in kind)(function)


async def fine(backend: LocalBackend) -> None:
    """The backend still works, in threads and on the loop."""
    backend.register("fine", lambda _: "fine")
    assert await backend.call("fine", ToolCall("fine")) == "fine"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        StopIteration(1),
        StopAsyncIteration(),
        RecursionError("too deep"),
        MemoryError(),
        BaseExceptionGroup("two", [SystemExit(), KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_handler_raises_is_its_own_failure(
    backend: LocalBackend, kind: str, error: BaseException
) -> None:
    """Neither the process, nor the loop, nor the caller's task ends with it."""
    backend.add(raising(kind, error))
    with pytest.raises(HandlerError) as caught:
        await backend.call("work", ToolCall("work"))
    assert type(error).__name__ in caught.value.details["type"] or "RuntimeError" in caught.value.details["type"]
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    await fine(backend)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_execution_error_is_passed_on(backend: LocalBackend, kind: str) -> None:
    """A handler may decide itself what its failure looks like."""
    error = ExecutionError("my own", retryable=True)
    backend.add(raising(kind, error))
    with pytest.raises(ExecutionError) as caught:
        await backend.call("work", ToolCall("work"))
    assert caught.value is error
    assert error.__cause__ is None


@pytest.mark.parametrize("inline", [True, False])
async def test_endless_recursion(backend: LocalBackend, inline: bool) -> None:
    """Python's limit ends it, and only that call."""

    def work(depth: int = 0) -> int:
        return work(depth + 1) + 1

    backend.add(tool(inline=inline)(work))
    with pytest.raises(HandlerError, match="RecursionError"):
        await backend.call("work", ToolCall("work"))
    await fine(backend)


async def test_awaiting_something_cancelled_is_a_failure(backend: LocalBackend) -> None:
    """The call itself was not cancelled."""

    @tool
    async def work() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    backend.add(work)
    with pytest.raises(HandlerError, match="cancelled from inside"):
        await backend.call("work", ToolCall("work"))


@pytest.mark.parametrize("kind", ["async", "thread", "generator", "async generator"])
async def test_a_real_cancellation_goes_through(backend: LocalBackend, kind: str) -> None:
    """The caller's task ends as cancelled, whatever it was waiting for."""
    gate, started = threading.Event(), threading.Event()

    async def async_work() -> None:
        started.set()
        await asyncio.Event().wait()

    def work() -> None:
        started.set()
        gate.wait(30)

    def generate() -> Iterator[int]:
        work()
        yield 1

    async def agenerate() -> AsyncIterator[int]:
        await async_work()
        yield 1

    function = {"async": async_work, "thread": work, "generator": generate, "async generator": agenerate}[kind]
    backend.add(tool("work")(function))
    task = asyncio.ensure_future(backend.call("work", ToolCall("work")))
    await until(started.is_set)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    gate.set()
    await fine(backend)


async def test_a_deadline_of_the_caller_goes_through(backend: LocalBackend) -> None:
    """`asyncio.timeout` around a call works as anywhere."""

    @tool
    async def work() -> None:
        await asyncio.Event().wait()

    backend.add(work)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await backend.call("work", ToolCall("work"))


async def test_a_handler_with_a_deadline_of_its_own(backend: LocalBackend) -> None:
    """A TimeoutError out of the handler is the handler's."""

    @tool
    async def work() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    backend.add(work)
    with pytest.raises(HandlerError, match="raised TimeoutError"):
        await backend.call("work", ToolCall("work"))


async def test_a_handler_that_never_returns_holds_up_no_other(backend: LocalBackend) -> None:
    """Sixty-three of sixty-four threads blocked still leave one for everybody else."""
    gate = threading.Event()
    backend.register("block", lambda _: gate.wait(60))
    backend.register("quick", lambda args: args["n"])
    blocked = [asyncio.ensure_future(backend.call("block", ToolCall("block"))) for _ in range(63)]
    quick = [backend.call("quick", ToolCall("quick", {"n": n})) for n in range(100)]
    assert await asyncio.gather(*quick) == list(range(100))
    assert not any(task.done() for task in blocked)
    gate.set()
    await asyncio.gather(*blocked)


async def test_two_hundred_blocking_handlers_finish(backend: LocalBackend) -> None:
    """Those beyond the threads queue."""
    gate = threading.Event()
    backend.register("block", lambda args: gate.wait(60) and args["n"])
    calls = [asyncio.ensure_future(backend.call("block", ToolCall("block", {"n": n}))) for n in range(1, 201)]
    await asyncio.sleep(0.05)
    gate.set()
    assert await asyncio.gather(*calls) == list(range(1, 201))


@pytest.mark.full
@pytest.mark.parametrize("how", ["_exit", "segfault"])
async def test_a_killable_handler_takes_only_its_process_down(
    backend: LocalBackend, killable: ModuleType, how: str
) -> None:
    """Other killable calls under way do not notice."""
    backend.add(killable.fail)
    backend.add(killable.add)
    others = [asyncio.ensure_future(backend.call("add", ToolCall("add", {"a": n, "b": 0}))) for n in range(3)]
    with pytest.raises(ExecutionError, match="the worker process of fail died"):
        await backend.call("fail", ToolCall("fail", {"how": how}))
    assert await asyncio.gather(*others) == [0, 1, 2]


@pytest.mark.full
async def test_a_time_limit_kills_a_killable_handler_and_its_children(killable: ModuleType, tmp_path: Path) -> None:
    """The whole way: a call with a timeout through the facade leaves nothing behind."""
    path = tmp_path / "pids"
    async with Exec() as ex:
        ex.add(killable.sleep_with_child)
        result = await ex.run_tool("sleep_with_child", {"started": str(path)}, timeout=2)
        assert isinstance(result.error, ToolTimeoutError)
        pids = [int(pid) for pid in path.read_text().split()]
        async with asyncio.timeout(30):
            await until(lambda: all(has_ended(pid) for pid in pids))


async def test_closing_a_call_that_nobody_runs(backend: LocalBackend) -> None:
    """A coroutine that is thrown away in the middle closes without complaint."""

    @tool
    async def work() -> None:
        await asyncio.sleep(60)

    backend.add(work)
    closed: list[str] = []

    def close() -> None:
        call = backend.call("work", ToolCall("work"))
        loop = asyncio.new_event_loop()
        try:
            task = loop.create_task(call)
            loop.call_soon(loop.stop)
            loop.run_forever()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        finally:
            loop.close()
        call.close()
        closed.append("yes")

    thread = threading.Thread(target=close)
    thread.start()
    await asyncio.get_running_loop().run_in_executor(None, thread.join)
    assert closed == ["yes"]


@pytest.mark.full
def test_the_interpreter_exits_though_a_handler_blocks() -> None:
    """A program with a handler that never returns ends when it is through."""
    script = """
import asyncio, threading
from toolexec import Exec

async def main():
    async with Exec() as ex:
        ex.add(lambda: threading.Event().wait(), "block")
        ex.add(lambda: 5, "quick")
        result = await ex.run_tool("block", timeout=0.05)
        print(result.error.code, (await ex.run_tool("quick")).value)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "timeout 5\n", "")


async def test_an_error_is_the_same_from_every_kind_of_handler(killable: ModuleType) -> None:
    """Code, message, details, outcome and whether to retry do not depend on where a handler runs."""
    async with Exec() as ex:
        for handler in (killable.raises_in_a_process, killable.raises_in_a_thread, killable.raises_on_the_loop):
            ex.add(handler)
        for name in killable.ERRORS:
            seen: list[Any] = []
            for kind in ("killable", "thread", "async"):
                error = (await ex.run_tool(f"kind:{kind}", {"name": name})).error
                assert error is not None
                assert "killable_handlers.py" not in str(error.to_dict())
                seen.append({**error.to_dict(), "message": error.message.replace(kind, "..."), "tool_id": ""})
            assert seen[1:] == seen[:-1], name
