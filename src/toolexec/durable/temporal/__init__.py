"""Durable runs, and sandboxes, on Temporal: for many machines. It needs the extra `temporal`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.durable.sandboxes import provide_sandboxes as _provide_sandboxes
from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.durable.temporal.backend import TemporalBackend
    from toolexec.durable.temporal.engine import TemporalEngine
    from toolexec.durable.temporal.settings import TemporalSettings
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.durable.temporal.backend": ("TemporalBackend",),
            "toolexec.durable.temporal.engine": ("TemporalEngine",),
            "toolexec.durable.temporal.settings": ("TemporalSettings",),
        },
    )

__all__ = ["TemporalBackend", "TemporalEngine", "TemporalSettings"]

_provide_sandboxes()  # for runtimes that are made without an Exec
