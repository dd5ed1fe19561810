"""`Exec.runs`: what can be asked of durable runs, and done with them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from toolexec.durable.journal import CallRecord, RunRecord, RunState, Signal
from toolexec.durable.waits import check_input
from toolexec.exec.queued import QueuedRuns
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.origin import current_origin
from toolexec.model.settings import check_ranges, checked

if TYPE_CHECKING:
    from toolexec.code.types import EventCallback
    from toolexec.exec.debug import DebugSession
    from toolexec.exec.diff import RunDiff
    from toolexec.exec.fork import Fork
    from toolexec.exec.replaying import ReplayReport
    from toolexec.exec.run_results import RunResult, WaitsCallback
    from toolexec.model.call import ProgressCallback

_IDLE_SECONDS: Final = 1.0
_HOMES: Final = {
    "EventCallback": "toolexec.code.types",
    "ProgressCallback": "toolexec.model.call",
    "RunResult": "toolexec.exec.run_results",
    "WaitsCallback": "toolexec.exec.run_results",
}


class Runs(QueuedRuns):
    """The durable runs in the journal of an `Exec`, its own and those of other processes.

    Every method raises ConfigurationError without a journal, JournalError when it cannot be used, and RunError with the
    code `run_not_found` for a run that is not there.
    """

    @checked("runs.list")
    async def list(
        self,
        states: Sequence[RunState] = (),
        *,
        caller: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[RunRecord]:
        """Return runs, those created last first, without their source, settings and result.

        *states* (`queued`, `running`, `waiting`, `done`, `failed`, `cancelled`), *caller* and *before* (seconds since
        1970) narrow them down. *limit* is 0 or more.
        """
        check_ranges("runs.list", least={"limit": limit})
        return await self._durable().store.runs(states=states, caller=caller, limit=limit, before=before)

    @checked("runs.get")
    async def get(self, run_id: str) -> RunRecord:
        """Return a run: its state, what it waits for, its source, settings and result."""
        return await self._durable().store.get(run_id)

    @checked("runs.calls")
    async def calls(self, run_id: str) -> list[CallRecord]:
        """Return the tool calls of a run, in the order in which they were begun."""
        return await self._durable().store.calls(run_id)

    @checked("runs.signals")
    async def signals(self, run_id: str) -> list[Signal]:
        """Return the signals that were sent to a run, in that order; one that nothing has taken has no `taken_by`. For
        an engine it raises JournalError while no worker answers."""
        return await self._durable().store.signals(run_id)

    @checked("runs.resume")
    async def resume(self, run_id: str, *, accept_changes: bool = False) -> RunResult:
        """Go on with a run where it stopped, for the caller that began it, and return its result, or that of then.

        The result's error is a RunWaitingError when it waits again, and a RunError when it cannot go on: its program
        diverged, or was lost to another process. *accept_changes* goes on although tools that it has called are gone,
        or have other versions or schemas by now. Raises RunBusyError while another process has it; for *accept_changes*
        of a run on an engine ConfigurationError, as calls get the tools as its workers have them.
        """
        return await self._durable().resume(run_id, accept_changes=accept_changes)

    @checked("runs.follow", homes=_HOMES)
    async def follow(
        self,
        run_id: str,
        *,
        on_waits: WaitsCallback | None = None,
        on_progress: ProgressCallback | None = None,
        on_event: EventCallback | None = None,
    ) -> RunResult:
        """Go on with a run until it has ended, and whenever it can, however long it waits; return its result.

        *on_waits* receives what it waits for, and nothing once it goes on; *on_progress* and *on_event* report its
        steps and calls. While another process has the run, this waits for what comes of it. The result's error is a
        RunError when the run cannot go on. Cancelling this leaves the run to the one who resumes it.
        """
        from toolexec.exec.run_results import RunHooks

        hooks = RunHooks(on_progress=on_progress, on_event=on_event)
        return await self._durable().followers.follow(run_id, hooks, on_waits)

    @checked("runs.resume_due")
    async def resume_due(self, limit: int = 100) -> dict[str, RunResult]:
        """Go on with all runs that can: what they waited for is there, their process has died, or their schedule or
        queue has them begin, by the limits of that. Return their results, by ID; those that another process takes
        meanwhile, or that cannot be resumed, are left out, and logged. Raises ConfigurationError for an engine, whose
        workers do this."""
        check_ranges("runs.resume_due", least={"limit": limit})
        from toolexec.exec.working import RunWorker

        durable = self._durable()
        return await durable.under_way.run(RunWorker(durable).drain(limit))

    @checked("runs.work", homes=_HOMES)
    async def work(
        self, *, idle: float = _IDLE_SECONDS, on_result: Callable[[str, RunResult], None] | None = None
    ) -> None:
        """Go on with runs whenever they can, until it is cancelled; look for them every *idle* seconds. That takes from
        the queues of the options, by their limits, and makes the runs of schedules. Raises ClosedError when the Exec is
        closed, whose runs are given back to the journal then."""
        check_ranges("runs.work", least={"idle": idle})
        from toolexec.exec.working import RunWorker

        durable = self._durable()
        await durable.under_way.run(RunWorker(durable, on_result).work(idle))

    @checked("runs.signal")
    async def signal(self, run_id: str, name: str, payload: JSONValue = None, *, id: str = "") -> bool:
        """Send a run a signal, with *payload* (JSON), and return whether it waits for it just now.

        It answers what the run waits for under that name: `approve:STEP` (`once`, `session`, `always`, true, or no),
        `input:STEP`, `settle:STEP` (whether a call has done its work), or a name of the program's own. It is kept where
        the run does not wait for it yet. Signals with the same *id* are one. Raises RunError with the code `run_ended`,
        and InputValidationError for an answer that does not fit what was asked for.
        """
        store = self._durable().store
        run = await store.get(run_id)
        for wait in run.waits:
            if wait.name == name and wait.kind == "input":
                check_input(payload, (wait.details or {}).get("schema"))
        sender = current_origin().caller.id
        signal = Signal(id=id or uuid.uuid4().hex, name=name, payload=payload, sent=time.time(), sender=sender)
        waited = await store.signal(run_id, signal)
        self._durable().followers.wake(run_id)
        return waited

    @checked("runs.cancel")
    async def cancel(self, run_id: str) -> bool:
        """Cancel a run; return whether it has ended by that. Another process that has it learns of it within a second
        or so, stops it, and keeps that it was cancelled."""
        return await self._durable().store.cancel(run_id)

    @checked("runs.replay")
    async def replay(self, run_id: str) -> ReplayReport:
        """Make a run again that is done or failed, with every answer from the journal and nothing called, and return
        whether it does the same."""
        from toolexec.exec.replaying import replay_run

        return await replay_run(self._durable(), run_id)

    @checked("runs.debug")
    def debug(self, run_id: str) -> DebugSession:
        """Return a session that makes a run again offline, step by step, as `async with ex.runs.debug(run_id) as s`;
        see `DebugSession`, also for what opening it raises."""
        from toolexec.exec.debug import DebugSession

        return DebugSession(lambda: self._durable().offline, lambda: self._durable().recording(run_id))

    @checked("runs.fork")
    async def fork(
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
        """Begin a new run that does what another one did up to call *at* (its number from 1 on, or its step), gets
        *answer* or *error* for that call, and goes on from there; return it, with its result.

        Answers of calls before come from the other run's journal. From there on, a call is made on real tools with
        *live*, by the same gate as ever; without it the new run stops at the first call that nothing answers, with a
        RunError of the code `run_unanswered`, and waits until you resume it. *source* is a changed program; without
        *at* the answers are used until it makes another call. *id* is that of the new run (default: the run's,
        with `.fork-1`). It belongs to the caller who forks.

        Raises RunError for a run or call that is not there, or with the code `run_diverged` for a changed program that
        does something else before it comes to the call; RunBusyError for a run that runs now; InputValidationError for
        an answer that the tool would not give; ConfigurationError for what makes no sense.
        """
        from toolexec.exec.fork import UNSET, Change

        change = Change(at=at, answer=UNSET if answer is ... else answer, error=error, source=source)
        return await self._durable().fork(run_id, change, new_id=id, live=live)

    @checked("runs.diff")
    async def diff(self, run_a: str, run_b: str) -> RunDiff:
        """Return how two runs differ: their calls, step by step, and what they came to."""
        from toolexec.exec.diff import diff_runs

        durable = self._durable()
        return diff_runs(*await durable.compared(run_a), *await durable.compared(run_b))

    @checked("runs.delete")
    async def delete(self, run_id: str) -> bool:
        """Forget a run that has ended; return whether there was one. Raises RunBusyError for one that has not."""
        return await self._durable().store.delete(run_id)
