"""Who a caller of the HTTP server is: API keys and tokens, and what is refused."""

from __future__ import annotations

from toolexec.server.auth.live_keys import LiveKeys
from toolexec.server.auth.settings import ApiKey, AuthSettings, JwtSettings

__all__ = ["ApiKey", "AuthSettings", "JwtSettings", "LiveKeys"]
