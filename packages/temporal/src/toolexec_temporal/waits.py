"""What a run on Temporal waits for, and what its runner knows of its journal: the state of its workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from temporalio import workflow

from toolexec.journal import (
    RESUMED,
    CallRecord,
    Index,
    JSONDict,
    JSONObject,
    JSONValue,
    Signal,
    Wait,
    WaitKind,
)
from toolexec.journal import Waits as OfAllEngines


class LoggedRun(Protocol):
    """The workflow of a run, which keeps its calls and signals."""

    run_id: str

    @property
    def is_resumed(self) -> bool:
        """Whether the run was resumed."""
        ...

    def note(self, call: CallRecord, delivered: Sequence[Sequence[str]]) -> None:
        """Record a call that is about to be made."""
        ...

    def note_end(self, step: str, state: str, outcome: Mapping[str, Any]) -> None:
        """Record its outcome."""
        ...

    def signal_for(self, step: str, name: str) -> JSONDict | None:
        """Return the signal that a step has taken, or the first of this name that none has."""
        ...


class Log:
    """What the runner of a run knows of the journal: here that is the workflow's own state."""

    is_remote = False

    def __init__(self, run: LoggedRun) -> None:
        self.run_id: str = run.run_id
        self._run = run

    def begin(self, call: CallRecord, delivered: Sequence[Sequence[str]] = ()) -> None:
        """Record a call that is about to be made, and what was delivered before."""
        self._run.note(call, delivered)

    def end(self, step: str, state: str, outcome: Mapping[str, Any]) -> None:
        """Record the outcome of a call."""
        self._run.note_end(step, state, outcome)

    def find(self, step: str, name: str) -> bool:
        """Return whether there is a signal for a step."""
        return self._run.signal_for(step, name) is not None

    @property
    def is_resumed(self) -> bool:
        """Whether a held run may make calls by now."""
        return self._run.is_resumed

    def take(self, step: str, name: str) -> Signal | None:
        """Return the signal for a step, which is its own from now on."""
        signal = self._run.signal_for(step, name)
        if signal is None:
            return None
        signal["taken_by"] = step
        return Signal(**signal)


class Waits(OfAllEngines):
    """What a run on Temporal waits for: by timers and signals of its workflow, for as long as it takes."""

    def __init__(self, log: Log, index: Index) -> None:
        super().__init__(log, index, clock=workflow.time)
        self._signals = log

    async def question(self, record: CallRecord, kind: WaitKind, details: JSONObject) -> JSONValue:
        """Return what was answered to a question about a call: whether it may be made, or whether it was done."""
        name = f"{'approve' if kind == 'approval' else kind}:{record.step}"
        signal = await self._until(record, kind, name, details, None)
        return signal.payload if signal is not None else None

    async def until_resumed(self, record: CallRecord) -> None:
        """Return once a held run may make its calls."""
        if self._signals.is_resumed:
            return
        step, details = record.step, {"tool": record.tool}
        self.open[step] = Wait(step=step, kind="signal", name=RESUMED, details=details, since=record.began)
        try:
            await workflow.wait_condition(lambda: self._signals.is_resumed)
        finally:
            del self.open[step]

    async def _until(
        self, record: CallRecord, kind: WaitKind, name: str, details: JSONObject | None, due: float | None
    ) -> Signal | None:
        step = record.step
        self.open[step] = Wait(step=step, kind=kind, name=name, details=details, due=due, since=record.began)
        left = None if due is None else timedelta(seconds=max(due - workflow.time(), 0.001))
        try:
            await workflow.wait_condition(lambda: bool(name) and self._signals.find(step, name), timeout=left)
        except TimeoutError:
            return None
        finally:
            del self.open[step]
        return self._signals.take(step, name)
