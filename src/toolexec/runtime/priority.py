"""Which programs come first where more of them compute than there are cores, and where they run."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from toolexec.model.bound import Bound

CORES: Final[int] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""How many cores this process may use."""
GIVES_WAY: Final[ContextVar[bool]] = ContextVar("toolexec_gives_way", default=False)
"""True for programs that leave the cores to all others from their start on. A sandbox that knows no priorities takes no
notice. `ranked` sets it."""
APART: Final[ContextVar[bool]] = ContextVar("toolexec_apart", default=False)
"""True for programs that run in another process than this one, where the sandbox has one ready for them: what the
program of one tenant does to its process must not reach the others, and only there can a program that computes for long
be made to give way. `ranked` sets it."""
COMPANY: Final[ContextVar[Callable[[], int] | None]] = ContextVar("toolexec_company", default=None)
"""Counts the callers that a server has served within the last seconds; None where there is one in any case."""


@contextmanager
def ranked(*, apart: bool, gives_way: bool) -> Generator[None]:
    """Have programs that are run in the block, in this task, run `APART` and be those that `GIVES_WAY`, or not."""
    with Bound(APART, apart), Bound(GIVES_WAY, gives_way):
        yield


def part_of_cores(own: float, others: float, cores: int = CORES) -> float:
    """Return how many of the *cores* are for who has so much weight of *own* beside that of the *others*: one at least,
    and all of them where there are no others. Programs beyond that give way."""
    return max(1.0, cores * own / (own + others)) if others else float(cores)
