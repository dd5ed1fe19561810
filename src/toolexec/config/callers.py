"""The callers of a server as the settings have them, for those who make calls in their name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from toolexec.config import parts
from toolexec.config.loaded import LoadedConfig
from toolexec.model.origin import Caller

if TYPE_CHECKING:
    from toolexec.server.auth import LiveKeys


def present_by(loaded: LoadedConfig) -> Callable[[Caller], Caller | None]:
    """Return what gives a caller by the keys and tokens of the endpoint that it came to; see `LiveKeys.present`. One of
    an endpoint that there is not has no rights. What it returns raises ConfigurationError for keys that make no sense.
    """

    @cache
    def keys_at(endpoint: str) -> LiveKeys:
        from toolexec.server.auth import LiveKeys

        return LiveKeys(loaded.endpoints[endpoint].settings.auth if endpoint else parts.auth_settings(loaded))

    def present(caller: Caller) -> Caller | None:
        if caller.endpoint and caller.endpoint not in loaded.endpoints:
            return None
        return keys_at(caller.endpoint).present(caller) if caller.method else caller

    return present
