"""What is recorded of one run, and how far it has been repeated."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b

from toolexec.durable.journal import CallRecord, RunKind, Snapshot
from toolexec.errors import RunError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.run.audit.record import canonical

Sleeper = Callable[[str, float, "tuple[int, int] | None"], Awaitable[None]]
_EACH = 100
"""After how many calls the state of the engine is kept again."""
_EACH_WAIT = 10
"""The same, for a run that is suspended."""
TOOK = "took"
"""The key of an outcome that has how many seconds the call took, in runs whose clock goes on by that."""
_MOST_BYTES = 4 << 20
"""How long a state may be, as JSON, to be worth its place."""


class Replay:
    """Repeats what is recorded of a run, call by call and delivery by delivery; then it is *live*.

    Make it on the event loop of the run. *calls* and *groups* are what the journal has. With *verify* it is never
    live: a run that has ended is repeated, and nothing else may come. *snapshot* is the state that was kept last of an
    engine that need not begin again. Implements `Deliveries`.
    """

    is_durable: bool = True

    def __init__(
        self,
        run_id: str,
        kind: RunKind,
        calls: Iterable[CallRecord] = (),
        groups: Iterable[Sequence[str]] = (),
        *,
        verify: bool = False,
        snapshot: Snapshot | None = None,
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
        self.saver: Callable[[Snapshot], None] | None = None
        """Keeps the state of the engine."""
        self.skipped: list[CallRecord] = []
        """The calls of code that were made before the state which the engine went on from."""
        self.asked: set[str] = set()
        """The steps that the program has come to, though it may have ended before they were made."""
        self.answered: set[str] = set()
        """The steps whose answers the program has got."""
        self.hide: Callable[[JSONObject], JSONValue] | None = None
        """What the arguments of calls are compared without: secrets, of a run that was recorded without them."""
        self.is_at_rest: bool = kind == "chain"
        """Whether the program waits for answers, and does nothing itself; a chain never does."""
        self.keeps_time: bool = False
        """Whether the timers of code are steps, and its clock goes on by the times that are recorded."""
        self._took: dict[str, float] = {}
        self.writing = threading.Lock()
        """Hold it from `take_delivered` on until that is written: what came first is written first."""
        self._lock = threading.Lock()
        self._groups = deque(tuple(group) for group in groups)
        self._delivered: list[list[str]] = []
        self._count = 0
        self._snapshot = snapshot
        self._take: Callable[[], JSONDict | None] | None = None
        self._pending: Snapshot | None = None
        self._slept: set[str] = set()
        self._before = {step for step in self.records if "?" not in step}
        self._kept_at = 0
        self._held: set[str] = set()
        self._called_off: set[str] = set()
        self._sole = ""
        self._loop = asyncio.get_running_loop()
        self._live = asyncio.Event()
        for call in self.records.values():
            self.note_took(call.step, (call.outcome or {}).get(TOOK))
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

    def rest(self) -> None:
        """Implement `Deliveries.rest`."""
        self.is_at_rest = True

    def wake(self) -> None:
        """Implement `Deliveries.wake`."""
        self.is_at_rest = self.kind == "chain"

    def deliver(self, steps: Sequence[str]) -> None:
        """Implement `Deliveries.deliver`."""
        self.is_at_rest = False
        self._count += 1
        self.answered.update(steps)
        if not self._groups:
            self._delivered.append([*steps])
            return
        self._groups.popleft()
        self._go_live()

    def _go_live(self) -> None:
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

    @property
    def untaken(self) -> list[list[str]]:
        """What was delivered since `take_delivered` was last called."""
        return [[*group] for group in self._delivered]

    def put_back(self, delivered: Sequence[list[str]]) -> None:
        """Take back what `take_delivered` has given, as it could not be written."""
        self._delivered[:0] = delivered

    # -- states -------------------------------------------------------------------------------------------------

    def kept(self) -> JSONObject | None:
        """Implement `Deliveries.kept`."""
        snapshot = self._snapshot
        if snapshot is None or self.verify or snapshot.state["groups"] > len(self._groups):
            return None
        return snapshot.state

    def accept(self) -> int:
        """Implement `Deliveries.accept`."""
        assert self._snapshot is not None
        state, most = self._snapshot.state, self._snapshot.calls
        self._count, self._slept, self._kept_at = state["groups"], {*state["slept"]}, most
        for _ in range(self._count):
            self._groups.popleft()
        again = {*state["open"]}
        before = [call for step, call in self.records.items() if call.number <= most and step not in again]
        self.asked.update(call.step for call in before)
        self.skipped = [call for call in before if "?" not in call.step and call.step not in self._slept]
        self._go_live()
        return len(self.skipped)

    def watch(self, take: Callable[[], JSONDict | None]) -> None:
        """Implement `Deliveries.watch`."""
        self._take = take

    def checkpoint(self) -> None:
        """Implement `Deliveries.checkpoint`."""
        if self.saver is not None and len(self.records) - self._kept_at >= _EACH and self._is_beyond():
            self._pending = self._state()

    def take_state(self) -> Snapshot | None:
        """Return the state that is to be kept; call it holding `writing`, once all that was delivered is written."""
        pending, self._pending = self._pending, None
        return pending

    def state_at_rest(self) -> Snapshot | None:
        """Return the state of an engine that only waits, if it is worth being kept, and all of it is written."""
        worth = len(self.records) - self._kept_at >= _EACH_WAIT
        return self._state() if worth and self._is_beyond() and not self._delivered else None

    def _is_beyond(self) -> bool:
        """Return whether the code has come to all calls that were recorded before: only then those that are recorded
        are those that it has made."""
        if self.is_live and self._before and len(self.asked) >= len(self._before):
            self._before = {step for step in self._before if step not in self.asked}
        return self.is_live and not self._before

    def _state(self) -> Snapshot | None:
        self._kept_at = len(self.records)
        taken = self._take() if self._take is not None else None
        if taken is None:
            return None
        state = taken | {"groups": self._count, "slept": sorted(self._slept)}
        return Snapshot(calls=len(self.records), state=state) if len(json.dumps(state)) <= _MOST_BYTES else None

    # -- calls --------------------------------------------------------------------------------------------------

    def is_known(self, step: str) -> bool:
        """Implement `Deliveries.is_known`."""
        record = self.records.get(step)
        return record is not None and is_over(record)

    def call_off(self, step: str) -> None:
        """Implement `Deliveries.call_off`."""
        self._called_off.add(step)

    def digest(self, args: JSONObject | None) -> str:
        """Return what is recorded of arguments."""
        given = args or {}
        return args_digest(given if self.hide is None else self.hide(given))

    def is_called_off(self, step: str) -> bool:
        """Return whether the code has called off a call, or the chain that it is a step of."""
        return any(_belongs(step, each) for each in self._called_off)

    def is_held(self, step: str) -> bool:
        """Implement `Deliveries.is_held`."""
        return any(_belongs(held, step) for held in tuple(self._held))

    def direct(self, step: str) -> None:
        """Implement `Deliveries.direct`."""
        self.is_at_rest = bool(step)
        if not step and self._sole:
            self.answered.add(self._sole)
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
        self._slept.add(step)
        assert self.sleeper is not None
        await self.sleeper(step, seconds, at)

    # -- time ---------------------------------------------------------------------------------------------------

    def expect(self, step: str) -> None:
        """Implement `Deliveries.expect`."""
        self.asked.add(step)

    def took(self, step: str) -> float | None:
        """Implement `Deliveries.took`."""
        return self._took.get(step)

    def note_took(self, step: str, seconds: float | None) -> None:
        """Take note how long a step took; a chain in code takes as long as its steps together."""
        if seconds is None or "?" in step:
            return
        self._took[step] = seconds
        chain, _, number = step.partition(".")
        if number:
            self._took[chain] = self._took.get(chain, 0.0) + seconds

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
            if step not in self.asked and "?" not in step and is_over(record) and not self._was_left(step):
                raise self.diverged(step, "it ends", f"a call of {record.tool}")

    def _was_left(self, step: str) -> bool:
        """Return whether a step is one of a chain in code that the code did not wait for: how far such a chain comes is
        up to chance."""
        chain = step.partition(".")[0]
        return self.kind == "code" and chain != step and chain in self.asked and chain not in self.answered


def args_digest(args: JSONValue) -> str:
    """Return what distinguishes arguments from others."""
    return blake2b(canonical(args), digest_size=16).hexdigest()


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
