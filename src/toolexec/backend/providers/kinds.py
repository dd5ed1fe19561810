"""The kinds of providers there are, each in a file of its own that is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol

from toolexec.backend.providers.source import Source
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean

__all__ = ["PROVIDER_KINDS", "MakeSource", "source_of"]

PROVIDER_KINDS: Final[dict[str, str]] = {
    "http": "toolexec.backend.providers.http:http_source",
}
"""Where the source of each kind is made: `module:function`, which is a `MakeSource`."""


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
