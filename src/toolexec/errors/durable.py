"""Errors of durable runs and of the journal that keeps them."""

from __future__ import annotations

from typing import ClassVar

from toolexec.errors.base import ToolExecError


class RunError(ToolExecError):
    """A durable run cannot go on, or not be used as asked; the code says why, and `run_id` names it."""

    code = "run"
    # For `run_diverged`, `details` has the `step`, what was `recorded`, what `came`, and the `line` where it is known.
    further_codes: ClassVar[tuple[str, ...]] = (
        "run_not_found",
        "run_ended",
        "run_lost",
        "run_cancelled",
        "run_changed",
        "run_diverged",
        "run_unanswered",
    )

    @property
    def run_id(self) -> str:
        """Return the ID of the run; empty where none is known."""
        return str(self.details.get("run_id", ""))


class RunBusyError(RunError):
    """Another process runs it, or it has not ended yet."""

    code = "run_busy"
    default_retryable = True


class RunWaitingError(RunError):
    """The run is suspended until something happens, which `waits` lists; nothing has failed."""

    code = "run_waiting"

    @property
    def waits(self) -> list[dict[str, object]]:
        """Return what the run waits for, as JSON-able data."""
        return list(self.details.get("waits", ()))


class JournalError(ToolExecError):
    """The journal of durable runs cannot be read or written; nothing was done that could not be recorded."""

    code = "journal"


class StateError(ToolExecError):
    """The store of a server's sessions and waiting calls cannot be reached; the same may succeed later, and what was to
    be written may have been."""

    code = "state"
    default_retryable = True
