"""The server of remote runtimes: it lends the sandboxes of this machine to those who have a key.

The settings need no extra, all else needs `remote`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names
from toolexec.runtime.remote.server_settings import RuntimeServerSettings, TenantQuota

if TYPE_CHECKING:
    from toolexec.runtime.remote.server.capacity import report_sandbox
    from toolexec.runtime.remote.server.serving import serve_runtime, tls_context
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.remote.server.capacity": ("report_sandbox",),
            "toolexec.runtime.remote.server.serving": ("serve_runtime", "tls_context"),
        },
        extra="remote",
        needed_for="lending sandboxes to other machines",
    )

__all__ = ["RuntimeServerSettings", "TenantQuota", "report_sandbox", "serve_runtime", "tls_context"]
