"""The exam that every sandbox backend takes, in every language that it runs.

The checks are plain async functions, free of any test framework. `check_sandbox` takes them all; to have each one as a
test of its own, go through `SANDBOX_CHECKS` with `run_sandbox_check`. The escape battery is the other half of the exam.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Any, Final, TypeAlias

from toolexec.code.limits import Limits
from toolexec.code.output import Output
from toolexec.errors import CodeError, InvalidRequestError, MissingCodeError, MissingGatewayError
from toolexec.runtime.base import SandboxBackend
from toolexec.testing.report import Report
from toolexec.testing.sandbox_exam import PATIENCE, SandboxExam
from toolexec.testing.sandbox_snippets import PYTHON, Snippets

__all__ = [
    "SANDBOX_CHECKS",
    "MakeSandbox",
    "SandboxCheck",
    "SandboxExam",
    "check_sandbox",
    "open_exam",
    "run_sandbox_check",
]

MakeSandbox: TypeAlias = Callable[[], AbstractAsyncContextManager[SandboxBackend]]
"""Gives a fresh sandbox as an async context manager."""


# -- the request ------------------------------------------------------------------------------------------------


async def it_says_what_it_is(exam: SandboxExam) -> None:
    """Kind and isolation are words, the language is among those it runs, and it is available."""
    assert exam.backend.kind
    assert exam.backend.isolation in ("none", "process", "wasm", "container", "gvisor", "vm")
    assert exam.snippets.language in exam.backend.languages
    state = await exam.backend.check()
    assert state.ok, f"{state.reason} {state.remedy}"


async def a_request_needs_gateway_and_code(exam: SandboxExam) -> None:
    """What the router would refuse is refused with the same errors."""
    for wrong, kind in (
        (replace(exam.request("1"), gateway=None), MissingGatewayError),
        (exam.request("  "), MissingCodeError),
    ):
        try:
            await exam.backend.execute(wrong.validate())
        except kind:
            continue
        raise AssertionError(f"a request that is wrong raised no {kind.__name__}")


async def an_unknown_language_is_refused(exam: SandboxExam) -> None:
    """Nothing is run."""
    try:
        await exam.run("1", language="cobol")
    except InvalidRequestError as error:
        named = error.backend
    else:
        raise AssertionError("code in an unknown language was not refused")
    assert named == exam.backend.kind, named


async def a_run_says_where_it_ran(exam: SandboxExam) -> None:
    """The result has the sandbox's own kind and isolation, and how long it took."""
    result = (await exam.run(next(iter(exam.snippets.values)))).raise_for_error()
    assert result.backend is not None
    assert result.backend.kind == exam.backend.kind
    assert result.backend.isolation == exam.backend.isolation
    assert result.duration > 0
    assert result.limits_enforced == exam.backend.enforces(exam.request("1"))


# -- values and output ------------------------------------------------------------------------------------------


async def values_follow_the_conventions(exam: SandboxExam) -> None:
    """`return`, `__out` and a last expression, as the language has them; integers stay exact."""
    for code, expected in exam.snippets.values.items():
        result = await exam.run(code)
        assert result.ok, f"{code!r} failed: {result.error}"
        assert result.value == expected, f"{code!r} gave {result.value!r}"
        assert type(result.value) is type(expected)


async def prints_arrive_while_it_runs(exam: SandboxExam) -> None:
    """What was printed before a tool call is on the host while the call is under way."""
    heard: list[tuple[str, str]] = []
    output = Output(tell=lambda stream, text: heard.append((stream, text)))
    task = asyncio.ensure_future(exam.run(exam.snippets.prints, output=output))
    await asyncio.wait_for(exam.begun.wait(), PATIENCE)
    assert "".join(text for _, text in heard).strip() == "one", heard
    exam.gate.set()
    result = await task
    assert (result.stdout, result.stderr) == ("one\ntwo\n", "bad\n"), (result.stdout, result.stderr)


async def a_failure_keeps_what_there_was(exam: SandboxExam) -> None:
    """Output, files and trace survive, and the error has the author's own line."""
    tools = exam.tools()
    result = await exam.run(exam.snippets.fails, tools)
    assert isinstance(result.error, CodeError), result.error
    assert result.error.backend == exam.backend.kind
    assert result.value is None
    assert result.stdout == "before\n"
    assert [(record.tool_id, record.ok) for record in tools.tool_calls()] == [("exam:add", True)]
    if exam.snippets.failing_line:
        assert "boom" in str(result.error)
        assert result.error.details.get("line") == exam.snippets.failing_line, result.error.details
        assert "boom" in result.error.details.get("source", "")
    if "kept.txt" in exam.snippets.fails:
        assert result.files == {"kept.txt": b"kept"}, result.files


async def bad_syntax_is_the_programs_failure(exam: SandboxExam) -> None:
    """It is reported as any other failure, and nothing was called."""
    if exam.snippets.no_syntax:
        result = await exam.run(exam.snippets.no_syntax)
        assert isinstance(result.error, CodeError), result.error


async def a_value_that_is_not_json_is_refused(exam: SandboxExam) -> None:
    """The error says what it was."""
    if exam.snippets.no_json:
        result = await exam.run(exam.snippets.no_json)
        assert isinstance(result.error, CodeError), result.error
        assert "object" in str(result.error)


# -- tools ------------------------------------------------------------------------------------------------------


async def tools_answer(exam: SandboxExam) -> None:
    """Sync and async tools can be called, and the calls are in the trace with arguments and value."""
    tools = exam.tools()
    assert (await exam.run(exam.snippets.call, tools)).raise_for_error().value == 3
    assert (await exam.run(exam.snippets.call_async, tools)).raise_for_error().value == 5
    assert [(r.tool_id, r.args, r.value) for r in tools.tool_calls()] == [
        ("exam:add", {"a": 1, "b": 2}, 3),
        ("exam:slow", {"a": 5}, 5),
    ]


async def gathered_calls_run_at_the_same_time(exam: SandboxExam) -> None:
    """Three calls that wait for each other all end."""
    if exam.snippets.gather:
        assert (await exam.run(exam.snippets.gather)).raise_for_error().value == 3


async def a_failed_tool_can_be_caught(exam: SandboxExam) -> None:
    """Code sees the code of the error, and goes on."""
    if exam.snippets.catches:
        assert (await exam.run(exam.snippets.catches)).raise_for_error().value == "handler_failed"


async def a_failed_tool_fails_the_program(exam: SandboxExam) -> None:
    """Where code does not catch it, the program has failed; the call is in the trace with its error."""
    tools = exam.tools()
    result = await exam.run(exam.snippets.fails_uncaught, tools)
    assert isinstance(result.error, CodeError), result.error
    (record,) = tools.tool_calls()
    assert record.error is not None
    assert record.error.code == "handler_failed"


async def the_cap_on_calls_holds(exam: SandboxExam) -> None:
    """Code that swallows every error does not get past it."""
    if exam.snippets.swallows:
        tools = exam.tools(limits=Limits(max_tool_calls=3))
        result = await exam.run(exam.snippets.swallows, tools)
        assert result.raise_for_error().value == 3
        assert len(tools.tool_calls()) == 3


async def the_list_of_allowed_tools_holds(exam: SandboxExam) -> None:
    """A tool that is not on it is not called."""
    tools = exam.tools(allowed=("exam:slow",))
    result = await exam.run(exam.snippets.call, tools)
    assert not result.ok or result.value is None
    (record,) = tools.tool_calls()
    assert record.error is not None
    assert record.error.code == "tool_not_allowed"


# -- limits -----------------------------------------------------------------------------------------------------


async def the_deadline_stops_anything(exam: SandboxExam) -> None:
    """A tight loop, a sleep, an async and a blocking tool call."""
    began = monotonic()
    await exam.run(next(iter(exam.snippets.values)))
    start = 3 * (monotonic() - began)  # the time limit holds for the start of the sandbox, too
    for code in (exam.snippets.spins, exam.snippets.sleeps, exam.snippets.waits, exam.snippets.holds):
        if code:
            result = await exam.run(code, timeout=start + 0.3)
            assert result.error is not None, code
            assert result.error.code == "code_timeout", f"{code!r} ended with {result.error!r}"
    assert "wait" in exam.stopped, "a tool call went on after the deadline of its run"


async def claimed_limits_are_real(exam: SandboxExam) -> None:
    """Every limit that it says it enforces does stop a program that tries to get past it."""
    tight = {
        "memory": Limits(memory_bytes=96 << 20),
        "cpu": Limits(cpu_ms=100),
        "pids": Limits(pids=8),
        "disk": Limits(disk_bytes=4 << 20),
    }
    for name, code in exam.snippets.hogs.items():
        limits = tight[name]
        if exam.backend.enforces(exam.request("1", limits=limits)).to_dict()[name]:
            result = await exam.run(code, limits=limits, timeout=20.0, best_effort=True)
            assert result.error is not None, f"{name} is said to be limited, but a program got past it"
            assert result.error.code in ("limit_exceeded", "code_error"), f"{name}: {result.error!r}"
            if name in ("memory", "cpu"):
                assert result.error.code == "limit_exceeded", f"{name}: {result.error!r}"
                assert result.error.details.get("resource") == name, result.error.details


async def cancelling_stops_the_code(exam: SandboxExam) -> None:
    """The cancellation reaches the tool that is under way, and comes out as a cancellation."""
    task = asyncio.ensure_future(exam.run(exam.snippets.waits))
    await asyncio.wait_for(exam.begun.wait(), PATIENCE)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.cancelled()
    for _ in range(500):
        if exam.stopped:
            break
        await asyncio.sleep(0.01)
    assert exam.stopped == ["wait"]


# -- one run and the others -------------------------------------------------------------------------------------


async def concurrent_runs_do_not_mix(exam: SandboxExam) -> None:
    """Each has its own value, output and trace."""
    if exam.snippets.name:
        names = [f"run{number}" for number in range(8)]
        gateways = [exam.tools() for _ in names]
        runs = [
            exam.run(exam.snippets.name.replace("@NAME@", name), tools)
            for name, tools in zip(names, gateways, strict=True)
        ]
        results = await asyncio.gather(*runs)
        assert [result.raise_for_error().value for result in results] == names
        assert [result.stdout for result in results] == [f"{name}\n" for name in names]
        assert len({len(tools.tool_calls()) for tools in gateways}) == 1


async def every_run_starts_clean(exam: SandboxExam) -> None:
    """Nothing of an earlier run is there, however that one ended."""
    if not exam.snippets.remembers:
        return
    for ending in ("", exam.snippets.spins, exam.snippets.no_syntax):
        await exam.run(f"{exam.snippets.remember}\n{ending}", timeout=1.0)
        result = (await exam.run(exam.snippets.remembers)).raise_for_error()
        assert result.value is False
        assert result.files == {}
        assert result.stdout == ""


async def files_go_in_and_out(exam: SandboxExam) -> None:
    """Files are there by relative path; those that were made come back, those that were only read do not."""
    if exam.snippets.files:
        result = await exam.run(exam.snippets.files, files={"in.txt": b"abc", "deep/er.txt": b""})
        assert result.raise_for_error().value == "abc"
        assert result.files == {"sub/out.txt": b"abcabc"}, result.files


async def files_stay_in_their_folder(exam: SandboxExam) -> None:
    """A path that leads out of the working directory is refused, and nothing is run."""
    for path in ("/etc/x", "../x", "a/../../x"):
        try:
            await exam.run(exam.snippets.call, files={path: b""})
        except InvalidRequestError:
            continue
        raise AssertionError(f"a file at {path!r} was not refused")


async def env_arrives(exam: SandboxExam) -> None:
    """Its variables are those of the program."""
    if exam.snippets.env:
        result = await exam.run(exam.snippets.env, env={"GREETING": "hello ü"})
        assert result.raise_for_error().value == "hello ü"


async def closing_stops_what_runs(exam: SandboxExam) -> None:
    """`aclose` ends the programs under way, and can be repeated."""
    task = asyncio.ensure_future(exam.run(exam.snippets.waits))
    await asyncio.wait_for(exam.begun.wait(), PATIENCE)
    await asyncio.wait_for(exam.backend.aclose(), PATIENCE)
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.done()
    assert task.cancelled() or task.exception() is not None or task.result().error is not None
    await exam.backend.aclose()


SandboxCheck: TypeAlias = Callable[[SandboxExam], Awaitable[None]]
_ALL: Final[tuple[Any, ...]] = (
    it_says_what_it_is,
    a_request_needs_gateway_and_code,
    an_unknown_language_is_refused,
    a_run_says_where_it_ran,
    values_follow_the_conventions,
    prints_arrive_while_it_runs,
    a_failure_keeps_what_there_was,
    bad_syntax_is_the_programs_failure,
    a_value_that_is_not_json_is_refused,
    tools_answer,
    gathered_calls_run_at_the_same_time,
    a_failed_tool_can_be_caught,
    a_failed_tool_fails_the_program,
    the_cap_on_calls_holds,
    the_list_of_allowed_tools_holds,
    the_deadline_stops_anything,
    claimed_limits_are_real,
    cancelling_stops_the_code,
    concurrent_runs_do_not_mix,
    every_run_starts_clean,
    files_go_in_and_out,
    files_stay_in_their_folder,
    env_arrives,
    closing_stops_what_runs,
)
SANDBOX_CHECKS: Final[Mapping[str, SandboxCheck]] = {check.__name__: check for check in _ALL}
"""Every check by its name."""


@asynccontextmanager
async def open_exam(make: MakeSandbox, snippets: Snippets = PYTHON) -> AsyncGenerator[SandboxExam]:
    """A sandbox that *make* gives, ready to be examined."""
    async with make() as backend:
        exam = SandboxExam(backend, snippets)
        try:
            yield exam
        finally:
            await exam.aclose()


async def run_sandbox_check(make: MakeSandbox, name: str, snippets: Snippets = PYTHON) -> None:
    """Put a sandbox that *make* gives through one check; raises AssertionError, or what went wrong, KeyError for an
    unknown name."""
    async with open_exam(make, snippets) as exam:
        await SANDBOX_CHECKS[name](exam)


async def check_sandbox(make: MakeSandbox, snippets: Snippets = PYTHON, *, known_gaps: Collection[str] = ()) -> None:
    """Put the sandboxes that *make* gives through every check; see `Report` for known gaps and for what is raised."""
    report = Report("sandbox", SANDBOX_CHECKS, known_gaps)
    for name in SANDBOX_CHECKS:
        with report.check(name):
            await run_sandbox_check(make, name, snippets)
    report.conclude()
