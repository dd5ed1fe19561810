"""Make calls again that failed for a reason which may pass."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final

from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.errors import ExecutionError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.declared import setting
from toolexec.model.events import StreamEvent
from toolexec.model.settings import checked
from toolexec.run.circuits import circuit_key
from toolexec.run.layer import Layer
from toolexec.run.repeating import may_repeat, retry_after
from toolexec.run.resolve import Find, copied, resolved
from toolexec.run.runner import Runner
from toolexec.run.settings import RetrySettings
from toolexec.run.types import Result

_MAX_BUDGETS: Final = 10_000
_MOST_SAVED: Final = 1000
"""Of how many calls a backend's budget is saved at most."""


@checked("Retry")
@dataclass(eq=False, repr=False, kw_only=True)
class Retry(RetrySettings):
    """A part of a `Gate`: makes calls again whose failure says that it is `retryable`, at most *attempts* times in all.

    Only tools that are marked read-only or idempotent are called again, and others when the call certainly never began
    (its `outcome` is `not_sent`); a destructive tool never is. A stream is begun again until its first chunk was given.
    Before each further attempt there is a random pause between 0 and *pause* seconds, which doubles each time up to
    *max_pause*; `details["retry_after"]` of the failure, where it is there, is waited for in any case.

    All attempts together have the call's own `timeout`, or *within* seconds; no pause goes beyond that. Each of
    them has *attempt_timeout* seconds (None: what is left for all), so that one that hangs leaves time for another.

    *budget* keeps a backend in trouble from getting even more calls: for each call so much of a retry is saved, and
    each retry uses one, so that 0.2 means at most 20 % more calls in the long run, with *burst* to begin with. The
    number of attempts is in `Result.attempts`. *draw* gives numbers from 0 to 1, *clock* seconds, *sleep* waits.
    Raises ConfigurationError for numbers that make no sense.
    """

    pause: float = setting(0.1, "The longest pause before the second attempt, in seconds.", least=0)
    max_pause: float = setting(10.0, "The longest pause before any attempt, in seconds.", above=0)
    burst: int = setting(10, "How many retries are saved to begin with.", least=0)
    draw: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._saved: dict[Hashable, float] = {}
        self._lock = threading.Lock()

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that makes calls of *inner* again."""
        return Retried(self, inner, find)

    def save(self, key: Hashable) -> None:
        """Count a first attempt: a part of a retry is saved for the backend *key*."""
        most = self.burst + _MOST_SAVED * self.budget  # many calls may be under way when the first of them fails
        with self._lock:
            saved = self._saved.get(key, self.burst) + self.budget
            self._saved[key] = min(saved, most)
            if len(self._saved) > _MAX_BUDGETS:
                del self._saved[next(iter(self._saved))]

    def spend(self, key: Hashable) -> bool:
        """Use one retry of what is saved for the backend *key*; return whether there was one."""
        with self._lock:
            saved = self._saved.get(key, self.burst)
            if saved < 1:
                return False
            self._saved[key] = saved - 1
            return True


class _Attempts:
    """The attempts at one call: how many were made, and what is left for more."""

    __slots__ = ("_call", "_entry", "_find", "_key", "_limit", "_rules", "_started", "_total", "made")

    def __init__(self, rules: Retry, call: ToolCall, find: Find) -> None:
        self._entry: Registered = resolved(call, find)
        self._rules = rules
        self._call = call
        self._find = find
        self._key = circuit_key(self._entry)
        self._started = rules.clock()
        self._total = rules.within
        self._limit = rules.attempt_timeout
        if call.timeout is not None:
            if isinstance(call.timeout, int | float) and call.timeout > 0:
                self._total = call.timeout
            else:
                self._limit = None  # the first attempt refuses it
        self.made = 0
        rules.save(self._key)

    def next(self) -> ToolCall:
        """Return the call of the next attempt, with the time that it has."""
        self.made += 1
        limit = self._limit
        if self.made == 1:
            if limit is None or limit >= self._total:
                return self._call
            return copied(self._call, self._find, self._entry, timeout=limit)
        left = self._total - (self._rules.clock() - self._started)
        return copied(self._call, self._find, self._entry, timeout=left if limit is None else min(limit, left))

    def pause(self, failure: ToolExecError) -> float | None:
        """Return how many seconds to wait before another attempt; None when there is none."""
        rules = self._rules
        if self.made >= rules.attempts or not may_repeat(self._entry.tool, failure):
            return None
        # In floats 2**1100 overflows; no call waits through so many doublings.
        pause = rules.draw() * min(rules.pause * 2 ** min(self.made - 1, 60), rules.max_pause)
        pause += retry_after(failure)
        if rules.clock() - self._started + pause >= self._total or not rules.spend(self._key):
            return None
        return pause


class Retried(Layer):
    """Makes calls, and some of them again; see `Retry`."""

    def __init__(self, rules: Retry, inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._rules = rules
        self._find = find

    async def run(self, call: ToolCall) -> Result:
        """Make the call, again where that may help; the last outcome, whichever it is."""
        attempts = _Attempts(self._rules, call, self._find)
        while True:
            try:
                result = await self.inner.run(attempts.next())
            except ToolExecError as error:
                pause = attempts.pause(error)
                if pause is None:
                    raise
            else:
                pause = None if result.error is None else attempts.pause(result.error)
                if pause is None:
                    result.attempts = attempts.made
                    return result
            await self._rules.sleep(pause)

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Stream the call, from the beginning again where that may help and no chunk was given yet."""
        attempts = _Attempts(self._rules, call, self._find)
        given = False
        while True:
            pause: float | None = None
            events = self.inner.stream(attempts.next())
            try:
                async for event in events:
                    if event.kind == "error" and not given:
                        pause = attempts.pause(event.error or ExecutionError("the stream ended with an error"))
                        if pause is not None:
                            break
                    given = given or event.kind == "chunk"
                    yield event
            except ToolExecError as error:
                pause = None if given else attempts.pause(error)
                if pause is None:
                    raise
            finally:
                await events.aclose()
            if pause is None:
                return
            await self._rules.sleep(pause)

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread, again where that may help; see `ThreadRunner.run_in_thread`."""
        inner = self.inner_in_thread
        if inner is None or not self.runs_in_thread(call, within):
            return None
        attempts = _Attempts(self._rules, call, self._find)
        while True:
            try:
                result = inner.run_in_thread(attempts.next(), wait, within)
            except ToolExecError as error:
                pause = attempts.pause(error)
                if pause is None:
                    raise
            else:
                if result is None:
                    return None  # what failed until now may be repeated: the call comes again on the loop
                pause = None if result.error is None else attempts.pause(result.error)
                if pause is None:
                    result.attempts = attempts.made
                    return result
            wait(self._rules.sleep(pause))
