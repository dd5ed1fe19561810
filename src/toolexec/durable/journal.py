"""What is known of durable runs, and the protocol of the stores that keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

RunKind: TypeAlias = Literal["chain", "workflow", "code"]
"""What is run."""
RunState: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""A `queued` run has not begun: a worker takes it from its queue. A `running` one may have lost its process: see
`RunRecord.owner`. The last three are final."""
CallState: TypeAlias = Literal["begun", "done", "failed", "not_done"]
"""`done`, or `failed` where it ended with an error; `not_done` certainly never began. A `begun` call is under way, or
its process died: then its outcome is unknown."""
WaitKind: TypeAlias = Literal["approval", "input", "time", "signal", "settle"]
"""What a run waits for."""
RETRY: Final = "retry"
"""The signal on which a run that cannot go on tries it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Something that a run waits for.

    `step` is the key of the call that waits, `name` what `Journal.signal` must be called with to wake it (empty for
    `time`), `details` the question, the schema or the call to approve. `due` is when it ends by itself, in seconds
    since 1970.
    """

    step: str
    kind: WaitKind
    name: str = ""
    details: JSONObject | None = None
    due: float | None = None
    since: float = 0.0


def decision(why: ToolExecError, now: float) -> Wait:
    """Return what a run waits for that cannot go on: a person who fixes that and sends `RETRY`, or cancels it."""
    return Wait(step="", kind="settle", name=RETRY, details={"error": why.to_dict()}, since=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Something that was sent to a run: once a step has taken it, `taken_by` is the key of that step."""

    id: str
    name: str
    payload: JSONValue = None
    sent: float = 0.0
    sender: str = ""
    taken_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One durable run.

    `source` is the text of the code or workflow, or the steps of the chain as JSON; `digest` stands for it and for
    `settings`, all that the run was started with (inputs, limits, allowed tools, seed, clock). `caller` is who started
    it. `owner` is the process that runs it, until `lease` (seconds since 1970). `result` is that of a run that has
    ended, as JSON-able data. `calls` is how many calls it has begun.
    `updated` is when it was last claimed, began a call, was suspended or ended.
    A run of a `queue` began when it was taken from there, at `started`; of those in it the lowest `priority` is next.
    """

    id: str
    kind: RunKind
    source: str
    digest: str
    settings: JSONObject
    caller: str = ""
    state: RunState = "running"
    created: float = 0.0
    updated: float = 0.0
    owner: str = ""
    lease: float = 0.0
    cancel_asked: bool = False
    waits: tuple[Wait, ...] = ()
    result: JSONObject | None = None
    calls: int = 0
    queue: str = ""
    priority: int = 0
    started: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One tool call of a run.

    `step` is its key, the same in every replay; `number` the order in which the calls were begun. `definition` is a
    digest of the tool's version and schemas, `args` a digest of the arguments. `outcome` is what the call ended with,
    as `durable.outcomes` writes it; `at` the line and column in the source where they are known.
    """

    step: str
    tool: str
    definition: str
    args: str
    number: int = 0
    state: CallState = "begun"
    sent: str = ""
    at: tuple[int, int] | None = None
    began: float = 0.0
    ended: float | None = None
    outcome: JSONObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a workflow after its first `calls` calls were answered."""

    calls: int
    state: JSONDict


class Journal(Protocol):
    """Keeps durable runs. Safe for several threads and processes.

    Each method is one transaction: it happened as a whole or not at all. Methods that take an `owner` raise RunError,
    with nothing written: with the code `run_lost` when the run belongs to another one by now, and with `run_cancelled`
    once a caller asked to cancel it (all but `end` and `finish`). All raise it with the code `run_not_found` for a run
    that is not there, and JournalError when the store cannot be used, is damaged, or is asked for what makes no sense.

    `owner` names one process, as `process.owner.this_owner` does, so that a dead one of the same machine is recognised
    at once; a `/` and more after it distinguishes several runs of the same run in one process.
    """

    is_remote: bool
    """Whether a method may take milliseconds, and should not be called on an event loop."""

    def create(self, run: RunRecord) -> RunRecord:
        """Write down a new run and return it; or return the one that has its ID already, with nothing written.

        It may have its first `owner` and `lease` already. `created` is now where it is 0, and a little later where
        another run has it: no two have the same.
        """
        ...

    def get(self, run_id: str) -> RunRecord:
        """Return a run."""
        ...

    def runs(
        self,
        *,
        states: Sequence[RunState] = (),
        caller: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[RunRecord]:
        """Return runs, those created last first, without `source`, `settings` and `result`: of these states and this
        caller, where given, created earlier than *before*."""
        ...

    def claim(self, run_id: str, owner: str, lease: float) -> RunRecord:
        """Make *owner* the one that runs it for *lease* seconds, unless it has ended; return it as it is then.

        It is `running` from here on, and waits for nothing; one that was to be cancelled is cancelled instead. The
        owner may claim it again. Raises RunBusyError while another owner that lives has it, until its lease is over.
        """
        ...

    def renew(self, run_id: str, owner: str, lease: float) -> None:
        """Keep a run for *lease* seconds from now; 0 gives it up to the next that claims it."""
        ...

    def calls(self, run_id: str, after: int = 0) -> list[CallRecord]:
        """Return the calls of a run but for the first *after*, in the order of their beginning."""
        ...

    def deliveries(self, run_id: str) -> list[list[str]]:
        """Return the groups in which the answers of calls reached the code."""
        ...

    def begin(self, run_id: str, owner: str, call: CallRecord, delivered: Sequence[Sequence[str]] = ()) -> None:
        """Write down that a call is about to be made, and what was delivered before.

        A call of its step that is there without an outcome begins again; one with an outcome is a JournalError. The
        store counts the calls: `number` of the first is 1.
        """
        ...

    def end(self, run_id: str, owner: str, step: str, state: CallState, outcome: JSONObject) -> None:
        """Write down how a call ended: also after a caller asked to cancel the run, as it has happened.

        The same again changes nothing; a call that never began, or has another outcome, is a JournalError.
        """
        ...

    def save(self, run_id: str, owner: str, snapshot: Snapshot) -> None:
        """Keep the state of a workflow, in place of the last one."""
        ...

    def snapshot(self, run_id: str) -> Snapshot | None:
        """Return the last state that was kept."""
        ...

    def suspend(self, run_id: str, owner: str, waits: Sequence[Wait], delivered: Sequence[Sequence[str]] = ()) -> bool:
        """Give the run up until one of *waits* is over; return False, with the run still the owner's and nothing
        written, when a signal that it waits for has come meanwhile, though the step that waits has taken it already."""
        ...

    def signal(self, run_id: str, signal: Signal) -> bool:
        """Keep a signal for a run; return whether the run waits for it now. One with an ID that is there is the same
        signal again. Raises RunError (`run_ended`) when the run has ended."""
        ...

    def signals(self, run_id: str) -> list[Signal]:
        """Return the signals of a run, in the order in which they came."""
        ...

    def take(self, run_id: str, owner: str, step: str, name: str) -> Signal | None:
        """Return the first signal of this name that no other step has taken, and note that *step* has; the same again
        when *step* has one already."""
        ...

    def due(self, now: float, limit: int = 100) -> list[str]:
        """Return the IDs of runs that could go on: a wait is over, a signal they wait for is there, or their process
        has died."""
        ...

    def finish(
        self,
        run_id: str,
        owner: str,
        state: RunState,
        result: JSONObject,
        delivered: Sequence[Sequence[str]] = (),
    ) -> None:
        """Write down how a run ended (`done`, `failed`, `cancelled`), and give it up."""
        ...

    def cancel(self, run_id: str) -> bool:
        """Ask to cancel a run; return whether it is cancelled now. One without a living owner is, at once; the owner of
        another one learns it at its next write. One that has ended stays as it is."""
        ...

    def delete(self, run_id: str) -> bool:
        """Forget a run that has ended; return whether there was one. Raises RunBusyError for one that has not."""
        ...

    def close(self) -> None:
        """Use it no more; closing twice is fine."""
        ...
