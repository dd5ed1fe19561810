"""Durable runs, and sandboxes, on Temporal: for many machines.

`Exec(journal="temporal")`, `[durable.temporal]` and `use = ["temporal"]` of a settings file work once this package is
installed. Nothing connects to a server before something is to run:

>>> from toolexec import Exec
>>> from toolexec_temporal import TemporalEngine
>>> Exec(journal=TemporalEngine(address="temporal:7233")).options.journal.settings.address
'temporal:7233'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.journal import lazy_names

if TYPE_CHECKING:
    from toolexec_temporal.backend import TemporalBackend
    from toolexec_temporal.engine import TemporalEngine
    from toolexec_temporal.settings import TemporalSettings
    from toolexec_temporal.worker import TemporalWorker
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec_temporal.backend": ("TemporalBackend",),
            "toolexec_temporal.engine": ("TemporalEngine",),
            "toolexec_temporal.settings": ("TemporalSettings",),
            "toolexec_temporal.worker": ("TemporalWorker",),
        },
    )

__all__ = ["TemporalBackend", "TemporalEngine", "TemporalSettings", "TemporalWorker"]
