"""Calls that wait for answers when their server ends: which of them the next one makes, and what it says of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult
from tests.server.harness import connect, gated, serving

DONE = {"tool_id": "t:note", "args": {"what": "first"}}
ASKS = {"tool_id": "t:danger", "args": {"what": "second"}}
YES = {"approval-1": ElicitResult(action="accept", content={"answer": "once"})}


class Log:
    """Opens servers over one file, each as a process of its own would be, and has what their tools did."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[str] = []

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async def never(context: Any, params: Any) -> ElicitResult:
            raise NotImplementedError

        ex, _ = gated()
        for name in ("note", "danger"):
            ex.add(lambda what: self.entries.append(what) or what, f"t:{name}")
        async with (
            serving(ex, state_path=str(self.path)) as server,
            connect(server, "2026-07-28", elicitation_callback=never) as client,
        ):
            yield client


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "server.db")


async def call(client: Client, name: str, args: dict[str, Any], **more: Any) -> Any:
    return await client.session.call_tool(name, args, allow_input_required=True, **more)


@pytest.mark.parametrize("what", ["call", "chain"])
async def test_made_from_the_beginning(log: Log, what: str) -> None:
    """Calls for which nothing was done are made by the next server, with the answer that they waited for."""
    name, args = ("run_chain", {"steps": [ASKS, DONE]}) if what == "chain" else ("run_tool", ASKS)
    async with log.client() as client:
        state = (await call(client, name, args)).request_state
    async with log.client() as client:
        result = await call(client, name, args, input_responses=YES, request_state=state)
        assert not result.is_error
    assert log.entries == (["second", "first"] if what == "chain" else ["second"])


async def test_not_made_again(log: Log) -> None:
    """Chains that had made a step are refused by the next server, which says why."""
    args = {"steps": [DONE, ASKS]}
    async with log.client() as client:
        state = (await call(client, "run_chain", args)).request_state
    async with log.client() as client:
        with pytest.raises(MCPError, match="what it did until then is unknown, and nothing was run again"):
            await call(client, "run_chain", args, input_responses=YES, request_state=state)
    assert log.entries == ["first"]


async def test_other_arguments_are_another_call(log: Log) -> None:
    """States are good for the call that was asked about, and wait for its answer after a wrong one."""
    async with log.client() as client:
        state = (await call(client, "run_tool", ASKS)).request_state
    async with log.client() as client:
        other = {**ASKS, "args": {"what": "other"}}
        with pytest.raises(MCPError, match="requestState"):
            await call(client, "run_tool", other, input_responses=YES, request_state=state)
        again = await call(client, "run_tool", ASKS, request_state=state)
        assert log.entries == []
        assert not (
            await call(client, "run_tool", ASKS, input_responses=YES, request_state=again.request_state)
        ).is_error
    assert log.entries == ["second"]


async def test_one_of_two_servers_goes_on(log: Log) -> None:
    """Where another server has taken a call, its first one does nothing for it any more."""
    async with log.client() as first, log.client() as second:
        state = (await call(first, "run_tool", ASKS)).request_state
        await call(second, "run_tool", ASKS, input_responses=YES, request_state=state)
        for client in (first, second):
            with pytest.raises(MCPError, match="used before"):
                await call(client, "run_tool", ASKS, input_responses=YES, request_state=state)
    assert log.entries == ["second"]
