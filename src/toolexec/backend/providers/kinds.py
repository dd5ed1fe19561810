"""The kinds of providers there are, each in a file of its own that is imported when it is first asked for."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypedDict

from toolexec.backend.plugins import BACKENDS, known_plugins, load_plugin
from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.source import Source
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.settings import check_settings, unknown_setting

if TYPE_CHECKING:
    from toolexec.backend.providers.command.sandbox import MakeSandbox

PROVIDER_KINDS: Final[dict[str, str]] = {
    "command": "toolexec.backend.providers.command:command_source",
    "http": "toolexec.backend.providers.http.source:http_source",
    "openapi": "toolexec.backend.providers.openapi.source:openapi_source",
    "python": "toolexec.backend.providers.python.source:python_source",
}
"""Where the source of each kind of this package is made: `module:function`, which is a `MakeSource`."""


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

    def __call__(self, name: str, settings: JSONObject, *, secrets: SecretResolver | None = None) -> Source:
        """Return the source of provider *name*; references in the settings are filled in by *secrets* when they are
        needed, and are plain text without it. Raises ConfigurationError for settings that cannot work, naming each
        unknown one with the nearest that there is, and MissingExtraError."""
        ...


def source_of(
    kind: str,
    name: str,
    settings: JSONObject,
    *,
    secrets: SecretResolver | None = None,
    sandboxes: MakeSandbox | None = None,
) -> Source:
    """Return the source that *settings* describe; *sandboxes* makes those for programs.

    Raises ConfigurationError and MissingExtraError.
    """
    make: Callable[..., Source] = _make_of(kind, name)
    if kind == "command":
        make = partial(make, sandboxes=sandboxes)
    if kind in PROVIDER_KINDS:
        return make(name, settings, secrets=secrets)
    try:
        source = make(name, settings, secrets=secrets)
    except ToolExecError:
        raise
    except Exception as error:  # whatever a plugin does is the failure of its own providers
        raise ConfigurationError(
            f"provider {name}: the plugin for {kind} failed: {type(error).__name__}: {str(error)[:1000]}"
        ) from error
    if not all(hasattr(source, member) for member in ("load", "aclose", "info", "kind")):
        raise ConfigurationError(f"provider {name}: the plugin for {kind} made {type(source).__name__}, not a Source")
    return source


def provider_kinds() -> list[str]:
    """Return all kinds, those of other packages (entry points of the group `toolexec.backends`) too, and of those of
    toolexec that are not installed; loads none."""
    return [*PROVIDER_KINDS, *(kind for kind in known_plugins(BACKENDS) if kind not in PROVIDER_KINDS)]


def _make_of(kind: str, name: str) -> MakeSource:
    place = PROVIDER_KINDS.get(kind)
    if place is not None:
        module, function = place.split(":")
        return getattr(import_module(module), function)
    if kind not in known_plugins(BACKENDS):
        raise ConfigurationError(f"provider {name}: there is no kind {kind!r}; {did_you_mean(kind, provider_kinds())}")
    return load_plugin(BACKENDS, kind, needed_for=f"provider {name}")


def provider_backend(
    kind: str, name: str, settings: JSONObject, *, sandboxes: MakeSandbox | None = None
) -> SourceBackend:
    """Return the backend of provider *name*; *settings* are those of its kind and `ProviderSettings`, *sandboxes* makes
    the sandboxes for programs.

    Nothing is read or started yet. Raises ConfigurationError and MissingExtraError.
    """
    common: JSONDict = {key: value for key, value in settings.items() if key in _COMMON}
    own = {key: value for key, value in settings.items() if key not in _COMMON}
    check_settings(f"provider {name}", ProviderSettings, common)
    secrets = common.pop("secrets", None)
    timeout = common.pop("load_timeout", 30.0)
    try:
        source = source_of(kind, name, own, secrets=secrets, sandboxes=sandboxes)
    except ConfigurationError as error:
        unknown = str(error.details.get("setting", ""))
        if unknown in own and difflib.get_close_matches(unknown, _COMMON, n=1, cutoff=0.8):
            raise unknown_setting(f"provider {name}", unknown, _COMMON) from error
        raise
    return SourceBackend(name, source, timeout=timeout, **common)
