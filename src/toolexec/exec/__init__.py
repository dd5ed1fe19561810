"""The facade: one object to find, read about, run, chain and stream tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.exec.chain import ChainResult, Step
    from toolexec.exec.embedded import EmbeddedEngine
    from toolexec.exec.facade import Exec
    from toolexec.exec.options import Options, SecurityProfile
    from toolexec.exec.sources import Added
    from toolexec.exec.sync import SyncExec
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.exec.chain": ("ChainResult", "Step"),
            "toolexec.exec.embedded": ("EmbeddedEngine",),
            "toolexec.exec.facade": ("Exec",),
            "toolexec.exec.options": ("Options", "SecurityProfile"),
            "toolexec.exec.sources": ("Added",),
            "toolexec.exec.sync": ("SyncExec",),
        },
    )

__all__ = ["Added", "ChainResult", "EmbeddedEngine", "Exec", "Options", "SecurityProfile", "Step", "SyncExec"]
