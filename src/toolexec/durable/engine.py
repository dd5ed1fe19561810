"""The protocol of engines that run durable runs elsewhere than in the caller's process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from toolexec.durable.journal import CallRecord, RunRecord, RunState, Signal
from toolexec.durable.queues import Queue, QueueRecord
from toolexec.durable.schedules import Schedule

RESUMED: Final = "?resume"
"""What a held run waits for: `DurableEngine.resume` of it. No signal of a program begins like that."""


@runtime_checkable
class DurableEngine(Protocol):
    """Runs durable runs on machines of its own; `Exec(journal=engine)` hands its runs over to it.

    All methods raise RunError with the code `run_not_found` for a run that is not there (but `run`), and JournalError
    when the engine cannot be reached.
    """

    async def run(self, record: RunRecord) -> RunRecord:
        """Start a run, or attach to the one of this ID, and return it once it has ended or waits.

        Cancelling this leaves the run going. Raises RunError with the code `run_changed` when the ID belongs to another
        run: one with another digest.
        """
        ...

    async def get(self, run_id: str) -> RunRecord:
        """Return a run as it is now."""
        ...

    async def calls(self, run_id: str) -> list[CallRecord]:
        """Return the calls of a run, in the order of their beginning."""
        ...

    async def signals(self, run_id: str) -> list[Signal]:
        """Return the signals that were sent to a run, in that order."""
        ...

    async def resume(self, run_id: str) -> RunRecord:
        """Return a run once it has ended or waits."""
        ...

    async def runs(
        self,
        *,
        states: Sequence[RunState] = (),
        caller: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[RunRecord]:
        """Return runs as `Journal.runs` does."""
        ...

    async def signal(self, run_id: str, signal: Signal) -> bool:
        """Send a signal; return whether the run waits for it. Raises RunEndedError when the run has ended."""
        ...

    async def cancel(self, run_id: str) -> bool:
        """Ask to cancel a run, and return whether it has ended by that already."""
        ...

    async def delete(self, run_id: str) -> bool:
        """Forget a run that has ended; return whether there was one. Raises RunBusyError for one that has not."""
        ...

    async def aclose(self) -> None:
        """Close the connection; runs go on."""
        ...


@runtime_checkable
class RecordedEngine(DurableEngine, Protocol):
    """An engine that hands out all that it has recorded of a run, so that it can be made again and forked. Raises as
    `DurableEngine` does."""

    async def recording(self, run_id: str) -> tuple[RunRecord, Sequence[CallRecord], Sequence[Sequence[str]]]:
        """Return a run as it is now, with source, settings and result, its calls in the order of their beginning, and
        the groups in which their answers reached its code. Raises JournalError while no worker answers."""
        ...

    async def fork(
        self, run: RunRecord, calls: Sequence[CallRecord], groups: Sequence[Sequence[str]], *, held: bool
    ) -> RunRecord:
        """Start a run that begins with these calls, as `recording` gives them, and return it once it has ended or
        waits. A *held* one makes no call of its own until it is resumed: it waits for `RESUMED` before the first.
        Raises RunError with the code `run_changed` for an ID that another run has."""
        ...


@runtime_checkable
class QueuedEngine(DurableEngine, Protocol):
    """An engine that has queues and schedules of its own, too. Raises as `DurableEngine` does, and ConfigurationError
    for what it cannot keep."""

    async def enqueue(self, run: RunRecord, limits: Queue, *, delay: float) -> RunRecord:
        """Put a run into its `queue`, to begin after *delay* seconds at the earliest, and return it as it waits there;
        or the one that has its ID already. Raises RunError with the code `run_changed` for an ID that another run has:
        one with another digest."""
        ...

    async def queues(self) -> Sequence[QueueRecord]:
        """Return the queues that have runs which have not ended."""
        ...

    async def add_schedule(
        self, schedule: Schedule, run: RunRecord, limits: Queue | None, *, replace: bool
    ) -> Schedule:
        """Keep a schedule and return it; or the one that has its name already, unless that is to be replaced. At each
        of its times it makes a run as *run* is, with an ID, a clock and random numbers of its own; it waits in the
        `queue` of that, which has *limits*."""
        ...

    async def schedules(self) -> Sequence[Schedule]:
        """Return the schedules, by name."""
        ...

    async def remove_schedule(self, name: str) -> bool:
        """Forget a schedule; return whether there was one. Runs of it stay."""
        ...

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """Have a schedule make no more runs, or again from its next time on; return whether there is one."""
        ...
