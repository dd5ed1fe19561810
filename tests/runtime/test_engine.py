"""A runtime as the engine of an executor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolexec import Exec
from toolexec.code.executor import CodeConfig, Executor
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest, Output
from toolexec.errors import (
    CodeError,
    CodeExecutionError,
    CodeTimeoutError,
    HandlerError,
    InvalidRequestError,
    LimitExceededError,
    SandboxDeniedError,
    SandboxError,
    SandboxFailedError,
    SandboxUnavailableError,
    SandboxViolationError,
    ToolExecError,
)
from toolexec.runtime.router import Runtime
from toolexec.testing.scripted_sandbox import ScriptedSandbox


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec with a tool that works, and one that does not."""

    def fail() -> None:
        raise ValueError("no")

    async with Exec() as ex:
        ex.add(lambda a, b=0: a + b, "math:add")
        ex.add(fail, "math:fail")
        yield ex


def executor(ex: Exec, sandbox: ScriptedSandbox, profile: str = "") -> Executor:
    """An executor over a runtime."""
    engine = Runtime([sandbox], default_profile=profile or "standard")
    limits = Limits(max_tool_calls=25, max_chain_steps=4)
    return Executor(CodeConfig(index=ex.index, docs=ex.docs, run=ex.runner, engine=engine, limits=limits))


def test_its_languages_are_those_of_the_sandboxes() -> None:
    """All of them together; it keeps the deadline itself."""
    runtime = Runtime([ScriptedSandbox(), ScriptedSandbox(kind="bubblewrap", languages=["go", "python"])])
    assert runtime.languages == {"python", "go"}
    assert runtime.keeps_deadline
    assert Runtime([]).languages == frozenset()


async def test_everything_reaches_the_sandbox(ex: Exec) -> None:
    """All that the parameters say, with the caps that hold."""
    sandbox = ScriptedSandbox()
    params = ExecuteRequest(
        code="x",
        language="python",
        timeout=5.0,
        limits=Limits(max_tool_calls=20),
        env={"A": "b"},
        files={"f": b"1"},
        args=["--now"],
        stdin=b"in",
        seed=7,
        now=8.0,
        best_effort=True,
        metadata={"k": "v"},
    )
    await executor(ex, sandbox, "hardened").execute(params)
    (request,) = sandbox.requests
    assert (request.code, request.language, request.timeout, request.profile) == ("x", "python", 5.0, "hardened")
    assert request.limits == Limits(max_tool_calls=20, max_chain_steps=4)
    assert (request.env, request.files, request.args, request.stdin) == ({"A": "b"}, {"f": b"1"}, ["--now"], b"in")
    assert (request.seed, request.now, request.best_effort, request.metadata) == (7, 8.0, True, {"k": "v"})
    assert isinstance(request.gateway, Tools)
    assert isinstance(request.output, Output)
    assert request.output is request.gateway.output


async def test_the_profile_of_the_code_goes_first(ex: Exec) -> None:
    """The runtime's is for code that asks for none."""
    sandbox = ScriptedSandbox()
    await executor(ex, sandbox, "hardened").execute(ExecuteRequest(code="x", profile="standard"))
    assert sandbox.requests[0].profile == "standard"


async def test_the_result_is_that_of_the_sandbox(ex: Exec) -> None:
    """Value, output, files, where it ran and what was enforced; the trace is whole."""

    async def program(request: ExecuteRequest) -> Any:
        assert request.gateway is not None
        request.output.write("hello\n")
        return (await request.gateway.run_tool("math:add", {"a": 1, "b": 2})).value

    result = await executor(ex, ScriptedSandbox({"x": program})).execute(ExecuteRequest(code="x"))
    assert isinstance(result, CodeResult)
    assert (result.value, result.stdout, result.language) == (3, "hello\n", "python")
    assert result.backend == BackendInfo(kind="wasm", readiness="beta", isolation="wasm")
    assert result.limits_enforced.timeout
    assert [(record.tool_id, record.args, record.value) for record in result.tool_calls] == [
        ("math:add", {"a": 1, "b": 2}, 3)
    ]


async def test_all_six_operations_work(ex: Exec) -> None:
    """Code in a sandbox has everything that `Tools` has; errors of tools are the same objects."""
    raised: list[ToolExecError | None] = []

    async def program(request: ExecuteRequest) -> Any:
        gateway = request.gateway
        assert gateway is not None
        raised.append((await gateway.run_tool("math:fail")).error)
        _, steps = await gateway.run_chain([])
        return [
            [summary.id for summary in await gateway.search_tools("add", 1)],
            await gateway.list_namespaces(),
            (await gateway.describe_tool("math:add")).id,
            await gateway.list_tool_examples("math:add", 0),
            steps,
        ]

    result = await executor(ex, ScriptedSandbox({"x": program})).execute(ExecuteRequest(code="x"))
    assert result.value == [["math:add"], ["math"], "math:add", [], []]
    assert isinstance(raised[0], HandlerError)
    assert result.tool_calls[0].error is raised[0]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CodeTimeoutError("limit exceeded: too late"), LimitExceededError),
        (LimitExceededError("limit exceeded: no memory"), LimitExceededError),
        (SandboxViolationError("a syscall"), CodeExecutionError),
        (SandboxFailedError("it died"), SandboxError),
    ],
)
async def test_errors_of_a_sandbox_are_those_of_code(ex: Exec, error: ToolExecError, kind: type) -> None:
    """Through a real router: limits are limits, a violation is the code's; what is the sandbox's stays so."""
    result = await executor(ex, ScriptedSandbox({"x": error})).execute(ExecuteRequest(code="x"))
    assert result.error is error
    assert isinstance(error, kind)
    assert error.backend == "wasm"


async def test_the_programs_own_failure_is_a_code_error(ex: Exec) -> None:
    """With the author's line; the sandbox's view of it is not in the way."""
    failure = CodeError("ValueError: boom", line=2, column=1, source="x", kind="ValueError")
    result = await executor(ex, ScriptedSandbox({"x": failure})).execute(ExecuteRequest(code="x"))
    assert result.error is failure
    assert str(result.error) == "ValueError: boom (line 2, col 1)"


async def test_what_was_not_run_raises(ex: Exec) -> None:
    """As the router raises it."""
    with pytest.raises(SandboxDeniedError):
        await executor(ex, ScriptedSandbox({"x": SandboxDeniedError("no")})).execute(ExecuteRequest(code="x"))
    with pytest.raises(InvalidRequestError):
        await executor(ex, ScriptedSandbox()).execute(ExecuteRequest(code=""))
    with pytest.raises(SandboxUnavailableError, match="no backend for profile 'hardened'"):
        sandbox = ScriptedSandbox(kind="gone")
        await executor(ex, sandbox, "hardened").execute(ExecuteRequest(code="x"))


async def test_the_deadline_is_the_sandboxes(ex: Exec) -> None:
    """Its own error arrives, with what there was until then."""

    async def program(request: ExecuteRequest) -> Any:
        assert request.gateway is not None
        request.output.write("before")
        await request.gateway.run_tool("math:add", {"a": 1})
        import asyncio

        await asyncio.sleep(60)

    result = await executor(ex, ScriptedSandbox({"x": program})).execute(ExecuteRequest(code="x", timeout=0.1))
    assert isinstance(result.error, CodeTimeoutError)
    assert (result.stdout, len(result.tool_calls)) == ("before", 1)
