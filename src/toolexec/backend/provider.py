"""Tools of an external provider, reached through a function that you supply."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from toolexec.backend.base import BackendStatus
from toolexec.backend.failures import handler_failure
from toolexec.errors import BackendDisabledError
from toolexec.model.binding import Binding, BindingKind, MCPBinding, ProviderBinding
from toolexec.model.call import ToolCall
from toolexec.model.tool import Tool

__all__ = ["CallTool", "ProviderBackend"]

CallTool: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Any] | Any]
"""Takes the provider's name for a tool and the arguments; gives the answer, or an awaitable of it."""


class ProviderBackend:
    """Hands each call to *call_tool*, which may be async; what it raises is the call's failure.

    *tools* are what `list_tools` shows. *kind* is `mcp` when the function stands in for an MCP server.
    """

    def __init__(
        self, name: str, call_tool: CallTool, *, tools: Sequence[Tool] = (), kind: BindingKind = "provider"
    ) -> None:
        self.name = name
        self.kind: BindingKind = kind
        self.enabled = True
        self._call_tool = call_tool
        self._tools = tuple(tools)

    def status(self) -> BackendStatus:
        """How the backend is."""
        reason = None if self.enabled else "switched off"
        return BackendStatus(
            name=self.name,
            kind=self.kind,
            enabled=self.enabled,
            available=self.enabled,
            reason=reason,
            tools=len(self._tools),
        )

    async def start(self) -> None:
        """Nothing to do."""

    async def aclose(self) -> None:
        """Nothing to do."""

    async def list_tools(self) -> Sequence[Tool]:
        """The tools given at construction."""
        return list(self._tools)

    def bind(self, tool: Tool) -> Binding:
        """The binding of one of these tools."""
        return (MCPBinding if self.kind == "mcp" else ProviderBinding)(self.name, tool.name)

    async def call(self, name: str, call: ToolCall) -> Any:
        """Hand the call on; see `Backend.call`."""
        if not self.enabled:
            raise BackendDisabledError(f"backend {self.name} is switched off", backend=self.name)
        try:
            answer = self._call_tool(name, dict(call.args or {}))
            return await answer if inspect.isawaitable(answer) else answer
        except BaseException as error:
            failure = handler_failure(f"{self.name}:{name}", error)
            raise failure from failure.__cause__
