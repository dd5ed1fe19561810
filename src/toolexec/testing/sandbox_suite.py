"""The contract suite for sandbox backends, in each language that one runs.

The checks are plain async functions, free of any test framework. `check_sandbox` takes them all; to have each one as a
test of its own, go through `SANDBOX_CHECKS` with `run_sandbox_check`. The escape battery is the other half.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Final, TypeAlias

from toolexec.code.limits import Limits
from toolexec.code.types import Output
from toolexec.errors import CodeError, InvalidRequestError
from toolexec.runtime.base import SandboxBackend, SessionBackend
from toolexec.runtime.claims import claims_interrupt
from toolexec.testing.report import Report, checks_of
from toolexec.testing.sandbox_snippets import PYTHON, Snippets
from toolexec.testing.sandbox_testbed import PATIENCE, SandboxTestbed

__all__ = [
    "SANDBOX_CHECKS",
    "MakeSandbox",
    "SandboxCheck",
    "SandboxTestbed",
    "check_sandbox",
    "open_testbed",
    "run_sandbox_check",
]

MakeSandbox: TypeAlias = Callable[[], AbstractAsyncContextManager[SandboxBackend]]
"""Gives a fresh sandbox as an async context manager."""


# -- the request ------------------------------------------------------------------------------------------------


async def it_says_what_it_is(testbed: SandboxTestbed) -> None:
    """Kind and isolation are words, the language is among those it runs, and it is available."""
    assert testbed.backend.kind
    assert testbed.backend.isolation in ("none", "process", "wasm", "container", "gvisor", "vm")
    assert testbed.snippets.language in testbed.backend.languages
    state = await testbed.backend.check()
    assert state.ok, state


async def a_request_needs_gateway_and_code(testbed: SandboxTestbed) -> None:
    """Require the same errors as those of the router."""
    for wrong, code in (
        (replace(testbed.request("1"), gateway=None), "missing_gateway"),
        (testbed.request("  "), "missing_code"),
    ):
        try:
            await testbed.backend.execute(wrong.validate())
        except InvalidRequestError as error:
            refused = error.code
        else:
            refused = ""
        assert refused == code, f"a request that is wrong was refused with {refused!r}, not {code}"


async def an_unknown_language_is_refused(testbed: SandboxTestbed) -> None:
    """Require that nothing is run."""
    try:
        await testbed.run("1", language="cobol")
    except InvalidRequestError as error:
        named = error.backend
    else:
        raise AssertionError("code in an unknown language was not refused")
    assert named == testbed.backend.kind, named


async def a_run_says_where_it_ran(testbed: SandboxTestbed) -> None:
    """Require the sandbox's own kind and isolation in the result, and how long it took."""
    result = (await testbed.run(next(iter(testbed.snippets.values)))).raise_for_error()
    assert result.backend is not None
    assert result.backend.kind == testbed.backend.kind
    assert result.backend.isolation == testbed.backend.isolation
    assert result.duration > 0
    assert result.limits_enforced == testbed.backend.enforces(testbed.request("1"))


# -- values and output ------------------------------------------------------------------------------------------


async def values_follow_the_conventions(testbed: SandboxTestbed) -> None:
    """`return`, `__out` and a last expression, as the language has them; integers stay exact."""
    for code, expected in testbed.snippets.values.items():
        result = await testbed.run(code)
        assert result.ok, f"{code!r} failed: {result.error}"
        assert result.value == expected, f"{code!r} gave {result.value!r}"
        assert type(result.value) is type(expected)


async def prints_arrive_while_it_runs(testbed: SandboxTestbed) -> None:
    """Require that output before a tool call is on the host while the call is under way."""
    received: list[tuple[str, str]] = []
    output = Output(tell=lambda stream, text: received.append((stream, text)))
    task = asyncio.ensure_future(testbed.run(testbed.snippets.prints, output=output))
    await asyncio.wait_for(testbed.begun.wait(), PATIENCE)
    assert "".join(text for _, text in received).strip() == "one", received
    testbed.gate.set()
    result = await task
    assert (result.stdout, result.stderr) == ("one\ntwo\n", "bad\n"), (result.stdout, result.stderr)


async def a_failure_keeps_what_there_was(testbed: SandboxTestbed) -> None:
    """Output, files and trace survive, and the error has the author's own line."""
    tools = testbed.tools()
    result = await testbed.run(testbed.snippets.fails, tools)
    assert isinstance(result.error, CodeError), result.error
    assert result.error.backend == testbed.backend.kind
    assert result.value is None
    assert result.stdout == "before\n"
    assert [(record.tool_id, record.ok) for record in tools.tool_calls()] == [("suite:add", True)]
    if testbed.snippets.failing_line:
        assert "boom" in str(result.error)
        assert result.error.details.get("line") == testbed.snippets.failing_line, result.error.details
        assert "boom" in result.error.details.get("source", "")
    if "kept.txt" in testbed.snippets.fails:
        assert result.files == {"kept.txt": b"kept"}, result.files


async def bad_syntax_is_the_programs_failure(testbed: SandboxTestbed) -> None:
    """Require a report as for any other failure, with nothing called."""
    if testbed.snippets.no_syntax:
        result = await testbed.run(testbed.snippets.no_syntax)
        assert isinstance(result.error, CodeError), result.error


async def a_value_that_is_not_json_is_refused(testbed: SandboxTestbed) -> None:
    """Require that the error describes the value."""
    if testbed.snippets.no_json:
        result = await testbed.run(testbed.snippets.no_json)
        assert isinstance(result.error, CodeError), result.error
        assert "object" in str(result.error)


# -- tools ------------------------------------------------------------------------------------------------------


async def tools_answer(testbed: SandboxTestbed) -> None:
    """Sync and async tools can be called, and the calls are in the trace with arguments and value."""
    tools = testbed.tools()
    assert (await testbed.run(testbed.snippets.call, tools)).raise_for_error().value == 3
    assert (await testbed.run(testbed.snippets.call_async, tools)).raise_for_error().value == 5
    assert [(r.tool_id, r.args, r.value) for r in tools.tool_calls()] == [
        ("suite:add", {"a": 1, "b": 2}, 3),
        ("suite:slow", {"a": 5}, 5),
    ]


async def gathered_calls_run_at_the_same_time(testbed: SandboxTestbed) -> None:
    """Three calls that wait for each other all end."""
    if testbed.snippets.gather:
        assert (await testbed.run(testbed.snippets.gather)).raise_for_error().value == 3


async def a_failed_tool_can_be_caught(testbed: SandboxTestbed) -> None:
    """Code sees the code of the error, and goes on."""
    if testbed.snippets.catches:
        assert (await testbed.run(testbed.snippets.catches)).raise_for_error().value == "handler_failed"


async def a_failed_tool_fails_the_program(testbed: SandboxTestbed) -> None:
    """Require that an uncaught failure of a tool is the program's; the call is in the trace with its error."""
    tools = testbed.tools()
    result = await testbed.run(testbed.snippets.fails_uncaught, tools)
    assert isinstance(result.error, CodeError), result.error
    (record,) = tools.tool_calls()
    assert record.error is not None
    assert record.error.code == "handler_failed"


async def the_cap_on_calls_holds(testbed: SandboxTestbed) -> None:
    """Code that swallows every error does not get past it."""
    if testbed.snippets.swallows:
        tools = testbed.tools(limits=Limits(max_tool_calls=3))
        result = await testbed.run(testbed.snippets.swallows, tools)
        assert result.raise_for_error().value == 3
        assert len(tools.tool_calls()) == 3


async def the_cap_on_chain_steps_holds(testbed: SandboxTestbed) -> None:
    """Require that no more steps are made than the cap allows, where the sandbox claims that it holds."""
    tools = testbed.tools(limits=Limits(max_chain_steps=2))
    if testbed.snippets.chains and testbed.backend.enforces(testbed.request("1", tools)).chain_steps:
        await testbed.run(testbed.snippets.chains, tools)
        made = len(tools.tool_calls())
        assert made <= 2, f"chain_steps is said to be limited to 2, but a chain made {made}"


async def the_list_of_allowed_tools_holds(testbed: SandboxTestbed) -> None:
    """Require that a tool that is not on the list is not called."""
    tools = testbed.tools(allowed=("suite:slow",))
    result = await testbed.run(testbed.snippets.call, tools)
    assert not result.ok or result.value is None
    (record,) = tools.tool_calls()
    assert record.error is not None
    assert record.error.code == "tool_not_allowed"


# -- limits -----------------------------------------------------------------------------------------------------


async def the_deadline_stops_anything(testbed: SandboxTestbed) -> None:
    """Require that a tight loop, a sleep, an async and a blocking tool call are stopped."""
    await testbed.backend.check()  # which a runtime makes before, and which may take long the first time
    await testbed.run(next(iter(testbed.snippets.values)))  # so may the first program
    began = monotonic()
    await testbed.run(next(iter(testbed.snippets.values)))
    limit = 0.3 + 3 * (monotonic() - began)  # the time limit holds for the start of the sandbox, too
    for code in (testbed.snippets.spins, testbed.snippets.sleeps, testbed.snippets.waits, testbed.snippets.holds):
        if code:
            await _stopped(testbed, code, limit)
    for _ in range(5):  # a machine that has become busy may have stopped it before its call
        if testbed.waits:
            break
        limit *= 2
        await _stopped(testbed, testbed.snippets.waits, limit)
    assert "wait" in testbed.stopped, "a tool call went on after the deadline of its run"


async def _stopped(testbed: SandboxTestbed, code: str, limit: float) -> None:
    """Require that a program is stopped by its time limit."""
    result = await testbed.run(code, timeout=limit)
    assert result.error is not None, code
    assert result.error.code == "code_timeout", f"{code!r} ended with {result.error!r}"


async def claimed_limits_are_real(testbed: SandboxTestbed) -> None:
    """Require that every limit that it claims to enforce stops a program that tries to get past it."""
    tight = {
        "memory": Limits(memory_bytes=96 << 20),
        "cpu": Limits(cpu_ms=100),
        "pids": Limits(pids=8),
        "disk": Limits(disk_bytes=4 << 20),
    }
    for name, code in testbed.snippets.hogs.items():
        limits = tight[name]
        if testbed.backend.enforces(testbed.request("1", limits=limits)).to_dict()[name]:
            result = await testbed.run(code, limits=limits, timeout=60.0, best_effort=True)
            assert result.error is not None, f"{name} is said to be limited, but a program got past it"
            assert result.error.code in ("limit_exceeded", "code_error"), f"{name}: {result.error!r}"
            if name in ("memory", "cpu"):
                assert result.error.code == "limit_exceeded", f"{name}: {result.error!r}"
                assert result.error.details.get("resource") == name, result.error.details


async def cancelling_stops_the_code(testbed: SandboxTestbed) -> None:
    """Require that the cancellation reaches the tool that is under way, and comes out as a cancellation."""
    task = asyncio.ensure_future(testbed.run(testbed.snippets.waits))
    await asyncio.wait_for(testbed.begun.wait(), PATIENCE)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.cancelled()
    for _ in range(500):
        if testbed.stopped:
            break
        await asyncio.sleep(0.01)
    assert testbed.stopped == ["wait"]


# A loop of nothing in one line would not do: CPython 3.11 looks for signals where its jump leads to, before the try.
_OBSTINATE = """
while True:
    try:
        while True:
            len("")
    except BaseException:
        pass
"""


async def a_claimed_interrupt_keeps_the_session(testbed: SandboxTestbed) -> None:
    """Require that a session goes on after a run that was stopped, where the sandbox claims that, and that a program
    which does not obey does not outlive its time."""
    backend, spins = testbed.backend, testbed.snippets.spins
    if not (
        claims_interrupt(backend) and isinstance(backend, SessionBackend) and testbed.snippets.language == "python"
    ):
        return
    for more in (True, True, False):  # a machine that pauses for longer than the grace ends the session, too
        session = await backend.open_session(testbed.request("None"))
        try:
            (await session.execute(testbed.request("kept = 1"))).raise_for_error()
            stopped = (await session.execute(testbed.request(spins, timeout=0.3))).error
            assert stopped is not None, "a program did not end at its deadline"
            if stopped.details.get("session") != "kept" and more:
                continue
            assert stopped.details.get("session") == "kept", stopped
            assert (await session.execute(testbed.request("return kept"))).raise_for_error().value == 1
            ended = (await session.execute(testbed.request(_OBSTINATE, timeout=0.3))).error
            assert ended is not None, "a program that catches what stops it did not end"
            assert ended.details.get("session") == "ended", ended
            return
        finally:
            await session.aclose()


# -- one run and the others -------------------------------------------------------------------------------------


async def concurrent_runs_do_not_mix(testbed: SandboxTestbed) -> None:
    """Require that each run has its own value, output and trace."""
    if testbed.snippets.name:
        names = [f"run{number}" for number in range(8)]
        gateways = [testbed.tools() for _ in names]
        runs = [
            testbed.run(testbed.snippets.name.replace("@NAME@", name), tools)
            for name, tools in zip(names, gateways, strict=True)
        ]
        results = await asyncio.gather(*runs)
        assert [result.raise_for_error().value for result in results] == names
        assert [result.stdout for result in results] == [f"{name}\n" for name in names]
        assert len({len(tools.tool_calls()) for tools in gateways}) == 1


async def every_run_starts_clean(testbed: SandboxTestbed) -> None:
    """Require that nothing of an earlier run is there, however that one ended."""
    if not testbed.snippets.remembers:
        return
    for ending in ("", testbed.snippets.spins, testbed.snippets.no_syntax):
        await testbed.run(f"{testbed.snippets.remember}\n{ending}", timeout=1.0)
        result = (await testbed.run(testbed.snippets.remembers)).raise_for_error()
        assert result.value is False
        assert result.files == {}
        assert result.stdout == ""


async def files_go_in_and_out(testbed: SandboxTestbed) -> None:
    """Files are there by relative path; those that were made come back, those that were only read do not."""
    if testbed.snippets.files:
        result = await testbed.run(testbed.snippets.files, files={"in.txt": b"abc", "deep/er.txt": b""})
        assert result.raise_for_error().value == "abc"
        assert result.files == {"sub/out.txt": b"abcabc"}, result.files


async def files_stay_in_their_directory(testbed: SandboxTestbed) -> None:
    """Require that a path that leads out of the working directory is refused, and that nothing is run."""
    for path in ("/etc/x", "../x", "a/../../x"):
        try:
            await testbed.run(testbed.snippets.call, files={path: b""})
        except InvalidRequestError:
            continue
        raise AssertionError(f"a file at {path!r} was not refused")


async def env_arrives(testbed: SandboxTestbed) -> None:
    """Require that the request's variables are those of the program."""
    if testbed.snippets.env:
        result = await testbed.run(testbed.snippets.env, env={"GREETING": "hello ü"})
        assert result.raise_for_error().value == "hello ü"


async def closing_stops_what_runs(testbed: SandboxTestbed) -> None:
    """`aclose` ends the programs under way, and can be repeated."""
    task = asyncio.ensure_future(testbed.run(testbed.snippets.waits))
    await asyncio.wait_for(testbed.begun.wait(), PATIENCE)
    await asyncio.wait_for(testbed.backend.aclose(), PATIENCE)
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.done()
    assert task.cancelled() or task.exception() is not None or task.result().error is not None
    await testbed.backend.aclose()


SandboxCheck: TypeAlias = Callable[[SandboxTestbed], Awaitable[None]]
"""One check of the suite; it raises what it finds wrong."""
SANDBOX_CHECKS: Final[Mapping[str, SandboxCheck]] = checks_of(__name__)
"""Every check by its name."""


@asynccontextmanager
async def open_testbed(make: MakeSandbox, snippets: Snippets = PYTHON) -> AsyncGenerator[SandboxTestbed]:
    """Give a sandbox that *make* makes, with its test bed."""
    async with make() as backend:
        testbed = SandboxTestbed(backend, snippets)
        try:
            yield testbed
        finally:
            await testbed.aclose()


async def run_sandbox_check(make: MakeSandbox, name: str, snippets: Snippets = PYTHON) -> None:
    """Put a sandbox that *make* gives through one check; raises AssertionError, or what went wrong, KeyError for an
    unknown name."""
    async with open_testbed(make, snippets) as testbed:
        await SANDBOX_CHECKS[name](testbed)


async def check_sandbox(make: MakeSandbox, snippets: Snippets = PYTHON, *, known_gaps: Collection[str] = ()) -> None:
    """Put the sandboxes that *make* gives through every check; see `Report` for known gaps and for what is raised."""
    report = Report("sandbox", SANDBOX_CHECKS, known_gaps)
    for name in SANDBOX_CHECKS:
        with report.check(name):
            await run_sandbox_check(make, name, snippets)
    report.conclude()
