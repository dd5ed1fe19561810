"""Which programs come first where more of them compute than there are cores."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["GIVES_WAY"]

GIVES_WAY: Final[ContextVar[bool]] = ContextVar("toolexec_gives_way", default=False)
"""True for programs that leave the cores to all others from their start on. Who runs those of several tenants sets it
for what a tenant has beyond its part; a sandbox that knows no priorities takes no notice."""
