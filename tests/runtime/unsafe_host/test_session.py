"""Sessions: one guest, several programs, names that stay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolexec.errors import (
    ClosedError,
    CodeError,
    CodeTimeoutError,
    InvalidRequestError,
    SandboxDeniedError,
    SandboxFailedError,
)


async def open_session(host: Any) -> Any:
    return await host.backend.open_session(host.request("None"))


async def test_names_stay_and_each_run_has_its_own_output_and_tools(host: Any) -> None:
    """State is kept; prints and calls are those of the run."""
    session = await open_session(host)
    first = await session.execute(host.request("print('one')\nx = tools.math.add(a=1, b=1)"))
    second = await session.execute(host.request("print('two')\nx + 1"))
    assert (first.stdout, second.stdout, second.value) == ("one\n", "two\n", 3)
    assert (len(first.tool_calls), len(second.tool_calls)) == (1, 0)
    await session.aclose()


async def test_a_failure_leaves_the_session_as_it_was(host: Any) -> None:
    """An exception is the end of the run, not of the session; its line is that of its own program."""
    session = await open_session(host)
    await session.execute(host.request("x = 1"))
    failed = await session.execute(host.request("\n\nx / 0"))
    assert isinstance(failed.error, CodeError)
    assert failed.error.line == 3
    assert (await session.execute(host.request("x"))).value == 1
    await session.aclose()


async def test_files_stay_and_are_given_back_when_they_change(host: Any) -> None:
    """The directory is the session's."""
    session = await open_session(host)
    first = await session.execute(host.request("open('a', 'w').write('1')"))
    second = await session.execute(host.request("open('b', 'w').write(open('a').read())"))
    third = await session.execute(host.request("import os\nos.listdir()", files={"c": b"3"}))
    assert (first.files, second.files, third.files) == ({"a": b"1"}, {"b": b"1"}, {})
    assert sorted(third.value) == ["a", "b", "c"]
    await session.aclose()


async def test_two_sessions_do_not_know_each_other(host: Any) -> None:
    """Neither names nor processes are shared."""
    one, other = await open_session(host), await open_session(host)
    await one.execute(host.request("x = 1"))
    result = await other.execute(host.request("x"))
    assert result.error is not None
    assert "NameError" in str(result.error)
    await one.aclose()
    await other.aclose()


async def test_a_run_that_had_to_be_killed_ends_the_session(host: Any) -> None:
    """The next one says that the state is lost."""
    session = await open_session(host)
    code = "while True:\n try:\n  while True:\n   len('')\n except: pass"
    stopped = await session.execute(host.request(code, timeout=0.5))
    assert isinstance(stopped.error, CodeTimeoutError)
    with pytest.raises(SandboxFailedError, match="open a new one"):
        await session.execute(host.request("1"))
    await session.aclose()


async def test_a_process_that_ends_itself_ends_the_session(host: Any) -> None:
    """With its exit code."""
    session = await open_session(host)
    result = await session.execute(host.request("import os\nos._exit(4)"))
    assert "exit code 4" in str(result.error)
    with pytest.raises(SandboxFailedError):
        await session.execute(host.request("1"))


async def test_cancelling_a_run_keeps_the_session(host: Any) -> None:
    """Cancelling also ends the call that is under way."""
    session = await open_session(host)
    task = asyncio.create_task(session.execute(host.request("tools.test.wait()")))
    await asyncio.wait_for(host.begun.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.cancelled == 1
    assert (await session.execute(host.request("1"))).value == 1
    await session.aclose()


async def test_closing_a_session_cancels_its_run(host: Any) -> None:
    """Closing cancels the run even when another owner closes, such as the backend."""
    session = await open_session(host)
    task = asyncio.create_task(session.execute(host.request("tools.test.wait()")))
    await asyncio.wait_for(host.begun.wait(), 60)
    await host.backend.aclose()
    with pytest.raises(ClosedError):
        await task
    with pytest.raises(SandboxFailedError):
        await session.execute(host.request("1"))


async def test_a_thread_left_behind_cannot_call_tools_between_runs(host: Any) -> None:
    """After the result calls are refused until the next run begins."""
    session = await open_session(host)
    code = """
import threading, time
seen = []
def later():
    time.sleep(0.3)
    try:
        tools.math.add(a=1, b=1)
    except ToolError as error:
        seen.append(error.code)
thread = threading.Thread(target=later)
thread.start()
"""
    first = await session.execute(host.request(code))
    await asyncio.sleep(0.8)
    second = await session.execute(host.request("thread.join()\nseen"))
    assert (second.value, first.tool_calls, second.tool_calls) == (["protocol"], [], [])
    await session.aclose()


async def test_runs_of_one_session_wait_for_each_other(host: Any) -> None:
    """Runs of a session go one after the other, however they are started."""
    session = await open_session(host)
    await session.execute(host.request("n = 0"))
    results = await asyncio.gather(*(session.execute(host.request("n += 1\nn")) for _ in range(5)))
    assert [result.value for result in results] == [1, 2, 3, 4, 5]
    await session.aclose()


async def test_a_bad_request_leaves_the_session_as_it_was(host: Any) -> None:
    """Nothing was run, nothing is lost."""
    session = await open_session(host)
    await session.execute(host.request("x = 1"))
    with pytest.raises(InvalidRequestError):
        await session.execute(host.request("x", files={"/etc/passwd": b""}))
    with pytest.raises(InvalidRequestError, match="runs python"):
        await session.execute(host.request("x", language="bash"))
    assert (await session.execute(host.request("x"))).value == 1
    await session.aclose()


async def test_sessions_are_for_python_and_need_the_opt_in(host: Any) -> None:
    """As runs do."""
    with pytest.raises(InvalidRequestError, match="python only"):
        await host.backend.open_session(host.request("1", language="bash"))
    with pytest.raises(SandboxDeniedError):
        await host.backend.open_session(host.request("1", metadata={}))
