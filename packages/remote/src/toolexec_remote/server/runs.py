"""The runs of a server: accepted once, queued, started at most once, and remembered for a while after their end."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from toolexec.errors import (
    InvalidRequestError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.errors import Outcome as CallOutcome
from toolexec.remote import (
    Runtime,
    RuntimeServerSettings,
    Stream,
    Turns,
    effective_profile,
    is_small,
    judged_kind,
    refuse_above,
    walked,
)
from toolexec.sandbox import CodeResult, ExecuteRequest, Limits, Output, SandboxSession
from toolexec_remote.incarnation import ENDED, NEVER_STARTED, Incarnation
from toolexec_remote.server.admission import Admission, Ticket
from toolexec_remote.server.idle import idle_places
from toolexec_remote.server.journal import Journal, Record
from toolexec_remote.server.metrics import RemoteMetrics
from toolexec_remote.server.past import PastRuns
from toolexec_remote.server.relay import RelayGateway, Route
from toolexec_remote.server.shares import Shares
from toolexec_remote.server.tracing import run_span
from toolexec_remote.wire import RemoteRequest, encode_error, encode_result

__all__ = ["OpenSession", "Outcome", "RemoteRun", "RunService", "RunState", "Watcher", "remembered"]

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)
RunState: TypeAlias = Literal["queued", "ready", "running", "done"]
_MOST_KEPT: Final = 1000
_MOST_KEPT_BYTES: Final = 128 << 20
_LOST: Final = (
    "the remote runtime was restarted while this program ran; it was stopped, may have done a part of its work, and is "
    "not repeated"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run: `kind` is `result`, or `refused` for one that never started; `body` is the response, `error`
    what went wrong, if that is known, and `digest` the SHA-256 of the body, where that was computed already."""

    kind: Literal["result", "refused"]
    body: bytes
    error: ToolExecError | None = None
    digest: str = ""

    @classmethod
    def refused(cls, error: ToolExecError) -> Outcome:
        """Return the outcome of a run that never started."""
        error.outcome = CallOutcome.NOT_SENT
        return cls("refused", encode_error(error), error)


class Watcher(Protocol):
    """Is notified of what becomes of a run, on the event loop; but `printed` in any thread."""

    def ready(self, seconds: float) -> None:
        """Note that there is room: `go` is waited for, for so long."""
        ...

    def started(self) -> None:
        """Note that it is recorded, and goes to its sandbox, which may still refuse it."""
        ...

    def printed(self, stream: Stream, text: str) -> None:
        """Note that it has printed something."""
        ...

    def done(self, outcome: Outcome) -> None:
        """Note that it is over."""
        ...


class RemoteRun:
    """One run. `confirmed` is set when its caller wants it started."""

    def __init__(self, account: str, run_id: str, body: bytes, request: RemoteRequest, watcher: Watcher) -> None:
        self.account = account
        self.id = run_id
        self.digest = self.digest_of(body)
        self.request = request
        self.watcher = watcher
        self.state: RunState = "queued"
        self.confirmed = asyncio.Event()
        self.outcome: Outcome | None = None
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.stopped_for: ToolExecError | None = None
        self.has_begun: bool = False  # a task that is cancelled earlier runs none of what frees its place
        self.seconds = 0.0  # what is left of its time limit, as its caller says; 0: all of it
        self.size = len(body)
        self.gateway: RelayGateway | None = None
        self.ready_since = 0.0  # since when its confirmation is waited for

    @property
    def unconfirmed_since(self) -> float:
        """Implement `HeldPlace`."""
        return self.ready_since if self.state == "ready" else 0.0

    @property
    def waits_since(self) -> float:
        """Implement `HeldPlace`."""
        return self.gateway.waits_since if self.state == "running" and self.gateway is not None else 0.0

    @staticmethod
    def digest_of(body: bytes) -> bytes:
        """Return what distinguishes requests."""
        return hashlib.sha256(body).digest()

    def stop(self, why: ToolExecError) -> None:
        """Stop it; it ends with *why*, unless it is over."""
        if self.outcome is None and self.task is not None:
            self.stopped_for = self.stopped_for or why
            if self.has_begun:
                self.task.cancel()

    async def ended(self) -> Outcome:
        """Return the outcome, once there is one."""
        await self.over.wait()
        assert self.outcome is not None
        return self.outcome

    def finish(self, outcome: Outcome) -> None:
        """Keep how it ended, and notify its watcher."""
        self.state, self.outcome = "done", outcome
        self.over.set()
        self.watcher.done(outcome)


@dataclass(slots=True)
class OpenSession:
    """A session of a client, with its place among those that run. `programs` are under way in it; `give_up` closes it,
    and says so."""

    account: str
    guest: SandboxSession
    ticket: Ticket
    give_up: Callable[[], None]
    idle_since: float
    programs: int = 0


class RunService:
    """Takes runs for *runtime* and sees them through. Belongs to one event loop.

    Raises ConfigurationError for a state directory that cannot be used.
    """

    def __init__(
        self, runtime: Runtime, settings: RuntimeServerSettings, metrics: RemoteMetrics, state_directory: Path
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.metrics = metrics
        self.incarnation = Incarnation()
        """This process; what is signed by it is believed of no other one."""
        self.journal = Journal(state_directory, settings.keeps, time())
        self.shares = Shares(settings)
        self.past = PastRuns(settings.keeps, is_shared=lambda: self.shares.is_shared)
        self.admission = Admission(
            settings.max_running, settings.max_queued, settings.quota_of, monotonic, lambda: self.shares.is_shared
        )
        self.draining = False
        self.building = False  # a sandbox is being made, which a first run would have to wait for
        self._runs: dict[tuple[str, str], RemoteRun] = {}
        self._kept: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._kept_bytes = 0
        self._sessions: dict[tuple[str, str], OpenSession] = {}
        self._pinned: dict[str, Runtime] = {}
        self._large = Turns()
        metrics.watch(self.admission, self.shares)

    # -- taking runs --------------------------------------------------------------------------------------------------

    def submit(
        self,
        account: str,
        run_id: str,
        body: bytes,
        request: RemoteRequest,
        *,
        route: Route,
        watcher: Watcher,
        confirmed: bool,
        traceparent: str = "",
        session: str = "",
    ) -> RemoteRun:
        """Return a run that was accepted, and waits or starts.

        Raises SandboxUnavailableError (no room, no quota, draining), SandboxDeniedError and InvalidRequestError: it was
        not accepted, and never starts. A run that is known is for `find` to find.
        """
        self._check(account, run_id, request)
        open_session = self._sessions.get((account, session)) if session else None
        if session and open_session is None:
            raise InvalidRequestError(f"there is no session {session} here; open a new one")
        ticket = self._placed(account, len(body), open_session)
        run = RemoteRun(account, run_id, body, request, watcher)
        if confirmed:
            run.confirmed.set()
        self._runs[account, run_id] = run
        made = self._made(run, route)
        work = self._see_through(run, ticket, made, open_session, traceparent)
        run.task = asyncio.create_task(work)
        return run

    def _placed(self, account: str, size: int, session: OpenSession | None) -> Ticket | None:
        """Return a place for a run, whose request is held from now on; None for one in a session, which has its own."""
        self.shares.hold(account, size, "a request")
        try:
            if session is None:
                return self.admission.enter(account)
            self.admission.pace(account)
        except SandboxUnavailableError:
            self.shares.held.give(account, size)
            raise
        session.programs += 1
        return None

    def _check(self, account: str, run_id: str, request: RemoteRequest) -> None:
        if self.draining:
            raise SandboxUnavailableError(
                "this server is about to end and takes no more runs; use another one, or try again later",
                code="runtime_draining",
                retryable=True,
                details={"retry_after": self.settings.drain_grace},
            )
        name = account, run_id
        if self.past.is_sealed(name):
            raise SandboxUnavailableError("this run was given up before it started; use a new ID", retryable=True)
        if self.past.has_started(name) or name in self._runs or self.journal.find(account, run_id) is not None:
            raise InvalidRequestError(
                f"the run {run_id} is known here already; use a new ID for a new run", code="run_id_taken"
            )
        profile, _ = effective_profile(request.fields["profile"], self.runtime.default_profile)
        if profile not in self.settings.profiles:
            raise SandboxDeniedError(
                f"this server does not run code under the profile {profile}; it has {', '.join(self.settings.profiles)}"
            )
        self.runtime.limits.grant(request.fields["limits"], of="this server")
        refuse_above(
            "timeout",
            request.fields.get("timeout") or 0,
            self.settings.max_timeout,
            setting="max_timeout of this server, or runtime_server.max_timeout in its settings file",
        )

    def _made(self, run: RemoteRun, route: Route) -> ExecuteRequest:
        limit = run.request.output_limit or Output().limit
        output = Output(max(1, min(limit, self.settings.max_output_chars)), run.watcher.printed)
        limits: Limits = run.request.fields["limits"]
        run.gateway = RelayGateway(route, self.runtime.limits.grant(limits, of="this server"))
        return run.request.made(run.gateway, output)

    def find(self, account: str, run_id: str) -> RemoteRun | None:
        """Return a run that is in memory, if only its end."""
        return self._runs.get((account, run_id))

    def recall(self, account: str, run_id: str) -> Record | None:
        """Return what the journal has of a run, be it of an earlier server."""
        return self.journal.find(account, run_id)

    def prove_never(self, account: str, run_id: str, key_id: str) -> str:
        """Return the statement, for those with this key, that a run was not started here, and have it never start; ""
        when it was started, waits, or cannot be remembered."""
        run = self._runs.get((account, run_id))
        if (run is not None and run.outcome is None) or not self.past.seal((account, run_id), monotonic()):
            return ""
        return self.incarnation.state(NEVER_STARTED, key_id, run_id)

    def forget(self, run: RemoteRun) -> None:
        """Take a run that is over out of memory; the journal has it."""
        if run.outcome is not None and self._runs.get((run.account, run.id)) is run:
            del self._runs[run.account, run.id]
            if self._kept.pop((run.account, run.id), None) is not None:
                self._kept_bytes -= len(run.outcome.body)

    # -- one run ------------------------------------------------------------------------------------------------------

    async def _see_through(
        self,
        run: RemoteRun,
        ticket: Ticket | None,
        request: ExecuteRequest,
        session: OpenSession | None,
        traceparent: str,
    ) -> None:
        began = 0.0
        run.has_begun = True
        try:
            if run.stopped_for is not None:
                raise asyncio.CancelledError
            if ticket is not None:
                await self._wait(run, ticket)
            began = monotonic()
            self._record_start(run)
            run.state = "running"
            run.watcher.started()
            outcome = await self._run(run, request, session, traceparent)
        except asyncio.CancelledError:
            outcome = await _uncut(self._stopped(run, request))
        except ToolExecError as error:
            outcome = Outcome.refused(error)
        except Exception as error:
            logger.exception("the run %s failed", run.id)
            failure = SandboxFailedError(f"the server failed: {type(error).__name__}")
            outcome = Outcome("result", encode_result(CodeResult(error=failure)), failure)
        if run.state == "running" and outcome.kind == "result":
            await _uncut(self._write(run, outcome.body))  # while it has its place: who writes much, waits for it
        seconds = monotonic() - began if began else 0.0
        if ticket is not None:
            ticket.leave(seconds)
        if session is not None:
            session.programs -= 1
            session.idle_since = monotonic()
        self._end(run, outcome, seconds)

    def _record_start(self, run: RemoteRun) -> None:
        """Write down that a run starts; raises SandboxUnavailableError when that cannot be done."""
        self.past.start((run.account, run.id))
        try:
            self.journal.start(run.account, run.id, run.digest, time(), self.incarnation.id)
        except sqlite3.Error as error:
            self.past.take_back((run.account, run.id))
            raise SandboxUnavailableError(
                f"this server cannot write down what it starts, so it starts nothing: {error}", retryable=True
            ) from error

    async def _wait(self, run: RemoteRun, ticket: Ticket) -> None:
        """Wait for the turn of a run, and for its caller to want it still."""
        asked = monotonic()
        await ticket.turn
        self.metrics.waited(monotonic() - asked)
        if run.confirmed.is_set():
            return
        run.state, run.ready_since = "ready", monotonic()
        run.watcher.ready(self.settings.go_timeout)
        try:
            async with asyncio.timeout(self.settings.go_timeout):
                await run.confirmed.wait()
        except TimeoutError:
            raise SandboxUnavailableError(
                f"the caller did not confirm the start within {self.settings.go_timeout:g} s; it never started",
                code="queue_full",
                retryable=True,
            ) from None

    async def _run(
        self, run: RemoteRun, request: ExecuteRequest, session: OpenSession | None, traceparent: str
    ) -> Outcome:
        most = min(run.seconds or self.settings.max_timeout, self.settings.max_timeout)
        if request.seconds > most:
            request = replace(request, timeout=most)
        with run_span(run.id, run.account, request, traceparent) as span:
            try:
                result = await self._place(run, request, session).execute(request)
            except ToolExecError as error:
                if error.outcome is CallOutcome.NOT_SENT and not _has_begun(request):
                    return Outcome.refused(error)
                if error.outcome is CallOutcome.NOT_SENT:
                    error = SandboxFailedError(f"the program was lost after it had begun: {error.message}")
                result = CodeResult(stdout=request.output.text(), stderr=request.output.text("stderr"), error=error)
            span.finish(result)
        return await self._outcome(run.account, result)

    def _place(self, run: RemoteRun, request: ExecuteRequest, session: OpenSession | None) -> SandboxSession | Runtime:
        """Return what runs it; raises SandboxUnavailableError when the kind that it asks for is not here."""
        return session.guest if session is not None else self._runtime_for(run.request.sandbox, request.profile)

    def _runtime_for(self, kind: str, profile: str) -> Runtime:
        if not kind:
            return self.runtime
        if kind not in self._pinned:
            named = {
                each: [
                    backend for backend in self.runtime.candidates(each) if kind in (backend.kind, judged_kind(backend))
                ]
                for each in self.settings.profiles
            }
            self._pinned[kind] = Runtime(
                {each: found for each, found in named.items() if found},
                default_profile=self.runtime.default_profile,
                limits=self.runtime.limits,
            )
        pinned = self._pinned[kind]
        if not pinned.candidates(effective_profile(profile, pinned.default_profile)[0]):
            raise SandboxUnavailableError(f"this server has no sandbox {kind} for the profile {profile}")
        return pinned

    async def _stopped(self, run: RemoteRun, request: ExecuteRequest) -> Outcome:
        """Return the outcome of a run that was cancelled."""
        why = run.stopped_for or SandboxFailedError("the server ends; the program was stopped")
        if run.state != "running":
            return Outcome.refused(why)
        result = CodeResult(stdout=request.output.text(), stderr=request.output.text("stderr"), error=why)
        result.tool_calls = request.gateway.tool_calls() if isinstance(request.gateway, RelayGateway) else []
        return await self._outcome(run.account, result)

    async def _outcome(self, account: str, result: CodeResult) -> Outcome:
        """Return the outcome of a run, which is encoded off the event loop where it is large: one of a tenant at a
        time, as threads that compute take the interpreter from the loop, each for 5 ms."""
        if is_small([result.value, result.stdout, result.stderr]) and not result.files:
            return self._encoded(result)
        async with self._large.taken(account, large=True):
            return await walked(lambda: self._encoded(result))

    def _encoded(self, result: CodeResult) -> Outcome:
        """Return the outcome of a run, whose value may be too large, or not JSON."""
        try:
            body = encode_result(result)
            if len(body) <= self.settings.max_message_bytes:
                return Outcome("result", body, result.error, hashlib.sha256(body).hexdigest())
            failure = SandboxFailedError(f"the result has {len(body)} bytes, more than can be sent; return less")
        except InvalidRequestError as error:
            failure = SandboxFailedError(f"the result cannot be sent: {error}")
        return Outcome("result", encode_result(replace(result, value=None, files={}, error=failure)), failure)

    async def _write(self, run: RemoteRun, body: bytes) -> None:
        """Write a large response to the disk."""
        try:
            await self.journal.write_body(run.account, run.id, body)
        except OSError:  # the result is in memory, and its caller waits
            logger.exception("the response of the run %s could not be written", run.id)

    def _end(self, run: RemoteRun, outcome: Outcome, seconds: float) -> None:
        """Record the end of a run. One of which nothing was run is forgotten: its ID may come again."""
        was_run = run.state == "running" and outcome.kind == "result"
        try:
            if was_run:
                self.past.end((run.account, run.id), monotonic())
                digest = outcome.digest or hashlib.sha256(outcome.body).hexdigest()
                statement = self.incarnation.state(ENDED, run.id, digest)
                self.journal.end(run.account, run.id, outcome.body, time(), statement)
            elif run.state == "running":
                self.past.take_back((run.account, run.id))
                self.journal.forget(run.account, run.id)
        except sqlite3.Error:  # the result is in memory, and its caller waits
            logger.exception("the end of the run %s could not be written down", run.id)
        self.metrics.ended(outcome.kind, outcome.error, seconds)
        key = run.account, run.id
        self.shares.held.give(run.account, run.size)
        if was_run:
            self._kept[key] = monotonic()
            self._kept_bytes += len(outcome.body)
        else:
            self._runs.pop(key, None)
        run.finish(outcome)
        self.tidy()

    def tidy(self) -> None:
        """Take the oldest ends out of memory that are too many, or too old."""
        self.past.prune(monotonic())
        while self._kept:
            key, when = next(iter(self._kept.items()))
            is_old = monotonic() - when > self.settings.keeps
            if not is_old and len(self._kept) <= _MOST_KEPT and self._kept_bytes <= _MOST_KEPT_BYTES:
                return
            self.forget(self._runs[key])

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def open_session(
        self, account: str, session_id: str, request: RemoteRequest, route: Route, give_up: Callable[[], None]
    ) -> None:
        """Open a session, which has a place among those that run until it is closed, by *give_up*, too, where it is
        idle and the place is needed. Raises as `submit` does, and as `Runtime.open_session`."""
        self._check(account, session_id, request)
        ticket = self.admission.enter(account)
        try:
            await ticket.turn
            wanted = request.made(RelayGateway(route, self.runtime.limits), Output())
            guest = await self._runtime_for(request.sandbox, wanted.profile).open_session(wanted)
        except BaseException:
            ticket.leave()
            raise
        self._sessions[account, session_id] = OpenSession(account, guest, ticket, give_up, monotonic())

    def close_session(self, account: str, session_id: str) -> asyncio.Task[None] | None:
        """Close a session, which takes no more programs from now on; what runs in it is cancelled. None when it is not
        there."""
        session = self._sessions.pop((account, session_id), None)
        return asyncio.create_task(_close(session)) if session is not None else None

    def take_back(self, now: float) -> None:
        """Take back a place that is not used for too long, from the tenant that has most beyond its share, where
        another one waits. To be called again and again."""
        for account in self.admission.holds_too_much():
            idle = [*idle_places(account, self.active(), self._sessions.values())]
            longest = min(idle, key=lambda place: place.since, default=None)
            if longest is not None and now - longest.since > self.settings.slot_idle:
                self.metrics.taken_back(longest.kind)
                longest.take_back()
                return

    # -- the end ------------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Take no more runs, give back those that have not started, and let those that run end within the grace."""
        self.draining = True
        gone = SandboxUnavailableError(
            "the server ends before this run has started; use another one, or try again later",
            code="runtime_draining",
            retryable=True,
            details={"retry_after": self.settings.drain_grace},
        )
        for run in self.active():
            if run.state in ("queued", "ready"):
                run.stop(_copy(gone))
        await self._until_over(self.settings.drain_grace)
        for run in self.active():
            run.stop(SandboxFailedError("the server had to end while this program ran; it was stopped"))
        await self._until_over(None)
        closing = [self.close_session(*name) for name in [*self._sessions]]
        await asyncio.gather(*(task for task in closing if task is not None), return_exceptions=True)

    def active(self) -> list[RemoteRun]:
        """Return the runs that are not over."""
        return [run for run in self._runs.values() if run.outcome is None]

    async def _until_over(self, seconds: float | None) -> None:
        tasks = [run.task for run in self.active() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()


async def _uncut(work: Coroutine[Any, Any, T]) -> T:
    """Return what *work* gives, be the run stopped meanwhile: its program is over."""
    task = asyncio.create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


def remembered(record: Record) -> Outcome:
    """Return the end that the journal has of a run; that of one that ran when its server died is an error."""
    if record.state == "ended":
        return Outcome("result", record.body)
    lost = SandboxFailedError(_LOST, code="remote_run_lost")
    return Outcome("result", encode_result(CodeResult(error=lost)), lost)


def _has_begun(request: ExecuteRequest) -> bool:
    """Return whether a program has shown that it runs: it has printed, or asked for something."""
    gateway = request.gateway
    return bool(request.output.text() or request.output.text("stderr")) or (
        isinstance(gateway, RelayGateway) and gateway.has_asked
    )


async def _close(session: OpenSession) -> None:
    try:
        await session.guest.aclose()
    finally:
        session.ticket.leave()


def _copy(error: ToolExecError) -> ToolExecError:
    made: Any = type(error)(error.message, code=error.code, retryable=error.retryable, details=error.details)
    return made
