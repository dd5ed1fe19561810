"""Virtual machines as sandboxes: each program has a kernel of its own, restored from a snapshot with a guest in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.runtime.containers.microvm.config import MicrovmConfig
    from toolexec.runtime.containers.microvm.engine import MicrovmBackend, MicrovmEngine
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.containers.microvm.config": ("MicrovmConfig",),
            "toolexec.runtime.containers.microvm.engine": ("MicrovmBackend", "MicrovmEngine"),
        },
        unix_for="sandboxes of virtual machines",
    )

__all__ = ["MicrovmBackend", "MicrovmConfig", "MicrovmEngine"]
