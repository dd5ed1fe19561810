"""Many backends seen as one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolexec.backend.base import Backend
from toolexec.backend.registry import BackendRegistry
from toolexec.errors import (
    BackendDisabledError,
    BackendNotFoundError,
    ConfigurationError,
    InvalidToolIDError,
    ToolCollisionError,
)
from toolexec.model.binding import Binding
from toolexec.model.call import ToolCall
from toolexec.model.ids import ToolID
from toolexec.model.tool import Tool

__all__ = ["Aggregator", "CollisionPolicy", "HostedTool", "Listing"]

CollisionPolicy: TypeAlias = Literal["error", "first", "prefix"]
"""What happens when two backends list one ID: refuse to list; keep the one registered first; or give each of them the
ID `backend:name`."""


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool under the ID that the aggregator gives it, and where it comes from."""

    tool: Tool
    backend: Backend
    binding: Binding


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All tools of all enabled backends by ID, and the failures of backends that could not list theirs."""

    tools: Mapping[str, HostedTool]
    failures: Mapping[str, Exception] = field(default_factory=dict[str, Exception])


class Aggregator:
    """Lists and calls the tools of every enabled backend of a registry. A tool without a namespace gets the backend's
    name as its namespace. Every ID in a listing can be called."""

    def __init__(self, registry: BackendRegistry, *, on_collision: CollisionPolicy = "error") -> None:
        if on_collision not in ("error", "first", "prefix"):
            raise ConfigurationError(f"unknown collision policy {on_collision!r}; use error, first or prefix")
        self._registry = registry
        self._policy: CollisionPolicy = on_collision

    async def list_tools(self, *, partial: bool = False) -> Listing:
        """All tools. Raises ToolCollisionError as the policy says, and the first backend's failure, unless *partial*
        asks for what there is with the failures beside it."""
        backends = self._registry.list(enabled=True)
        answers = await asyncio.gather(*(b.list_tools() for b in backends), return_exceptions=True)
        failures: dict[str, Exception] = {}
        hosted: list[HostedTool] = []
        for backend, answer in zip(backends, answers, strict=True):
            if isinstance(answer, BaseException):
                if not partial or not isinstance(answer, Exception):
                    raise answer
                failures[backend.name] = answer
                continue
            for tool in answer:
                named = tool if tool.namespace else tool.replace(namespace=backend.name)
                hosted.append(HostedTool(named, backend, backend.bind(tool)))
        return Listing(tools=self._settle(hosted), failures=failures)

    async def call(self, tool_id: str, args: Mapping[str, Any] | None = None) -> Any:
        """Call a tool by the ID in the listing, or by `backend:tool`; returns the backend's raw answer.

        Raises InvalidToolIDError for an ID without namespace, BackendNotFoundError when nothing has it,
        BackendDisabledError for a backend that is switched off, and whatever the backend's `call` raises.
        """
        parsed = ToolID.parse(tool_id)
        if not parsed.namespace:
            raise InvalidToolIDError(f"{tool_id} names no backend; write backend:tool", tool_id=tool_id)
        backend = self._registry.get(parsed.namespace)
        if backend is not None and not backend.enabled:
            raise BackendDisabledError(f"backend {backend.name} is switched off", backend=backend.name, tool_id=tool_id)
        found = await self._find(tool_id, parsed, backend)
        return await found.backend.call(found.binding.tool, ToolCall(tool_id, args))

    async def _find(self, tool_id: str, parsed: ToolID, backend: Backend | None) -> HostedTool:
        if backend is not None:
            own = {tool.id: tool for tool in await backend.list_tools()}
            by_name = {tool.name: tool for tool in own.values()}
            wanted = f"{parsed.name}:{parsed.version}" if parsed.version else parsed.name
            for tool in (own.get(tool_id), own.get(wanted), by_name.get(wanted), by_name.get(parsed.name)):
                if tool is not None:
                    return HostedTool(tool, backend, backend.bind(tool))
        listing = await self.list_tools(partial=True)
        if tool_id not in listing.tools:
            raise BackendNotFoundError(
                f"no enabled backend has {tool_id}; there are {', '.join(self._registry.names()) or 'no backends'}",
                tool_id=tool_id,
            )
        return listing.tools[tool_id]

    def _settle(self, hosted: Sequence[HostedTool]) -> dict[str, HostedTool]:
        by_id: dict[str, list[HostedTool]] = {}
        for item in hosted:
            by_id.setdefault(item.tool.id, []).append(item)
        settled: dict[str, HostedTool] = {}
        for tool_id, items in by_id.items():
            if len(items) == 1 or self._policy == "first":
                settled[tool_id] = items[0]
            elif self._policy == "prefix":
                for item in items:
                    renamed = item.tool.replace(namespace=item.backend.name)
                    settled[renamed.id] = HostedTool(renamed, item.backend, item.binding)
            else:
                owners = " and ".join(item.backend.name for item in items)
                raise ToolCollisionError(
                    f"{tool_id} is listed by {owners}; use on_collision='first' or 'prefix', or give one a namespace",
                    tool_id=tool_id,
                    details={"backends": [item.backend.name for item in items]},
                )
        return settled
