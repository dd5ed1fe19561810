"""The gateway of a run that can be made again: the guest gets the same answers in the same groups, and its timers are
steps of the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final, Protocol

from toolexec.code.deliveries import Deliveries, probe_of, timer_step
from toolexec.code.types import Output
from toolexec.errors import ToolExecError
from toolexec.process.threads import WorkerThreads
from toolexec.runtime.protocol.hostcalls import GuestStoppedError, HostCalls
from toolexec.runtime.protocol.messages import Message
from toolexec.runtime.protocol.server import RequestServer

_PATIENCE_SECONDS: Final = 0.001
_LONGEST_SLEEP: Final = 1e9


class StepClock(Protocol):
    """The clock of a guest whose timers are steps of its run. It never goes back."""

    def peek(self) -> int:
        """Return its monotonic time, in nanoseconds; not a reading."""
        ...

    def skip_to(self, monotonic: int) -> None:
        """Go on to *monotonic*, in nanoseconds, unless that is past."""
        ...


def host_calls(server: RequestServer, output: Output, ends: float, helpers: WorkerThreads | None = None) -> HostCalls:
    """Return what answers the host calls of one run; see `HostCalls`."""
    if server.deliveries is None:
        return HostCalls(server, output, ends, helpers)
    return RecordedCalls(server, server.deliveries, output, ends, helpers)


class RecordedCalls(HostCalls):
    """Answers the host calls of a run as *deliveries* decides, where something is recorded; see `HostCalls`."""

    def __init__(
        self,
        server: RequestServer,
        deliveries: Deliveries,
        output: Output,
        ends: float,
        helpers: WorkerThreads | None = None,
    ) -> None:
        super().__init__(server, output, ends, helpers)
        self._deliveries = deliveries
        self._probe = probe_of(deliveries)
        self._given_up: set[str] = set()  # all calls that were ever asked to be cancelled
        self.keeps_time: bool = deliveries.keeps_time
        """Whether the guest's timers are steps of its run."""
        self.clock: StepClock | None = None
        """The guest's clock, where that follows what is recorded; touched in the guest's thread only."""
        self._sent: dict[str, int] = {}  # when by that clock
        self._timers = 0  # how many there were
        self._timer = ""  # the one that is set; guarded by the lock
        self._timer_failed: ToolExecError | None = None
        self._waited = 0.0  # by timers alone, which no deadline counts
        self._waits_since: float | None = None

    # -- time -----------------------------------------------------------------------------------------------------

    def deadline(self) -> float:
        """Return when the run is stopped, of `time.monotonic`: later by as long as timers alone have taken. From any
        thread."""
        since = self._waits_since
        return super().deadline() + self._waited + (monotonic() - since if since is not None else 0.0)

    def sleep(self, seconds: float) -> None:
        """Let so much time pass, as a step of the run. In the guest's thread. Raises GuestStoppedError."""
        if self._stopped:
            raise GuestStoppedError
        step = self._next_timer()
        self._deliveries.direct(step)
        self._waits_since = began = monotonic()
        try:
            failed = self._on_loop(partial(self._sleep, step, seconds))
        finally:
            self._waited += monotonic() - began
            self._waits_since = None
        self._deliveries.direct("")
        if failed is not None:
            raise GuestStoppedError from failed

    async def _sleep(self, step: str, seconds: float) -> ToolExecError | None:
        """Wait; return why the run cannot go on, if so."""
        try:
            await self._deliveries.sleep(step, min(seconds, _LONGEST_SLEEP))
        except ToolExecError as error:
            return error
        return None

    def _longest_wait(self) -> float:
        return super()._longest_wait() if self.clock is None else _LONGEST_SLEEP

    def _next_timer(self) -> str:
        self._timers += 1
        step = timer_step(self._timers)
        self._deliveries.expect(step)
        return step

    def _follow(self, steps: Iterable[str], before: int | None = None) -> None:
        """Have the guest's clock go on by as long as the steps have taken whose answers it gets, but not to the time
        *before* which they came."""
        if self.clock is None:
            return
        reached = 0
        for step in steps:
            sent, took = self._sent.pop(step, 0), self._deliveries.took(step)
            if took is not None:
                reached = max(reached, sent + round(took * 1e9))
        self.clock.skip_to(reached if before is None else min(reached, before - 1))

    # -- a timer beside calls -------------------------------------------------------------------------------------

    def _set_timer(self, seconds: float) -> str:
        """Have a timer run beside the calls: a step of the run, which ends among their answers; return its key."""
        step = self._next_timer()
        with self._lock:
            self._timer = step
        self._loop.call_soon_threadsafe(self._begin_timer, step, seconds)
        return step

    def _begin_timer(self, step: str, seconds: float) -> None:
        if not self._stopped:
            self._calls.begin_task(f"!{step}", self._run_timer(step, seconds))

    async def _run_timer(self, step: str, seconds: float) -> None:
        try:
            self._timer_failed = await self._sleep(step, seconds)
        finally:
            self._calls.forget(f"!{step}")
        with self._lock:
            if self._timer != step:
                return
        self._settle(step, "")

    def _end_timer(self, step: str) -> None:
        """Call a timer off that may not be over."""
        with self._lock:
            self._timer = ""
            self._ready.pop(step, None)
        if step:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._calls.cancel_task, f"!{step}")

    # -- requests -------------------------------------------------------------------------------------------------

    def _looked_into(self, message: Message) -> bool:
        if self._probe is None:
            return False
        if self._probe.report(message.payload):
            raise GuestStoppedError
        return True

    def _admitted(self, message: Message) -> None:
        if self.clock is not None:
            self._sent[message.id] = self.clock.peek()

    def _start(self, requests: Sequence[Message]) -> None:
        for message in requests:
            self._deliveries.expect(message.id)
        super()._start(requests)

    def _cancel(self, message_ids: Sequence[str]) -> None:
        self._given_up.update(message_ids)
        super()._cancel(message_ids)

    def _answer_one(self, message: Message) -> str:
        self._deliveries.direct(message.id)
        answer = super()._answer_one(message)
        self._deliveries.direct("")
        self._follow((message.id,))
        return answer

    # -- answers --------------------------------------------------------------------------------------------------

    def _await_answers(self, wanted: str, seconds: float | None) -> list[str]:
        if seconds is None and self._state.open_requests == 1:  # which answer comes next is certain
            self._deliveries.direct(*self._state.open_ids)
            answers = self._next_answers(wanted, None)
            self._deliveries.direct("")
            self._follow(answers)
            return [*answers.values()]
        timer = self._set_timer(seconds) if seconds and self.clock is not None else ""
        due = self.clock.peek() + math.ceil(seconds * 1e9) if timer and seconds and self.clock is not None else 0
        try:
            group = self._deliveries.upcoming()
            if group is not None:
                answers = self._repeated(group, wanted, seconds)
            else:
                answers = self._next_answers(wanted, None if timer else seconds)
                self._deliveries.deliver([*answers])
            if self._timer_failed is not None:
                raise self._timer_failed
        except ToolExecError as error:
            return self._refuse_open(error)
        finally:
            self._end_timer(timer)
        if self.clock is not None:
            if timer in answers:
                self.clock.skip_to(due)
            self._follow(answers, due if timer and timer not in answers else None)
        return [answer for step, answer in answers.items() if step != timer]

    def _repeated(self, group: Sequence[str], wanted: str, seconds: float | None) -> dict[str, str]:
        """Return the answers that came together then. Raises RunError where they cannot come together now."""
        fits = wanted in group if wanted != "0" else bool(group) or seconds is not None
        lost = "" if fits else wanted
        while not lost:
            with self._lock:
                if self._stopped:
                    raise GuestStoppedError
                missing = [message_id for message_id in group if message_id not in self._ready]
                if not missing:
                    answers = {message_id: self._ready.pop(message_id) for message_id in group}
                    self._wanted = None
                    break
                self._wanted = "0"
            lost = next((each for each in missing if not self._may_come(each)), "")
            if not lost:
                self._event.acquire(timeout=_PATIENCE_SECONDS)
        else:
            asked = f"it waits for the answer to {wanted}" if wanted != "0" else "it waits for other answers"
            raise self._deliveries.diverged(lost, asked, f"the answer to {', '.join(group) or 'nothing, in time'}")
        self._received(answers)
        self._deliveries.deliver(group)
        return answers

    def _may_come(self, message_id: str) -> bool:
        """Return whether there may be an answer before all that is recorded was repeated."""
        if message_id == self._timer:
            return not self._deliveries.is_held(message_id)
        if not self._state.is_open(message_id):
            return False
        return message_id in self._given_up or not self._deliveries.is_held(message_id)

    def _refuse_open(self, error: ToolExecError) -> list[str]:
        """Return refusals of all that the guest waits for, so that its program fails at the line where it is. Raises
        GuestStoppedError where it waits for nothing."""
        open_requests = [*self._state.open_ids]
        if not open_requests:
            raise GuestStoppedError
        for message_id in open_requests:
            self._state.answered(message_id)
        with self._lock:
            self._ready.clear()
        self._pending = 0
        return [self._server.refusal(Message("run_tool", each, {}), error) for each in open_requests]

    def _received(self, answers: Iterable[str]) -> None:
        super()._received(each for each in answers if each != self._timer)  # the end of a timer answers nothing

    def _is_there(self, wanted: str) -> bool:
        return super()._is_there(wanted) or self._timer in self._ready

    def _is_awaited(self, message_id: str) -> bool:
        return super()._is_awaited(message_id) or (self._wanted is not None and message_id == self._timer)

    def _rests(self) -> None:
        self._deliveries.rest()

    def _wakes(self) -> None:
        self._deliveries.wake()
