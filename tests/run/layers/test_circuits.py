"""Circuits: one broken operation is left alone by itself, a dead server as a whole, and a busy one not at all."""

from __future__ import annotations

from typing import Any

import pytest
from tests.run.layers.resilience import Clock
from tests.run.layers.site import Reply, Site

from toolexec import Exec
from toolexec.errors import (
    BackendUnavailableError,
    ConnectionLostError,
    ExecutionError,
    HandlerError,
    InputValidationError,
    RateLimitedError,
    RemoteToolError,
    ToolExecError,
    ToolTimeoutError,
)
from toolexec.run import Gate
from toolexec.run.circuits import blame
from toolexec.run.layers.breaker import Breaker

OPERATIONS = ("broken GET /broken", "limited GET /limited", "fine GET /fine", "more GET /more")


def answer(method: str, path: str) -> Reply:
    """Answer as an API does of which one part is broken, and one is in demand."""
    status = {"/broken": 500, "/limited": 429}.get(path, 200)
    return status, {}, {"path": path}


async def error_of(ex: Exec, tool_id: str) -> ToolExecError | None:
    """Return how a call failed, in its result or not."""
    try:
        return (await ex.run_tool(tool_id)).error
    except ToolExecError as error:
        return error


@pytest.mark.parametrize("kind", ["openapi", "http"])
async def test_a_broken_operation_leaves_its_neighbours_open(kind: str) -> None:
    """An API with an operation that always fails has the others called, and that one is left alone."""
    breaker = Breaker(failures=3, clock=Clock())
    async with Site(answer).running() as site, Exec(gate=Gate(breaker=breaker)) as ex:
        if kind == "openapi":
            await ex.add_openapi("api", site.document(*OPERATIONS))
        else:
            tools = {each.split()[0]: {"path": each.split()[2]} for each in OPERATIONS}
            await ex.add_http("api", f"http://127.0.0.1:{site.port}", tools=tools)
        codes = [getattr(await error_of(ex, "api:broken"), "code", "") for _ in range(5)]
        assert codes == ["remote_tool_failed"] * 3 + ["circuit_open"] * 2
        assert await error_of(ex, "api:fine") is None
        assert await error_of(ex, "api:more") is None
        refused = await error_of(ex, "api:broken")
    assert str(refused).startswith("api:broken failed 3 times in a row")
    assert len(site.seen) == 5


async def test_a_dead_server_opens_it_for_all() -> None:
    """Where nothing listens any more, no tool of the backend is called after the third try."""
    breaker = Breaker(failures=3, clock=Clock())
    async with Site(answer).running() as site, Exec(gate=Gate(breaker=breaker)) as ex:
        await ex.add_openapi("api", site.document(*OPERATIONS))
        assert await error_of(ex, "api:fine") is None
        site.stop()
        codes = [getattr(await error_of(ex, tool), "code", "") for tool in ("api:fine", "api:more", "api:limited")]
        assert codes == ["backend_unavailable"] * 3
        refused = await error_of(ex, "api:broken")
    assert isinstance(refused, BackendUnavailableError)
    assert refused.code == "circuit_open"
    assert str(refused).startswith("the backend api failed 3 times in a row")


async def test_too_many_calls_open_nothing() -> None:
    """A service that says 429 works: its callers wait."""
    breaker = Breaker(failures=2, clock=Clock())
    async with Site(answer).running() as site, Exec(gate=Gate(breaker=breaker)) as ex:
        await ex.add_openapi("api", site.document(*OPERATIONS))
        for _ in range(6):
            error = await error_of(ex, "api:limited")
            assert isinstance(error, RemoteToolError)
            assert error.details["status"] == 429
        assert await error_of(ex, "api:fine") is None
    assert len(site.seen) == 7


async def test_a_broken_operation_is_tried_again_later() -> None:
    """After the pause one call tries; an answer closes the operation's circuit."""
    clock, status = Clock(), [500]
    breaker = Breaker(failures=2, reset=30, clock=clock)
    async with Site(lambda _, path: (status[0], {}, path)).running() as site, Exec(gate=Gate(breaker=breaker)) as ex:
        await ex.add_openapi("api", site.document(*OPERATIONS))
        for _ in range(3):
            await error_of(ex, "api:broken")
        entry = ex.index.find("api:broken")
        assert entry is not None
        assert breaker.state(entry) == "open"
        clock.now += 30
        assert breaker.state(entry) == "half_open"
        status[0] = 200
        assert await error_of(ex, "api:broken") is None
        assert breaker.state(entry) == "closed"
    assert len(site.seen) == 3


@pytest.mark.parametrize(
    ("failure", "blamed"),
    [
        (ConnectionLostError("gone"), "backend"),
        (ToolTimeoutError("late"), "backend"),
        (BackendUnavailableError("down"), "backend"),
        (ExecutionError("busy", retryable=True), "backend"),
        (RemoteToolError("500", retryable=True, details={"status": 500}), "operation"),
        (HandlerError("raised ConnectionError", retryable=True), "operation"),
        (RemoteToolError("no such city", details={"status": 404}), "caller"),
        (RemoteToolError("too many", retryable=True, details={"status": 429}), "unknown"),
        (RemoteToolError("too many", retryable=True, details={"status": "RESOURCE_EXHAUSTED"}), "unknown"),
        (HandlerError("too many", retryable=True, details={"type": "RateLimitedError"}), "unknown"),
        (RateLimitedError("slower"), "unknown"),
        (InputValidationError([]), "unknown"),
        (KeyboardInterrupt(), "unknown"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_whom_a_failure_blames(failure: Any, blamed: str) -> None:
    """A missing answer blames the backend, an answered failure the operation, and a refusal the caller."""
    assert blame(failure) == blamed
