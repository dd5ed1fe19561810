"""The scripted sandbox that `toolexec.testing` ships."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolexec import Exec
from toolexec.code.limits import LimitsEnforced
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import (
    CodeError,
    CodeTimeoutError,
    LimitExceededError,
    SandboxFailedError,
    SandboxUnavailableError,
)
from toolexec.runtime.base import Availability, SandboxBackend, info_of
from toolexec.testing.scripted_sandbox import ScriptedSandbox

EX = Exec()


async def run(sandbox: ScriptedSandbox, code: str = "x", **fields: Any) -> CodeResult:
    """Run a program."""
    tools = Tools(EX.index, EX.docs, EX.runner)
    return await sandbox.execute(ExecuteRequest(code=code, gateway=tools, **fields))


def test_it_is_a_sandbox() -> None:
    """Fits the protocol of sandbox backends."""
    assert isinstance(ScriptedSandbox(), SandboxBackend)


async def test_values_are_answers() -> None:
    """Functions give them, too; code that is not scripted gets the default."""

    async def program(request: ExecuteRequest) -> Any:
        request.output.write("out")
        request.output.write("err", "stderr")
        return lambda _: 3

    sandbox = ScriptedSandbox({"a": [1], "b": lambda request: len(request.code), "c": program}, default="?")
    assert [(await run(sandbox, code)).value for code in "abcd"] == [[1], 1, 3, "?"]
    result = await run(sandbox, "c")
    assert (result.stdout, result.stderr) == ("out", "err")
    assert [request.code for request in sandbox.requests] == [*"abcd", "c"]
    assert result.duration >= 0


async def test_a_whole_result_is_an_answer() -> None:
    """A whole result is passed as it is."""
    sandbox = ScriptedSandbox()
    whole = CodeResult(backend=info_of(sandbox), value=5)
    sandbox.default = whole
    assert await run(sandbox) is whole


async def test_exceptions_are_failures() -> None:
    """The program's own, the sandbox's, and those that mean that nothing was run."""
    limit = LimitExceededError("memory")
    sandbox = ScriptedSandbox({"limit": limit, "code": CodeError("bad", line=4), "any": ValueError("boom")})
    result = await run(sandbox, "limit")
    assert result.error is limit
    assert (limit.backend, limit.op) == ("wasm", "execute")
    result = await run(sandbox, "code")
    assert isinstance(result.error, CodeError)
    assert result.error.details["line"] == 4
    result = await run(sandbox, "any")
    assert isinstance(result.error, CodeError)
    assert (str(result.error), result.error.kind) == ("ValueError: boom", "ValueError")
    sandbox.default = SandboxUnavailableError("gone")
    with pytest.raises(SandboxUnavailableError):
        await run(sandbox, "other")
    sandbox.default = KeyboardInterrupt()
    assert isinstance((await run(sandbox, "other")).error, SandboxFailedError)


async def test_a_function_that_raises_fails() -> None:
    """Its own TimeoutError is not taken for the deadline."""

    def program(request: ExecuteRequest) -> Any:
        raise TimeoutError("its own")

    result = await run(ScriptedSandbox(default=program))
    assert isinstance(result.error, CodeError)
    assert "its own" in str(result.error)


async def test_the_deadline_holds() -> None:
    """For what awaits."""

    async def program(request: ExecuteRequest) -> Any:
        await asyncio.sleep(60)

    result = await run(ScriptedSandbox(default=program), timeout=0.05)
    assert isinstance(result.error, CodeTimeoutError)


async def test_it_says_what_it_enforces() -> None:
    """The sandbox reports the configured limits, beside those that always hold."""
    sandbox = ScriptedSandbox(enforced=LimitsEnforced(memory=True), isolation="none")
    enforced = (await run(sandbox)).limits_enforced
    assert enforced == LimitsEnforced(timeout=True, tool_calls=True, chain_steps=True, memory=True)
    assert (await run(sandbox)).backend.readiness == "beta"
    sandbox.availability = Availability(ok=False, reason="off")
    assert (await sandbox.check()).reason == "off"


async def test_closing_stops_what_runs() -> None:
    """Closing raises the configured error."""

    async def program(request: ExecuteRequest) -> Any:
        await asyncio.Event().wait()

    sandbox = ScriptedSandbox(default=program)
    task = asyncio.create_task(run(sandbox))
    await asyncio.sleep(0)
    assert sandbox.running == 1
    sandbox.closing_error = OSError("stuck")
    with pytest.raises(OSError, match="stuck"):
        await sandbox.aclose()
    assert (task.cancelled(), sandbox.running, sandbox.closed) == (True, 0, 1)
