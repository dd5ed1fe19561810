"""The runs of a server: accepted once, queued, started at most once, and remembered for a while after their end."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, TypeVar

from toolexec.errors import (
    InvalidRequestError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.remote import (
    AS_JSON,
    CORES,
    Runtime,
    RuntimeServerSettings,
    effective_profile,
    ranked,
    refuse_above,
)
from toolexec.sandbox import CodeResult, ExecuteRequest, Limits, Output
from toolexec_remote.incarnation import ENDED, NEVER_STARTED, Incarnation
from toolexec_remote.server.admission import Admission, Ticket
from toolexec_remote.server.executing import Execution
from toolexec_remote.server.idle import idle_places
from toolexec_remote.server.journal import Journal, Record
from toolexec_remote.server.metrics import RemoteMetrics
from toolexec_remote.server.past import PastRuns
from toolexec_remote.server.relay import RelayGateway, Route
from toolexec_remote.server.remote_run import Outcome, RemoteRun, Watcher
from toolexec_remote.server.sessions import OpenSession, Sessions
from toolexec_remote.server.shares import Shares
from toolexec_remote.wire import RemoteRequest, encode_result

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)
_MOST_KEPT: Final = 1000
_MOST_KEPT_BYTES: Final = 128 << 20


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
            settings.max_running,
            settings.max_queued,
            self.shares.quota_of,
            monotonic,
            lambda: self.shares.is_shared,
            self.shares.reads,
            self.shares.reading.is_wasteful,
            CORES,
        )
        self.draining = False
        self.building = False  # a sandbox is being made, which a first run would have to wait for
        self._runs: dict[tuple[str, str], RemoteRun] = {}
        self._kept: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._kept_bytes = 0
        self._execution = Execution(runtime, settings)
        self._sessions = Sessions(self.admission, self._execution)
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
        open_session = self._sessions.find(account, session) if session else None
        if session and open_session is None:
            raise InvalidRequestError(f"there is no session {session} here; open a new one")
        ticket = self._placed(account, len(body), open_session)
        run = RemoteRun(account, run_id, body, request, watcher)
        run.ticket = ticket
        if confirmed:
            run.confirmed.set()
        self._runs[account, run_id] = run
        made = self._build_request(run, route)
        work = self._run_to_completion(run, ticket, made, open_session, traceparent)
        run.task = asyncio.create_task(work)
        self.shares.reading.put_off(account)
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

    def _build_request(self, run: RemoteRun, route: Route) -> ExecuteRequest:
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

    def refuse(self, account: str, error: ToolExecError) -> None:
        """Count what a tenant has asked for in vain."""
        self.metrics.refused(error)
        self.shares.reading.waste(account)

    def note_read(self, account: str, size: int) -> None:
        """Note that a tenant has read so many bytes of a result, or will not any more."""
        if size:
            self.shares.unread.give(account, size)
            self.admission.fill()

    @contextmanager
    def unread(self, account: str, size: int) -> Generator[None]:
        """Count so many bytes of a result as not read, in the block."""
        self.shares.unread.add(account, size)
        try:
            yield
        finally:
            self.note_read(account, size)

    def forget(self, run: RemoteRun) -> None:
        """Take a run that is over out of memory; the journal has it."""
        if run.outcome is not None and self._runs.get((run.account, run.id)) is run:
            del self._runs[run.account, run.id]
            if self._kept.pop((run.account, run.id), None) is not None:
                self._kept_bytes -= len(run.outcome.body)

    # -- one run ------------------------------------------------------------------------------------------------------

    async def _run_to_completion(
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
            else:
                await self.shares.unread.wait(run.account, 0)
            began = monotonic()
            self._record_start(run)
            run.state = "running"
            run.watcher.started()
            AS_JSON.set(True)
            gives_way = ticket is not None and self.admission.gives_way(run.account)
            with ranked(apart=self.shares.is_shared, gives_way=gives_way):
                outcome = await self._execution.run(run, request, session and session.guest, traceparent)
        except asyncio.CancelledError:
            if run.state == "running":
                outcome = await _uncut(self._execution.stopped(run, request))
            else:
                outcome = Outcome.refused(run.why_stopped)
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
        self.shares.reading.settle(run.account, is_wasted=not was_run or run.stopped_for is not None)
        if was_run:
            self._kept[key] = monotonic()
            self._kept_bytes += len(outcome.body)
        else:
            self._runs.pop(key, None)
        if run.gateway is not None:
            run.gateway.close()
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
        gateway = RelayGateway(route, self.runtime.limits)
        await self._sessions.open(account, session_id, request, gateway, give_up)

    def close_session(self, account: str, session_id: str) -> asyncio.Task[None] | None:
        """Close a session, which takes no more programs from now on; what runs in it is cancelled. None when it is not
        there."""
        return self._sessions.close(account, session_id)

    def take_back(self, now: float) -> None:
        """Take back a place that is not used for too long, from the tenant that has most beyond its share, where
        another one waits; let in who may have one by now. To be called again and again."""
        self.admission.fill_later()
        for account in self.admission.holds_too_much():
            idle = [*idle_places(account, self.active(), self._sessions)]
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
        await self._sessions.close_all()

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


def _copy(error: ToolExecError) -> ToolExecError:
    made: Any = type(error)(error.message, code=error.code, retryable=error.retryable, details=error.details)
    return made
