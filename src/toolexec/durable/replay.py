"""What is recorded of one run, and how far it has been repeated."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from toolexec.durable.journal import CallRecord, RunKind
from toolexec.errors import RunError, ToolExecError

__all__ = ["Replay", "Sleeper"]

Sleeper = Callable[[str, float, "tuple[int, int] | None"], Awaitable[None]]


class Replay:
    """Repeats what is recorded of a run, call by call and delivery by delivery; then it is *live*.

    Make it on the event loop of the run. *calls* and *groups* are what the journal has. With *verify* it is never
    live: a run that has ended is repeated, and nothing else may come. Implements `Deliveries`.
    """

    def __init__(
        self,
        run_id: str,
        kind: RunKind,
        calls: Iterable[CallRecord] = (),
        groups: Iterable[Sequence[str]] = (),
        *,
        verify: bool = False,
    ) -> None:
        self.run_id = run_id
        self.kind: RunKind = kind
        self.verify = verify
        self.records: dict[str, CallRecord] = {call.step: call for call in calls}
        self.failure: ToolExecError | None = None
        """Why no more calls are made: the run diverged, or cannot be recorded any more."""
        self.on_failure: Callable[[ToolExecError], None] | None = None
        """Called once, with the first failure, in whatever thread that is."""
        self.sleeper: Sleeper | None = None
        self.asked: set[str] = set()
        """The steps that the program has come to."""
        self.writing = threading.Lock()
        """Hold it from `take_delivered` on until that is written: what came first is written first."""
        self._lock = threading.Lock()
        self._groups = deque(tuple(group) for group in groups)
        self._delivered: list[list[str]] = []
        self._held: set[str] = set()
        self._sole = ""
        self._loop = asyncio.get_running_loop()
        self._live = asyncio.Event()
        if not self._groups and not verify:
            self._live.set()

    @property
    def is_live(self) -> bool:
        """Whether all that was delivered was delivered again."""
        return not self._groups and not self.verify

    # -- deliveries ---------------------------------------------------------------------------------------------

    def upcoming(self) -> Sequence[str] | None:
        """Implement `Deliveries.upcoming`."""
        if self._groups:
            return self._groups[0]
        if self.verify:
            raise self.diverged("", "it waits for another answer", "its end")
        return None

    def deliver(self, steps: Sequence[str]) -> None:
        """Implement `Deliveries.deliver`."""
        if not self._groups:
            self._delivered.append([*steps])
            return
        self._groups.popleft()
        if not self.is_live:
            return
        if _running_loop() is self._loop:  # which may be one that has no other threads
            self._live.set()
            return
        with suppress(RuntimeError):  # the loop is closed, and nothing waits
            self._loop.call_soon_threadsafe(self._live.set)

    def take_delivered(self) -> list[list[str]]:
        """Return what was delivered since the last time; call it holding `writing`, and write it down."""
        taken, self._delivered = self._delivered, []
        return taken

    def put_back(self, delivered: Sequence[list[str]]) -> None:
        """Take back what `take_delivered` has given, as it could not be written."""
        self._delivered[:0] = delivered

    # -- calls --------------------------------------------------------------------------------------------------

    def is_known(self, step: str) -> bool:
        """Implement `Deliveries.is_known`."""
        record = self.records.get(step)
        return record is not None and is_over(record)

    def is_held(self, step: str) -> bool:
        """Implement `Deliveries.is_held`."""
        return any(_belongs(held, step) for held in tuple(self._held))

    def direct(self, step: str) -> None:
        """Implement `Deliveries.direct`."""
        self._sole = step

    async def hold(self, step: str, what: str) -> None:
        """Wait until the run is live; raises RunError where that can never be."""
        if self.is_live:
            return
        if (self._sole and _belongs(step, self._sole)) or (self.verify and self.kind == "chain"):
            raise self.diverged(step, f"it calls {what}", "something else")
        self._held.add(step)
        try:
            await self._live.wait()
        finally:
            self._held.discard(step)

    async def sleep(self, step: str, seconds: float, at: tuple[int, int] | None = None) -> None:
        """Implement `Deliveries.sleep`."""
        assert self.sleeper is not None
        await self.sleeper(step, seconds, at)

    # -- failures -----------------------------------------------------------------------------------------------

    def diverged(self, step: str, came: str, recorded: str, line: int = 0) -> ToolExecError:
        """Implement `Deliveries.diverged`."""
        where = f" at step {step}" if step else ""
        error = RunError(
            f"the run {self.run_id} does not do what it did before{where}{f' (line {line})' if line else ''}: {came}, "
            f"and {recorded} is recorded; give it the source that it was begun with, and nothing that changes",
            code="run_diverged",
            op="replay",
            details={"run_id": self.run_id, "step": step, "recorded": recorded, "came": came},
        )
        if line:
            error.details["line"] = line
        return self.fail(error)

    def fail(self, error: ToolExecError) -> ToolExecError:
        """Have no more calls made; return the first failure."""
        with self._lock:
            first = self.failure is None
            if first:
                self.failure = error
        if first and self.on_failure is not None:
            self.on_failure(error)
        assert self.failure is not None
        return self.failure

    def check_end(self) -> None:
        """Raise RunError for a run that has ended without coming to all that is recorded."""
        if self.failure is not None:
            raise self.failure
        if self._groups:
            raise self.diverged("", "it ends", f"the answer to {', '.join(self._groups[0]) or 'nothing'}")
        for step, record in self.records.items():
            if step not in self.asked and "?" not in step and is_over(record):
                raise self.diverged(step, "it ends", f"a call of {record.tool}")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def is_over(record: CallRecord) -> bool:
    """Return whether the record has the answer to its call."""
    return record.state != "begun" and record.outcome is not None


def _belongs(step: str, to: str) -> bool:
    return step == to or step.startswith(f"{to}.")
