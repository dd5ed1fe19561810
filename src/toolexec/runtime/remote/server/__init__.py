"""The server of remote runtimes: it lends the sandboxes of this machine to those who have a key.

The settings need no extra, all else needs `remote`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors.extras import extra_needed
from toolexec.runtime.remote.server.settings import RuntimeServerSettings, TenantQuota

if TYPE_CHECKING:
    from toolexec.runtime.remote.server.capacity import report_sandbox
    from toolexec.runtime.remote.server.serving import serve_runtime, tls_context

__all__ = ["RuntimeServerSettings", "TenantQuota", "report_sandbox", "serve_runtime", "tls_context"]

_PLACES: Final = {"report_sandbox": "capacity", "serve_runtime": "serving", "tls_context": "serving"}


def __getattr__(name: str) -> Any:
    """Import what needs the extra when it is asked for. Raises MissingExtraError where the extra is missing."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra_needed("remote", "lending sandboxes to other machines"):
        return getattr(import_module(f"{__name__}.{place}"), name)
