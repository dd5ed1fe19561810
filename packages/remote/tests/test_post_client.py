"""Runs by POST: events that are read on after a break, tools over HTTP, and errors that say whether it began."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from packages.remote.tests.here import Wire, remote_to, serving
from packages.remote.tests.tools import Workshop
from tests.waiting import PATIENCE, until

from toolexec.errors import InvalidRequestError, SandboxFailedError, SandboxUnavailableError

ONE = "return tools.shop.count(item=1)"
WAITS = "print('begun')\nreturn tools.shop.wait(item=7)"


async def test_a_program_runs_there_and_its_tools_here(tmp_path: Path) -> None:
    """Value, prints, trace and limits come back as over a connection."""
    shop = Workshop()
    async with serving(tmp_path) as endpoint, remote_to(endpoint, protocol="post") as backend:
        state = await backend.check()
        assert state.ok, state.reason
        request = shop.request(f"print('x')\n{ONE}")
        result = (await backend.execute(request)).raise_for_error()
        assert (result.value, result.stdout) == (1, "x\n")
        assert result.limits_enforced == backend.enforces(request)
    assert [(call.tool_id, call.value) for call in result.tool_calls] == [("shop:count", 1)]


async def test_prints_come_while_it_runs_and_the_stream_goes_on_after_a_break(tmp_path: Path) -> None:
    """After a break the same run is asked for again, from the last event; its call is made once."""
    shop = Workshop()
    async with serving(tmp_path) as endpoint, Wire(endpoint) as wire:
        async with remote_to(wire.endpoint, protocol="post") as backend:
            request = shop.request(WAITS)
            running = asyncio.ensure_future(backend.execute(request))
            await asyncio.wait_for(shop.begun.wait(), PATIENCE)
            await until(lambda: request.output.text() == "begun\n")
            wire.cut()
            await asyncio.sleep(0.2)
            shop.gate.set()
            result = (await running).raise_for_error()
    assert (result.value, result.stdout) == (7, "begun\n")
    assert shop.calls == {7: 1}
    assert wire.accepted >= 2


async def test_a_run_that_is_lost_is_not_repeated(tmp_path: Path) -> None:
    """A server that does not come back fails the run, with what it had printed."""
    shop = Workshop()
    async with serving(tmp_path, drain_grace=0.0) as endpoint, Wire(endpoint) as wire:
        async with remote_to(wire.endpoint, protocol="post", reconnect=0.5) as backend:
            request = shop.request(WAITS)
            running = asyncio.ensure_future(backend.execute(request))
            await asyncio.wait_for(shop.begun.wait(), PATIENCE)
            await until(lambda: request.output.text() == "begun\n")
            wire.closed = True
            wire.cut()
            result = await running
    assert isinstance(result.error, SandboxFailedError)
    assert result.error.details["began"] is True
    assert result.stdout == "begun\n"
    assert shop.calls == {7: 1}


async def test_an_endpoint_that_is_not_there_passes_the_run_on(tmp_path: Path) -> None:
    """Where no connection could be made nothing was run; the other endpoint takes it."""
    shop = Workshop()
    nowhere = "http://127.0.0.1:9/v1/execute"
    async with serving(tmp_path) as endpoint, remote_to(nowhere, endpoint, protocol="post") as backend:
        results = [(await backend.execute(shop.request(ONE))).raise_for_error().value for _ in range(4)]
        assert results == [1] * 4
    assert shop.calls == {1: 4}
    async with remote_to(nowhere, protocol="post") as backend:
        with pytest.raises(SandboxUnavailableError) as caught:
            await backend.execute(shop.request(ONE, timeout=0.3))
        assert caught.value.outcome == "not_sent"


async def test_there_are_no_sessions_by_post() -> None:
    """A session needs a connection."""
    async with remote_to("http://127.0.0.1:9/x", protocol="post") as backend:
        with pytest.raises(InvalidRequestError, match="sessions"):
            await backend.open_session(Workshop().request("None"))
