"""Calls of a run that is recorded, and not durable: they are kept in memory until it has ended."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, Protocol, runtime_checkable

import toolexec.durable.clock as host_clock
from toolexec.backend.here import Wait as WaitHere
from toolexec.code.deliveries import is_timer
from toolexec.durable.engine import DurableEngine
from toolexec.durable.journal import CallRecord, CallState, RunKind, RunRecord
from toolexec.durable.outcomes import called_off, outcome_of, outcome_of_error
from toolexec.durable.replay import TOOK, Replay
from toolexec.durable.runner import BRIEF
from toolexec.errors import ClosedError, ConfigurationError, Outcome, ToolExecError
from toolexec.model.arguments import RefusedArgs
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.redaction import redactor
from toolexec.run.large import Budget, encode_large, is_small, off_loop
from toolexec.run.runner import Runner, ThreadRunner, last_event, thread_runner
from toolexec.run.types import Result

RECORDED: Final = "recorded"
"""The setting of a run that was recorded while it was made, without secrets, and of its forks."""
RECORDED_PREFIX: Final = "recorded:"
"""How the IDs of recorded runs begin, and no others do."""
_encode: Final = json.JSONEncoder(allow_nan=False).encode
_LONG: Final = ("value", "reply", "error", "raised", "warnings")
_SCALARS: Final = frozenset({int, float, bool, type(None)})


@runtime_checkable
class RecordingStore(Protocol):
    """A journal that keeps recorded runs, too. Raises as `Journal` does."""

    def record(self, run: RunRecord, calls: Sequence[CallRecord], delivered: Sequence[Sequence[str]]) -> None:
        """Write down a run that has ended, with all of its calls, at once."""
        ...

    def forget_recorded(self, keep: int, before: float) -> int:
        """Forget some of the recorded runs that are more than the last *keep*, or were created before a time, in
        seconds since 1970; return how many."""
        ...


def recording_store(journal: object) -> RecordingStore:
    """Return a journal as one that keeps recordings. Raises ConfigurationError for an engine, which keeps only what it
    runs itself, and for a journal that keeps none."""
    if isinstance(journal, RecordingStore):
        return journal
    is_engine = isinstance(journal, DurableEngine)
    what = "an engine keeps what it runs itself" if is_engine else "this one does not"
    raise ConfigurationError(
        f"record needs a journal that keeps other runs, too, and {what}: leave record out, or have an Exec with a file "
        "or PostgreSQL as its journal record its runs",
        details={"setting": "record"},
    )


def hidden_in(run: RunRecord) -> Callable[[JSONObject], JSONValue] | None:
    """Return what the arguments of a run are compared without; None for one that was recorded as it is."""
    return redactor.value if run.settings.get(RECORDED) else None


class RecordedCall:
    """One call: *args* and *outcome* are JSON-able data. One whose outcome is not known has none."""

    __slots__ = ("args", "at", "began", "ended", "outcome", "state", "step", "tool")

    def __init__(self, step: str, tool: str, args: JSONObject, at: tuple[int, int] | None, began: float) -> None:
        self.step = step
        self.tool = tool
        self.args = args
        self.at = at
        self.began = began
        self.ended: float | None = None
        self.state: CallState = "begun"
        self.outcome: JSONDict | None = None


class _Live(Replay):
    """Keeps in which groups answers reach the code of a run that nothing goes on with."""

    is_durable = False

    def __init__(self, run_id: str, kind: RunKind, calls: dict[str, RecordedCall]) -> None:
        super().__init__(run_id, kind)
        self._calls = calls

    def is_known(self, step: str) -> bool:
        """Implement `Deliveries.is_known`."""
        call = self._calls.get(step)
        return call is not None and call.outcome is not None


class Recorder:
    """Makes the calls of one run by *inner*, and keeps them, and what else a replay needs, in memory.

    `replay` is for the engine of the run. A run whose calls come to more than *most_bytes* as JSON is given up:
    `given_up` says why, and nothing of it is kept any more. It changes nothing about a call. Make it on the event loop
    of the run.
    """

    def __init__(self, inner: Runner, run_id: str, kind: RunKind, most_bytes: int) -> None:
        self.given_up: str = ""
        self._inner = inner
        self._in_thread: ThreadRunner | None = thread_runner(inner)
        self._calls: dict[str, RecordedCall] = {}
        self._most = self._left = most_bytes
        self._lock = threading.Lock()
        self.replay: Replay = _Live(run_id, kind, self._calls)
        self.replay.sleeper = self.sleep

    @property
    def size(self) -> int:
        """How many characters are kept."""
        return self._most - self._left

    def calls(self) -> list[RecordedCall]:
        """Return the calls in the order in which they began."""
        return [*self._calls.values()]

    # -- on the event loop --------------------------------------------------------------------------------------

    async def run(self, call: ToolCall) -> Result:
        """Make the call and keep it; see `Runner.run`."""
        kept = self._begin(call)
        if kept is None:
            return await self._inner.run(call)
        try:
            result = await self._inner.run(call)
        except asyncio.CancelledError:
            if self.replay.is_called_off(kept.step):
                self._end(kept, "failed", called_off(kept.tool))
            raise
        except ClosedError:
            raise
        except ToolExecError as error:
            self._failed(kept, error)
            raise
        if is_small(result.value):
            self._done(kept, result)
        else:
            await off_loop(lambda _: self._done(kept, result), Budget())
        return result

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call in one piece; see `Runner.stream`."""
        return self._stream(call)

    async def _stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        yield last_event(await self.run(call))

    async def sleep(self, step: str, seconds: float, at: tuple[int, int] | None = None) -> None:
        """Wait for so long, as a step of the run; a short timer that is called off leaves no trace."""
        began = host_clock.now()
        brief = min(seconds, BRIEF) if is_timer(step) else 0.0
        await host_clock.pause(brief)
        kept = self._kept(step, "run:sleep", {"seconds": seconds}, 20, at, began)
        await host_clock.pause(max(seconds - brief, 0.0))
        if kept is not None:
            self._end(kept, "done", outcome_of(Result("run:sleep")))

    # -- in a thread --------------------------------------------------------------------------------------------

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether `run_in_thread` would make the call; see `ThreadRunner.runs_in_thread`."""
        return self._in_thread is not None and self._in_thread.runs_in_thread(call, within)

    def run_in_thread(self, call: ToolCall, wait: WaitHere, within: float) -> Result | None:
        """Make the call in this thread and keep it; see `ThreadRunner.run_in_thread`."""
        inner = self._in_thread
        if inner is None:
            return None
        kept = self._begin(call)
        try:
            result = inner.run_in_thread(call, wait, within)
        except ClosedError:
            raise
        except ToolExecError as error:
            if kept is not None:
                self._failed(kept, error)
            raise
        if result is not None and kept is not None:  # else it comes again on the event loop
            self._done(kept, result)
        return result

    # -- what is kept -------------------------------------------------------------------------------------------

    def _begin(self, call: ToolCall) -> RecordedCall | None:
        """Keep that a call begins. One that was refused, and comes again with other arguments, begins again: what the
        program has said counts."""
        if self.given_up:
            return None
        known = self._calls.get(call.step)
        if known is not None:
            return known
        args = call.args or {}
        if not call.step or type(args) is RefusedArgs:
            return self.give_up(f"the arguments of {call.tool_id} are too much to be kept")
        try:
            size = len(_encode(args) if is_small(args) else encode_large(args))
        except (TypeError, ValueError, RecursionError):
            return self.give_up(f"the arguments of {call.tool_id} are not JSON")
        return self._kept(call.step, call.tool_id, args, size, call.at, host_clock.now())

    def _kept(
        self, step: str, tool: str, args: JSONObject, size: int, at: tuple[int, int] | None, began: float
    ) -> RecordedCall | None:
        if self._takes(size):
            self._calls[step] = kept = RecordedCall(step, tool, args, at, began)
            return kept
        return None

    def _done(self, kept: RecordedCall, result: Result) -> None:
        try:
            outcome = outcome_of(result)
        except ToolExecError as error:
            self.give_up(error.message)
            return
        self._end(kept, "done" if result.error is None else "failed", outcome)

    def _failed(self, kept: RecordedCall, error: ToolExecError) -> None:
        self._end(kept, "not_done" if error.outcome is Outcome.NOT_SENT else "failed", outcome_of_error(error))

    def _end(self, kept: RecordedCall, state: CallState, outcome: JSONDict) -> None:
        if self.given_up:
            return
        kept.ended = host_clock.now()
        if self.replay.keeps_time:
            outcome[TOOK] = took = max(kept.ended - kept.began, 0.0)
            self.replay.note_took(kept.step, took)
        if self._takes(sum(_size(outcome[name]) for name in _LONG if name in outcome)):
            kept.state, kept.outcome = state, outcome

    def _takes(self, size: int) -> bool:
        """Return whether so many more characters may be kept."""
        with self._lock:
            self._left -= size
        if self._left < 0:
            self.give_up("its calls are larger than record.max_bytes")
        return not self.given_up

    def give_up(self, why: str) -> None:
        """Keep nothing of the run, for that reason."""
        self.given_up = self.given_up or why
        self._calls.clear()


def _size(part: JSONValue) -> int:
    return 8 if type(part) in _SCALARS else len(_encode(part) if is_small(part) else encode_large(part))
