"""Checks of a whole program before its first call: made where a run begins, and not again where it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

CHECKS: Final[ContextVar[Callable[[Callable[[], None]], None] | None]] = ContextVar("toolexec_checks", default=None)
"""Decides whether the check of a program is made, which is given: a run that is repeated was checked when it began, and
by the tools of then. None: always."""


def check_first(check: Callable[[], None]) -> None:
    """Make *check*, unless the run was checked when it began. Raises what *check* raises."""
    decide = CHECKS.get()
    if decide is None:
        check()
    else:
        decide(check)
