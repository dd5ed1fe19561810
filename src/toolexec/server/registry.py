"""Local tools and MCP servers behind one small object that finds them, runs them, and is an MCP server itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from toolexec.backend.base import BackendStatus
from toolexec.backend.mcp import MCPServer, MCPSettings
from toolexec.discovery.index import bulk, get_tool
from toolexec.discovery.results import SearchResults
from toolexec.discovery.summary import Filters
from toolexec.discovery.view import browsable
from toolexec.errors import (
    BackendError,
    BackendNotFoundError,
    BackendUnavailableError,
    ConfigurationError,
)
from toolexec.errors.hints import did_you_mean
from toolexec.exec.facade import Exec
from toolexec.exec.options import Options
from toolexec.model.handler import Handler
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.tool import Tool
from toolexec.server.settings import ServeSettings

if TYPE_CHECKING:
    from toolexec.server.app import ToolServer
    from toolexec.server.auth import AuthSettings
    from toolexec.server.http import HttpSettings
    from toolexec.server.in_process import InProcessClient
    from toolexec.server.stdio import Wire

ToolHandler = Callable[[JSONDict], Any] | Handler
"""Takes all arguments as one dict; may be async."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryStats:
    """How much there is: tools by where a call of them goes, MCP servers, and the version of the index."""

    total_tools: int
    local_tools: int
    mcp_tools: int
    provider_tools: int
    backends: int
    index_version: int


class ToolRegistry:
    """Register local tools and MCP servers, then search and execute them, or serve them all as one MCP server.

    >>> import asyncio
    >>> async def main():
    ...     async with ToolRegistry() as registry:
    ...         registry.register_function("echo", lambda args: args, description="Says it again.")
    ...         return await registry.execute("echo", {"text": "hi"})
    >>> asyncio.run(main())
    {'text': 'hi'}

    It is an `Exec` (`ex`, set up by *options*) and, when asked to serve, a `ToolServer` (by *settings*; by default the
    tools themselves are what clients see). MCP servers are connected by `start` and disconnected by `stop`, as often as
    wanted; local tools are there from their registration on. Tools of an MCP server have its name as their namespace.
    `async with` starts it and closes it at the end. It belongs to the event loop of its first use.
    """

    def __init__(self, options: Options | None = None, settings: ServeSettings | None = None) -> None:
        self.ex: Exec = Exec(options)
        self.settings: ServeSettings = settings if settings is not None else ServeSettings(expose="direct")
        self._servers: dict[str, MCPServer] = {}
        self._lock = asyncio.Lock()
        self._started = False
        self._server: ToolServer | None = None
        self._client: InProcessClient | None = None

    # -- local tools --------------------------------------------------------------------------------------------

    def register_local(self, tool: Tool, handler: ToolHandler) -> Tool:
        """Add a tool with its handler. Raises ToolConflictError, and ConfigurationError for what is not a handler,
        with nothing added."""
        return self.ex.add(tool, handler=handler)

    def register_function(
        self,
        name: str,
        handler: ToolHandler,
        *,
        description: str = "",
        input_schema: JSONObject | None = None,
        namespace: str = "",
        tags: Sequence[str] = (),
        version: str = "",
    ) -> Tool:
        """Add a tool made of its parts; without *input_schema* it takes any arguments.

        Raises InvalidToolError and InvalidSchemaError for parts that make no tool, and as `register_local`.
        """
        schema = {"type": "object"} if input_schema is None else dict(input_schema)
        tool = Tool(
            name=name,
            namespace=namespace,
            version=version,
            description=description,
            tags=tuple(tags),
            input_schema=schema,
        )
        return self.register_local(tool, handler)

    def unregister_local(self, tool_id: str) -> None:
        """Take a local tool out again; raises ToolNotFoundError, and BackendNotFoundError for one that is not local."""
        entry = get_tool(self.ex.index, tool_id)
        local = [binding for binding in entry.bindings if binding.kind == "local"]
        if not local:
            raise BackendNotFoundError(
                f"{tool_id} is not a local tool; unregister_mcp takes a server's out", op="remove"
            )
        for binding in local:
            self.ex.index.unregister(entry.tool.id, binding)
            self.ex.local.unregister(binding.tool)

    # -- MCP servers --------------------------------------------------------------------------------------------

    async def register_mcp(
        self,
        server: MCPServer | str,
        *,
        command: str = "",
        args: Sequence[str] = (),
        url: str = "",
        **settings: Unpack[MCPSettings],
    ) -> BackendStatus | None:
        """Add an MCP server: an `MCPServer`, or its name with that one's settings (`command`, `url`, `headers`, ...).

        Before `start` it is only taken note of, and None is given. Afterwards it is connected at once, and its status
        is given; one that cannot be reached raises BackendUnavailableError and is forgotten, so that its name is free.
        Raises ConfigurationError for settings that make no sense, and BackendError for a name in use.
        """
        if isinstance(server, str):
            server = MCPServer(name=server, command=command, args=args, url=url, **settings)
        elif settings or command or args or url:
            raise ConfigurationError("settings go with a server's name; an MCPServer has its own")
        async with self._lock:
            self._check_name(server.name)
            if self._started:
                status = await self._connect(server)
                self._servers[server.name] = server
                return status
            self._servers[server.name] = server
            return None

    def _check_name(self, name: str) -> None:
        if name in self._servers or self.ex.backends.get(name) is not None:
            raise BackendError(
                f"a backend named {name} is there already; unregister it, or choose another name",
                backend=name,
                code="backend_exists",
            )

    async def _connect(self, server: MCPServer) -> BackendStatus:
        try:
            [status] = await self._add([server])
            if server.enabled and not status.available:
                raise _unavailable([status])
        except BaseException:
            await self.ex.remove(server.name)
            raise
        return status

    async def _add(self, servers: Sequence[MCPServer]) -> list[BackendStatus]:
        from toolexec.exec.servers import server_backend

        if not servers:
            await self.ex.start()
            return []
        return await self.ex.add_backends(
            *(server_backend(server, self.ex.options.runtime_backends) for server in servers)
        )

    async def unregister_mcp(self, name: str) -> None:
        """Disconnect an MCP server, if it is connected, and forget it with all its tools; raises BackendNotFoundError.

        What goes wrong while it is disconnected is raised when all that is done.
        """
        async with self._lock:
            if self._servers.pop(name, None) is None:
                hint = did_you_mean(name, self._servers) or "there are none"
                raise BackendNotFoundError(f"no MCP server {name} is registered; {hint}", backend=name)
            await self.ex.remove(name)

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self, *, strict: bool = False) -> list[BackendStatus]:
        """Connect all MCP servers at the same time, and give how they are.

        One that cannot be reached stays out and is tried again when it is needed; its status says why. With *strict*
        it raises BackendUnavailableError instead: then nothing is connected, no tool of a server is left behind, and
        `start` can be called again. Raises ConfigurationError when it is started already (code `already_started`), and
        after `aclose`.
        """
        async with self._lock:
            if self._started:
                raise ConfigurationError("the registry is started already; stop it first", code="already_started")
            try:
                statuses = await self._add([*self._servers.values()])
                down = [status for status in statuses if status.enabled and not status.available]
                if strict and down:
                    raise _unavailable(down)
            except BaseException:
                await self._disconnect()
                raise
            self._started = True
            return statuses

    async def stop(self) -> None:
        """Disconnect all MCP servers and take their tools out; `start` connects them again. Does nothing when it is not
        started. What goes wrong is raised as an ExceptionGroup when all are disconnected."""
        async with self._lock:
            self._started = False
            failures = await self._disconnect()
        if failures:
            raise ExceptionGroup("some MCP servers were not disconnected in good order", failures)

    async def _disconnect(self) -> list[Exception]:
        ended = await asyncio.gather(*(self.ex.remove(name) for name in self._servers), return_exceptions=True)
        return [each for each in ended if isinstance(each, Exception)]

    async def aclose(self) -> None:
        """Stop everything permanently: calls, servers, and what is served."""
        self._started = False
        if self._client is not None:
            await self._client.aclose()
        if self._server is not None:
            await self._server.aclose()
        else:
            await self.ex.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def health_check(self) -> list[BackendStatus]:
        """Return how all MCP servers are, if all that are enabled are well; raises ConfigurationError, and
        BackendUnavailableError that names those that are not well, with reasons."""
        if not self._started:
            raise ConfigurationError("the registry is not started; call start first", code="not_started")
        statuses = [status for status in self.ex.backend_statuses() if status.name in self._servers]
        down = [status for status in statuses if status.enabled and not status.available]
        if down:
            raise _unavailable(down)
        return statuses

    # -- finding and running ------------------------------------------------------------------------------------

    async def search(self, query: str, limit: int = 10, *, filters: Filters | None = None) -> SearchResults:
        """Summaries of the best tools for *query*, best first; see `Exec.search_tools`."""
        return await self.ex.search_tools(query, limit, filters=filters)

    def get(self, tool_id: str) -> Tool:
        """Return the tool; raises InvalidToolIDError or ToolNotFoundError."""
        return get_tool(self.ex.visible()[0], tool_id).tool

    def list_all(self) -> list[Tool]:
        """Return all tools by ID."""
        return [entry.tool for entry in self.ex.visible()[0].tools()]

    def namespaces(self) -> list[str]:
        """Return all namespaces in alphabetical order."""
        return browsable(self.ex.visible()[0]).namespaces()

    def refresh(self) -> int:
        """Make all cursors invalid, notify clients that the tools have changed, and return the index's new version."""
        return bulk(self.ex.index).refresh()

    def stats(self) -> RegistryStats:
        """Return how much there is."""
        kinds = Counter(entry.binding.kind for entry in self.ex.index.tools())
        return RegistryStats(
            total_tools=kinds.total(),
            local_tools=kinds["local"],
            mcp_tools=kinds["mcp"],
            provider_tools=kinds["provider"],
            backends=len(self._servers),
            index_version=self.ex.index.version,
        )

    async def execute(self, tool_id: str, args: JSONObject | None = None, *, timeout: float | None = None) -> Any:
        """Run a tool and give its value. Raises as `Exec.run_tool` does, and the failure of a tool that was called."""
        result = await self.ex.run_tool(tool_id, args, timeout=timeout)
        return result.raise_for_error().value

    # -- serving ------------------------------------------------------------------------------------------------

    @property
    def server(self) -> ToolServer:
        """The MCP server over all tools; made at the first use. Needs the `mcp` extra."""
        if self._server is None:
            from toolexec.server.app import ToolServer

            self._server = ToolServer(self.ex, self.settings)
        return self._server

    async def handle_request(self, message: Any) -> JSONDict | None:
        """Return the answer to one JSON-RPC message, as the MCP server gives it; None for a notification, which has
        none.

        A handshake may come first, but need not. Raises nothing: an invalid message is answered with an error.
        """
        if self._client is None:
            from toolexec.server.in_process import InProcessClient

            self._client = InProcessClient(self.server.lowlevel)
        return await self._client.send(message)

    async def serve_stdio(self, wire: Wire | None = None) -> None:
        """Start, if that has not been done, and serve one client over stdin and stdout until it goes away; then the
        registry is closed. See `toolexec.server.stdio.serve_stdio`."""
        from toolexec.server.stdio import serve_stdio

        await self._ensure_started()
        await serve_stdio(self.server, wire)

    async def serve_http(
        self,
        http: HttpSettings | None = None,
        auth: AuthSettings | None = None,
        *,
        ready: Callable[[str], None] | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Start, if that has not been done, and serve over HTTP until *stop* is set; then the registry is closed.

        *http* and *auth* take the place of those in the settings. Raises as `toolexec.server.http.serve_http` does.
        """
        from toolexec.server.http import serve_http

        await self._ensure_started()
        async with self.server as server:
            http, auth = http or self.settings.http, auth or self.settings.auth
            await serve_http(server, http, auth, logins=server.logins, ready=ready, stop=stop)

    async def _ensure_started(self) -> None:
        if not self._started:
            await self.start()


def _unavailable(down: Sequence[BackendStatus]) -> BackendUnavailableError:
    reasons = {status.name: status.reason or "unavailable" for status in down}
    text = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return BackendUnavailableError(
        f"not every MCP server can be reached: {text}",
        backend=down[0].name,
        details={"backends": reasons},
    )
