"""The gateway of a guest that calls functions of the host from a thread of its own.

A tool with a sync handler runs right there, in the guest's thread. Everything else goes to the event loop of the
caller, by one lean hop for each frame: a callback on the loop starts the calls, a lock wakes the thread.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Protocol

from toolexec.backend.failures import is_cancelled
from toolexec.code.deliveries import Deliveries, probe_of, timer_step
from toolexec.code.tools import AdmittedCall
from toolexec.code.types import Output
from toolexec.errors import ProtocolError, ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.process.threads import Job, NoThreadError, WorkerThreads
from toolexec.runtime.protocol.loop_calls import LoopCalls
from toolexec.runtime.protocol.messages import (
    MAX_FRAME_BYTES,
    REQUESTS,
    HostState,
    Message,
    TooManyPartsError,
    decode_frame,
    decode_json,
    too_large_result,
    whole_text,
)
from toolexec.runtime.protocol.server import RequestServer

__all__ = ["GuestStoppedError", "HostCalls", "StepClock"]

_MAX_OPEN = 10_000
_PATIENCE_SECONDS = 0.001
_BUSY_CALLS = 3
_MOST_HELPERS = 63
_MOST_PENDING = 50_000
_LONGEST_WAIT = 1e6
_LONGEST_SLEEP = 1e9
_GRACE_SECONDS = 0.1


class GuestStoppedError(Exception):
    """The run is being stopped; raised in the guest's thread to get it out of a host call."""


class StepClock(Protocol):
    """The clock of a guest whose timers are steps of its run. It never goes back."""

    def peek(self) -> int:
        """Return its monotonic time, in nanoseconds; not a reading."""
        ...

    def skip_to(self, monotonic: int) -> None:
        """Go on to *monotonic*, in nanoseconds, unless that is past."""
        ...


class HostCalls:
    """Answers the host calls of one run. Make it on the event loop that its tools belong to.

    *ends* is the `time.monotonic()` at which the run is stopped. `exchange` and `post` are called in the guest's
    thread, `aclose` on the event loop.
    """

    def __init__(
        self, server: RequestServer, output: Output, ends: float, helpers: WorkerThreads | None = None
    ) -> None:
        """*helpers* are threads for sync handlers of calls that the guest does not wait for one by one."""
        self._helpers = helpers
        self._shared: deque[tuple[Message, AdmittedCall]] = deque()  # calls for the helpers
        self._jobs: list[Job] = []  # of the helpers; touched in the guest's thread, and after its end
        self._done = 0  # how many of those they have made
        self.exit_code: int | None = None
        """What a program that ended itself without its result gave as its exit code."""
        self._server = server
        self._deliveries = server.deliveries
        self._probe = probe_of(server.deliveries) if server.deliveries is not None else None
        self._output = output
        self._ends = ends
        self._calls = LoopCalls(server, self._settle)
        self._loop = self._calls.loop
        self._state = HostState(handshake=False)
        self._state.execute("1")
        self._lock = threading.Lock()  # guards what follows
        self._ready: dict[str, str] = {}
        self._pending = 0  # requests whose answers the guest has not received; touched in its thread only
        self._asked_to_cancel: list[str] = []  # by the frame that is being taken
        self._given_up: set[str] = set()  # all that were ever asked to; of a run that must be repeatable
        self._wanted: str | None = None  # what the guest waits for: an ID, or "0" for any answer
        self._bell = threading.Lock()  # held while there is nothing to receive
        self._bell.acquire()
        self._bells: set[threading.Lock] = set()  # each held while a thread waits for something that the loop does
        self._waking = False
        self._stopped = False
        self.keeps_time: bool = server.keeps_time
        """Whether the guest's timers are steps of its run."""
        self.clock: StepClock | None = None
        """The guest's clock, where that follows what is recorded; touched in the guest's thread only."""
        self._sent: dict[str, int] = {}  # when by that clock
        self._timers = 0  # how many there were
        self._timer = ""  # the one that is set; guarded by the lock
        self._timer_failed: ToolExecError | None = None
        self._waited = 0.0  # by timers alone, which no deadline counts
        self._waits_since: float | None = None
        self.on_first: Callable[[], None] | None = None
        """Called in the guest's thread when the guest asks the host for something for the first time."""

    # -- in the guest's thread ------------------------------------------------------------------------------------

    def exchange(self, frame: str) -> str:
        """Return the answers to a frame: blocks until there is one, as the frame asks. Raises GuestStoppedError."""
        if self._stopped:
            raise GuestStoppedError
        if self.on_first is not None:
            self.on_first()
            self.on_first = None
        requests, wait = self._take(frame)
        if wait is None:
            if len(requests) != 1:
                raise ProtocolError("a frame that blocks has one request, or says what it waits for")
            self._cancel_asked()
            return f"[{self._answer_one(requests[0])}]"
        self._cancel_asked(requests)
        if requests:
            self._start(requests)
        self._cancel_asked()
        timeout = wait.payload.get("timeout")
        seconds = None
        if isinstance(timeout, int | float) and not isinstance(timeout, bool):
            seconds = min(max(timeout, 0), _LONGEST_WAIT if self.clock is None else _LONGEST_SLEEP)
        answers = self._await_answers(wait.id or "0", seconds)
        return f"[{','.join(answers)}]"

    def post(self, frame: str) -> None:
        """Record a frame that has no answer. Raises GuestStoppedError."""
        if self._stopped:
            raise GuestStoppedError
        requests, _ = self._take(frame)
        self._cancel_asked(requests)
        if requests:
            self._start(requests)
        self._cancel_asked()

    def deadline(self) -> float:
        """Return when the run is stopped, of `time.monotonic`: later by as long as timers alone have taken. From any
        thread."""
        since = self._waits_since
        return self._ends + self._waited + (monotonic() - since if since is not None else 0.0)

    def sleep(self, seconds: float) -> None:
        """Let so much time pass, as a step of the run. In the guest's thread. Raises GuestStoppedError."""
        if self._stopped or self._deliveries is None:
            raise GuestStoppedError
        step = self._next_timer(self._deliveries)
        self._deliveries.direct(step)
        self._waits_since = began = monotonic()
        try:
            failed = self._on_loop(partial(self._sleep, self._deliveries, step, seconds))
        finally:
            self._waited += monotonic() - began
            self._waits_since = None
        self._deliveries.direct("")
        if failed is not None:
            raise GuestStoppedError from failed

    async def _sleep(self, deliveries: Deliveries, step: str, seconds: float) -> ToolExecError | None:
        """Wait; return why the run cannot go on, if so."""
        try:
            await deliveries.sleep(step, min(seconds, _LONGEST_SLEEP))
        except ToolExecError as error:
            return error
        return None

    def _next_timer(self, deliveries: Deliveries) -> str:
        self._timers += 1
        step = timer_step(self._timers)
        deliveries.expect(step)
        return step

    def _follow(self, deliveries: Deliveries, steps: Iterable[str], before: int | None = None) -> None:
        """Have the guest's clock go on by as long as the steps have taken whose answers it gets, but not to the time
        *before* which they came."""
        if self.clock is None:
            return
        reached = 0
        for step in steps:
            sent, took = self._sent.pop(step, 0), deliveries.took(step)
            if took is not None:
                reached = max(reached, sent + round(took * 1e9))
        self.clock.skip_to(reached if before is None else min(reached, before - 1))

    def _start(self, requests: list[Message]) -> None:
        """Have calls made that are not waited for here: by the helpers where a handler is sync, else by the loop."""
        within = self.deadline() - monotonic()
        rest: list[tuple[Message, AdmittedCall | None]] = []
        shared = False
        for message in requests:
            if self._deliveries is not None:
                self._deliveries.expect(message.id)
            admitted = self._server.admit_here(message, within) if self._helpers is not None else None
            if isinstance(admitted, str):
                self._settle(message.id, admitted)
            elif admitted is None:
                rest.append((message, None))
            elif admitted[1]:
                self._shared.append((message, admitted[0]))
                shared = True
            else:
                rest.append((message, admitted[0]))
        if rest:
            self._loop.call_soon_threadsafe(self._calls.begin, rest)
        if shared:  # one that works already may be about to end
            self._enlist()

    def _enlist(self) -> None:
        """Have one more helper make shared calls; without a thread for it they go to the event loop."""
        if self._helpers is None:
            return
        try:
            job = self._helpers.start(self._help)
        except NoThreadError:
            left: list[tuple[Message, AdmittedCall | None]] = []
            with suppress(IndexError):
                while True:
                    left.append(self._shared.popleft())
            self._loop.call_soon_threadsafe(self._calls.begin, left)
            return
        self._jobs = [*(job for job in self._jobs if job.state in ("waiting", "running")), job]

    def _help(self) -> None:
        """Make shared calls, in a helper's thread, until there are none left."""
        self._calls.context.copy().run(self._make_shared)

    def _make_shared(self) -> None:
        rang = monotonic()
        while not self._stopped:
            try:
                message, admitted = self._shared.popleft()
            except IndexError:
                return
            within = self.deadline() - monotonic()
            answer = self._server.finish_here(message, admitted, partial(self._wait_on_loop, wakes=False), within)
            if answer is None:  # what its tool is has changed meanwhile
                self._loop.call_soon_threadsafe(self._calls.begin, [(message, admitted)])
                continue
            with self._lock:
                self._keep(message.id, answer)
                self._done += 1
            now = monotonic()
            if not self._shared or now - rang > _PATIENCE_SECONDS:
                rang = now
                self._ring()

    def _take(self, frame: str) -> tuple[list[Message], Message | None]:
        """Return the requests of a frame, and its wait; what needs no answer is done."""
        if len(frame) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {len(frame)} characters is over the limit of {MAX_FRAME_BYTES}")
        requests: list[Message] = []
        wait = None
        for message in decode_frame(frame):
            kind = message.type
            if kind == "probe" and self._probe is not None:
                if self._probe.report(message.payload):
                    raise GuestStoppedError
                continue
            try:
                self._state.receive(message)
            except ProtocolError as error:
                if self._state.is_open(message.id):
                    raise  # a refusal would take the place of the answer
                self._count(message)
                self._settle(message.id, self._server.refusal(message, error))
                continue
            if kind in REQUESTS:
                self._count(message)
                if self.clock is not None:
                    self._sent[message.id] = self.clock.peek()
                if self._state.open_requests > _MAX_OPEN:  # each is a task, or an answer that is not fetched
                    raise ProtocolError(f"more than {_MAX_OPEN} requests are under way; await some of them first")
                requests.append(message)
            elif kind == "wait":
                wait = message
            elif kind == "cancel":
                self._asked_to_cancel.append(message.id)
            elif kind == "release":
                self._server.release(message)
            elif kind == "exit":
                code = message.payload.get("code")
                self.exit_code = code if isinstance(code, int) else None
            elif kind in ("print", "println"):
                text = message.payload.get("text")
                stream = "stderr" if message.payload.get("stream") == "stderr" else "stdout"
                if isinstance(text, str):
                    self._output.write(text if kind == "print" else f"{text}\n", stream)
                    self._output.drop(message.payload.get("dropped"), stream)
            else:
                raise ProtocolError(f"a message of type {kind!r} does not go over host calls")
        return requests, wait

    def _cancel_asked(self, requests: Sequence[Message] = ()) -> None:
        """Cancel what a frame asked to, but for its own *requests*, which are cancelled once they are on their way."""
        if not self._asked_to_cancel:
            return
        later = {message.id for message in requests}
        now = [message_id for message_id in self._asked_to_cancel if message_id not in later]
        self._asked_to_cancel = [message_id for message_id in self._asked_to_cancel if message_id in later]
        if self._deliveries is not None:
            self._given_up.update(now)
        for message_id in now:
            self._loop.call_soon_threadsafe(self._calls.cancel, message_id)

    def _count(self, message: Message) -> None:
        """Record a request; a guest that asks on and on without hearing the answers is ended."""
        self._pending += 1
        if self._pending > _MOST_PENDING:
            raise ProtocolError(f"more than {_MOST_PENDING} requests wait for the guest to hear their answers")

    def _answer_one(self, message: Message) -> str:
        """Return the answer to the only request of a frame."""
        if self._deliveries is not None:
            self._deliveries.direct(message.id)
        answer = self._server.answer_here(message, self._wait_on_loop, self.deadline() - monotonic())
        if answer is None:
            answer = self._on_loop(partial(self._server.answer, message))
        elif isinstance(answer, AdmittedCall):
            answer = self._on_loop(partial(self._server.finish, message, answer))
        if self._deliveries is not None:
            self._deliveries.direct("")
            self._follow(self._deliveries, (message.id,))
        self._state.answered(message.id)
        self._pending -= 1
        return answer

    def _on_loop(self, work: Callable[[], Coroutine[Any, Any, Any]], *, wakes: bool = True) -> Any:
        """Return what *work* comes to, done by the event loop while this thread waits; a loop that ends before makes no
        coroutine of it. The end of it *wakes* the guest, but for that of a helper."""
        outcome: list[Any] = []
        lock = threading.Lock()
        lock.acquire()

        async def run() -> None:
            try:
                outcome.append(await work())
            finally:
                self._calls.forget(key)
                if wakes and self._deliveries is not None:
                    self._deliveries.wake()
                _ring(lock)

        def begin() -> None:
            if self._stopped:
                _ring(lock)
            else:
                self._calls.begin_task(key, run())

        key = f"!{id(lock)}"  # no request has such an ID
        self._bells.add(lock)
        try:
            if self._stopped:
                raise GuestStoppedError
            self._loop.call_soon_threadsafe(begin)
            lock.acquire()
        finally:
            self._bells.discard(lock)
        if self._stopped or not outcome:
            raise GuestStoppedError
        return outcome[0]

    def _wait_on_loop(self, awaitable: Awaitable[Any], *, wakes: bool = True) -> Any:
        """Return what an awaitable comes to that a sync handler has returned; it belongs to the event loop."""

        async def outcome() -> tuple[Any, BaseException | None]:
            try:
                return await awaitable, None
            except BaseException as error:  # whatever it is, it must reach the handler and not the event loop
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                return None, error

        value, error = self._on_loop(outcome, wakes=wakes)
        if error is not None:
            raise error
        return value

    def _await_answers(self, wanted: str, seconds: float | None) -> list[str]:
        deliveries = self._deliveries
        if deliveries is None:
            return [*self._next_answers(wanted, seconds).values()]
        if seconds is None and self._state.open_requests == 1:  # which answer comes next is certain
            deliveries.direct(*self._state.open_ids)
            answers = self._next_answers(wanted, None)
            deliveries.direct("")
            self._follow(deliveries, answers)
            return [*answers.values()]
        timer = self._set_timer(deliveries, seconds) if seconds and self.clock is not None else ""
        due = self.clock.peek() + math.ceil(seconds * 1e9) if timer and seconds and self.clock is not None else 0
        try:
            group = deliveries.upcoming()
            if group is not None:
                answers = self._repeated(deliveries, group, wanted, seconds)
            else:
                answers = self._next_answers(wanted, None if timer else seconds)
                deliveries.deliver([*answers])
            if self._timer_failed is not None:
                raise self._timer_failed
        except ToolExecError as error:
            return self._refuse_open(error)
        finally:
            self._end_timer(timer)
        if self.clock is not None:
            if timer in answers:
                self.clock.skip_to(due)
            self._follow(deliveries, answers, due if timer and timer not in answers else None)
        return [answer for step, answer in answers.items() if step != timer]

    def _set_timer(self, deliveries: Deliveries, seconds: float) -> str:
        """Have a timer run beside the calls: a step of the run, which ends among their answers; return its key."""
        step = self._next_timer(deliveries)
        with self._lock:
            self._timer = step
        self._loop.call_soon_threadsafe(self._begin_timer, deliveries, step, seconds)
        return step

    def _end_timer(self, step: str) -> None:
        """Call a timer off that may not be over."""
        with self._lock:
            self._timer = ""
            self._ready.pop(step, None)
        if step:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._calls.cancel_task, f"!{step}")

    def _repeated(
        self, deliveries: Deliveries, group: Sequence[str], wanted: str, seconds: float | None
    ) -> dict[str, str]:
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
            lost = next((each for each in missing if not self._may_come(deliveries, each)), "")
            if not lost:
                self._pause(_PATIENCE_SECONDS)
        else:
            asked = f"it waits for the answer to {wanted}" if wanted != "0" else "it waits for other answers"
            raise deliveries.diverged(lost, asked, f"the answer to {', '.join(group) or 'nothing, in time'}")
        self._received(answers)
        deliveries.deliver(group)
        return answers

    def _received(self, answers: Iterable[str]) -> None:
        """Take note that the guest receives these answers; that a timer is over is not one."""
        for message_id in answers:
            if message_id != self._timer:
                self._state.answered(message_id)
                self._pending -= 1

    def _may_come(self, deliveries: Deliveries, message_id: str) -> bool:
        """Return whether there may be an answer before all that is recorded was repeated."""
        if message_id == self._timer:
            return not deliveries.is_held(message_id)
        if not self._state.is_open(message_id):
            return False
        return message_id in self._given_up or not deliveries.is_held(message_id)

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

    def _next_answers(self, wanted: str, seconds: float | None) -> dict[str, str]:
        """Return the answers that are ready, by request, once *wanted* is among them; none when the time is over."""
        ends = None if seconds is None else monotonic() + max(seconds, 0.0)
        while True:
            left = -1.0 if ends is None else ends - monotonic()
            with self._lock:
                if self._stopped:
                    raise GuestStoppedError
                if self._ready and (wanted == "0" or wanted in self._ready or self._timer in self._ready):
                    answers, self._ready = self._ready, {}
                    self._received(answers)
                    self._wanted = None
                    return answers
                if ends is not None and left <= 0:
                    self._wanted = None
                    return {}
                self._wanted = wanted
                if self._deliveries is not None:
                    self._deliveries.rest()
            if self._shared:
                self._recruit(left)
            else:
                self._pause(left)

    def _pause(self, seconds: float) -> None:
        """Wait until there is something to receive; below 0, without an end."""
        self._bell.acquire(timeout=seconds)

    def _recruit(self, left: float) -> None:
        """Wait for the helper; when it gets nowhere its handlers block, and each call needs a helper of its own."""
        done = self._done
        patience = _PATIENCE_SECONDS if left < 0 else min(left, _PATIENCE_SECONDS)
        if self._bell.acquire(timeout=patience) or self._helpers is None:
            return
        if self._done - done < _BUSY_CALLS:
            for _ in range(min(len(self._shared), _MOST_HELPERS)):
                self._enlist()

    # -- on the event loop ----------------------------------------------------------------------------------------

    def _begin_timer(self, deliveries: Deliveries, step: str, seconds: float) -> None:
        if not self._stopped:
            self._calls.begin_task(f"!{step}", self._run_timer(deliveries, step, seconds))

    async def _run_timer(self, deliveries: Deliveries, step: str, seconds: float) -> None:
        try:
            self._timer_failed = await self._sleep(deliveries, step, seconds)
        finally:
            self._calls.forget(f"!{step}")
        with self._lock:
            if self._timer != step:
                return
        self._settle(step, "")

    def _settle(self, message_id: str, answer: str) -> None:
        """Keep an answer, and wake the guest if it waits for it.

        Answers of one round of the event loop go together: the guest is woken only at the end of the round.
        """
        with self._lock:
            wake = self._keep(message_id, answer) and not self._waking
            self._waking = self._waking or wake
        if wake:
            self._loop.call_soon_threadsafe(self._wake)

    def _keep(self, message_id: str, answer: str) -> bool:
        """Keep an answer, with the lock held; return whether the guest waits for it. Any other leaves it at rest: a run
        whose code only waits is suspended, and must be known as that."""
        self._ready[message_id] = answer
        wanted = self._wanted
        ends = wanted is not None and (wanted in ("0", message_id) or message_id == self._timer)
        if ends and self._deliveries is not None:
            self._deliveries.wake()
        return ends

    def _wake(self) -> None:
        with self._lock:
            self._waking = False
        self._ring()

    def _ring(self) -> None:
        _ring(self._bell)

    def stop(self) -> None:
        """Refuse everything from now on, cancel the calls that are under way, and get the guest out of its wait. From
        any thread: elsewhere than on the event loop, the calls end when the loop gets to it."""
        with self._lock:
            self._stopped = self._calls.stopped = True
        self._ring()
        for lock in self._bells.copy():  # the loop may have ended before it got to the call
            _ring(lock)
        if _running_loop() is self._loop:
            self._cancel_all()
        else:
            with suppress(RuntimeError):  # the loop is closed, and all its tasks are gone
                self._loop.call_soon_threadsafe(self._cancel_all)

    def _cancel_all(self) -> None:
        self._calls.cancel_all()
        if any(job.state in ("waiting", "running") for job in self._jobs):
            self._loop.call_later(_GRACE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        """Give up the threads of helpers whose handlers hang."""
        for job in self._jobs:
            if self._helpers is not None:
                self._helpers.abandon(job)

    async def aclose(self) -> None:
        """Stop, and wait a moment until the calls that were under way have ended; a tool may refuse to."""
        self.stop()
        await self._calls.aclose()


def _ring(lock: threading.Lock) -> None:
    if lock.locked():
        try:
            lock.release()
        except RuntimeError:  # the guest was quicker; it looks at what is there in any case
            return


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def result_payload(text: str) -> JSONDict:
    """Return the payload of a guest's `result` message; raises ProtocolError for any other message."""
    try:
        message = whole_text(decode_json(text), text)
    except TooManyPartsError as error:
        return too_large_result(error)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the guest's result is not JSON: {error}") from error
    payload = message.get("payload") if isinstance(message, dict) and message.get("type") == "result" else None
    if not isinstance(payload, dict):
        raise ProtocolError("the guest ended without a result message")
    return payload
