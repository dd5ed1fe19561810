"""A sandbox that is none: code runs as a child process of the host, with limits and without isolation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.runtime.unsafe_host.backend import UnsafeConfig, UnsafeHostBackend
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.unsafe_host.backend": (
                "UnsafeConfig",
                "UnsafeHostBackend",
            ),
        },
        unix_for="the sandbox unsafe_host",
    )

__all__ = ["UnsafeConfig", "UnsafeHostBackend"]
