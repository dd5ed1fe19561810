"""Containers of a containerd daemon, without Docker around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import lazy_names

if TYPE_CHECKING:
    from toolexec_containers.containerd.engine import ContainerdBackend, ContainerdConfig, ContainerdEngine
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec_containers.containerd.engine": (
                "ContainerdBackend",
                "ContainerdConfig",
                "ContainerdEngine",
            ),
        },
        unix_for="the sandbox containerd",
    )

__all__ = ["ContainerdBackend", "ContainerdConfig", "ContainerdEngine"]
