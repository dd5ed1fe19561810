"""Sandboxes of gVisor: the code talks to a kernel of its own, written in Go, and not to the host's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import lazy_names

if TYPE_CHECKING:
    from toolexec_containers.gvisor.engine import GvisorBackend, GvisorConfig, GvisorEngine
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec_containers.gvisor.engine": (
                "GvisorBackend",
                "GvisorConfig",
                "GvisorEngine",
            ),
        },
        unix_for="the sandbox gvisor",
    )

__all__ = ["GvisorBackend", "GvisorConfig", "GvisorEngine"]
