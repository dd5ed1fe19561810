"""The gateway of a guest that calls functions of the host from a thread of its own.

A tool with a sync handler runs right there, in the guest's thread. Everything else goes to the event loop of the
caller, by one lean hop for each frame: a callback on the loop starts the calls, a lock wakes the thread.

`host_calls` in `recorded_calls.py` makes the gateway of a run: one that can be made again has a gateway of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from toolexec.backend.failures import is_cancelled
from toolexec.code.tools import AdmittedCall
from toolexec.code.types import Output
from toolexec.errors import ProtocolError
from toolexec.model.json_value import JSONDict
from toolexec.process.threads import WorkerThreads
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES
from toolexec.runtime.protocol.loop_calls import LoopCalls
from toolexec.runtime.protocol.messages import (
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
from toolexec.runtime.protocol.shared_calls import SharedCall, SharedCalls

_MAX_OPEN = 10_000
_MOST_PENDING = 50_000
_LONGEST_WAIT = 1e6


class GuestStoppedError(Exception):
    """The run is being stopped; raised in the guest's thread to get it out of a host call."""


class HostCalls:
    """Answers the host calls of one run. Make it on the event loop that its tools belong to.

    *ends* is the `time.monotonic()` at which the run is stopped. `exchange` and `post` are called in the guest's
    thread, `aclose` on the event loop.
    """

    def __init__(
        self, server: RequestServer, output: Output, ends: float, helpers: WorkerThreads | None = None
    ) -> None:
        """*helpers* are threads for sync handlers of calls that the guest does not wait for one by one."""
        self.exit_code: int | None = None
        """What a program that ended itself without its result gave as its exit code."""
        self._server = server
        self._output = output
        self._ends = ends
        self._calls = LoopCalls(server, self._settle)
        self._loop = self._calls.loop
        self._shared = SharedCalls(helpers, self._calls, self._make_shared, self._ring) if helpers is not None else None
        self._state = HostState(handshake=False)
        self._state.execute("1")
        self._lock = threading.Lock()  # guards what follows
        self._ready: dict[str, str] = {}
        self._pending = 0  # requests whose answers the guest has not received; touched in its thread only
        self._asked_to_cancel: list[str] = []  # by the frame that is being taken
        self._wanted: str | None = None  # what the guest waits for: an ID, or "0" for any answer
        self._event = threading.Lock()  # held while there is nothing to receive
        self._event.acquire()
        self._events: set[threading.Lock] = set()  # each held while a thread waits for something that the loop does
        self._waking = False
        self._stopped = False
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
            seconds = min(max(timeout, 0), self._longest_wait())
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
        """Return when the run is stopped, of `time.monotonic`. From any thread."""
        return self._ends

    def _start(self, requests: Sequence[Message]) -> None:
        """Have calls made that are not waited for here: by the helpers where a handler is sync, else by the loop."""
        within = self.deadline() - monotonic()
        rest: list[tuple[Message, AdmittedCall | None]] = []
        shared: list[SharedCall] = []
        for message in requests:
            admitted = self._server.admit_here(message, within) if self._shared is not None else None
            if isinstance(admitted, str):
                self._settle(message.id, admitted)
            elif admitted is None:
                rest.append((message, None))
            elif admitted[1]:
                shared.append((message, admitted[0]))
            else:
                rest.append((message, admitted[0]))
        if rest:
            self._loop.call_soon_threadsafe(self._calls.begin, rest)
        if shared and self._shared is not None:
            self._shared.begin(shared)

    def _make_shared(self, message: Message, admitted: AdmittedCall) -> bool:
        """Make a call of a sync handler, in a helper's thread, and keep its answer; return whether it was made."""
        within = self.deadline() - monotonic()
        answer = self._server.finish_here(message, admitted, partial(self._wait_on_loop, wakes=False), within)
        if answer is None:
            return False
        with self._lock:
            self._keep(message.id, answer)
        return True

    def _take(self, frame: str) -> tuple[list[Message], Message | None]:
        """Return the requests of a frame, and its wait; what needs no answer is done."""
        if len(frame) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {len(frame)} characters is over the limit of {MAX_FRAME_BYTES}")
        requests: list[Message] = []
        wait = None
        for message in decode_frame(frame):
            kind = message.type
            if kind == "probe" and self._looked_into(message):
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
                self._admitted(message)
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
        self._cancel(now)

    def _cancel(self, message_ids: Sequence[str]) -> None:
        for message_id in message_ids:
            self._loop.call_soon_threadsafe(self._calls.cancel, message_id)

    def _count(self, message: Message) -> None:
        """Record a request; a guest that asks on and on without hearing the answers is ended."""
        self._pending += 1
        if self._pending > _MOST_PENDING:
            raise ProtocolError(f"more than {_MOST_PENDING} requests wait for the guest to hear their answers")

    def _answer_one(self, message: Message) -> str:
        """Return the answer to the only request of a frame."""
        answer = self._server.answer_here(message, self._wait_on_loop, self.deadline() - monotonic())
        if answer is None:
            answer = self._on_loop(partial(self._server.answer, message))
        elif isinstance(answer, AdmittedCall):
            answer = self._on_loop(partial(self._server.finish, message, answer))
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
                if wakes:
                    self._wakes()
                _ring(lock)

        def begin() -> None:
            if self._stopped:
                _ring(lock)
            else:
                self._calls.begin_task(key, run())

        key = f"!{id(lock)}"  # no request has such an ID
        self._events.add(lock)
        try:
            if self._stopped:
                raise GuestStoppedError
            self._loop.call_soon_threadsafe(begin)
            lock.acquire()
        finally:
            self._events.discard(lock)
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
        """Return the answers that are ready once *wanted* is among them; those that are, when *seconds* are over."""
        return [*self._next_answers(wanted, seconds).values()]

    def _received(self, answers: Iterable[str]) -> None:
        """Count these answers as received by the guest."""
        for message_id in answers:
            self._state.answered(message_id)
            self._pending -= 1

    def _next_answers(self, wanted: str, seconds: float | None) -> dict[str, str]:
        """Return the answers that are ready, by request, once *wanted* is among them; none when the time is over."""
        ends = None if seconds is None else monotonic() + max(seconds, 0.0)
        while True:
            left = -1.0 if ends is None else ends - monotonic()
            with self._lock:
                if self._stopped:
                    raise GuestStoppedError
                if self._ready and self._is_there(wanted):
                    answers, self._ready = self._ready, {}
                    self._received(answers)
                    self._wanted = None
                    return answers
                if ends is not None and left <= 0:
                    self._wanted = None
                    return {}
                self._wanted = wanted
                self._rests()
            if self._shared:
                self._shared.recruit(self._event, left)
            else:
                self._event.acquire(timeout=left)  # below 0, without an end

    # -- what a run that can be made again does besides -----------------------------------------------------------

    def _longest_wait(self) -> float:
        """Return how many seconds the guest may wait for answers at once."""
        return _LONGEST_WAIT

    def _looked_into(self, message: Message) -> bool:
        """Return whether a message of the kind `probe` was taken: a program that looks into the guest has sent it."""
        return False

    def _admitted(self, message: Message) -> None:
        """Record a request that the guest has sent."""

    def _is_there(self, wanted: str) -> bool:
        """Return whether the answer is ready that the guest waits for; with the lock held."""
        return wanted == "0" or wanted in self._ready

    def _is_awaited(self, message_id: str) -> bool:
        """Return whether the guest waits for this answer; with the lock held."""
        return self._wanted is not None and self._wanted in ("0", message_id)

    def _rests(self) -> None:
        """Note that the guest does nothing until it gets an answer; with the lock held."""

    def _wakes(self) -> None:
        """Note that the guest is about to get an answer that it waits for."""

    # -- on the event loop ----------------------------------------------------------------------------------------

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
        ends = self._is_awaited(message_id)
        if ends:
            self._wakes()
        return ends

    def _wake(self) -> None:
        with self._lock:
            self._waking = False
        self._ring()

    def _ring(self) -> None:
        _ring(self._event)

    def stop(self) -> None:
        """Refuse everything from now on, cancel the calls that are under way, and get the guest out of its wait. From
        any thread: elsewhere than on the event loop, the calls end when the loop gets to it."""
        with self._lock:
            self._stopped = self._calls.stopped = True
        self._ring()
        for lock in self._events.copy():  # the loop may have ended before it got to the call
            _ring(lock)
        if _running_loop() is self._loop:
            self._cancel_all()
        else:
            with suppress(RuntimeError):  # the loop is closed, and all its tasks are gone
                self._loop.call_soon_threadsafe(self._cancel_all)

    def _cancel_all(self) -> None:
        self._calls.cancel_all()
        if self._shared is not None:
            self._shared.end()

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
