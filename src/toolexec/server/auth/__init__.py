"""Who a caller of the HTTP server is: API keys and tokens, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.server.auth.live_keys import LiveKeys
    from toolexec.server.auth.settings import ApiKey, AuthSettings, JwtSettings
    from toolexec.server.auth.sign_in_settings import SignInSettings
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.server.auth.live_keys": ("LiveKeys",),
            "toolexec.server.auth.settings": ("ApiKey", "AuthSettings", "JwtSettings"),
            "toolexec.server.auth.sign_in_settings": ("SignInSettings",),
        },
    )

__all__ = ["ApiKey", "AuthSettings", "JwtSettings", "LiveKeys", "SignInSettings"]
