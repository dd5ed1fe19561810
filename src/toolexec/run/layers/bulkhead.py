"""So many calls of one backend at a time, so that a slow one does not take all there is."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.errors import BackendBusyError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.settings import check_ranges, checked
from toolexec.process.slots import Slots
from toolexec.run.layer import Layer
from toolexec.run.resolve import Find, copied, resolved
from toolexec.run.runner import Runner
from toolexec.run.settings import BulkheadSettings
from toolexec.run.types import Result

_LEAST_TIME: Final = 0.001


@checked("Bulkhead")
@dataclass(eq=False, repr=False, kw_only=True)
class Bulkhead(BulkheadSettings):
    """A part of a `Gate`: at most *limit* calls of each remote backend run at a time; *limits* has other numbers for
    some, by the backend's name (0: no limit).

    At most *queue* calls of a backend wait for their turn, first come, first served, for at most *wait* seconds each,
    which count towards the call's own `timeout`. The others raise BackendBusyError, with nothing done, and so do those
    of a caller that has *per_caller* calls of the backend already, running or waiting (0: any number; all anonymous
    callers are one).

    Local tools have a limit only where *limits* names their backend, `local`: one that calls others would wait for
    itself. Raises ConfigurationError for numbers that make no sense.
    """

    limits: Mapping[str, int] | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        check_ranges("Bulkhead", least={f"limits[{name!r}]": limit for name, limit in (self.limits or {}).items()})
        self._slots: dict[tuple[str, str], Slots | None] = {}
        self._calls: Counter[tuple[str, ...]] = Counter()  # by backend and caller
        self._lock = threading.Lock()

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that makes so many calls of *inner* at a time."""
        return _Bounded(self, inner, find)

    def slots(self, entry: Registered) -> Slots | None:
        """Return the slots of the tool's backend; None where it has no limit."""
        key = (entry.binding.kind, entry.binding.backend)
        try:
            return self._slots[key]
        except KeyError:
            limit = (self.limits or {}).get(entry.binding.backend, 0 if entry.binding.kind == "local" else self.limit)
            return self._slots.setdefault(key, Slots(limit) if limit else None)

    @contextmanager
    def share(self, call: ToolCall, entry: Registered) -> Generator[None, None, None]:
        """Count the call as one of its caller's in the block. Raises BackendBusyError where that has its share."""
        caller = call.origin.caller
        key = (entry.binding.kind, entry.binding.backend, caller.realm, caller.id)
        with self._lock:
            if self._calls[key] >= self.per_caller:
                raise BackendBusyError(
                    f"{self.per_caller} calls of the backend {entry.binding.backend} by this caller are under way, "
                    f"which is its share; nothing was done: call {entry.tool.id} again when one has ended",
                    tool_id=entry.tool.id,
                    op="bulkhead",
                    backend=entry.binding.backend,
                    details={"limit": self.per_caller},
                )
            self._calls[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls[key] -= 1
                if not self._calls[key]:
                    del self._calls[key]


class _Bounded(Layer):
    def __init__(self, rules: Bulkhead, inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._rules = rules
        self._find = find

    async def run(self, call: ToolCall) -> Result:
        entry = resolved(call, self._find)
        slots = self._rules.slots(entry)
        if slots is None:
            return await self.inner.run(call)
        if not self._rules.per_caller:
            return await self._run(slots, call)
        with self._rules.share(call, entry):
            return await self._run(slots, call)

    async def _run(self, slots: Slots, call: ToolCall) -> Result:
        if not slots.take():
            call = await self._waited(slots, call)
        try:
            return await self.inner.run(call)
        finally:
            slots.leave()

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        entry = resolved(call, self._find)
        slots = self._rules.slots(entry)
        counts = slots is not None and self._rules.per_caller
        with self._rules.share(call, entry) if counts else nullcontext():
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
                    slots.leave()

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        inner = self.inner_in_thread
        if inner is None or not self.runs_in_thread(call, within):
            return None
        entry = resolved(call, self._find)
        slots = self._rules.slots(entry)
        if slots is None:
            return inner.run_in_thread(call, wait, within)
        with self._rules.share(call, entry) if self._rules.per_caller else nullcontext():
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
        if not await slots.wait(patience, rules.queue):
            raise BackendBusyError(
                f"{slots.size} calls of the backend {entry.binding.backend} are under way, and there was no room for "
                f"{entry.tool.id}; nothing was done: call it again later",
                tool_id=entry.tool.id,
                op="bulkhead",
                backend=entry.binding.backend,
                details={"limit": slots.size},
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
        slots.leave()
