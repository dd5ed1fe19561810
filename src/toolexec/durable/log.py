"""Where the calls of one run are written down, and what is known of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import toolexec.durable.clock as host_clock
from toolexec.durable.journal import CallRecord, CallState, Journal, Signal
from toolexec.durable.outcomes import called_off
from toolexec.durable.replay import TOOK, Replay
from toolexec.errors import JournalError, RunError
from toolexec.model.json_value import JSONObject

T = TypeVar("T")


class RunLog(Protocol):
    """Keeps the calls of one run. Methods raise RunError when the run is not this process's any more, or is to be
    cancelled, and JournalError when nothing can be kept. Safe for several threads."""

    @property
    def run_id(self) -> str:
        """The run's ID."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether a method may take milliseconds, and should not be called on an event loop."""
        ...

    def begin(self, call: CallRecord, delivered: Sequence[Sequence[str]]) -> None:
        """Write down that a call is about to be made, and what the code got before."""
        ...

    def end(self, step: str, state: CallState, outcome: JSONObject) -> None:
        """Write down how a call ended."""
        ...

    def take(self, step: str, name: str) -> Signal | None:
        """Return the signal of this name for the step, if one is there; the same again for the same step."""
        ...


@dataclass(frozen=True, slots=True)
class OwnedRun:
    """Keeps the calls of a run in a journal, as long as *owner* has the run. Implements `RunLog`."""

    journal: Journal
    run_id: str
    owner: str

    @property
    def is_remote(self) -> bool:
        """Whether the journal is elsewhere."""
        return self.journal.is_remote

    def begin(self, call: CallRecord, delivered: Sequence[Sequence[str]]) -> None:
        """Implement `RunLog.begin`."""
        self.journal.begin(self.run_id, self.owner, call, delivered)

    def end(self, step: str, state: CallState, outcome: JSONObject) -> None:
        """Implement `RunLog.end`."""
        self.journal.end(self.run_id, self.owner, step, state, outcome)

    def take(self, step: str, name: str) -> Signal | None:
        """Implement `RunLog.take`."""
        return self.journal.take(self.run_id, self.owner, step, name)


class CallLog:
    """Writes to *log*, with what was delivered before, and keeps *replay* up to date.

    Whatever cannot be written ends the run, as what is not recorded must not be done: the failure is raised, and kept
    in the replay. The plain methods are for threads, `write` is for the event loop.
    """

    def __init__(
        self,
        log: RunLog,
        replay: Replay,
        clock: Callable[[], float] | None = None,
        took: Callable[[str], float | None] | None = None,
    ) -> None:
        """*took* gives how long the call of a step took, where others keep that."""
        self.log = log
        self.replay = replay
        self.clock: Callable[[], float] = clock or host_clock.now
        self._took = took
        self._writes: set[asyncio.Future[None]] = set()

    def begin(self, record: CallRecord) -> None:
        """Write down that a call is about to be made."""
        self._guarded(partial(self._begin, record))

    def end(self, record: CallRecord, state: CallState, outcome: JSONObject) -> None:
        """Write down how a call ended, and how long it took, where the program's clock goes on by that."""
        if self.replay.keeps_time:
            took = self._took(record.step) if self._took is not None else max(self.clock() - record.began, 0.0)
            if took is not None:
                outcome = {**outcome, TOOK: took}
                self.replay.note_took(record.step, took)
        self._guarded(partial(self.log.end, record.step, state, outcome))
        self.replay.records[record.step] = CallRecord(
            step=record.step,
            tool=record.tool,
            definition=record.definition,
            args=record.args,
            state=state,
            sent=record.sent,
            at=record.at,
            began=record.began,
            ended=self.clock(),
            outcome=outcome,
        )

    def call_off(self, record: CallRecord) -> None:
        """Write down that the program has called off a call, after what had it do so: it is not made again."""
        self.begin(record)
        self.end(record, "failed", called_off(record.tool))

    async def write(self, method: Callable[..., None], *args: object) -> None:
        """Call `begin` or `end`, and do not hold up the event loop."""
        if not self.log.is_remote:
            method(*args)
            return
        work = asyncio.ensure_future(asyncio.to_thread(method, *args))
        self._writes.add(work)
        work.add_done_callback(self._wrote)
        await asyncio.shield(work)  # a thread goes on, though the call that it writes of is cancelled

    async def written(self) -> None:
        """Wait until all is written that was begun."""
        while self._writes:
            await asyncio.wait(self._writes)

    def _wrote(self, work: asyncio.Future[None]) -> None:
        self._writes.discard(work)
        _ = work.cancelled() or work.exception()  # which is the failure of the replay

    async def kept(self, work: Awaitable[T]) -> T:
        """Return what *work* gives, which uses the log, too."""
        try:
            return await work
        except (RunError, JournalError) as error:
            raise self.replay.fail(error) from error

    def _begin(self, record: CallRecord) -> None:
        replay = self.replay
        with replay.writing:  # what was delivered first is written first
            delivered = replay.take_delivered()
            if delivered:
                self.log.begin(record, delivered)
            state = replay.take_state()
            if state is not None and replay.saver is not None:
                replay.saver(state)
        if not delivered:
            self.log.begin(record, ())
        replay.records[record.step] = record

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (RunError, JournalError) as error:
            raise self.replay.fail(error) from error
