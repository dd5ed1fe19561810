"""Rules around a call, each a runner around a runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.run.layers.audit import Audit
    from toolexec.run.layers.breaker import Breaker
    from toolexec.run.layers.bulkhead import Bulkhead
    from toolexec.run.layers.cache import Cache
    from toolexec.run.layers.fallback import Fallback
    from toolexec.run.layers.learning import Learning
    from toolexec.run.layers.ledger import Ledger
    from toolexec.run.layers.retry import Retry
    from toolexec.run.layers.timeout import Timeout
    from toolexec.run.layers.trace import Trace, TraceEvent, TraceHook
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.run.layers.audit": ("Audit",),
            "toolexec.run.layers.breaker": ("Breaker",),
            "toolexec.run.layers.bulkhead": ("Bulkhead",),
            "toolexec.run.layers.cache": ("Cache",),
            "toolexec.run.layers.fallback": ("Fallback",),
            "toolexec.run.layers.learning": ("Learning",),
            "toolexec.run.layers.ledger": ("Ledger",),
            "toolexec.run.layers.retry": ("Retry",),
            "toolexec.run.layers.timeout": ("Timeout",),
            "toolexec.run.layers.trace": ("Trace", "TraceEvent", "TraceHook"),
        },
    )

__all__ = [
    "Audit",
    "Breaker",
    "Bulkhead",
    "Cache",
    "Fallback",
    "Learning",
    "Ledger",
    "Retry",
    "Timeout",
    "Trace",
    "TraceEvent",
    "TraceHook",
]
