"""Clients for the server's tests: the official one over JSON-RPC lines in memory, in either era."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client._memory import InMemoryTransport

from toolexec import Exec
from toolexec.errors import ApprovalDeniedError, ApprovalRequiredError
from toolexec.model.call import ToolCall
from toolexec.model.origin import ApprovalRequest
from toolexec.run.gate import Gate
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner
from toolexec.run.types import Result
from toolexec.server.app import ToolServer
from toolexec.server.settings import ServeSettings

ERAS = ["legacy", "auto"]


class AskFirst:
    """A gate part that has every call of a tool named `danger` approved."""

    def __init__(self) -> None:
        self.answers: list[str] = []

    def wrap(self, inner: Runner, find: Find) -> Runner:
        return _Asking(self, inner, find)


class _Asking:
    def __init__(self, part: AskFirst, inner: Runner, find: Find) -> None:
        self._part = part
        self._inner = inner
        self._find = find

    async def run(self, call: ToolCall) -> Result:
        tool = self._find(call.tool_id).tool
        if not tool.name.startswith("danger"):
            return await self._inner.run(call)
        ask = call.origin.ask
        if ask is None:
            raise ApprovalRequiredError(f"{tool.id} needs approval", tool_id=tool.id)
        request = ApprovalRequest(
            tool_id=tool.id,
            args=dict(call.args or {}),
            reason="it is dangerous",
            description=tool.description,
            path=call.origin.path,
        )
        try:
            answer = await ask(request)  # type: ignore[misc]
        except TimeoutError:
            answer = "no"
        self._part.answers.append(answer)
        if answer == "no":
            raise ApprovalDeniedError(f"{tool.id} was not approved", tool_id=tool.id)
        return await self._inner.run(call)

    async def stream(self, call: ToolCall):
        async for event in self._inner.stream(call):
            yield event


def gated(**settings: Any) -> tuple[Exec, AskFirst]:
    part = AskFirst()
    return Exec(gate=Gate(approval=part), **settings), part


@asynccontextmanager
async def serving(ex: Exec, **settings: Any) -> AsyncIterator[ToolServer]:
    tools = settings.pop("tools", None)
    async with ToolServer(ex, ServeSettings(**settings), tools=tools) as server:
        yield server


@asynccontextmanager
async def connect(server: ToolServer, era: str, **options: Any) -> AsyncIterator[Client]:
    """The official client over JSON-RPC in memory: also in the newer era, which it would else call directly."""
    async with Client(InMemoryTransport(server.lowlevel), mode=era, **options) as client:
        yield client
