"""Which programs come first where more of them compute than there are cores, and where they run."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

CORES: Final[int] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""How many cores this process may use."""
GIVES_WAY: Final[ContextVar[bool]] = ContextVar("toolexec_gives_way", default=False)
"""True for programs that leave the cores to all others from their start on. Who runs those of several tenants sets it
for what a tenant has beyond its part; a sandbox that knows no priorities takes no notice."""
APART: Final[ContextVar[bool]] = ContextVar("toolexec_apart", default=False)
"""True for programs that run in another process than this one, where the sandbox has one ready for them: what the
program of one tenant does to its process must not reach the others, and only there can a program that computes for long
be made to give way."""
COMPANY: Final[ContextVar[Callable[[], int] | None]] = ContextVar("toolexec_company", default=None)
"""Counts the callers that a server has served within the last seconds; None where there is one in any case."""
