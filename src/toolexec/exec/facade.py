"""The one object that most people need."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from toolexec.errors import ConfigurationError
from toolexec.exec.vendor_messages import VendorMessages
from toolexec.lazy import lazy_names
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONDict, JSONObject, shorten
from toolexec.model.origin import CURRENT
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType

    from toolexec.backend.base import Backend, BackendStatus
    from toolexec.backend.local import LocalBackend
    from toolexec.backend.mcp import MCPSettings
    from toolexec.backend.registry import BackendRegistry
    from toolexec.cassette.cassette import Cassette
    from toolexec.code.types import CodeEvent, CodeResult
    from toolexec.discovery.docs import DetailLevel, DocEntry, DocStore, ToolDoc
    from toolexec.discovery.facets import Facets
    from toolexec.discovery.index import Index
    from toolexec.discovery.learned import LearnedOutputs
    from toolexec.discovery.links.links import Links
    from toolexec.discovery.results import SearchResults
    from toolexec.discovery.summary import Filters
    from toolexec.durable.host import Worker
    from toolexec.exec.chain import ChainResult, Step
    from toolexec.exec.chains_ahead import ChainSuggestion
    from toolexec.exec.code import CodeSession, CodeSettings, WorkflowSettings
    from toolexec.exec.options import ExecSettings, Options
    from toolexec.exec.providers import AddedCommands, AddedHTTP, AddedOpenAPI, AddedPython
    from toolexec.exec.resources import Resources
    from toolexec.exec.runs import Runs
    from toolexec.exec.schedules import Schedules
    from toolexec.exec.sources import Added
    from toolexec.exec.sync import SyncExec
    from toolexec.model.binding import Binding
    from toolexec.model.call import ProgressCallback
    from toolexec.model.declare import FunctionTool
    from toolexec.model.events import StreamEvent
    from toolexec.model.handler import Handler
    from toolexec.model.origin import Origin
    from toolexec.model.resources import Completions, Prompt, PromptReply, Resource, ResourceReply, ResourceTemplate
    from toolexec.model.tool import Tool
    from toolexec.model.transform import ToolTransform
    from toolexec.run.context import ContextCost, ContextMeter
    from toolexec.run.runner import Runner
    from toolexec.run.types import OnError, Result
    from toolexec.runtime.router import Runtime
    from toolexec.workflow.skill import Skill
    from toolexec_grpc import AddedGRPC
else:  # what the annotations of checked methods name: imported at the first call of each
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.discovery.summary": ("Filters",),
            "toolexec.model.resources": ("Prompt", "ResourceTemplate"),
            "toolexec.model.transform": ("ToolTransform",),
            "toolexec.workflow.skill": ("Skill",),
        },
    )

__all__ = ["Exec"]

_FIXED: Final = frozenset(
    [
        "backends",
        "bindings_resolver",
        "docs",
        "index",
        "local_handlers",
        "max_examples",
        "transforms",
        "mcp_executor",
        "provider_executor",
        "tool_resolver",
    ]
)


class Exec(VendorMessages):
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
        from toolexec.exec.options import Options
        from toolexec.exec.parts import Parts

        if options is not None and not isinstance(options, Options):
            raise ConfigurationError("Exec takes Options, or settings by keyword: Exec(default_timeout=5)")
        self._parts = Parts(replace(options, **settings) if options is not None else Options(**settings))
        self._sync: SyncExec | None = None

    @property
    def options(self) -> Options:
        """The settings."""
        return self._parts.options

    @property
    def backends(self) -> BackendRegistry:
        """All backends, by name."""
        return self._parts.backends

    @property
    def local(self) -> LocalBackend:
        """The backend that runs Python functions."""
        return self._parts.local

    @property
    def index(self) -> Index:
        """The tools: those of the options' toolset, if there is one."""
        return self._parts.scope.index

    @property
    def everything(self) -> Index:
        """All tools, also those outside of the options' toolset: for the owner of this Exec, not for its users."""
        return self._parts.discovery.index

    @property
    def docs(self) -> DocStore:
        """The documentation of the tools in `index`."""
        return self._parts.scope.docs

    @property
    def learned(self) -> LearnedOutputs | None:
        """What tools without an output schema were seen to answer; None without a gate that has a `Learning` part."""
        return self._parts.scope.learned

    @property
    def cassette(self) -> Cassette | None:
        """The recorded calls that answer, or are written; None without one."""
        return self._parts.cassette

    @property
    def runner(self) -> Runner:
        """What every call passes: trace, gate, layers, the time limit, and what makes it."""
        return self._parts.calls.runner

    @property
    def meter(self) -> ContextMeter:
        """What counts the tokens of all conversations: for those who show results to models."""
        return self._parts.meter

    def context(self) -> ContextCost:
        """Return what the current conversation has cost a model so far, in tokens and by cause.

        It is that of `current_origin()`: outside of a server, all that models were shown of this Exec, by an
        integration or by `export_tools` and the methods that answer calls. `meter.costs()` has all conversations. The
        tokens are estimated, or counted; see `ContextSettings`.
        """
        return self._parts.meter.cost(CURRENT.get())

    def reconfigure(self, **settings: Unpack[ExecSettings]) -> None:
        """Change options after all, before the first call: those about calls and code, such as gate, trace and limits.

        What the Exec is made of (index, docs, backends, resolvers, handlers) stays. Raises ConfigurationError for
        those, for unknown settings and invalid values, and when code has run already.
        """
        fixed = sorted(settings.keys() & _FIXED)
        if fixed or self._parts.code_is_in_use:
            what = f"{', '.join(fixed)} cannot be changed" if fixed else "code has run already"
            raise ConfigurationError(f"{what}; make a new Exec with these options")
        self._parts.configure(replace(self.options, **settings))

    # -- tools --------------------------------------------------------------------------------------------------

    def add(
        self,
        tool: FunctionTool[..., Any] | Tool | Callable[..., Any],
        name: str | None = None,
        *,
        handler: Callable[[JSONDict], Any] | Handler | None = None,
        binding: Binding | None = None,
        doc: DocEntry | None = None,
    ) -> Tool:
        """Add a tool and return it.

        *tool* is a function (typed ones get their schema from their types), one declared with `@tool`, or a `Tool`;
        the latter comes with a *handler* that takes all arguments as one dict, or with a *binding* that says where it
        lives. *name* is for plain functions: a name or a whole ID. Raises InvalidToolError, InvalidSchemaError (with
        the place in the schema), ToolConflictError or ConfigurationError, with nothing added.
        """
        return self._parts.adding.add(tool, name, handler, binding, doc)

    @checked("add_skill")
    def add_skill(self, skill: Skill | str | Path) -> Tool:
        """Add a skill, a workflow that describes itself, and return its tool.

        *skill* is the path of its file, or its text, which begins with the front matter. It is found, described,
        checked and called as any tool, with the ID `skill:name`. It calls the tools that its front matter lists, or
        else those that it names; a gate decides each of these calls for the caller of the skill. A run that calls it
        counts them as its own, so its limits can only be tightened.

        Raises WorkflowSyntaxError, WorkflowCheckError for mistakes that no tool is needed to see, ConfigurationError,
        InvalidToolError or ToolConflictError, with nothing added.
        """
        return self._parts.skills.add(skill)

    @property
    def skills(self) -> Mapping[str, Skill]:
        """The skills that were added, by the IDs of their tools."""
        return dict(self._parts.skills.known)

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
        Raises ConfigurationError, BackendError, and MissingExtraError without the `mcp` extra.
        """
        return self._parts.sources.add_mcp(name, command, args, url, settings)

    @checked("add_config")
    def add_config(self, path: str | Path) -> Added:
        """Add the servers of an `mcpServers` JSON file, as Claude Desktop, Cursor and VS Code write it.

        Raises ConfigurationError, BackendError and MissingExtraError, with nothing added.
        """
        return self._parts.sources.add_config(path)

    def add_backends(self, *backends: Backend) -> Added:
        """Add backends of any kind; their tools appear once they are started. Raises BackendError for a name in
        use, with none of them added."""
        return self._parts.sources.add(backends)

    def add_http(self, name: str, base_url: str = "", **settings: Unpack[AddedHTTP]) -> Added:
        """Add endpoints of an HTTP service: `tools` maps names to what `HTTPTool` takes.

        *settings* are those of `HTTPProvider` (tools, file, headers, query, auth, credentials, hosts, timeout, ...)
        and of every provider: enabled, refresh, load_timeout, secrets. The tools appear as `name:tool` once it is read:
        when the Exec starts, at the first call that needs it, or now: `await ex.add_http(...)`. Raises
        ConfigurationError, BackendError, and MissingExtraError at the first call without the `http` extra.

        >>> import asyncio
        >>> async def main():
        ...     async with Exec() as ex:
        ...         get = {"path": "/users/{id}", "description": "Reads a user."}
        ...         [status] = await ex.add_http("users", "https://api.example.com", tools={"get_user": get})
        ...         return status.tools
        >>> asyncio.run(main())
        1
        """
        return self._parts.sources.add_provider(
            "http", name, {**({"base_url": base_url} if base_url != "" else {}), **settings}
        )

    def add_openapi(self, name: str, spec: str | Path | JSONObject, **settings: Unpack[AddedOpenAPI]) -> Added:
        """Add the operations of an HTTP API: *spec* is the path or the URL of its OpenAPI document, or the document.

        *settings* are those of `OpenAPIProvider` (base_url, auth, credentials, headers, include, tags, ...) and of
        every provider: enabled, refresh, load_timeout, secrets. The tools appear as `name:operation` once it is read:
        when the Exec starts, at the first call that needs it, or now: `await ex.add_openapi(...)`. Raises
        ConfigurationError and BackendError, and MissingExtraError where it is read without the `openapi` extra.

        >>> import asyncio
        >>> async def main():
        ...     async with Exec() as ex:
        ...         get = {"operationId": "get_user", "description": "Reads a user."}
        ...         servers = [{"url": "https://api.example.com"}]
        ...         spec = {"openapi": "3.1.0", "servers": servers, "paths": {"/users/{id}": {"get": get}}}
        ...         await ex.add_openapi("users", spec)
        ...         return (await ex.get_tool_doc("users:get_user", "schema")).tool.input_schema.to_json()["required"]
        >>> asyncio.run(main())
        ['id']
        """
        return self._parts.sources.add_provider("openapi", name, {"spec": spec, **settings})

    def add_grpc(self, name: str, target: str = "", **settings: Unpack[AddedGRPC]) -> Added:
        """Add the methods of gRPC services at *target* (`host:port`, `unix:PATH`, `grpc://...`, `grpcs://...`), which
        its server's reflection describes, or the file `descriptors`.

        *settings* are those of `GRPCProvider` (descriptors, services, tls, ca, certificate, key, metadata, timeout,
        ...) and of every provider: enabled, refresh, load_timeout, secrets. The tools appear as `name:Service.Method`
        once they are read: when the Exec starts, at the first call that needs them, or now: `await ex.add_grpc(...)`.
        Raises ConfigurationError, BackendError, and MissingExtraError without the package `toolexec-grpc`, which the
        extra `grpc` installs.
        """
        return self._parts.sources.add_provider("grpc", name, {**({"target": target} if target else {}), **settings})

    def add_commands(self, name: str, **settings: Unpack[AddedCommands]) -> Added:
        """Add programs: `tools` maps names to what `CommandTool` takes. No shell is ever involved.

        *settings* are those of `CommandProvider` (tools, file, cwd, env, inherit, timeout, namespace) and of every
        provider: enabled, refresh, load_timeout, secrets. The tools appear as `name:tool` when the Exec starts, at the
        first call that needs them, or now: `await ex.add_commands(...)`. Raises ConfigurationError and BackendError.

        >>> with Exec().sync as ex:
        ...     _ = ex.add_commands("sys", tools={"say": {"argv": ["printf", "%s!", "{text}"]}})
        ...     ex.run_tool("sys:say", {"text": "$(id); rm -rf /"}).value
        '$(id); rm -rf /!'
        """
        return self._parts.sources.add_provider("command", name, settings)

    def add_python(self, name: str, target: str | Sequence[str] = (), **settings: Unpack[AddedPython]) -> Added:
        """Add what a Python module has: `package.module`, or `package.module:name` for a function, a tool (also one of
        LangChain, Pydantic AI or LlamaIndex), an `Exec`, or an object or list with tools.

        *settings* are those of `PythonSettings` (include, namespace) and of every provider: enabled, refresh,
        load_timeout. The module is imported when the Exec starts, at the first call that needs it, or now:
        `await ex.add_python(...)`. Raises ConfigurationError and BackendError.

        >>> with Exec().sync as ex:
        ...     _ = ex.add_python("text", "textwrap:dedent")
        ...     ex.run_tool("text:dedent", {"text": "  far right"}).value
        'far right'
        """
        return self._parts.sources.add_provider("python", name, {**({"target": target} if target else {}), **settings})

    @checked("refresh")
    async def refresh(self, name: str | None = None) -> list[BackendStatus]:
        """Read the tools of the backend *name* again, or those of all providers and servers; return how these are.

        A definition that cannot be read leaves the tools as they were, with the reason in the status. Raises
        BackendNotFoundError for a name that no such backend has.
        """
        return await self._parts.sources.refresh(name)

    @checked("remove")
    async def remove(self, name: str) -> None:
        """Close a backend and take its tools out of the index; unknown names are ignored."""
        await self._parts.sources.remove(name)

    @checked("retire")
    def retire(self, name: str) -> Backend | None:
        """Take a backend and its tools out without closing it, and return it; None where there is none of that name.

        Calls that are being made go on; `backends.release` closes it once they have ended. Another one of its name can
        be added at once. Raises ConfigurationError for a name that is not a string.
        """
        return self._parts.sources.retire(name)

    @checked("prepare_tools")
    def prepare_tools(
        self,
        transforms: Mapping[str, ToolTransform | Mapping[str, Any]],
        *,
        remove_skills: Sequence[str] = (),
        add_skills: Sequence[Skill] = (),
    ) -> Callable[[], None]:
        """Make other tools ready while calls are made, and return what exchanges them at once.

        *transforms* say how all tools are shown from then on; the skills of the tools *remove_skills*, by their own
        IDs, are gone then, and *add_skills* are there. Calls that are being made go on. Tools of backends that their
        transform does not fit are left out, with the reason in the backend's status.

        Raises ConfigurationError for an Exec whose gate is not a `LiveGate`, for a transform that does not fit a tool
        that was added, and for an ID that is taken; WorkflowCheckError and InvalidToolError for what cannot be such a
        tool. Nothing has changed then.
        """
        from toolexec.exec.exchanging import prepare_tools

        return prepare_tools(self._parts, transforms, remove_skills, add_skills)

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all backends that are not started, at the same time, and wait at most `start_timeout`.

        One that is slow goes on starting, one that fails is unavailable with its reason in `backend_statuses`; neither
        raises. Raises ConfigurationError after `aclose`.
        """
        await self._parts.sources.start()

    async def aclose(self) -> None:
        """Stop all code and every backend, end every process; then raise an ExceptionGroup of what failed to stop, if
        anything.

        No task of yours is cancelled: code that it awaits ends with a ClosedError in its result, calls of Python
        functions end by themselves. Handlers that ignore their cancellation have 2 seconds to end. In a child that was
        forked while this Exec was in use it does nothing, for all of it is the parent's. Raises ConfigurationError on
        another event loop than the one that runs its code.
        """
        await self._parts.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def backend_statuses(self) -> list[BackendStatus]:
        """Return how every backend is, in order of registration."""
        return self._parts.sources.statuses()

    @property
    def sync(self) -> SyncExec:
        """This Exec with blocking methods, run by an event loop in a thread of its own."""
        if self._sync is None:
            from toolexec.exec.sync import SyncExec

            self._sync = SyncExec(self)
        return self._sync

    # -- finding ------------------------------------------------------------------------------------------------

    @checked("search_tools")
    async def search_tools(
        self,
        query: str,
        limit: int = 10,
        *,
        filters: Filters | None = None,
        explain: bool = False,
        produces: str | None = None,
    ) -> SearchResults:
        """Return the best tools for *query*, best first; an empty query gives the first by ID.

        The result is a list of summaries that also says what was probably meant (`did_you_mean`) and why it may be
        empty (`note`). *explain* adds to each summary which words matched where, and what they weighed. *produces*
        keeps to tools whose results have a value for an argument: `issue_id`, or that of a tool,
        `github:close_issue.issue_id`; each summary then says where (`produces`), and without a query the surest come
        first. It raises ToolNotFoundError and ConfigurationError when there is no such tool or argument.
        """
        finder = self._parts.finder
        return await finder.search(query, limit, filters=filters, explain=explain, produces=produces)

    @checked("tool_facets")
    async def tool_facets(self, query: str = "", *, filters: Filters | None = None) -> Facets:
        """Return how many tools a search would find, by namespace, tag, backend and hint; without a query, how many
        there are.
        """
        return await self._parts.finder.facets(query, filters=filters)

    async def get_tool_doc(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return a tool's documentation: `summary`, `schema` or `full`; raises as `DocStore.describe` does. `full` also
        knows which other tools produce its arguments.
        """
        return await self._parts.finder.describe(tool_id, level)

    def visible(self) -> tuple[Index, DocStore]:
        """Return the tools that may be known of just now, and their documentation: all, unless a gate hides some from
        the `current_origin`.
        """
        scope, gate = self._parts.scope, self._parts.options.own_gate
        return gate.view(scope.index, scope.docs, CURRENT.get()) if gate is not None else (scope.index, scope.docs)

    @property
    def links(self) -> Links:
        """The tools that make the arguments that others need; kept from the first use on. What a `LinkWatch` among the
        layers has seen counts, too."""
        return self._parts.links.links

    async def links_ready(self) -> Links:
        """Return the `links` once all tools were looked at; where there are many, the event loop goes on meanwhile."""
        return await self._parts.links.ready()

    @checked("suggest_chain")
    async def suggest_chain(self, goal: str, args: JSONObject | None = None, *, depth: int = 3) -> ChainSuggestion:
        """Return a chain whose last step is the tool *goal*, for `run_chain`.

        *args* are arguments of the goal that are known already. There are at most *depth* producers in a row (0 to 6)
        and 8 steps in all. Read-only tools are preferred, others flagged; tools that cannot be called just now, and
        those that the `current_origin` may not know of, are not used. Nothing is run.

        Raises ToolNotFoundError and InvalidToolIDError for the goal, ConfigurationError for the depth.
        """
        return await self._parts.planner.suggest(goal, args, depth=depth)

    # -- resources and prompts ----------------------------------------------------------------------------------

    @property
    def resources(self) -> Resources:
        """What the backends offer beside tools, for those who pass it on to others."""
        return self._parts.resources

    async def list_resources(self) -> list[Resource]:
        """Return the resources of all MCP servers that may be known of just now, by server.

        A server that cannot be asked has none here; the log has the reason. At most 10,000 are taken of a server.
        """
        return await self._parts.resources.list_resources()

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the templates of resources, as `list_resources` does resources."""
        return await self._parts.resources.list_templates()

    async def list_prompts(self) -> list[Prompt]:
        """Return the prompts, as `list_resources` does resources."""
        return await self._parts.resources.list_prompts()

    @checked("read_resource")
    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ResourceReply:
        """Return what a resource holds. *uri* is that of a `Resource`, or of a filled in template.

        It is read through the gate, as tools are called: rules know it by its `id`. *timeout* in seconds takes the
        place of `default_timeout`. At most 32 MiB are taken. Raises NotOfferedError for a URI that no server offers,
        BackendError where the server cannot be reached, an ExecutionError where it refuses or what it says cannot be
        read, ToolTimeoutError, and what the gate raises.
        """
        return await self._parts.resources.read(uri, timeout)

    @checked("get_prompt")
    async def get_prompt(
        self, name: str, args: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> PromptReply:
        """Return a prompt with its arguments filled in; *name* is that of a `Prompt`.

        As `read_resource`, it goes through the gate and raises; also InputValidationError for an argument that is
        missing, and ConfigurationError for one that is not a string.
        """
        return await self._parts.resources.get(name, args, timeout)

    @checked("complete")
    async def complete(
        self, ref: Prompt | ResourceTemplate, argument: str, value: str = "", *, known: Mapping[str, str] | None = None
    ) -> Completions:
        """Return values that an *argument* of a prompt, or a variable of a template, may have, and that are like
        *value*; none from a server that completes nothing. *known* are other arguments. Raises as `read_resource`.
        """
        return await self._parts.resources.complete(ref, argument, value, known)

    def add_resource_tools(self) -> list[Tool]:
        """Add tools for resources and prompts, and return them: `resources:list`, `resources:read`, `prompts:list` and
        `prompts:get`.

        With them programs read resources, as `tools.resources.read(uri)`, and searches find how. Raises
        ToolConflictError where one of these IDs is taken, with none of them added.
        """
        from toolexec.exec.resource_tools import add_resource_tools

        return add_resource_tools(self)

    # -- running ------------------------------------------------------------------------------------------------

    async def run_tool(
        self,
        tool_id: str,
        args: JSONObject | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        idempotency_key: str = "",
        fresh: bool = False,
    ) -> Result:
        """Run one tool.

        A tool that was called and failed gives a Result with `error`; what could not be called raises, as
        `Runner.run` says. *timeout* in seconds takes the place of `default_timeout`. *on_progress* receives 0 of 1,
        `started`, before anything else; then what the tool reports, on its own scale; and 1 of 1, `completed` or
        `error`, at the end, unless the call is cancelled.

        Calls with the same *idempotency_key* are one effect: backends that take such keys get it, and a gate with a
        `Ledger` makes the call once. *fresh* has the tool called although the gate's `Cache` knows an answer.
        """
        calls = self._parts.calls
        if on_progress is not None or calls.sources.pending or idempotency_key != "" or fresh is not False:
            call = ToolCall(tool_id, args, timeout, on_progress, False, CURRENT.get())
            call.idempotency_key, call.fresh = idempotency_key, fresh
            return await calls.make(call)
        # Most calls come this way, which is the shortest there is.
        return await calls.runner.run(ToolCall(tool_id, args, timeout, None, False, CURRENT.get()))

    @checked("needs_approval")
    def needs_approval(self, tool_id: str, args: JSONObject | None = None) -> bool:
        """Return whether the gate would ask an approver before this call by the `current_origin`. A call that cannot
        be made, or is denied, needs none: it raises. With `execute_code` for the ID and `{"code": ..., **settings}`
        it is a run of code that is meant.
        """
        from toolexec.exec.approvals import needs_approval

        return needs_approval(self, tool_id, args, lambda: self._parts.code)

    @checked("approved")
    def approved(self, tool_id: str, args: JSONObject | None = None) -> AbstractContextManager[Origin]:
        """Have one call of this tool with exactly these arguments count as approved, for the `current_origin`, in the
        block: `with ex.approved("shop:refund", args): await ex.run_tool("shop:refund", args)`.

        For programs in which a person has just approved that call. Whatever else needs an approval is asked as always.
        A run of code goes by `execute_code`, as in `needs_approval`; the calls of the code are not approved with it.
        """
        from toolexec.exec.approvals import approved

        return approved(self, tool_id, args, lambda: self._parts.code)

    async def run_chain(
        self,
        steps: Sequence[Step | JSONObject],
        *,
        on_progress: ProgressCallback | None = None,
        on_error: OnError = "stop",
        dry_run: bool = False,
        durable: str | None = None,
    ) -> ChainResult:
        """Run tools one after the other; see `Step` for how values travel. A step may also be a mapping of its fields.

        Failures of steps are in the result, together with what was done before. With *on_error* `undo`, a failure that
        stops the chain has the finished steps undone, the last one first, each by the tool that its own names as
        `toolexec/undo` in its `meta`; `ChainResult.undone` says what could not be. A chain that is cancelled is undone,
        too, in at most 30 seconds; the CancelledError then has a note of what became of the steps. With *dry_run*,
        tools that are not read-only are not called, but those that they name as `toolexec/dry_run`, with the same
        arguments. Raises InvalidChainError, before anything runs, for a chain that cannot work, or cannot be tried.

        With *durable* it is the run of that ID in the `journal`: started again with the same steps it goes on where it
        stopped, or gives the result that it has. See `runs`.
        """
        if durable is not None:
            begun = self._parts.durable.run_chain
            return await begun(durable, steps, on_progress=on_progress, on_error=on_error, dry_run=dry_run)
        chains, recordings = self._parts.chains, self._parts.recordings
        if recordings is None:
            return await chains.run(steps, on_progress=on_progress, on_error=on_error, dry_run=dry_run)
        return await recordings.run_chain(chains, steps, on_progress=on_progress, on_error=on_error, dry_run=dry_run)

    def stream_tool(
        self,
        tool_id: str,
        args: JSONObject | None = None,
        *,
        timeout: float | None = None,
        fallback: bool = True,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Run one tool piece by piece: `progress` and `chunk` events, then exactly one `done` or `error`.

        A tool that answers in one piece gives just the last event; with *fallback* false it raises
        StreamNotSupportedError instead. Leaving the loop early stops the tool (close the iterator, best with
        `contextlib.aclosing`). Raises as `Runner.stream` does.
        """
        return self._parts.calls.stream(tool_id, args, timeout=timeout, fallback=fallback)

    # -- code ---------------------------------------------------------------------------------------------------

    async def execute_code(
        self, code: str, *, durable: str | None = None, **settings: Unpack[CodeSettings]
    ) -> CodeResult:
        """Run code that calls tools, in a sandbox; a workflow (`language="workflow"`) needs none.

        *settings* are those of `ExecuteRequest` (language, timeout, allowed_tools, env, files, limits, profile,
        on_event, seed, ...), `max_tool_calls`, `unsafe_opt_in` for this run, and for a workflow those
        of `run_workflow`. In Python the code has an object `tools`: `tools.github.create_issue(title="x")`. Its value
        is that of a top-level `return`, else of `__out`, else of the last expression.

        A failure of the code is the result's `error`, with everything captured until then. Raises ConfigurationError
        and SandboxError when nothing was run.

        With *durable* it is the run of that ID in the `journal`, as for `run_chain`. That needs a sandbox that can make
        a run again: Python and JavaScript in the embedded one; others are refused. Each stretch of the run has the
        whole time limit.
        """
        if durable is not None:
            return await self._parts.durable.execute_code(durable, code, settings)
        return await self._parts.code.execute(code, settings)

    async def run_workflow(
        self,
        source: str,
        inputs: JSONObject | None = None,
        *,
        on_progress: ProgressCallback | None = None,
        durable: str | None = None,
        **settings: Unpack[WorkflowSettings],
    ) -> CodeResult:
        """Run a workflow: a program in the small language that has tools and values and nothing else.

        It needs no sandbox. *inputs* are the values of its `input` declarations. *settings* are those of
        `execute_code` that make sense here: timeout, max_tool_calls, allowed_tools, limits, now, on_event, on_error and
        dry_run. *on_progress* receives each call that has ended. The workflow is checked before it runs.

        With `on_error="undo"` the calls of a workflow that fails are undone, with `dry_run=True` its tools are only
        tried, as `run_chain` says; `CodeResult.undone` says what could not be undone.

        A workflow that cannot be parsed (WorkflowSyntaxError), has mistakes (WorkflowCheckError), gets wrong inputs
        (InputValidationError) or fails has that as the result's `error`, with everything done until then. Raises
        ConfigurationError when nothing was run. With *durable* it is the run of that ID in the `journal`, as for
        `run_chain`.
        """
        if not isinstance(source, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"run_workflow: source must be a string, not {shorten(repr(source))}")
        if inputs is not None and not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"run_workflow: inputs must be a mapping or None, not {shorten(repr(inputs))}")
        if on_progress is not None and not callable(on_progress):  # pyright: ignore[reportUnnecessaryComparison]
            raise ConfigurationError(f"run_workflow: on_progress must be a function, not {shorten(repr(on_progress))}")
        if durable is not None:
            return await self._parts.durable.run_workflow(durable, source, inputs, settings, on_progress)
        return await self._parts.code.run_workflow(source, inputs, settings, on_progress)

    @checked("worker")
    def worker(
        self, *, isolations: Sequence[str] | None = None, max_activities: int = 200, patience: float = 10.0
    ) -> Worker:
        """Return a worker for durable runs on many machines, with the tools and sandboxes of this Exec: `async with
        ex.worker(): ...`.

        The `journal` must be an engine whose runs workers do, such as that of toolexec-temporal; its settings are those
        of the worker, too. It takes code for sandboxes of these *isolations* (default: all that work here, but none),
        does *max_activities* things at once, and when the block ends gives what runs *patience* seconds. Raises
        ConfigurationError without such a journal.
        """
        from toolexec.exec.worker import worker_of

        return worker_of(self._parts, isolations=isolations, max_activities=max_activities, patience=patience)

    @property
    def runs(self) -> Runs:
        """The durable runs in the `journal` of the options: list, resume, enqueue, signal, cancel, replay."""
        return self._parts.runs

    @property
    def schedules(self) -> Schedules:
        """The schedules in the `journal` of the options, whose times make durable runs: add, list, remove, pause."""
        return self._parts.schedules

    def stream_code(self, code: str, **settings: Unpack[CodeSettings]) -> AsyncGenerator[CodeEvent, None]:
        """Run code and yield what it does while it does it: prints and tool calls, then one event `done` with the
        result. Leaving the loop early stops the code. Raises as `execute_code` does."""
        return self._parts.code.stream(code, settings)

    def session(self, **settings: Unpack[CodeSettings]) -> CodeSession:
        """Return a sandbox that keeps its state: `async with ex.session() as s: await s.execute_code("x = 1")`.

        *settings* hold for all of its runs, which may lower limits further.
        """
        return self._parts.code.session(settings)

    @property
    def runtime(self) -> Runtime:
        """The router that chooses the sandbox for code."""
        return self._parts.code.runtime
