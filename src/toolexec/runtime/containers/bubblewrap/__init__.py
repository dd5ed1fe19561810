"""Containers of bubblewrap: Linux namespaces around a child process. No daemon, no root, milliseconds to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.runtime.containers.bubblewrap.engine import BubblewrapBackend, BubblewrapConfig, BubblewrapEngine
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.containers.bubblewrap.engine": (
                "BubblewrapBackend",
                "BubblewrapConfig",
                "BubblewrapEngine",
            ),
        },
        unix_for="the sandbox bubblewrap",
    )

__all__ = ["BubblewrapBackend", "BubblewrapConfig", "BubblewrapEngine"]
