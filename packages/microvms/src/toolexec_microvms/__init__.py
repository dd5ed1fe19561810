"""Virtual machines as sandboxes: each program has a kernel of its own, restored from a snapshot with a guest in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import lazy_names

if TYPE_CHECKING:
    from toolexec_microvms.config import MicrovmConfig
    from toolexec_microvms.engine import MicrovmBackend, MicrovmEngine
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec_microvms.config": ("MicrovmConfig",),
            "toolexec_microvms.engine": ("MicrovmBackend", "MicrovmEngine"),
        },
        unix_for="sandboxes of virtual machines",
    )

__all__ = ["MicrovmBackend", "MicrovmConfig", "MicrovmEngine"]
