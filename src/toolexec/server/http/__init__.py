"""The server over HTTP: what is let in, how much of it, and how it is watched; needs the `serve` extra (the settings
alone do not)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names
from toolexec.server.http.settings import HttpSettings

if TYPE_CHECKING:
    from toolexec.server.http.app import HttpApp, build_app
    from toolexec.server.http.health import Health
    from toolexec.server.http.metrics import Metrics
    from toolexec.server.http.serving import serve_http
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.server.http.app": ("HttpApp", "build_app"),
            "toolexec.server.http.health": ("Health",),
            "toolexec.server.http.metrics": ("Metrics",),
            "toolexec.server.http.serving": ("serve_http",),
        },
        extra="serve",
        needed_for="serving over HTTP",
    )

__all__ = ["Health", "HttpApp", "HttpSettings", "Metrics", "build_app", "serve_http"]
