"""The one object that most people need."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from toolexec.backend.base import Backend, BackendStatus
from toolexec.backend.local import LocalBackend
from toolexec.backend.mcp import MCPServer, MCPSettings, read_mcp_servers
from toolexec.backend.provider import ProviderBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.code.types import CodeEvent, CodeResult
from toolexec.discovery.docs import DocEntry, DocStore
from toolexec.discovery.facade import Discovery
from toolexec.discovery.index import Index
from toolexec.errors import ConfigurationError
from toolexec.exec.adding import command_line, names_around
from toolexec.exec.chain import ChainResult, Step, execute_chain
from toolexec.exec.chains_ahead import ChainsAhead
from toolexec.exec.code import CodeRuns, CodeSession, CodeSettings
from toolexec.exec.home import Home
from toolexec.exec.options import CallRemote, ExecSettings, Options
from toolexec.exec.seeing import seen_by
from toolexec.exec.sources import Added, Sources
from toolexec.exec.vendor_calls import VendorCalls
from toolexec.model.binding import Binding, BindingKind, LocalBinding
from toolexec.model.call import ProgressCallback, ToolCall
from toolexec.model.declare import FunctionTool, declare
from toolexec.model.events import StreamEvent
from toolexec.model.handler import Handler
from toolexec.model.json_value import own_parts
from toolexec.model.origin import HERE, current_origin
from toolexec.model.settings import check_settings
from toolexec.model.tool import Tool
from toolexec.run.chain import notify
from toolexec.run.layers.timeout import Timeout
from toolexec.run.layers.trace import Trace
from toolexec.run.runner import DefaultRunner, Runner
from toolexec.run.types import Result
from toolexec.runtime.runtime import Runtime

if TYPE_CHECKING:
    from toolexec.exec.sync import SyncExec

__all__ = ["Exec"]

_CLOSE_PATIENCE = 2.0
"""How many seconds `aclose` waits for handlers that ignored their cancellation."""

_FIXED = frozenset(
    [
        "backends",
        "bindings_resolver",
        "docs",
        "index",
        "local_handlers",
        "max_examples",
        "mcp_executor",
        "provider_executor",
        "tool_resolver",
    ]
)


class _AddedMCP(MCPSettings):
    """All that `Exec.add_mcp` takes."""

    name: str
    command: str | Sequence[str]
    args: Sequence[str]
    url: str


class Exec(VendorCalls, ChainsAhead):
    """Find tools, read about them, run them one by one, in chains or as streams, wherever they live.

    >>> import asyncio
    >>> async def main():
    ...     async with Exec() as ex:
    ...         ex.add(lambda a, b: a + b, "math:add")
    ...         return (await ex.run_tool("math:add", {"a": 5, "b": 3})).value
    >>> asyncio.run(main())
    8

    `Exec()` needs no arguments; settings are those of `Options`, given as one object or by keyword. Use it as
    `async with`, or call `aclose`. Python functions run on any event loop; servers and code belong to the loop, and the
    process, that used them first. `sync` is its blocking twin.
    """

    def __init__(self, options: Options | None = None, **settings: Unpack[ExecSettings]) -> None:
        """Raises ConfigurationError for an unknown setting, with the nearest one that there is, and for an invalid
        value; nothing has started then."""
        if options is not None and not isinstance(options, Options):
            raise ConfigurationError("Exec takes Options, or settings by keyword: Exec(default_timeout=5)")
        self.options: Options = replace(options, **settings) if options is not None else Options(**settings)
        options = self.options
        discovery = Discovery(index=options.index, docs=options.docs, max_examples=options.max_examples)
        self.backends: BackendRegistry = options.backends if options.backends is not None else BackendRegistry()
        self.local: LocalBackend = self._local_backend()
        self._stand_in("mcp", options.mcp_executor)
        self._stand_in("provider", options.provider_executor)
        self._discovery = discovery
        self.everything: Index = discovery.index
        """All tools, also those outside of the options' toolset: for whoever owns this Exec, not for its users."""
        self.index: Index
        self.docs: DocStore
        self.index, self.docs, self._resolver = seen_by(options, discovery, self.backends)
        self.runner: Runner = self._build_runner()
        self._home = Home()
        self._sources = Sources(discovery.index, self.backends, options.start_timeout, self._home)
        self._code = CodeRuns(options, self.index, self.docs, self.runner, self._home)
        self._sync: SyncExec | None = None
        self._close_patience = _CLOSE_PATIENCE
        for backend in self.backends.list():
            if backend is not self.local:
                self._sources.adopt(backend)

    def _local_backend(self) -> LocalBackend:
        known = self.backends.get("local")
        if known is None:
            self.backends.register(local := LocalBackend(handlers=self.options.local_handlers))
            return local
        if not isinstance(known, LocalBackend):
            raise ConfigurationError("the backend named local must be a LocalBackend: functions are added to it")
        if self.options.local_handlers:
            raise ConfigurationError("your backends have a local one already; give local_handlers to that one")
        return known

    def _stand_in(self, kind: BindingKind, execute: CallRemote | None) -> None:
        if execute is not None:
            self.backends.on_missing(kind, lambda name: ProviderBackend(name, partial(execute, name), kind=kind))

    def _build_runner(self) -> Runner:
        options = self.options
        self._is_watched = bool(options.gate is not None or options.layers or options.trace is not None)
        runner: Runner = DefaultRunner(
            self.index,
            self.backends,
            resolver=self._resolver,
            validate_input=options.validate_input,
            validate_output=options.output_validation,
        )
        runner = self._limits = Timeout(runner, options.default_timeout)
        for wrap in reversed(options.layers):
            runner = wrap(runner)
        if options.gate is not None:
            runner = options.gate.wrap(runner, self._resolver.resolve)
        return Trace(runner, options.trace) if options.trace is not None else runner

    def reconfigure(self, **settings: Unpack[ExecSettings]) -> None:
        """Change options after all, before the first call: those about calls and code, such as gate, trace and limits.

        What the Exec is made of (index, docs, backends, resolvers, handlers) stays. Raises ConfigurationError for
        those, for unknown settings and invalid values, and when code has run already.
        """
        fixed = sorted(settings.keys() & _FIXED)
        if fixed or self._code.in_use:
            what = f"{', '.join(fixed)} cannot be changed" if fixed else "code has run already"
            raise ConfigurationError(f"{what}; make a new Exec with these options")
        self.options = replace(self.options, **settings)
        if "toolset" in settings:
            self.index, self.docs, self._resolver = seen_by(self.options, self._discovery, self.backends)
        self.runner = self._build_runner()
        self._code = CodeRuns(self.options, self.index, self.docs, self.runner, self._home)
        self._sources.start_timeout = self.options.start_timeout

    # -- tools --------------------------------------------------------------------------------------------------

    def add(
        self,
        tool: FunctionTool[..., Any] | Tool | Callable[..., Any],
        name: str | None = None,
        *,
        handler: Callable[[dict[str, Any]], Any] | Handler | None = None,
        binding: Binding | None = None,
        doc: DocEntry | None = None,
    ) -> Tool:
        """Add a tool and return it.

        *tool* is a function (typed ones get their schema from their types), one declared with `@tool`, or a `Tool`;
        the latter comes with a *handler* that takes all arguments as one dict, or with a *binding* that says where it
        lives. *name* is for plain functions: a name or a whole ID. Raises InvalidToolError, InvalidSchemaError (with
        the place in the schema), ToolConflictError or ConfigurationError, with nothing added.
        """
        if name is not None and isinstance(tool, Tool | FunctionTool):
            raise ConfigurationError(f"{tool} has a name already; give one with a plain function only")
        if isinstance(tool, Tool):
            if (handler is None) == (binding is None):
                raise ConfigurationError(f"add({tool.id}) needs either a handler or a binding", tool_id=tool.id)
            if handler is not None and not isinstance(handler, Handler) and not callable(handler):
                raise ConfigurationError(f"the handler of {tool.id} must be a function, not {handler!r}")
            self._discovery.register(tool.check_schemas(), binding or LocalBinding(tool.id), doc)
            if handler is not None:
                self.local.register(tool.id, handler)
            return tool
        if handler is not None or binding is not None:
            raise ConfigurationError("a function is its own handler; give handler or binding with a Tool only")
        declared = tool if isinstance(tool, FunctionTool) else declare(tool, name, local_names=names_around())
        self._discovery.register(declared.tool.check_schemas(), LocalBinding(declared.tool.id), doc)
        self.local.register(declared.tool.id, declared.handler)
        return declared.tool

    def add_mcp(
        self,
        name: str,
        *,
        command: str | Sequence[str] = "",
        args: Sequence[str] = (),
        url: str = "",
        **settings: Unpack[MCPSettings],
    ) -> Added:
        """Add an MCP server: a *command* to start (a program, or a whole command line) or the *url* of a running one.

        *settings* are those of `MCPServer`: env, cwd, headers, transport, namespace, connect_timeout, ... The tools
        appear as `name:tool` once the server is connected: when the Exec starts, at the first call that needs it, or
        now: `await ex.add_mcp(...)`. A server that cannot be reached raises nothing; `backend_statuses` has the reason.
        Raises ConfigurationError, BackendExistsError, and MissingExtraError without the `mcp` extra.
        """
        check_settings("add_mcp", _AddedMCP, {"name": name, "command": command, "args": args, "url": url, **settings})
        if isinstance(command, str):
            program, *rest = command_line(command) if command and not args else [command]
        else:
            program, *rest = [*command] or [""]
        return self._add_servers([MCPServer(name=name, command=program, args=(*rest, *args), url=url, **settings)])

    def add_config(self, path: str | Path) -> Added:
        """Add the servers of an `mcpServers` JSON file, as Claude Desktop, Cursor and VS Code write it.

        Raises ConfigurationError, BackendExistsError and MissingExtraError, with nothing added.
        """
        return self._add_servers(read_mcp_servers(path))

    def _add_servers(self, servers: Sequence[MCPServer]) -> Added:
        from toolexec.backend.mcp import MCPBackend

        return self.add_backends(*(MCPBackend(server) for server in servers))

    def add_backends(self, *backends: Backend) -> Added:
        """Add backends of any kind; their tools appear once they are started. Raises BackendExistsError for a name in
        use, with none of them added."""
        return self._sources.add(backends)

    async def remove(self, name: str) -> None:
        """Close a backend and take its tools out of the index; unknown names are ignored."""
        await self._sources.remove(name)

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all backends that are not started, at the same time, and wait at most `start_timeout`.

        One that is slow goes on starting, one that fails is unavailable with its reason in `backend_statuses`; neither
        raises. Raises ConfigurationError after `aclose`.
        """
        await self._sources.start()

    async def aclose(self) -> None:
        """Stop all code and every backend, end every process; then an ExceptionGroup tells what failed to stop, if
        anything.

        No task of yours is cancelled: code that it awaits ends with a ClosedError in its result, calls of Python
        functions end by themselves. Handlers that ignore their cancellation have 2 seconds to end. In a child that was
        forked while this Exec was in use it does nothing, for all of it is the parent's. Raises ConfigurationError on
        another event loop than the one that runs its code.
        """
        if self._home.is_left:
            return
        if self._code.in_use:
            self._home.enter()
        try:
            await self._code.aclose()
        finally:
            if self._links is not None:
                self._links.close()
            close_search = getattr(getattr(self.everything, "searcher", None), "close", None)
            try:
                if close_search is not None:
                    close_search()
            finally:
                try:
                    await self._sources.aclose()
                finally:
                    await self._limits.left.aclose(self._close_patience)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def backend_statuses(self) -> list[BackendStatus]:
        """How every backend is, in order of registration."""
        return self._sources.statuses()

    @property
    def sync(self) -> SyncExec:
        """This Exec with blocking methods, run by an event loop in a thread of its own."""
        if self._sync is None:
            from toolexec.exec.sync import SyncExec

            self._sync = SyncExec(self)
        return self._sync

    # -- running ------------------------------------------------------------------------------------------------

    async def run_tool(
        self,
        tool_id: str,
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Result:
        """Run one tool.

        A tool that was called and failed gives a Result with `error`; what could not be called raises, as
        `Runner.run` says. *timeout* in seconds takes the place of `default_timeout`. *on_progress* hears 0 of 1,
        `started`, before anything else; then what the tool reports, on its own scale; and 1 of 1, `completed` or
        `error`, at the end, unless the call is cancelled.
        """
        if on_progress is not None:
            return await self._run_with_progress(tool_id, args, timeout, on_progress)
        if self._sources.pending and self._sources.is_needed(tool_id):
            await self.start()
        if self._is_watched and args:
            args = own_parts(args)
        return await self.runner.run(ToolCall(tool_id, args, timeout, None, False, current_origin()))

    async def _run_with_progress(
        self, tool_id: str, args: Mapping[str, Any] | None, timeout: float | None, on_progress: ProgressCallback
    ) -> Result:
        notify(on_progress, 0, 1, "started")
        try:
            if self._sources.pending and self._sources.is_needed(tool_id):
                await self.start()
            if self._is_watched and args:
                args = own_parts(args)
            result = await self.runner.run(ToolCall(tool_id, args, timeout, on_progress, False, current_origin()))
        except Exception:
            notify(on_progress, 1, 1, "error")
            raise
        notify(on_progress, 1, 1, "completed" if result.ok else "error")
        return result

    async def run_chain(
        self, steps: Sequence[Step | Mapping[str, Any]], *, on_progress: ProgressCallback | None = None
    ) -> ChainResult:
        """Run tools one after the other; see `Step` for how values travel. A step may also be a mapping of its fields.

        Failures of steps are in the result, together with what was done before. Raises InvalidChainError, before
        anything runs, for a chain that cannot work.
        """
        if self._sources.pending:
            await self.start()
        checked = [step if isinstance(step, Step) else Step.from_dict(step) for step in steps]
        gate, origin = self.options.gate, current_origin()
        if gate is None:
            origin = origin.within("chain", "") if origin is not HERE else HERE
            return await execute_chain(self.runner, self.index, checked, on_progress=on_progress, origin=origin)
        with gate.group("chain", origin, {"steps": len(checked)}) as scope:
            result = await execute_chain(self.runner, self.index, checked, on_progress=on_progress, origin=scope.origin)
            scope.failure = result.error
            return result

    async def stream_tool(
        self,
        tool_id: str,
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        fallback: bool = True,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Run one tool piece by piece: `progress` and `chunk` events, then exactly one `done` or `error`.

        A tool that answers in one piece gives just the last event; with *fallback* false it raises
        StreamNotSupportedError instead. Leaving the loop early stops the tool (close the iterator, best with
        `contextlib.aclosing`). Raises as `Runner.stream` does.
        """
        if self._sources.pending and self._sources.is_needed(tool_id):
            await self.start()
        if self._is_watched and args:
            args = own_parts(args)
        events = self.runner.stream(ToolCall(tool_id, args, timeout, None, fallback, current_origin()))
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    # -- code ---------------------------------------------------------------------------------------------------

    async def execute_code(self, code: str, **settings: Unpack[CodeSettings]) -> CodeResult:
        """Run code that calls tools, in a sandbox.

        *settings* are those of `ExecuteRequest` (language, timeout, allowed_tools, env, files, limits, profile,
        on_event, seed, ...), `max_tool_calls`, and `unsafe_opt_in` for this run. In Python the code has an object
        `tools`: `tools.github.create_issue(title="x")`. Its value is that of a top-level `return`, else of
        `__out`, else of the last expression.

        A failure of the code is the result's `error`, with everything captured until then. Raises ConfigurationError
        and SandboxError when nothing was run.
        """
        request = self._code.request(code, settings)
        if self._sources.pending:
            await self.start()
        return await self._code.execute(request)

    async def stream_code(self, code: str, **settings: Unpack[CodeSettings]) -> AsyncGenerator[CodeEvent, None]:
        """Run code and hear what it does while it does it: prints and tool calls, then one event `done` with the
        result. Leaving the loop early stops the code. Raises as `execute_code` does."""
        request = self._code.request(code, settings)
        if self._sources.pending:
            await self.start()
        async with aclosing(self._code.stream(request)) as events:
            async for event in events:
                yield event

    def session(self, **settings: Unpack[CodeSettings]) -> CodeSession:
        """A sandbox that keeps its state: `async with ex.session() as s: await s.execute_code("x = 1")`.

        *settings* hold for all of its runs, which may lower limits further.
        """
        return CodeSession(self._code, settings)

    @property
    def runtime(self) -> Runtime:
        """The router that chooses the sandbox for code."""
        return self._code.runtime
