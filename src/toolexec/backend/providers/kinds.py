"""The kinds of providers there are, each in a file of its own that is imported when it is first asked for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol, TypedDict

from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.source import Source
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.settings import check_settings, unknown_setting

__all__ = ["PROVIDER_KINDS", "MakeSource", "ProviderSettings", "provider_backend", "source_of"]

PROVIDER_KINDS: Final[dict[str, str]] = {
    "http": "toolexec.backend.providers.http:http_source",
    "openapi": "toolexec.backend.providers.openapi:openapi_source",
}
"""Where the source of each kind is made: `module:function`, which is a `MakeSource`."""


class ProviderSettings(TypedDict, total=False):
    """What every provider takes beside the settings of its kind.

    `enabled` false switches it off. `refresh` is the number of seconds after which its definition is read again (0:
    only on demand), `load_timeout` how long one reading may take (30 seconds). `secrets` fills in references.
    """

    enabled: bool
    refresh: float
    load_timeout: float
    secrets: SecretResolver | None


_COMMON: Final = tuple(ProviderSettings.__annotations__)


class MakeSource(Protocol):
    """Makes a source from settings, such as those of a `[providers.NAME]` block."""

    def __call__(self, name: str, settings: Mapping[str, Any], *, secrets: SecretResolver | None = None) -> Source:
        """Return the source of provider *name*; references in the settings are filled in by *secrets* when they are
        needed, and are plain text without it. Raises ConfigurationError for settings that cannot work, naming each
        unknown one with the nearest that there is, and MissingExtraError."""
        ...


def source_of(kind: str, name: str, settings: Mapping[str, Any], *, secrets: SecretResolver | None = None) -> Source:
    """Return the source that *settings* describe. Raises ConfigurationError and MissingExtraError."""
    place = PROVIDER_KINDS.get(kind)
    if place is None:
        raise ConfigurationError(f"provider {name}: there is no kind {kind!r}; {did_you_mean(kind, PROVIDER_KINDS)}")
    module, function = place.split(":")
    make: MakeSource = getattr(import_module(module), function)
    return make(name, settings, secrets=secrets)


def provider_backend(kind: str, name: str, settings: Mapping[str, Any]) -> SourceBackend:
    """Return the backend of provider *name*; *settings* are those of its kind and `ProviderSettings`.

    Nothing is read or started yet. Raises ConfigurationError and MissingExtraError.
    """
    common: dict[str, Any] = {key: value for key, value in settings.items() if key in _COMMON}
    own = {key: value for key, value in settings.items() if key not in _COMMON}
    check_settings(f"provider {name}", ProviderSettings, common)
    secrets = common.pop("secrets", None)
    timeout = common.pop("load_timeout", 30.0)
    try:
        source = source_of(kind, name, own, secrets=secrets)
    except ConfigurationError as error:
        unknown = str(error.details.get("setting", ""))
        if unknown in own and difflib.get_close_matches(unknown, _COMMON, n=1, cutoff=0.8):
            raise unknown_setting(f"provider {name}", unknown, _COMMON) from error
        raise
    return SourceBackend(name, source, timeout=timeout, **common)
