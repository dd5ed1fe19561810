"""Defaults and ceilings: what a call or a run of code may ask for, on every path."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Step
from toolexec.code import CodeResult, ExecuteRequest, Limits, LimitsEnforced, Tools
from toolexec.errors import InvalidLimitsError, ToolTimeoutError
from toolexec.model.origin import HERE
from toolexec.run.results import ResultStore
from toolexec.runtime.base import SandboxSession
from toolexec.runtime.router import Runtime
from toolexec.server.tools.base import MetaCall
from toolexec.server.tools.chaining import RUN_CHAIN
from toolexec.server.tools.coding import EXECUTE_CODE
from toolexec.server.tools.coding import RUN_WORKFLOW as SERVED_WORKFLOW
from toolexec.server.tools.running import RUN_TOOL
from toolexec.testing.scripted_sandbox import ScriptedSandbox

CEILINGS: dict[str, float] = {
    "timeout": 5.0,
    "max_tool_calls": 7,
    "max_chain_steps": 6,
    "memory_bytes": 1 << 20,
    "cpu_ms": 500,
    "cpus": 1.5,
    "pids": 4,
    "disk_bytes": 1 << 16,
}
Ask = Callable[[Exec, dict[str, Any]], Awaitable[object]]


EVERY_LIMIT = LimitsEnforced(memory=True, cpu=True, cpus=True, pids=True, disk=True)


class Holding(ScriptedSandbox):
    """A scripted sandbox with sessions."""

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        return _Session(self)


class _Session:
    def __init__(self, sandbox: Holding) -> None:
        self._sandbox = sandbox

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        return await self._sandbox.execute(request)

    async def aclose(self) -> None:
        """There is nothing to close."""


NUMBERS = itertools.count()


def fresh() -> str:
    """Return the ID of a new durable run."""
    return f"run-{next(NUMBERS)}"


async def streamed(ex: Exec, settings: dict[str, Any]) -> None:
    """Run code and read all of its events."""
    async for _ in ex.stream_code("1", **settings):
        pass


async def in_session(ex: Exec, settings: dict[str, Any]) -> None:
    """Run code in a session that asks for nothing itself."""
    async with ex.session() as session:
        await session.execute_code("1", **settings)


async def opened(ex: Exec, settings: dict[str, Any]) -> None:
    """Open a session."""
    async with ex.session(**settings):
        pass


async def streamed_tool(ex: Exec, settings: dict[str, Any]) -> None:
    """Stream a tool."""
    async for _ in ex.stream_tool("sleep", {"seconds": 0}, **settings):
        pass


async def served(ex: Exec, meta: Any, args: dict[str, Any]) -> None:
    """Ask a tool of the server; raises what its error says."""
    call = MetaCall(ex=ex, args=args, origin=HERE, results=ResultStore(), on_progress=lambda _: None)
    reply = await meta.handle(call)
    if reply.is_error:
        assert reply.value["error"]["code"] == "invalid_limits"
        raise InvalidLimitsError(reply.value["error"]["message"])


def of_code(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what the server's tools take for the same."""
    seconds = {"timeout_ms": round(settings["timeout"] * 1000)} if "timeout" in settings else {}
    return seconds | {name: value for name, value in settings.items() if name == "max_tool_calls"}


EVERYTHING: dict[str, Ask] = {
    "execute_code": lambda ex, own: ex.execute_code("1", **own),
    "stream_code": streamed,
    "session": opened,
    "code in a session": in_session,
    "run_workflow": lambda ex, own: ex.run_workflow("1", **own),
    "durable code": lambda ex, own: ex.execute_code("1", language="workflow", durable=fresh(), **own),
    "durable workflow": lambda ex, own: ex.run_workflow("1", durable=fresh(), **own),
}
CALLS_AND_TIME: dict[str, Ask] = {
    "served code": lambda ex, own: served(ex, EXECUTE_CODE, {"code": "1", **of_code(own)}),
    "served workflow": lambda ex, own: served(ex, SERVED_WORKFLOW, {"workflow": "1", **of_code(own)}),
}
TIME: dict[str, Ask] = {
    "run_tool": lambda ex, own: ex.run_tool("sleep", {"seconds": 0}, **own),
    "stream_tool": streamed_tool,
    "run_chain": lambda ex, own: ex.run_chain([Step("sleep", {"seconds": 0}, **own)]),
    "durable chain": lambda ex, own: ex.run_chain([Step("sleep", {"seconds": 0}, **own)], durable=fresh()),
    "served tool": lambda ex, own: served(
        ex, RUN_TOOL, {"tool_id": "sleep", "args": {"seconds": 0}, "timeout_seconds": own["timeout"]}
    ),
    "served chain": lambda ex, own: served(
        ex, RUN_CHAIN, {"steps": [{"tool_id": "sleep", "args": {"seconds": 0}, "timeout": own["timeout"]}]}
    ),
}
TABLE = [
    *((path, limit) for path in EVERYTHING for limit in CEILINGS),
    *((path, limit) for path in CALLS_AND_TIME for limit in ("timeout", "max_tool_calls")),
    *((path, "timeout") for path in TIME),
]
ASKS = EVERYTHING | CALLS_AND_TIME | TIME


def settings_of(path: str, limit: str, value: float) -> dict[str, Any]:
    """Return how a run on that path asks for so much."""
    if limit in ("timeout", "max_tool_calls"):
        return {limit: value}
    return {"limits": Limits(**{limit: value})}


def limited(journal: Path, **settings: Any) -> Exec:
    """An Exec with every ceiling, whose sandbox is scripted."""

    async def sleep(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    bounds = {name: value for name, value in CEILINGS.items() if name not in ("timeout", "max_tool_calls")}
    options: dict[str, Any] = {
        "default_timeout": 1.0,
        "max_timeout": CEILINGS["timeout"],
        "default_tool_calls": 3,
        "max_tool_calls": CEILINGS["max_tool_calls"],
        "code_limits": Limits(**bounds),
    }
    ex = Exec(runtime_backends=[Holding(enforced=EVERY_LIMIT)], journal=journal, **options | settings)
    ex.add(sleep, "sleep")
    return ex


@pytest.mark.parametrize(("path", "limit"), TABLE)
async def test_each_limit_on_each_path(path: str, limit: str, tmp_path: Path) -> None:
    """As much as the ceiling is granted; more is refused, with the ceiling's value and setting, and nothing is run."""
    most = CEILINGS[limit]
    async with limited(tmp_path / "runs.db") as ex:
        with pytest.raises(InvalidLimitsError) as caught:
            await ASKS[path](ex, settings_of(path, limit, most + 1))
        assert f"above the ceiling of {most:.15g}" in caught.value.message
        assert ("max_timeout" if limit == "timeout" else limit) in caught.value.message
        await ASKS[path](ex, settings_of(path, limit, most))


async def test_a_default_is_for_who_asks_for_nothing() -> None:
    """A run and a call may ask for more than the default, and get it."""
    sandbox = ScriptedSandbox()
    async with Exec(default_timeout=0.01, runtime_backends=[sandbox]) as ex:
        ex.add(asyncio.sleep, "sleep")
        late = await ex.run_tool("sleep", {"delay": 5})
        assert isinstance(late.error, ToolTimeoutError)
        assert (await ex.run_tool("sleep", {"delay": 0.03}, timeout=60)).ok
        await ex.execute_code("1", timeout=60, max_tool_calls=2000)
        await ex.execute_code("1")
    asked, default = sandbox.requests
    assert (asked.timeout, asked.limits.max_tool_calls) == (60, 2000)
    assert (default.timeout, default.limits.max_tool_calls) == (0.01, 100)


@pytest.mark.parametrize(
    ("settings", "seconds", "calls"),
    [
        ({}, 30, 100),
        ({"max_tool_calls": 500}, 30, 500),
        ({"max_tool_calls": 20}, 30, 20),
        ({"default_tool_calls": 5, "max_tool_calls": 20}, 30, 5),
        ({"default_tool_calls": 50, "max_tool_calls": 20}, 30, 20),
        ({"code_limits": Limits(max_tool_calls=20)}, 30, 20),
        ({"max_timeout": 7}, 7, 100),
        ({"default_timeout": None, "max_timeout": 7}, 7, 100),
        ({"default_timeout": 5, "max_timeout": 7}, 5, 100),
        ({"default_timeout": None}, None, 100),
    ],
)
async def test_what_holds_where_nothing_is_asked_for(settings: Any, seconds: float | None, calls: int) -> None:
    """The default, or a ceiling that is lower."""
    sandbox = ScriptedSandbox()
    async with Exec(runtime_backends=[sandbox], **settings) as ex:
        await ex.execute_code("1")
    assert (sandbox.requests[0].timeout, sandbox.requests[0].limits.max_tool_calls) == (seconds, calls)


async def test_a_session_has_ceilings_of_its_own() -> None:
    """A program in it may not ask for more than the session was opened with."""
    async with Exec(runtime_backends=[Holding()]) as ex, ex.session(max_tool_calls=3) as session:
        with pytest.raises(InvalidLimitsError, match="raise the ceiling: max_tool_calls of the session"):
            await session.execute_code("1", max_tool_calls=4)


async def test_a_runtime_has_ceilings_of_its_own() -> None:
    """A runtime refuses more than its limits."""
    runtime = Runtime([ScriptedSandbox(enforced=EVERY_LIMIT)], limits=Limits(memory_bytes=10))
    async with Exec() as ex:
        tools = Tools(ex.index, ex.docs, ex.runner)
        asked = ExecuteRequest(code="1", gateway=tools, limits=Limits(memory_bytes=20))
        with pytest.raises(InvalidLimitsError, match=r"memory_bytes 20 is above the ceiling of 10; .* of the Runtime"):
            await runtime.execute(asked)
    await runtime.aclose()
