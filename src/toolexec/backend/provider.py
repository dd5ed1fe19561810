"""Tools of an external provider, reached through a function that you supply."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from toolexec.backend.base import BackendStatus
from toolexec.backend.failures import handler_failure
from toolexec.errors import (
    BackendBusyError,
    BackendDisabledError,
    BackendError,
    InputValidationError,
    RateLimitedError,
)
from toolexec.model.binding import Binding, BindingKind, MCPBinding, ProviderBinding
from toolexec.model.call import ToolCall
from toolexec.model.handler import kind_of
from toolexec.model.json_value import JSONObject
from toolexec.model.settings import checked
from toolexec.model.tool import Tool
from toolexec.process.threads import NoThreadError, WorkerThreads

CallTool: TypeAlias = Callable[[str, JSONObject], Awaitable[Any] | Any]
"""Takes the provider's name for a tool and the arguments (its own copy); gives the answer, or an awaitable of it."""


@checked("ProviderBackend")
class ProviderBackend:
    """Hands each call to *call_tool*. An async function runs on the event loop, any other in a worker thread, for it
    may block. What it raises is the call's failure. A BackendError, InputValidationError or RateLimitedError says that
    the call could not be made, and an ExecutionError with its `outcome` what became of it; these are passed on.

    *tools* are what `list_tools` shows. *kind* is `mcp` when the function stands in for an MCP server.
    """

    def __init__(
        self, name: str, call_tool: CallTool, *, tools: Sequence[Tool] = (), kind: BindingKind = "provider"
    ) -> None:
        self.name = name
        self.kind: BindingKind = kind
        self.enabled = True
        self._call_tool = call_tool
        self._is_async = kind_of(call_tool) == "async"
        self._threads = WorkerThreads()
        self._tools = tuple(tools)

    def status(self) -> BackendStatus:
        """Return how the backend is."""
        reason = None if self.enabled else "switched off"
        lost = self._threads.lost
        return BackendStatus(
            name=self.name,
            kind=self.kind,
            enabled=self.enabled,
            available=self.enabled,
            reason=reason,
            tools=len(self._tools),
            info={"lost_threads": lost} if lost else {},
        )

    async def start(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """End idle threads."""
        self._threads.close()

    async def list_tools(self) -> Sequence[Tool]:
        """Return the tools given at construction."""
        return list(self._tools)

    def bind(self, tool: Tool) -> Binding:
        """Return the binding of one of these tools."""
        return (MCPBinding if self.kind == "mcp" else ProviderBinding)(self.name, tool.name)

    async def call(self, name: str, call: ToolCall) -> Any:
        """Hand the call on; see `Backend.call`."""
        if not self.enabled:
            raise BackendDisabledError(f"backend {self.name} is switched off", backend=self.name)
        args = dict(call.args or {})
        try:
            if self._is_async:
                return await self._call_tool(name, args)
            answer = await self._threads.run(self._call_tool, name, args, tool_call=call)
            return await answer if inspect.isawaitable(answer) else answer
        except NoThreadError:
            raise BackendBusyError(
                f"{self.name}:{name} was not called: all threads hang in {self._threads.lost} calls that were given "
                "up; call again when some have ended",
                backend=self.name,
                details={"lost_threads": self._threads.lost},
            ) from None
        except (BackendError, InputValidationError, RateLimitedError):
            raise
        except BaseException as error:
            raise handler_failure(f"{self.name}:{name}", error, generating=False)  # noqa: B904 - it has its cause
