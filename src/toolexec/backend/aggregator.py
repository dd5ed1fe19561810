"""Many backends seen as one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolexec.backend.attempt import attempt_at
from toolexec.backend.base import Backend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.index import Registered
from toolexec.errors import (
    BackendDisabledError,
    BackendError,
    BackendNotFoundError,
    ConfigurationError,
    InvalidToolIDError,
)
from toolexec.model.binding import Binding
from toolexec.model.call import ToolCall
from toolexec.model.ids import ToolID
from toolexec.model.json_value import JSONObject
from toolexec.model.settings import checked
from toolexec.model.tool import Tool

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


@checked("Aggregator")
class Aggregator:
    """Lists and calls the tools of every enabled backend of a registry. A tool without a namespace gets the backend's
    name as its namespace. Every ID in a listing can be called."""

    def __init__(self, registry: BackendRegistry, *, on_collision: CollisionPolicy = "error") -> None:
        if on_collision not in ("error", "first", "prefix"):
            raise ConfigurationError(f"unknown collision policy {on_collision!r}; use error, first or prefix")
        self._registry = registry
        self._policy: CollisionPolicy = on_collision

    async def list_tools(self, *, partial: bool = False) -> Listing:
        """Return all tools. Raises BackendError as the policy says, and the first backend's failure, unless *partial*
        asks for what there is with the failures beside it."""
        hosted, failures = await self._gather()
        if failures and not partial:
            raise next(iter(failures.values()))
        settled: dict[str, HostedTool] = {}
        for tool_id, items in _by_id(hosted).items():
            for item in self._settle(tool_id, items):
                if item.tool.id in settled:
                    raise _collision(item.tool.id, [settled[item.tool.id], item])
                settled[item.tool.id] = item
        return Listing(tools=settled, failures=failures)

    async def call(self, tool_id: str, args: JSONObject | None = None) -> Any:
        """Call a tool by the ID in the listing, or by `backend:tool`; returns the backend's raw answer. No gate
        decides on it: a runner is what calls tools for an agent.

        Raises InvalidToolIDError for an ID without namespace, BackendNotFoundError when nothing has it,
        BackendDisabledError for a backend that is switched off, BackendError when the ID could mean several
        tools, and whatever the backend's `call` raises.
        """
        parsed = ToolID.parse(tool_id)
        if not parsed.namespace:
            raise InvalidToolIDError(f"{tool_id} names no backend; write backend:tool", tool_id=tool_id)
        found = await self._find(tool_id, parsed)
        entry = Registered(found.tool, (found.binding,), found.binding)
        attempt = attempt_at(ToolCall(tool_id, args), entry)
        if (effect := attempt.origin.on_effect) is not None and (kept := effect()) is not None:
            await kept
        return await found.backend.call(found.binding.tool, attempt)

    async def _find(self, tool_id: str, parsed: ToolID) -> HostedTool:
        """Return the tool listed under the ID, else the one that the backend named in it calls so."""
        named = self._registry.get(parsed.namespace)
        if named is not None and named.enabled and self._policy != "first":  # then there is no need to ask the others
            hosted, _ = await self._gather([named])
            exact = [item for item in hosted if item.tool.id == tool_id]
            if len(exact) == 1:
                return exact[0]
        hosted, failures = await self._gather()
        listed = [
            item
            for key, items in _by_id(hosted).items()
            if key == tool_id or self._policy == "prefix"
            for item in self._settle(key, items)
            if item.tool.id == tool_id
        ]
        if not listed:
            listed = [item for item in hosted if item.backend is named and _is_called(item, parsed)]
        if len(listed) > 1:
            raise _collision(tool_id, listed)
        if listed:
            return listed[0]
        if named is not None and not named.enabled:
            raise BackendDisabledError(f"backend {named.name} is switched off", backend=named.name, tool_id=tool_id)
        unread = "".join(f"; {name} cannot list its tools: {error}" for name, error in failures.items())
        raise BackendNotFoundError(
            f"no enabled backend has {tool_id}; there are {', '.join(self._registry.names()) or 'no backends'}{unread}",
            tool_id=tool_id,
        )

    async def _gather(self, backends: Sequence[Backend] | None = None) -> tuple[list[HostedTool], dict[str, Exception]]:
        """Return the tools of *backends* (default: all enabled ones) with their namespaces filled in, and the
        failures.
        """
        if backends is None:
            backends = self._registry.list(enabled=True)
        answers = await asyncio.gather(*(b.list_tools() for b in backends), return_exceptions=True)
        hosted: list[HostedTool] = []
        failures: dict[str, Exception] = {}
        for backend, answer in zip(backends, answers, strict=True):
            if isinstance(answer, BaseException):
                failures[backend.name] = answer if isinstance(answer, Exception) else _interrupted(backend, answer)
                continue
            for tool in answer:
                named = tool if tool.namespace else tool.replace(namespace=backend.name)
                hosted.append(HostedTool(named, backend, backend.bind(tool)))
        return hosted, failures

    def _settle(self, tool_id: str, items: Sequence[HostedTool]) -> Sequence[HostedTool]:
        """Return what is listed for the tools that go by one ID, as the policy says."""
        if len(items) < 2 or self._policy == "first":
            return items[:1]
        if self._policy == "prefix":
            return [
                HostedTool(item.tool.replace(namespace=item.backend.name), item.backend, item.binding) for item in items
            ]
        raise _collision(tool_id, items)


def _by_id(hosted: Sequence[HostedTool]) -> dict[str, list[HostedTool]]:
    by_id: dict[str, list[HostedTool]] = {}
    for item in hosted:
        by_id.setdefault(item.tool.id, []).append(item)
    return by_id


def _is_called(item: HostedTool, parsed: ToolID) -> bool:
    """Return whether a tool goes by that name at its backend: its own, or the one it is registered under. A version in
    the ID must be the tool's, if that has one."""
    key = item.binding.tool.removeprefix(f"{item.backend.name}:")
    if parsed.version and key == f"{parsed.name}:{parsed.version}":
        return True
    return parsed.name in (item.tool.name, key) and (not parsed.version or item.tool.version in ("", parsed.version))


def _interrupted(backend: Backend, error: BaseException) -> BackendError:
    return BackendError(f"backend {backend.name} cannot list its tools: {type(error).__name__}", backend=backend.name)


def _collision(tool_id: str, items: Sequence[HostedTool]) -> BackendError:
    backends = [item.backend.name for item in items]
    owners = " and ".join(f"{item.tool.id} of {item.backend.name}" for item in items)
    return BackendError(
        f"{tool_id} could be {owners}; use on_collision='first' or 'prefix', or give one of them another namespace",
        tool_id=tool_id,
        details={"backends": backends},
        code="tool_collision",
    )
