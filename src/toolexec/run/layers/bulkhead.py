"""So many calls of one backend at a time, so that a slow one does not take all there is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.errors import BackendBusyError, ConfigurationError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.settings import checked
from toolexec.run.layer import Layer
from toolexec.run.repeating import above_zero
from toolexec.run.resolve import Find, copied, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result

__all__ = ["Bulkhead", "Slots"]

_Turn: TypeAlias = "asyncio.Future[None]"
_LEAST_TIME: Final = 0.001


@checked("Bulkhead")
class Bulkhead:
    """A part of a `Gate`: at most *limit* calls of each remote backend run at a time; *limits* has other numbers for
    some, by the backend's name (0: no limit).

    At most *queue* calls of a backend wait for their turn, first come, first served, for at most *wait* seconds each,
    which count towards the call's own `timeout`. The others raise BackendBusyError, with nothing done.

    Local tools have a limit only where *limits* names their backend, `local`: one that calls others would wait for
    itself. Raises ConfigurationError for numbers that make no sense.
    """

    def __init__(
        self,
        limit: int = 10,
        *,
        limits: Mapping[str, int] | None = None,
        queue: int = 100,
        wait: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        above_zero("limit", limit, 1)
        if queue < 0 or wait < 0 or any(each < 0 for each in (limits or {}).values()):
            raise ConfigurationError("queue, wait and limits of a bulkhead must be 0 or more")
        self.limit = limit
        self.limits: dict[str, int] = dict(limits or {})
        self.queue = queue
        self.wait = wait
        self.clock = clock
        self._slots: dict[tuple[str, str], Slots | None] = {}

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that makes so many calls of *inner* at a time."""
        return _Bounded(self, inner, find)

    def slots(self, entry: Registered) -> Slots | None:
        """Return the slots of the tool's backend; None where it has no limit."""
        key = (entry.binding.kind, entry.binding.backend)
        try:
            return self._slots[key]
        except KeyError:
            limit = self.limits.get(entry.binding.backend, 0 if entry.binding.kind == "local" else self.limit)
            return self._slots.setdefault(key, Slots(limit) if limit else None)


class Slots:
    """The slots of one backend, and the calls that wait for one; safe to use from several threads and loops."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.free: int = limit
        self.waiting: deque[tuple[asyncio.AbstractEventLoop, _Turn]] = deque()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a free slot; return whether there was one that no earlier call waits for."""
        with self._lock:
            if self.free < 1:
                return False
            self.free -= 1
            return True

    def give_back(self) -> None:
        """Give a slot to the call that has waited longest, or make it free."""
        with self._lock:
            if not self.waiting:
                self.free += 1
                return
            loop, turn = self.waiting.popleft()
        try:
            loop.call_soon_threadsafe(self._hand_over, turn)
        except RuntimeError:  # its loop is closed
            self.give_back()

    def _hand_over(self, turn: _Turn) -> None:
        if turn.done():  # its call was cancelled, or is late
            self.give_back()
        else:
            turn.set_result(None)

    async def wait_for(self, seconds: float, most: int) -> bool:
        """Wait for a slot so long, unless *most* calls wait already; return whether the caller has one."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        with self._lock:
            if self.free:  # given back a moment ago
                self.free -= 1
                return True
            if len(self.waiting) >= most:
                return False
            place = (loop, turn)
            self.waiting.append(place)
        try:
            await asyncio.wait([turn], timeout=seconds)
        except BaseException:
            self._leave(place)
            raise
        if not turn.done():
            self._leave(place)
            return False
        return True

    def _leave(self, place: tuple[asyncio.AbstractEventLoop, _Turn]) -> None:
        """Wait no more; a slot that was handed over already goes to the next one."""
        _, turn = place
        with self._lock:
            if place in self.waiting:
                self.waiting.remove(place)
        if turn.done():
            self.give_back()
        else:
            turn.cancel()


class _Bounded(Layer):
    def __init__(self, rules: Bulkhead, inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._rules = rules
        self._find = find

    async def run(self, call: ToolCall) -> Result:
        slots = self._rules.slots(resolved(call, self._find))
        if slots is None:
            return await self.inner.run(call)
        if not slots.take():
            call = await self._waited(slots, call)
        try:
            return await self.inner.run(call)
        finally:
            slots.give_back()

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        slots = self._rules.slots(resolved(call, self._find))
        if slots is not None and not slots.take():
            call = await self._waited(slots, call)
        try:
            events = self.inner.stream(call)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
        finally:
            if slots is not None:
                slots.give_back()

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        inner = self.inner_in_thread
        if inner is None or not self.runs_in_thread(call, within):
            return None
        slots = self._rules.slots(resolved(call, self._find))
        if slots is None:
            return inner.run_in_thread(call, wait, within)
        if not slots.take():
            return None  # waiting takes the event loop
        with _taken(slots):
            return inner.run_in_thread(call, wait, within)

    async def _waited(self, slots: Slots, call: ToolCall) -> ToolCall:
        """Wait for a slot, and return the call with what is left of its time. Raises BackendBusyError."""
        rules, entry = self._rules, resolved(call, self._find)
        started = rules.clock()
        limit = call.timeout if isinstance(call.timeout, int | float) and call.timeout > 0 else None
        patience = rules.wait if limit is None else min(rules.wait, limit)
        if not await slots.wait_for(patience, rules.queue):
            raise BackendBusyError(
                f"{slots.limit} calls of the backend {entry.binding.backend} are under way, and there was no room for "
                f"{entry.tool.id}; nothing was done: call it again later",
                tool_id=entry.tool.id,
                op="bulkhead",
                backend=entry.binding.backend,
                details={"limit": slots.limit},
            )
        if limit is None:
            return call
        left = max(limit - (rules.clock() - started), _LEAST_TIME)
        return copied(call, self._find, entry, timeout=left)


@contextmanager
def _taken(slots: Slots) -> Generator[None, None, None]:
    try:
        yield
    finally:
        slots.give_back()
