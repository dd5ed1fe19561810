"""The server over HTTP: what is let in, how much of it, and how it is watched; needs the `serve` extra (the settings
alone do not)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolexec.errors import MissingExtraError
from toolexec.server.http.settings import HttpSettings

if TYPE_CHECKING:
    from toolexec.server.http.app import HttpApp, build_app
    from toolexec.server.http.health import Health
    from toolexec.server.http.metrics import Metrics
    from toolexec.server.http.serving import serve_http

__all__ = ["Health", "HttpApp", "HttpSettings", "Metrics", "build_app", "serve_http"]

_PLACES = {"Health": "health", "HttpApp": "app", "Metrics": "metrics", "build_app": "app", "serve_http": "serving"}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{place}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("toolexec"):
            raise
        raise MissingExtraError("serve", needed_for="serving over HTTP") from error
