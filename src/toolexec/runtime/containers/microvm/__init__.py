"""Virtual machines as sandboxes: each program has a kernel of its own, restored from a snapshot with a guest in it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors.extras import unix_needed

if TYPE_CHECKING:
    from toolexec.runtime.containers.microvm.config import MicrovmConfig
    from toolexec.runtime.containers.microvm.engine import MicrovmBackend, MicrovmEngine

__all__ = ["MicrovmBackend", "MicrovmConfig", "MicrovmEngine"]

_PLACES: Final = {"MicrovmBackend": "engine", "MicrovmConfig": "config", "MicrovmEngine": "engine"}


def __getattr__(name: str) -> Any:
    """Import what is asked for: other sandboxes use parts of this package. Raises UnsupportedPlatformError where this
    system is none of Unix."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with unix_needed("sandboxes of virtual machines"):
        return getattr(import_module(f"{__name__}.{place}"), name)
