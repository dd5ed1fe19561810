"""Code as the facade runs it: one executor over the sandboxes that the options allow."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from toolexec.code.engine import Engine
from toolexec.code.executor import CodeConfig, Executor, check_trial
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import SKILL, CodeEvent, CodeResult, EventCallback, ExecuteRequest
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.exec.code_session import CodeSession
from toolexec.exec.home import Home
from toolexec.exec.options import Options
from toolexec.exec.scope import Scope
from toolexec.exec.sources import Sources
from toolexec.exec.under_way import UnderWay
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict
from toolexec.model.languages import ALIASES, TYPED, base_language
from toolexec.model.origin import CURRENT, HERE
from toolexec.model.settings import check_ranges, check_settings
from toolexec.run.admission import admit, begun
from toolexec.run.chain import notify
from toolexec.run.run_request import RunKind, RunRequest
from toolexec.run.runner import Runner
from toolexec.run.types import OnError
from toolexec.runtime.priority import COMPANY, part_of_cores, ranked
from toolexec.runtime.router import Runtime, effective_profile
from toolexec.runtime.sandboxes import SandboxSettings, make_runtime

if TYPE_CHECKING:
    from toolexec.exec.recorded import RunRecordings
    from toolexec.run.code_shares import CodeShares
    from toolexec.run.gate import Gate

_OPT_IN = "unsafeOptIn"
_NO_LIMITS = Limits()


class CodeSettings(TypedDict, total=False):
    """How one run of code differs from the options; see `ExecuteRequest`.

    `max_tool_calls` is short for that of `limits` (0: the options'); `unsafe_opt_in` allows the profile `dev`.
    """

    language: str
    timeout: float | None
    max_tool_calls: int
    allowed_tools: Collection[str] | None
    env: Mapping[str, str]
    files: Mapping[str, bytes]
    limits: Limits
    profile: str
    args: Sequence[str]
    stdin: bytes
    seed: int | None
    now: float | None
    best_effort: bool
    on_event: EventCallback | None
    metadata: Mapping[str, Any]
    unsafe_opt_in: bool
    on_error: OnError
    dry_run: bool


class WorkflowSettings(TypedDict, total=False):
    """How one run of a workflow differs from the options; see `CodeSettings`."""

    timeout: float | None
    max_tool_calls: int
    allowed_tools: Collection[str] | None
    limits: Limits
    now: float | None
    on_event: EventCallback | None
    on_error: OnError
    dry_run: bool


class _Languages:
    """Workflows run in this process, all else in the sandboxes of a runtime."""

    keeps_deadline = True

    def __init__(self, runtime: Callable[[], Runtime], under_way: UnderWay) -> None:
        self._runtime = runtime
        self._under_way = under_way
        self._workflows: Engine | None = None

    @property
    def languages(self) -> frozenset[str]:
        return self._runtime().languages | {"workflow"}

    async def execute(self, request: ExecuteRequest, tools: Tools, /) -> CodeResult:
        if request.language != "workflow":
            return await self._under_way.worked(self._runtime().execute(request, tools))
        if self._workflows is None:
            from toolexec.workflow.engine import WorkflowEngine

            self._workflows = WorkflowEngine()
        return await self._under_way.worked(self._workflows.execute(request, tools))


class CodeRuns:
    """Runs code for one `Exec`; the sandboxes are made at the first run."""

    def __init__(
        self,
        options: Options,
        scope: Scope,
        sources: Sources,
        runner: Runner,
        home: Home,
        recordings: Callable[[], RunRecordings | None] = lambda: None,
    ) -> None:
        self._recordings = recordings
        self._options = options
        self._gate = options.own_gate
        # a gate must not be asked about a run that asks for too much; without one the executor refuses it as early
        self._asked = self._merged if self._gate is None else self.request
        self._scope = scope
        self._sources = sources
        self._runner = runner
        self._runtime: Runtime | None = None
        self._executor: Executor | None = None
        self._home = home

    def enter(self) -> None:
        """Raises ConfigurationError where code cannot run: on another event loop than before, in a forked child."""
        self._home.enter()

    @property
    def in_use(self) -> bool:
        """Whether code has run, or may have."""
        return self._runtime is not None or self._executor is not None

    @property
    def runtime(self) -> Runtime:
        """The router that chooses the sandbox; raises ConfigurationError when code is switched off or the Exec is
        closed."""
        if not self._options.enable_code_execution:
            raise ConfigurationError("code execution is switched off; enable it with Exec(enable_code_execution=True)")
        self._sources.check_open()
        if self._runtime is None:
            backends = self._options.runtime_backends
            if backends is None or isinstance(backends, SandboxSettings):
                self._runtime = make_runtime(backends)
            else:
                self._runtime = Runtime(backends)
        return self._runtime

    @property
    def under_way(self) -> UnderWay:
        """The runs of the Exec that closing stops."""
        return self._sources.under_way

    @property
    def recordings(self) -> RunRecordings | None:
        """What records a share of the runs; None where none are."""
        return self._recordings()

    def run(
        self, request: ExecuteRequest, *, asks: bool = True, counts: bool = True
    ) -> AbstractAsyncContextManager[CodeRun]:
        """Open one run, with what its origin may know of; set its `failure` when it failed. Raises as `runtime` and
        `enter` do, and, at the start of the block, what `begun` raises for *asks* and *counts*; a workflow needs no
        runtime."""
        self.enter()
        self.check_on(request)
        executor = self.executor
        if self._gate is not None:
            return self._decided(self._gate, executor.config, request, asks=asks, counts=counts)
        origin = CURRENT.get()
        origin = origin.within("code", "") if origin is not HERE else HERE
        return _Undecided(executor, request if origin is request.origin else request.given(origin=origin))

    @asynccontextmanager
    async def _decided(
        self, gate: Gate, config: CodeConfig, request: ExecuteRequest, *, asks: bool, counts: bool
    ) -> AsyncGenerator[CodeRun, None]:
        asked = self.asked(request)
        async with begun(gate, asked, asks=asks, counts=counts) as scope:
            assert config.index is not None
            assert config.docs is not None
            index, docs = gate.view(config.index, config.docs, scope.origin)
            run = CodeRun(Executor(replace(config, index=index, docs=docs)), request.given(origin=scope.origin))
            with _ranked(gate.code_shares, asked):
                yield run
            scope.failure = run.failure

    def asked(self, request: ExecuteRequest) -> RunRequest:
        """Return the run as the gate decides on it. Raises InvalidRequestError for an unknown profile."""
        code = request.code.encode(errors="surrogatepass")
        language = self.language(request)
        details = {"language": language, "bytes": len(code), "sha256": hashlib.sha256(code).hexdigest()}
        shown: JSONDict = {"language": language, "code": request.code}
        if language == "workflow":
            kind: RunKind = "skill" if request.metadata.get(SKILL) else "workflow"
            return RunRequest(kind=kind, origin=CURRENT.get(), details=details, args=shown)
        profile, _ = effective_profile(request.profile, self._options.security_profile)
        shown["profile"] = profile
        spoken = base_language(language)
        return RunRequest(
            kind="code", origin=CURRENT.get(), profile=profile, language=spoken, details=details, args=shown
        )

    def language(self, request: ExecuteRequest) -> str:
        """Return the language of a request by its usual name."""
        language = (request.language or self._options.default_language).lower()
        return ALIASES.get(language, language)

    @property
    def executor(self) -> Executor:
        """What counts, limits and traces."""
        if self._executor is None:
            options = self._options
            self._executor = Executor(
                CodeConfig(
                    index=self._scope.index,
                    docs=self._scope.docs,
                    run=self.under_way.calls_by(self._runner),
                    engine=_Languages(lambda: self.runtime, self.under_way),
                    default_timeout=options.default_timeout,
                    max_timeout=options.max_timeout,
                    default_language=options.default_language,
                    limits=options.code_limits.narrow(Limits(max_tool_calls=options.max_tool_calls)),
                    default_tool_calls=options.tool_calls,
                    result_bytes=options.result_bytes,
                )
            )
        return self._executor

    def request(self, code: str, settings: CodeSettings, *more: CodeSettings) -> ExecuteRequest:
        """Return the request for one run; raises ConfigurationError for unknown settings and invalid values, and
        InvalidLimitsError."""
        request = self._merged(code, settings, *more)
        self.executor.granted(request)
        return request

    def check_on(self, request: ExecuteRequest) -> None:
        """Raise ConfigurationError where code is switched off, which workflows are not, or the Exec is closed."""
        if self.language(request) == "workflow":
            self._sources.check_open()
        else:
            _ = self.runtime

    def check(self, request: ExecuteRequest, *, here: bool) -> None:
        """Raise InvalidRequestError and ConfigurationError for a durable run that can begin at no time; *here*, where
        it begins in this process, also by its sandboxes. Else they are those of the workers."""
        language = self.language(request)
        if language == "workflow":
            return
        request.check()
        spoken = TYPED.get(language, language)
        check_trial(request, spoken)
        effective_profile(request.profile, self._options.security_profile)
        if here and self._options.enable_code_execution:
            self.runtime.check_repeatable(request.given(language=spoken))

    def _merged(self, code: str, settings: CodeSettings, *more: CodeSettings) -> ExecuteRequest:
        """Return the request before it is known whether it asks for too much: the executor refuses that, too."""
        groups = [group for group in (settings, *more) if group]
        for group in groups:
            check_settings("execute_code", CodeSettings, group)
        merged: dict[str, Any] = {}
        limits = _NO_LIMITS
        opted_in = self._options.unsafe_opt_in
        for group in groups:
            own: dict[str, Any] = dict(group)
            asked: Limits = own.pop("limits", None) or _NO_LIMITS
            if calls := own.pop("max_tool_calls", None):
                asked = asked.narrow(Limits(max_tool_calls=calls))
            limits = limits.grant(asked, of="the session")  # the first group has no limits of a session before it
            opted_in = own.pop("unsafe_opt_in", False) or opted_in
            merged |= own
        merged["profile"] = merged.get("profile") or self._options.security_profile
        request = ExecuteRequest(code=code, limits=limits, **merged)
        if opted_in and _OPT_IN not in request.metadata:
            request = replace(request, metadata={**request.metadata, _OPT_IN: True})
        if request.now is not None:
            check_ranges("code", least={"now": request.now})
        return request

    async def execute(self, code: str, settings: CodeSettings) -> CodeResult:
        """Run code; see `Exec.execute_code`."""
        return await self.run_request(self._asked(code, settings))

    async def run_workflow(
        self,
        source: str,
        inputs: Mapping[str, object] | None,
        settings: WorkflowSettings,
        on_progress: ProgressCallback | None = None,
    ) -> CodeResult:
        """Run a workflow; see `Exec.run_workflow`."""
        check_settings("run_workflow", WorkflowSettings, settings)
        own: dict[str, Any] = dict(settings)
        if on_progress is not None:
            own["on_event"] = progress_of(on_progress, own.get("on_event"))
        asked: Any = {"language": "workflow", "metadata": {"inputs": inputs or {}}, **own}
        request = self.request(source, asked)
        if on_progress is None:
            return await self.run_request(request)
        notify(on_progress, 0, None, "started")
        result = await self.run_request(request)
        notify(on_progress, len(result.tool_calls), len(result.tool_calls), "completed" if result.ok else "error")
        return result

    async def run_request(
        self,
        request: ExecuteRequest,
        change: Callable[[CodeConfig], CodeConfig] | None = None,
        *,
        asks: bool = True,
    ) -> CodeResult:
        """Run what `request` has made, as one run that the gate knows of; starts the backends first. *change* puts the
        parts of a durable run into the executor; see `begun` for *asks*."""
        return await self.under_way.run(self._run_request(request, change, asks=asks))

    async def _run_request(
        self, request: ExecuteRequest, change: Callable[[CodeConfig], CodeConfig] | None, *, asks: bool
    ) -> CodeResult:
        if self._sources.pending:
            await self._sources.start()
        recordings = self.recordings if change is None else None
        recorded = recordings.begin_code(self, request) if recordings is not None else None
        if recorded is not None:
            request, change = recorded.request, recorded.change
        async with self.run(request, asks=asks) as run:
            executor = run.executor if change is None else Executor(change(run.executor.config))
            result = await executor.execute(run.request)
            run.failure = result.error
        if recorded is not None:
            await recorded.write(result)
        if request.on_event is not None:
            await asyncio.sleep(0)  # the events of what has happened come before the result
        return result

    async def stream(self, code: str, settings: CodeSettings) -> AsyncGenerator[CodeEvent, None]:
        """Run code and yield what happens; see `Exec.stream_code`."""
        request = self.request(code, settings)
        if self._sources.pending:
            await self._sources.start()
        events: asyncio.Queue[CodeEvent | None] = asyncio.Queue()
        also = request.on_event

        def hear(event: CodeEvent) -> None:
            events.put_nowait(event)
            if also is not None:
                also(event)

        work = asyncio.create_task(self.run_request(replace(request, on_event=hear)))
        work.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(events.put_nowait, None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield CodeEvent(kind="done", result=work.result())
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])

    @asynccontextmanager
    async def held(self, request: ExecuteRequest) -> AsyncGenerator[None, None]:
        """Hold a sandbox for a session in the block, where code may run in it at all. Each run in it is decided on as
        well, and does not count towards the caller's share again. Raises PolicyError and RateLimitedError."""
        gate = self._gate
        if gate is None:
            yield
            return
        run = self.asked(request)
        await admit(gate, run, asks=False)
        with gate.code_shares.taken(run) if gate.code_shares is not None else nullcontext():
            yield

    def session(self, settings: CodeSettings) -> CodeSession:
        """Return a sandbox that keeps its state; see `Exec.session`."""
        return CodeSession(self, settings)

    async def aclose(self) -> None:
        """Stop all code and close the sandboxes."""
        if self._runtime is not None:
            await self._runtime.aclose()


def _ranked(shares: CodeShares | None, run: RunRequest) -> AbstractContextManager[None]:
    """Run a program of a server's caller apart from the server, and have it leave the cores to what is done for other
    callers where its own has its part of them already."""
    here = COMPANY.get()
    if here is None or run.kind != "code":
        return nullcontext()
    others = here() - 1
    gives_way = shares is not None and others > 0 and shares.count(run) > part_of_cores(1, others)
    return ranked(apart=True, gives_way=gives_way)


def progress_of(on_progress: ProgressCallback, also: EventCallback | None) -> EventCallback:
    """Return what reports the tool calls of a run as its progress."""
    done = 0

    def receive(event: CodeEvent) -> None:
        nonlocal done
        if event.kind == "call_end" and event.call is not None:
            done += 1
            notify(on_progress, done, None, event.call.tool_id)
        if also is not None:
            also(event)

    return receive


@dataclass(slots=True)
class CodeRun:
    """What one run of code is made with, and how it failed, if it did."""

    executor: Executor
    request: ExecuteRequest
    failure: ToolExecError | None = None


class _Undecided(CodeRun):
    """A run that no gate decides on, as the block in which it is open."""

    __slots__ = ()

    async def __aenter__(self) -> CodeRun:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass
