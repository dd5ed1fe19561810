"""Blocking versions of an `Exec`'s methods, for code without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from toolexec.backend.failures import cancel_begun
from toolexec.errors import ClosedError, ConfigurationError
from toolexec.exec.home import closed_error
from toolexec.model.forks import forks

if TYPE_CHECKING:
    from toolexec.adapter.export import VendorFormat, VendorTools
    from toolexec.adapter.names import NameMap
    from toolexec.backend.base import BackendStatus
    from toolexec.backend.mcp import MCPSettings
    from toolexec.cassette.cassette import Cassette
    from toolexec.code.types import CodeEvent, CodeResult, EventCallback
    from toolexec.discovery.docs import DetailLevel, DocEntry, ToolDoc
    from toolexec.discovery.facets import Facets
    from toolexec.discovery.results import SearchResults
    from toolexec.discovery.summary import Filters
    from toolexec.durable.journal import CallRecord, RunRecord, RunState, Signal
    from toolexec.durable.queues import Queue, QueueRecord
    from toolexec.durable.schedules import Missed, Schedule
    from toolexec.exec.chain import ChainResult, Step
    from toolexec.exec.chains_ahead import ChainSuggestion
    from toolexec.exec.code import CodeSession, CodeSettings, WorkflowSettings
    from toolexec.exec.debug_sync import SyncDebugSession, Wait
    from toolexec.exec.diff import RunDiff
    from toolexec.exec.facade import Exec
    from toolexec.exec.fork import Fork
    from toolexec.exec.providers import AddedCommands, AddedHTTP, AddedOpenAPI, AddedPython
    from toolexec.exec.queued import ProgramSettings
    from toolexec.exec.replaying import ReplayReport
    from toolexec.exec.run_results import RunResult, WaitsCallback
    from toolexec.exec.runs import Runs
    from toolexec.exec.schedules import Schedules
    from toolexec.exec.sources import Added
    from toolexec.exec.vendor_calls import AnswerSettings, ExportSettings
    from toolexec.model.binding import Binding
    from toolexec.model.call import ProgressCallback
    from toolexec.model.declare import FunctionTool
    from toolexec.model.events import StreamEvent
    from toolexec.model.handler import Handler
    from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
    from toolexec.model.resources import Completions, Prompt, PromptReply, Resource, ResourceReply, ResourceTemplate
    from toolexec.model.tool import Tool
    from toolexec.run.types import OnError, Result
    from toolexec.workflow.skill import Skill
    from toolexec_grpc import AddedGRPC

T = TypeVar("T")


class SyncExec:
    """An Exec whose methods block; `Exec.sync` gives it. Use it as `with`, or call `close`.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     _ = ex.add(lambda a, b: a + b, "math:add")
    ...     ex.run_tool("math:add", {"a": 5, "b": 3}).value
    8

    The event loop runs in a thread of its own. Every method raises what its async twin raises, and may be called from
    several threads. Raises ConfigurationError after `close`, in a child that was forked after the first call (where
    `close` does nothing), and on the event loop's own thread (in a progress callback
    or an inline handler), where it would wait for itself.
    """

    def __init__(self, exec: Exec) -> None:
        self.exec = exec
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._forks = forks.count

    def start(self) -> None:
        """Start all backends; see `Exec.start`."""
        self._wait(self.exec.start())

    def close(self) -> None:
        """Stop all backends and the event loop; calls that are under way in other threads raise ClosedError;
        chains, workflows and code have it in their result. In a tool it returns before the call of that has ended."""
        if self._is_left():
            self._closed = True
            return
        self._refuse_own_thread()
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            cassette = self.exec.cassette
            if cassette is not None and cassette is not self.exec.options.cassette:
                cassette.close()  # it was opened without the loop
            return
        calls = [call.future for call in _AROUND.get() if call.owner is self]
        around = [future for future in calls if future is not None and not future.done()]
        try:
            asyncio.run_coroutine_threadsafe(self.exec.aclose(), loop).result()
        finally:
            if around:  # it ends when this has returned
                around[0].add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
            else:
                loop.call_soon_threadsafe(loop.stop)
                thread.join()

    def add(
        self,
        tool: FunctionTool[..., Any] | Tool | Callable[..., Any],
        name: str | None = None,
        *,
        handler: Callable[[JSONDict], Any] | Handler | None = None,
        binding: Binding | None = None,
        doc: DocEntry | None = None,
    ) -> Tool:
        """Add a tool; see `Exec.add`."""
        return self.exec.add(tool, name, handler=handler, binding=binding, doc=doc)

    def add_skill(self, skill: Skill | str | Path) -> Tool:
        """Add a skill; see `Exec.add_skill`."""
        return self.exec.add_skill(skill)

    def add_mcp(
        self,
        name: str,
        *,
        command: str | Sequence[str] = "",
        args: Sequence[str] = (),
        url: str = "",
        **settings: Unpack[MCPSettings],
    ) -> BackendStatus:
        """Add an MCP server and connect it; see `Exec.add_mcp`. Returns how it is, also when it cannot be reached."""
        added = _added(lambda: self.exec.add_mcp(name, command=command, args=args, url=url, **settings))
        return self._wait(added)[0]

    def add_config(self, path: str | Path) -> list[BackendStatus]:
        """Add the servers of an `mcpServers` file and connect them; see `Exec.add_config`."""
        return self._wait(_added(lambda: self.exec.add_config(path)))

    def add_http(self, name: str, base_url: str = "", **settings: Unpack[AddedHTTP]) -> BackendStatus:
        """Add endpoints of an HTTP service; see `Exec.add_http`. Returns how it is, also when it cannot be read."""
        return self._wait(_added(lambda: self.exec.add_http(name, base_url, **settings)))[0]

    def add_openapi(self, name: str, spec: str | Path | JSONObject, **settings: Unpack[AddedOpenAPI]) -> BackendStatus:
        """Add an HTTP API; see `Exec.add_openapi`. Returns how it is, also when its document cannot be read."""
        return self._wait(_added(lambda: self.exec.add_openapi(name, spec, **settings)))[0]

    def add_grpc(self, name: str, target: str = "", **settings: Unpack[AddedGRPC]) -> BackendStatus:
        """Add methods of gRPC services; see `Exec.add_grpc`. Returns how it is, also when it cannot be read."""
        return self._wait(_added(lambda: self.exec.add_grpc(name, target, **settings)))[0]

    def add_commands(self, name: str, **settings: Unpack[AddedCommands]) -> BackendStatus:
        """Add programs; see `Exec.add_commands`. Returns how it is, also when none of them is there."""
        return self._wait(_added(lambda: self.exec.add_commands(name, **settings)))[0]

    def add_python(self, name: str, target: str | Sequence[str] = (), **settings: Unpack[AddedPython]) -> BackendStatus:
        """Add what a Python module has; see `Exec.add_python`. Returns how it is, also when it cannot be imported."""
        return self._wait(_added(lambda: self.exec.add_python(name, target, **settings)))[0]

    def refresh(self, name: str | None = None) -> list[BackendStatus]:
        """Read the tools of a backend, or of all, again; see `Exec.refresh`."""
        return self._wait(self.exec.refresh(name))

    def backend_statuses(self) -> list[BackendStatus]:
        """Return how every backend is; see `Exec.backend_statuses`."""
        return self.exec.backend_statuses()

    def search_tools(
        self,
        query: str,
        limit: int = 10,
        *,
        filters: Filters | None = None,
        explain: bool = False,
        produces: str | None = None,
    ) -> SearchResults:
        """Return the best tools for *query*; see `Exec.search_tools`."""
        found = self.exec.search_tools(query, limit, filters=filters, explain=explain, produces=produces)
        return self._wait(found)

    def suggest_chain(self, goal: str, args: JSONObject | None = None, *, depth: int = 3) -> ChainSuggestion:
        """Return a chain that ends in a tool; see `Exec.suggest_chain`."""
        return self._wait(self.exec.suggest_chain(goal, args, depth=depth))

    def tool_facets(self, query: str = "", *, filters: Filters | None = None) -> Facets:
        """Return how many tools a search would find, by kind; see `Exec.tool_facets`."""
        return self._wait(self.exec.tool_facets(query, filters=filters))

    def get_tool_doc(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return a tool's documentation; see `Exec.get_tool_doc`."""
        return self._wait(self.exec.get_tool_doc(tool_id, level))

    def add_resource_tools(self) -> list[Tool]:
        """Add tools for resources and prompts; see `Exec.add_resource_tools`."""
        return self.exec.add_resource_tools()

    def list_resources(self) -> list[Resource]:
        """Return the resources of all MCP servers; see `Exec.list_resources`."""
        return self._wait(self.exec.list_resources())

    def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the templates of resources; see `Exec.list_resource_templates`."""
        return self._wait(self.exec.list_resource_templates())

    def list_prompts(self) -> list[Prompt]:
        """Return the prompts of all MCP servers; see `Exec.list_prompts`."""
        return self._wait(self.exec.list_prompts())

    def read_resource(self, uri: str, *, timeout: float | None = None) -> ResourceReply:
        """Return what a resource holds; see `Exec.read_resource`."""
        return self._wait(self.exec.read_resource(uri, timeout=timeout))

    def get_prompt(
        self, name: str, args: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> PromptReply:
        """Return a prompt with its arguments filled in; see `Exec.get_prompt`."""
        return self._wait(self.exec.get_prompt(name, args, timeout=timeout))

    def complete(
        self,
        ref: Prompt | ResourceTemplate,
        argument: str,
        value: str = "",
        *,
        known: Mapping[str, str] | None = None,
    ) -> Completions:
        """Return values that an argument may have; see `Exec.complete`."""
        return self._wait(self.exec.complete(ref, argument, value, known=known))

    def export_tools(self, format: VendorFormat, **settings: Unpack[ExportSettings]) -> VendorTools:
        """Return the tools in a provider format; see `Exec.export_tools`."""
        return self._wait(self.exec.export_tools(format, **settings))

    def handle_openai_tool_calls(
        self, message: Any, tools: VendorTools | NameMap | None = None, **settings: Unpack[AnswerSettings]
    ) -> list[JSONDict]:
        """Answers to the calls of a message of OpenAI's; see `Exec.handle_openai_tool_calls`."""
        return self._wait(self.exec.handle_openai_tool_calls(message, tools, **settings))

    def handle_anthropic_tool_use(
        self, message: Any, tools: VendorTools | NameMap | None = None, **settings: Unpack[AnswerSettings]
    ) -> list[JSONDict]:
        """Answers to the calls of a message of Anthropic's; see `Exec.handle_anthropic_tool_use`."""
        return self._wait(self.exec.handle_anthropic_tool_use(message, tools, **settings))

    def handle_gemini_function_calls(
        self, message: Any, tools: VendorTools | NameMap | None = None, **settings: Unpack[AnswerSettings]
    ) -> list[JSONDict]:
        """Answers to the calls of a response of Gemini's; see `Exec.handle_gemini_function_calls`."""
        return self._wait(self.exec.handle_gemini_function_calls(message, tools, **settings))

    def run_tool(
        self,
        tool_id: str,
        args: JSONObject | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        idempotency_key: str = "",
        fresh: bool = False,
    ) -> Result:
        """Run one tool; see `Exec.run_tool`. *on_progress* is called in the event loop's thread."""
        return self._wait(
            self.exec.run_tool(
                tool_id,
                args,
                timeout=timeout,
                on_progress=on_progress,
                idempotency_key=idempotency_key,
                fresh=fresh,
            )
        )

    def run_chain(
        self,
        steps: Sequence[Step | JSONObject],
        *,
        on_progress: ProgressCallback | None = None,
        on_error: OnError = "stop",
        dry_run: bool = False,
        durable: str | None = None,
    ) -> ChainResult:
        """Run tools one after the other; see `Exec.run_chain`."""
        return self._wait(
            self.exec.run_chain(steps, on_progress=on_progress, on_error=on_error, dry_run=dry_run, durable=durable)
        )

    def stream_tool(
        self,
        tool_id: str,
        args: JSONObject | None = None,
        *,
        timeout: float | None = None,
        fallback: bool = True,
    ) -> Iterator[StreamEvent]:
        """Run one tool piece by piece; see `Exec.stream_tool`. Closing the iterator stops the tool."""
        return self._each(self.exec.stream_tool(tool_id, args, timeout=timeout, fallback=fallback))

    def execute_code(self, code: str, *, durable: str | None = None, **settings: Unpack[CodeSettings]) -> CodeResult:
        """Run code that calls tools, in a sandbox; see `Exec.execute_code`. `on_event` is called in the event loop's
        thread."""
        return self._wait(self.exec.execute_code(code, durable=durable, **settings))

    def run_workflow(
        self,
        source: str,
        inputs: JSONObject | None = None,
        *,
        on_progress: ProgressCallback | None = None,
        durable: str | None = None,
        **settings: Unpack[WorkflowSettings],
    ) -> CodeResult:
        """Run a workflow; see `Exec.run_workflow`. Callbacks are called in the event loop's thread."""
        return self._wait(self.exec.run_workflow(source, inputs, on_progress=on_progress, durable=durable, **settings))

    @property
    def cassette(self) -> Cassette | None:
        """The recorded calls that answer, or are written; see `Exec.cassette`."""
        return self.exec.cassette

    @property
    def runs(self) -> SyncRuns:
        """The durable runs; see `Exec.runs`."""
        return SyncRuns(self.exec.runs, self._wait)

    @property
    def schedules(self) -> SyncSchedules:
        """The schedules of durable runs; see `Exec.schedules`."""
        return SyncSchedules(self.exec.schedules, self._wait)

    def stream_code(self, code: str, **settings: Unpack[CodeSettings]) -> Iterator[CodeEvent]:
        """Run code and yield what it does; see `Exec.stream_code`. Closing the iterator stops the code."""
        return self._each(self.exec.stream_code(code, **settings))

    def session(self, **settings: Unpack[CodeSettings]) -> SyncCodeSession:
        """Return a sandbox that keeps its state: `with ex.session() as s: s.execute_code("x = 1")`; see
        `Exec.session`.
        """
        return SyncCodeSession(self.exec.session(**settings), self._wait, self._finish)

    def _each(self, events: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while (event := self._wait(_next(events))) is not None:
                yield event
        finally:
            self._finish(_close(events))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        loop: asyncio.AbstractEventLoop | None = None
        try:
            self._refuse_own_thread()
            with self._lock:  # so that no work arrives after `close` has stopped the loop
                loop = self._running_loop()
                call = _AwaitedCall(self)
                token = _AROUND.set((*_AROUND.get(), call))
                try:
                    call.future = future = asyncio.run_coroutine_threadsafe(work, loop)
                finally:
                    _AROUND.reset(token)
        except BaseException:
            if loop is None:
                work.close()
            else:  # Ctrl-C came when the work may have begun, in the loop's thread: only there can it be stopped
                loop.call_soon_threadsafe(_abandon, work)
            raise
        try:
            return future.result()
        except CancelledError:  # only `close` cancels what other threads wait for
            raise ClosedError("the call was stopped: this Exec was closed in another thread") from None
        except BaseException:
            future.cancel()  # on Ctrl-C the work must not go on unseen
            raise

    def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for what ends a stream or a session; `close` has ended them all."""
        if self._closed:
            work.close()
        else:
            self._wait(work)

    def _is_left(self) -> bool:
        """Return whether the event loop's thread has stayed in the process that this one was forked from."""
        return self._thread is not None and self._forks != forks.count

    def _refuse_own_thread(self) -> None:
        if self._is_left():
            raise ConfigurationError(
                "this Exec was in use when the process was forked, and the thread of its event loop has stayed in the "
                "parent; make a new Exec in the child"
            )
        if threading.current_thread() is self._thread:
            raise ConfigurationError("a blocking call on the event loop's own thread would wait for itself; await exec")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise closed_error()
        if self._loop is None:
            self._forks = forks.count
            runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)  # without one it sets the loop of this thread
            self._loop = runner.get_loop()
            self._thread = threading.Thread(target=_serve, args=(runner,), name="toolexec-loop", daemon=True)
            self._thread.start()
        return self._loop


class _AwaitedCall:
    """What a thread has the event loop do, and waits for."""

    __slots__ = ("future", "owner")

    def __init__(self, owner: SyncExec) -> None:
        self.owner = owner
        self.future: Future[Any] | None = None


_AROUND: ContextVar[tuple[_AwaitedCall, ...]] = ContextVar("toolexec_awaited_calls", default=())


class SyncCodeSession:
    """A `CodeSession` whose methods block; `SyncExec.session` gives it. Use it as `with`.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex, ex.session() as session:
    ...     _ = session.execute_code("x = 20")
    ...     session.execute_code("x + 1").value
    21
    """

    def __init__(
        self,
        session: CodeSession,
        wait: Wait,
        finish: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._session = session
        self._wait = wait
        self._finish = finish

    def __enter__(self) -> Self:
        """Raises ConfigurationError and SandboxError, as `CodeSession` does."""
        self._wait(self._session.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(self._session.__aexit__(kind, error, trace))

    def execute_code(self, code: str, **settings: Unpack[CodeSettings]) -> CodeResult:
        """Run more code where the last run ended; see `CodeSession.execute_code`."""
        return self._wait(self._session.execute_code(code, **settings))


class SyncRuns:
    """A `Runs` whose methods block; `SyncExec.runs` gives it."""

    def __init__(self, runs: Runs, wait: Wait) -> None:
        self._runs = runs
        self._wait = wait

    def list(
        self,
        states: Sequence[RunState] = (),
        *,
        caller: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[RunRecord]:
        """Return runs; see `Runs.list`."""
        return self._wait(self._runs.list(states, caller=caller, limit=limit, before=before))

    def get(self, run_id: str) -> RunRecord:
        """Return a run; see `Runs.get`."""
        return self._wait(self._runs.get(run_id))

    def signals(self, run_id: str) -> Sequence[Signal]:
        """Return the signals that were sent to a run; see `Runs.signals`."""
        return self._wait(self._runs.signals(run_id))

    def calls(self, run_id: str) -> Sequence[CallRecord]:
        """Return the tool calls of a run; see `Runs.calls`."""
        return self._wait(self._runs.calls(run_id))

    def resume(self, run_id: str, *, accept_changes: bool = False) -> RunResult:
        """Go on with a run; see `Runs.resume`."""
        return self._wait(self._runs.resume(run_id, accept_changes=accept_changes))

    def follow(
        self,
        run_id: str,
        *,
        on_waits: WaitsCallback | None = None,
        on_progress: ProgressCallback | None = None,
        on_event: EventCallback | None = None,
    ) -> RunResult:
        """Go on with a run until it has ended; see `Runs.follow`. Callbacks are called in the event loop's thread."""
        follow = self._runs.follow
        return self._wait(follow(run_id, on_waits=on_waits, on_progress=on_progress, on_event=on_event))

    def resume_due(self, limit: int = 100) -> dict[str, RunResult]:
        """Go on with all runs that can; see `Runs.resume_due`."""
        return self._wait(self._runs.resume_due(limit))

    def enqueue(
        self,
        queue: str,
        *,
        run_id: str = "",
        priority: int = 0,
        delay: float = 0.0,
        **program: Unpack[ProgramSettings],
    ) -> RunRecord:
        """Put a run into a queue; see `Runs.enqueue`."""
        enqueue = self._runs.enqueue
        return self._wait(enqueue(queue, run_id=run_id, priority=priority, delay=delay, **program))

    def queues(self) -> dict[str, tuple[Queue | None, QueueRecord]]:
        """Return the queues by name; see `Runs.queues`."""
        return self._wait(self._runs.queues())

    def signal(self, run_id: str, name: str, payload: JSONValue = None, *, id: str = "") -> bool:
        """Send a run a signal; see `Runs.signal`."""
        return self._wait(self._runs.signal(run_id, name, payload, id=id))

    def cancel(self, run_id: str) -> bool:
        """Cancel a run; see `Runs.cancel`."""
        return self._wait(self._runs.cancel(run_id))

    def replay(self, run_id: str) -> ReplayReport:
        """Make a run again that has ended; see `Runs.replay`."""
        return self._wait(self._runs.replay(run_id))

    def debug(self, run_id: str) -> SyncDebugSession:
        """Return a session that makes a run again, as `with ex.runs.debug(run_id) as session`; see `Runs.debug`."""
        from toolexec.exec.debug_sync import SyncDebugSession

        return SyncDebugSession(self._runs.debug(run_id), self._wait)

    def fork(
        self,
        run_id: str,
        *,
        at: int | str | None = None,
        answer: JSONValue = ...,
        error: JSONDict | str | None = None,
        source: str | None = None,
        id: str | None = None,
        live: bool = False,
    ) -> Fork:
        """Begin a new run as another one; see `Runs.fork`."""
        return self._wait(self._runs.fork(run_id, at=at, answer=answer, error=error, source=source, id=id, live=live))

    def diff(self, run_a: str, run_b: str) -> RunDiff:
        """Return how two runs differ; see `Runs.diff`."""
        return self._wait(self._runs.diff(run_a, run_b))

    def delete(self, run_id: str) -> bool:
        """Forget a run that has ended; see `Runs.delete`."""
        return self._wait(self._runs.delete(run_id))


class SyncSchedules:
    """A `Schedules` whose methods block; `SyncExec.schedules` gives it."""

    def __init__(self, schedules: Schedules, wait: Wait) -> None:
        self._schedules = schedules
        self._wait = wait

    def add(
        self,
        name: str,
        *,
        cron: str = "",
        tz: str = "UTC",
        every: float = 0.0,
        missed: Missed = "once",
        most: int = 10,
        queue: str = "",
        priority: int = 0,
        replace: bool = False,
        **program: Unpack[ProgramSettings],
    ) -> Schedule:
        """Have a program run again and again; see `Schedules.add`."""
        times: Any = {"cron": cron, "tz": tz, "every": every, "missed": missed, "most": most}
        add = self._schedules.add(name, **times, queue=queue, priority=priority, replace=replace, **program)
        return self._wait(add)

    def list(self) -> list[Schedule]:
        """Return the schedules; see `Schedules.list`."""
        return self._wait(self._schedules.list())

    def remove(self, name: str) -> bool:
        """Forget a schedule; see `Schedules.remove`."""
        return self._wait(self._schedules.remove(name))

    def pause(self, name: str, paused: bool = True) -> bool:
        """Have a schedule make no runs, or again; see `Schedules.pause`."""
        return self._wait(self._schedules.pause(name, paused))


def _serve(runner: asyncio.Runner) -> None:
    with runner:  # on leaving it cancels what still runs, and closes generators and the loop
        runner.get_loop().run_forever()


def _abandon(work: Coroutine[Any, Any, Any]) -> None:
    """Stop *work*, on the event loop that it was given to, whether or not it has begun."""
    for task in asyncio.all_tasks():
        if task.get_coro() is work:
            cancel_begun(task)
            return
    work.close()


async def _added(add: Callable[[], Added]) -> list[BackendStatus]:
    return await add()


async def _next(events: AsyncGenerator[T, None]) -> T | None:
    return await anext(events, None)


async def _close(events: AsyncGenerator[Any, None]) -> None:
    await events.aclose()
