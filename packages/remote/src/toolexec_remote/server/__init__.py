"""The server of remote runtimes: it lends the sandboxes of this machine to those who have a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import lazy_names

if TYPE_CHECKING:
    from toolexec.remote import RuntimeServerSettings, TenantQuota
    from toolexec_remote.server.capacity import report_sandbox
    from toolexec_remote.server.serving import serve_runtime, tls_context
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.remote": ("RuntimeServerSettings", "TenantQuota"),
            "toolexec_remote.server.capacity": ("report_sandbox",),
            "toolexec_remote.server.serving": ("serve_runtime", "tls_context"),
        },
    )

__all__ = ["RuntimeServerSettings", "TenantQuota", "report_sandbox", "serve_runtime", "tls_context"]
