"""The blocking twin: the same results without an event loop of one's own, from any number of threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE

from toolexec import Exec, Filters, Step, ToolContext
from toolexec.errors import (
    ClosedError,
    CodeError,
    ConfigurationError,
    HandlerError,
    InputValidationError,
    InvalidRequestError,
    ToolNotFoundError,
    ToolTimeoutError,
)
from toolexec.testing.mcp_server import ScriptedServer

LONG = 60.0


_BEFORE: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def only_threads_of_this_test() -> None:
    """Leave out the threads of twins that earlier tests did not close, and that the collector has not come to yet."""
    _BEFORE.clear()
    _BEFORE.update(threading.enumerate())


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "toolexec-loop" and thread not in _BEFORE]


async def _count(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number
        await asyncio.sleep(0)


def test_the_same_methods() -> None:
    """Search, describe, run, chain and stream, blocking."""
    with Exec().sync as ex:
        ex.add(lambda a, b: a + b, "math:add")
        ex.add(_count, "math:count")
        assert [s.id for s in ex.search_tools("add", filters=Filters(namespace="math"))] == ["math:add"]
        assert ex.get_tool_doc("math:add", "summary").id == "math:add"
        assert ex.run_tool("math:add", {"a": 5, "b": 3}).value == 8
        chain = ex.run_chain([Step(tool_id="math:add", args={"a": 1, "b": 2})])
        assert chain.value == 3
        events = list(ex.stream_tool("math:count", {"to": 2}))
        assert [(event.kind, event.data) for event in events] == [("chunk", 0), ("chunk", 1), ("done", [0, 1])]


def test_there_is_one_twin() -> None:
    """`sync` is the same object each time, and starts no thread by itself."""
    ex = Exec()
    assert ex.sync is ex.sync
    assert ex.sync.exec is ex
    assert _threads() == []


def test_failures() -> None:
    """Failures are values, refusals are raised, time limits count, as in the async methods."""

    async def stuck() -> None:
        await asyncio.Event().wait()

    with Exec().sync as ex:
        ex.add(lambda: 1 / 0, "bad")
        ex.add(stuck)
        assert isinstance(ex.run_tool("bad").error, HandlerError)
        assert isinstance(ex.run_tool("stuck", timeout=0.02).error, ToolTimeoutError)
        with pytest.raises(ToolNotFoundError):
            ex.run_tool("worse")
        with pytest.raises(InputValidationError):
            ex.run_tool("bad", {"a": 1})
        with pytest.raises(ToolNotFoundError):
            next(ex.stream_tool("worse"))


def test_without_a_block() -> None:
    """The loop starts at the first call; `close` ends it."""
    ex = Exec().sync
    ex.add(lambda: 1, "t")
    assert ex.run_tool("t").value == 1
    assert len(_threads()) == 1
    ex.close()
    assert _threads() == []
    ex.close()


def test_closing_what_was_never_used() -> None:
    """There is nothing to do."""
    Exec().sync.close()


def test_after_closing() -> None:
    """Nothing can be called any more, and no thread comes back."""
    with Exec().sync as ex:
        ex.add(_count, "count")
        events = ex.stream_tool("count", {"to": 9})
        next(events)
    with pytest.raises(ConfigurationError, match="closed"):
        ex.run_tool("count", {"to": 1})
    with pytest.raises(ConfigurationError, match="closed"):
        next(events)
    assert _threads() == []


def test_from_several_threads() -> None:
    """Calls from many threads run at the same time on one loop."""
    arrived: list[int] = []
    all_here = asyncio.Event()

    async def meet(number: int) -> int:
        arrived.append(number)
        if len(arrived) == 8:
            all_here.set()
        await all_here.wait()
        return number

    with Exec().sync as ex, ThreadPoolExecutor(8) as pool:
        ex.add(meet)
        values = list(pool.map(lambda number: ex.run_tool("meet", {"number": number}).value, range(8)))
        assert values == list(range(8))
        assert len(_threads()) == 1


def test_leaving_a_stream_early() -> None:
    """Closing the iterator stops the tool, and waits for its cleanup."""
    closed: list[bool] = []

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 0
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    with Exec().sync as ex:
        ex.add(endless)
        for event in ex.stream_tool("endless"):
            assert event.data == 0
            break
        events: Any = ex.stream_tool("endless")
        next(events)
        events.close()
        assert closed == [True, True]


def test_a_stream_that_is_never_begun() -> None:
    """Such a stream costs nothing and leaves nothing."""
    with Exec().sync as ex:
        ex.stream_tool("nothing")


def test_an_interrupt_stops_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the waiting thread cancels the call; it does not go on unseen."""
    stopped, began = threading.Event(), threading.Event()

    async def stuck() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    def interrupted(self: Any, timeout: float | None = None) -> Any:
        began.wait(LONG)
        raise KeyboardInterrupt

    with Exec().sync as ex:
        ex.add(stuck)
        with monkeypatch.context() as patch:
            patch.setattr(concurrent.futures.Future, "result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ex.run_tool("stuck")
        assert stopped.wait(LONG)


def test_an_interrupt_before_the_wait_stops_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come between the start of the work and the wait for it: nothing goes on unseen then, either."""
    stopped = threading.Event()
    where: list[str] = []
    give = asyncio.run_coroutine_threadsafe

    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            where.append(threading.current_thread().name)
            stopped.set()

    def interrupted(*args: Any) -> Any:
        give(*args)
        raise KeyboardInterrupt

    with Exec().sync as ex:
        ex.add(stuck)
        ex.search_tools("stuck")  # the loop runs
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ex.run_tool("stuck")
        assert stopped.wait(LONG)
    assert where == ["toolexec-loop"]


SCRIPT = """
import asyncio
from toolexec import Exec

seen = []

async def stuck():
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        seen.append("stopped")

with Exec(default_timeout=None).sync as ex:
    ex.add(stuck)
    try:
        ex.run_tool("stuck")
    except KeyboardInterrupt:
        seen.append("interrupted")
print(*sorted(seen))
"""


@pytest.mark.full
def test_a_real_ctrl_c() -> None:
    """A program that is interrupted while it waits stops the tool, leaves its block and ends."""
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()  # without effect on one that has ended
    assert (output, process.returncode) == ("interrupted stopped\n", 0)


def test_closing_while_others_wait() -> None:
    """A call of another thread that is under way raises ClosedError, and is not left waiting for ever."""
    began = threading.Event()

    async def stuck() -> None:
        began.set()
        await asyncio.Event().wait()

    ex = Exec().sync
    ex.add(stuck)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ex.run_tool, "stuck")
        assert began.wait(LONG)
        ex.close()
        with pytest.raises(ClosedError):
            call.result(LONG)


def test_on_the_loops_own_thread() -> None:
    """A blocking call there would wait for itself: it is refused, not hung."""
    outcomes: list[Any] = []

    with Exec().sync as ex:

        async def nested() -> None:
            for call in (lambda: ex.run_tool("t"), ex.close):
                with pytest.raises(ConfigurationError, match="own thread") as caught:
                    call()
                outcomes.append(caught.value)

        ex.add(lambda: 1, "t")
        ex.add(nested)
        ex.run_tool("nested").raise_for_error()
    assert len(outcomes) == 2


def test_in_a_handlers_thread() -> None:
    """A sync handler runs in a thread of its own, and may call other tools."""
    with Exec().sync as ex:
        ex.add(lambda: 20, "inner")
        ex.add(lambda: ex.run_tool("inner").value + 1, "outer")
        assert ex.run_tool("outer").value == 21


def test_progress_is_received() -> None:
    """The callback is called while the caller waits."""

    def work(ctx: ToolContext) -> None:
        ctx.report(1, 1)

    received: list[Any] = []
    with Exec().sync as ex:
        ex.add(work)
        ex.run_tool("work", on_progress=received.append)
    assert [progress.done for progress in received] == [0, 1, 1]


async def test_beside_a_running_loop() -> None:
    """Python functions of one Exec can be called from a loop, and blocking from a thread beside it."""
    ex = Exec()
    ex.add(lambda: 1, "t")
    assert (await ex.run_tool("t")).value == 1
    assert (await asyncio.to_thread(ex.sync.run_tool, "t")).value == 1
    await asyncio.to_thread(ex.sync.close)


def test_the_callers_event_loop_stays_theirs() -> None:
    """A thread that has set an event loop of its own has it during and after blocking calls, and can run it."""

    async def answer() -> int:
        return 5

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with Exec().sync as ex:
            ex.add(lambda a: a, "math:same")
            assert ex.run_tool("math:same", {"a": 1}).value == 1
            assert asyncio.get_event_loop().run_until_complete(answer()) == 5
        assert asyncio.get_event_loop().run_until_complete(answer()) == 5
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_one_exec_in_two_loops_one_after_the_other() -> None:
    """An Exec of Python functions only is not tied to the loop that used it first."""
    ex = Exec()

    async def numbers() -> AsyncIterator[int]:
        yield 1

    ex.add(numbers)
    ex.add(lambda: 1, "t")

    async def use() -> list[Any]:
        return [(await ex.run_tool("t")).value, [event.data async for event in ex.stream_tool("numbers")]]

    assert asyncio.run(use()) == asyncio.run(use()) == [1, [1, [1]]]
    asyncio.run(ex.aclose())


@pytest.mark.full
def test_a_real_server() -> None:
    """MCP servers work from blocking code, and end with the block."""
    with Exec().sync as ex:
        status = ex.add_mcp("time", command=[sys.executable, "-m", "mcp_server_time"])
        assert status.available, status.reason
        assert status in ex.backend_statuses()
        assert [s.id for s in ex.search_tools("current time", 1)] == ["time:get_current_time"]
        assert ex.run_tool("time:get_current_time", {"timezone": "UTC"}).raise_for_error().value["timezone"] == "UTC"


def test_a_config_file(tmp_path: Path) -> None:
    """The servers of a config file are connected when the call returns."""
    command, *args = ScriptedServer().command()
    server = {"command": command, "args": args}
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"time": server, "broken": {"command": "no-such-server"}}}))
    with Exec().sync as ex:
        assert [(s.name, s.available) for s in ex.add_config(path)] == [("time", True), ("broken", False)]


def test_closing_reports_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure comes out, and the loop has ended all the same."""
    ex = Exec().sync
    ex.start()

    async def fail() -> None:
        raise OSError("no")

    monkeypatch.setattr(ex.exec, "aclose", fail)
    with pytest.raises(OSError, match="no"):
        ex.close()
    assert _threads() == []


def test_code_runs() -> None:
    """Blocking, with tools, as the async method does; settings and refusals are the same."""
    with Exec().sync as ex:
        ex.add(lambda a, b: a + b, "math:add")
        result = ex.execute_code("print('x')\ntools.math.add(a=5, b=3)", allowed_tools=["math:*"])
        assert (result.value, result.stdout, len(result.tool_calls)) == (8, "x\n", 1)
        assert isinstance(ex.execute_code("1/0").error, CodeError)
        with pytest.raises(InvalidRequestError):
            ex.execute_code("1", language="cobol")


def test_code_is_received_while_it_runs() -> None:
    """One event after the other, the result last; leaving early stops the code."""
    with Exec().sync as ex:
        events = list(ex.stream_code("print('x')\n42"))
        assert [event.kind for event in events] == ["print", "done"]
        assert events[-1].result is not None
        assert events[-1].result.value == 42
        for event in ex.stream_code("print('x', flush=True)\nwhile True: pass"):
            assert event.text == "x\n"
            break
        assert ex.execute_code("1").value == 1


def test_a_session_keeps_its_state() -> None:
    """Names of one run are there in the next."""
    with Exec().sync as ex, ex.session(max_tool_calls=3) as session:
        session.execute_code("x = 20")
        assert session.execute_code("x + 1").value == 21
        assert isinstance(session.execute_code("1/0").error, CodeError)


def test_a_session_ends_with_its_exec() -> None:
    """Closing has ended it; leaving its block is fine, running more is refused."""
    with Exec().sync as ex, ex.session() as session:
        ex.close()
        with pytest.raises(ConfigurationError, match="closed"):
            session.execute_code("1")


def test_a_session_must_be_opened() -> None:
    """A session is a context manager."""
    with Exec().sync as ex, pytest.raises(ConfigurationError, match="not open"):
        ex.session().execute_code("1")
