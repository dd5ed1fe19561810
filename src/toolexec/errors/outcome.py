"""What became of a call: one typed fact, set by the transport that knows it, and read by everything else."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What became of the work of one call.

    Retries, breakers, the ledger of effects, idempotency keys, undoing, fallbacks, caches and durable runs all read it;
    none of them derives it again from a class of errors or from `retryable`, which only advises the caller.

    >>> from toolexec import Exec
    >>> def fail():
    ...     raise ValueError("no such order")
    >>> with Exec().sync as ex:
    ...     _ = ex.add(fail, "shop:order")
    ...     ex.run_tool("shop:order").outcome
    <Outcome.REFUSED: 'refused'>
    """

    NOT_SENT = "not_sent"
    """The call certainly never began: making it again cannot do its work twice."""
    REFUSED = "refused"
    """The tool answered that it did not do it; nothing was done."""
    DONE = "done"
    """The tool did its work; its answer may be unreadable."""
    UNKNOWN = "unknown"
    """It may have done its work, or a part of it."""

    @classmethod
    def read(cls, value: object) -> Outcome | None:
        """Return the outcome that *value* names, as JSON has it; None where it names none."""
        try:
            return cls(value)
        except ValueError:
            return None

    @property
    def is_undone(self) -> bool:
        """Whether certainly nothing was done."""
        return self in (Outcome.NOT_SENT, Outcome.REFUSED)
