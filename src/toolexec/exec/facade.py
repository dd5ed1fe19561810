"""The one object that most people need."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self, Unpack

from toolexec.errors import ConfigurationError
from toolexec.exec.resource_access import ResourceAccess
from toolexec.exec.tool_finding import ToolFinding
from toolexec.exec.tool_sources import ToolSources
from toolexec.exec.vendor_messages import VendorMessages
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject, shorten
from toolexec.model.origin import CURRENT
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from toolexec.backend.base import BackendStatus
    from toolexec.backend.local import LocalBackend
    from toolexec.backend.registry import BackendRegistry
    from toolexec.cassette.cassette import Cassette
    from toolexec.code.types import CodeEvent, CodeResult
    from toolexec.discovery.docs import DocStore
    from toolexec.discovery.index import Index
    from toolexec.discovery.learned import LearnedOutputs
    from toolexec.durable.host import Worker
    from toolexec.exec.chain import ChainResult, Step
    from toolexec.exec.code import CodeSession, CodeSettings, WorkflowSettings
    from toolexec.exec.options import ExecSettings, Options
    from toolexec.exec.runs import Runs
    from toolexec.exec.schedules import Schedules
    from toolexec.exec.sync import SyncExec
    from toolexec.model.call import ProgressCallback
    from toolexec.model.events import StreamEvent
    from toolexec.model.origin import Origin
    from toolexec.model.tool import Tool
    from toolexec.run.context import ContextCost, ContextMeter
    from toolexec.run.runner import Runner
    from toolexec.run.types import OnError, Result
    from toolexec.runtime.router import Runtime

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


class Exec(ToolSources, ToolFinding, ResourceAccess, VendorMessages):
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

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all backends that are not started, at the same time, and wait at most `start_timeout`.

        One that is slow goes on starting, one that fails is unavailable with its reason in `backend_statuses`; neither
        raises. Raises ConfigurationError after `aclose`.
        """
        await self._parts.sources.start()

    async def aclose(self) -> None:
        """Stop all runs and every backend, end every process; then raise an ExceptionGroup of what failed to stop, if
        anything.

        No task of yours is cancelled: a chain, a workflow or code that it awaits ends with a ClosedError in its result,
        or raised before it has begun; single calls of Python functions end by themselves. Durable runs can be resumed
        at once, elsewhere; others with `on_error="undo"` are undone first, in at most 30 seconds. Handlers that ignore
        their cancellation have 2 seconds to end.

        A tool may close the Exec whose run has called it: its call ends as it would have, its run is stopped after it,
        and what that needs is closed with it. In a child that was forked while this Exec was in use it does nothing,
        for all of it is the parent's. Raises ConfigurationError on another event loop than the one that runs its code.

        Whatever is asked, run, added or started afterwards raises ConfigurationError, which says that the Exec is
        closed.
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

        self._parts.sources.check_open()
        return needs_approval(self, tool_id, args, lambda: self._parts.code)

    @checked("approved")
    def approved(self, tool_id: str, args: JSONObject | None = None) -> AbstractContextManager[Origin]:
        """Have one call of this tool with exactly these arguments count as approved, for the `current_origin`, in the
        block: `with ex.approved("shop:refund", args): await ex.run_tool("shop:refund", args)`.

        For programs in which a person has just approved that call. Whatever else needs an approval is asked as always.
        A run of code goes by `execute_code`, as in `needs_approval`; the calls of the code are not approved with it.
        """
        from toolexec.exec.approvals import approved

        self._parts.sources.check_open()
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
        too, in at most 30 seconds; the CancelledError then has a note of what became of the steps. So is one that
        `aclose` stops, and `undone` says what became of them. With *dry_run*,
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
