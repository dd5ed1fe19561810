"""Hostile programs that no sandbox may let out. `toolexec.testing.escape_battery` runs them."""

from __future__ import annotations

from toolexec.testing.escapes.base import ISOLATING, LIMITS, Attempt, Check, Escape
from toolexec.testing.escapes.host import HOST_ESCAPES
from toolexec.testing.escapes.interpreter import INTERPRETER_ESCAPES
from toolexec.testing.escapes.kernel import KERNEL_ESCAPES
from toolexec.testing.escapes.processes import PROCESS_ESCAPES
from toolexec.testing.escapes.protocol import PROTOCOL_ESCAPES
from toolexec.testing.escapes.requests import REQUEST_ESCAPES
from toolexec.testing.escapes.resources import RESOURCE_ESCAPES
from toolexec.testing.escapes.site import Site

__all__ = ["ESCAPES", "ISOLATING", "LIMITS", "Attempt", "Check", "Escape", "Site"]

ESCAPES: tuple[Escape, ...] = (
    *HOST_ESCAPES,
    *KERNEL_ESCAPES,
    *PROCESS_ESCAPES,
    *RESOURCE_ESCAPES,
    *PROTOCOL_ESCAPES,
    *REQUEST_ESCAPES,
    *INTERPRETER_ESCAPES,
)
"""All of them; names are unique."""
