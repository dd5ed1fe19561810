"""The protocol of engines that run durable runs elsewhere than in the caller's process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from toolexec.durable.journal import CallRecord, RunRecord, RunState, Signal

__all__ = ["DurableEngine"]


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
