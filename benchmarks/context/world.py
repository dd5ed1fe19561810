"""A server over the services of the tasks, in this process, and a client that counts what a model reads."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from benchmarks.context.catalogue import SERVICES, add_unneeded
from benchmarks.context.task import Task, filled
from benchmarks.context.tokens import compact, tokens
from toolexec import Exec, Tool, tool
from toolexec.server.app import ToolServer
from toolexec.server.in_process import InProcessClient
from toolexec.server.settings import Expose, ServeSettings

_DURATION: Final = re.compile(r'("(?:durationMs|ms)":)[\d.]+')
_VERSION: Final = "2025-06-18"


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: some clients give the content to the model, others the structured content where there is any. Durations
    are the same in each replay, as their digits are tokens."""

    content: str
    structured: str
    failed: bool


class World:
    """The server and its state. `fixed` are the tokens of the list of tools and the instructions, `takes` the names of
    the parameters of each listed tool."""

    def __init__(self, client: InProcessClient) -> None:
        self._client = client
        self._numbers = itertools.count(1)
        self.functions: dict[str, Callable[..., Any]] = {}
        self.fixed = 0
        self.takes: dict[str, set[str]] = {}

    def reset(self) -> None:
        """Give all services their first state."""
        self.functions |= fresh()

    async def start(self) -> None:
        """Read what a client reads first."""
        begun = await self._ask(
            "initialize",
            {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "replay", "version": "1"}},
        )
        await self._client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        listed: list[Any] = []
        page: dict[str, Any] = {}
        while page.get("nextCursor") or not listed:
            cursor = {"cursor": page["nextCursor"]} if page else {}
            page = await self._ask("tools/list", cursor)
            listed += page["tools"]
        shown = [{key: one[key] for key in ("name", "description", "inputSchema") if key in one} for one in listed]
        self.fixed = tokens(begun.get("instructions", "")) + sum(tokens(compact(one)) for one in shown)
        self.takes = {one["name"]: set(one["inputSchema"].get("properties", ())) for one in listed}

    async def call(self, name: str, args: dict[str, Any]) -> Reply:
        """Call a listed tool."""
        result = await self._ask("tools/call", {"name": name, "arguments": args})
        content = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
        structured = compact(result["structuredContent"]) if "structuredContent" in result else ""
        return Reply(
            _DURATION.sub(r"\g<1>1.234", content),
            _DURATION.sub(r"\g<1>1.234", structured),
            bool(result.get("isError")),
        )

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        answer = await self._client.send(message)
        if answer is None or "result" not in answer:
            raise ValueError(f"{method} failed: {answer}")
        return answer["result"]


def fresh() -> dict[str, Callable[..., Any]]:
    """Return the functions of fresh services by the IDs of their tools."""
    return {name: function for service in SERVICES for name, function in service.make().functions.items()}


@cache
def definitions() -> dict[str, Tool]:
    """Return the tools of the services by ID."""
    return {
        name: tool(name, **made.hints[name])(function).tool  # type: ignore[attr-defined]
        for service in SERVICES
        for made in [service.make()]
        for name, function in made.functions.items()
    }


def right_calls(task: Task) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a task with the values that their arguments refer to."""
    functions, values, calls = fresh(), [], []
    for one in task.calls:
        args = filled(one.args, values)
        calls.append((one.tool_id, args))
        values.append(functions[one.tool_id](**args))
    return calls


@asynccontextmanager
async def world(expose: Expose, total: int | None = None) -> AsyncIterator[World]:
    """Serve the tools of the services, and others until there are *total* tools (default: all that there are)."""
    ex = Exec()
    functions = fresh()
    for tool_id, made in definitions().items():
        ex.add(made, handler=_through(functions, tool_id))
    add_unneeded(ex, total)
    async with ToolServer(ex, ServeSettings(expose=expose, page_size=1000)) as server:
        client = InProcessClient(server.lowlevel)
        served = World(client)
        served.functions = functions
        try:
            await served.start()
            yield served
        finally:
            await client.aclose()


def _through(functions: dict[str, Callable[..., Any]], tool_id: str) -> Callable[[dict[str, Any]], Any]:
    return lambda args: functions[tool_id](**args)
