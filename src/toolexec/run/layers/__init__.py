"""Rules around a call, each a runner around a runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.run.layers.timeout import Timeout
    from toolexec.run.layers.trace import Trace, TraceEvent, TraceHook
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.run.layers.timeout": ("Timeout",),
            "toolexec.run.layers.trace": ("Trace", "TraceEvent", "TraceHook"),
        },
    )

__all__ = ["Timeout", "Trace", "TraceEvent", "TraceHook"]
