"""The providers of a configuration: what `[providers.NAME]` says, and OpenAPI documents given as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolexec.config.formats import Place
from toolexec.config.mistakes import Mistakes
from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.units import seconds, size

if TYPE_CHECKING:
    from toolexec.backend.providers.backend import SourceBackend
    from toolexec.backend.secrets import SecretResolver

BLOCK: Final = "providers"
"""The table of a file that has the providers, each a table by its name."""

_HEAD: Final = 1 << 16
_YAML_TOP: Final = re.compile(r"""^["']?(?:openapi|swagger)["']?\s*:\s*["']?[23]""", re.MULTILINE)
_JSON_TOP: Final = re.compile(r'"(?:openapi|swagger)"\s*:\s*"[23]')
_FILES: Final = ("file", "spec", "cwd", "ca", "ca_file", "cert_file", "key_file", "certificate", "key", "descriptors")
"""Settings of some kind that name a file or a directory."""
_FILE_NAME: Final = re.compile(r"(?!secretref:|\$|[a-z+]+://)[^\n]+")  # neither a reference, nor a URL, nor PEM
_TIMES: Final = ("refresh", "load_timeout", "timeout", "connect_timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """One provider as it is written: its data, what messages name a place in it, and where it comes from."""

    data: Any
    where: Callable[[Place], str] = field(repr=False)
    origin: str
    directory: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredProvider:
    """One provider: its kind and settings, `entry` as they are written."""

    name: str
    kind: str
    settings: JSONObject = field(repr=False)
    entry: JSONObject = field(default_factory=JSONDict, repr=False)
    origin: str = ""

    @property
    def enabled(self) -> bool:
        """Whether it is switched on."""
        return self.settings.get("enabled", True) is True

    def backend(self) -> SourceBackend:
        """Return a backend of it. Raises ConfigurationError and MissingExtraError."""
        from toolexec.backend.providers.kinds import provider_backend
        from toolexec.runtime.programs import program_sandbox

        return provider_backend(self.kind, self.name, self.settings, sandboxes=program_sandbox)


def is_openapi(path: Path) -> bool:
    """Return whether a file is an OpenAPI document, judging by its beginning."""
    if path.suffix.lower() not in (".json", ".yaml", ".yml"):
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).decode("utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return False  # whatever reads it says why
    if head.lstrip().startswith("{"):
        return _JSON_TOP.search(head) is not None
    return _YAML_TOP.search(head) is not None


def openapi_entry(path: Path) -> tuple[str, ProviderEntry]:
    """Return the provider that an OpenAPI document is by itself, with the name of its file."""
    from toolexec.model.ids import clean_segment

    name = clean_segment(re.sub(r"[._-](?:openapi|swagger)$", "", path.stem))
    data = {"kind": "openapi", "spec": str(path)}
    return name, ProviderEntry(data=data, where=lambda _: str(path), origin=str(path))


def read_providers(
    entries: Mapping[str, ProviderEntry],
    taken: Mapping[str, str],
    secrets: SecretResolver | None,
    mistakes: Mistakes,
) -> dict[str, ConfiguredProvider]:
    """Return the providers by name; what is wrong with one is added to *mistakes*.

    *taken* has the names that are in use, with where they come from.
    """
    found: dict[str, ConfiguredProvider] = {}
    for name, entry in entries.items():
        if name in taken:
            mistakes.add(
                entry.where(()), f"a backend named {name} is there already, from {taken[name]}; rename one of them"
            )
            continue
        provider = _read(name, entry, secrets, mistakes)
        if provider is not None:
            found[name] = provider
    return found


def _read(
    name: str, entry: ProviderEntry, secrets: SecretResolver | None, mistakes: Mistakes
) -> ConfiguredProvider | None:
    from toolexec.backend.providers.kinds import provider_kinds

    path = f"{BLOCK}.{name}"
    if not isinstance(entry.data, Mapping):
        mistakes.add(entry.where(()), f"{path} must be a table of settings")
        return None
    settings = dict(entry.data)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in provider_kinds():
        hint = did_you_mean(str(kind or ""), sorted(provider_kinds()))
        problem = f"there is no kind {kind!r}" if kind is not None else "it needs a kind"
        mistakes.add(entry.where(("kind",)), f"{path}: {problem}; {hint}")
        return None
    settings |= {"secrets": secrets}
    provider = ConfiguredProvider(name=name, kind=kind, settings=settings, entry=entry.data, origin=entry.origin)
    try:
        read = {key: _read_value(path, key, value, entry.directory) for key, value in settings.items()}
        provider = replace(provider, settings=read)
        provider.backend()
    except MissingExtraError:  # it cannot be checked here; whatever uses it says what to install
        return provider
    except ConfigurationError as error:
        setting = error.details.get("setting")
        place = (setting,) if isinstance(setting, str) and setting in entry.data else ()
        mistakes.add(entry.where(place), error.message)
        return None
    return provider


def _read_value(path: str, key: str, value: Any, directory: Path | None) -> Any:
    """Return a value with its units read; a file counts from *directory*. Raises ConfigurationError."""
    if not isinstance(value, str):
        return value
    if key in _TIMES or key.endswith("_bytes"):
        try:
            return seconds(value) if key in _TIMES else size(value)
        except ValueError:
            expected = 'a time in seconds, or a text such as "5m"' if key in _TIMES else 'bytes, or a text such as "4M"'
            raise ConfigurationError(f"{path}.{key} must be {expected}", details={"setting": key}) from None
    if key in _FILES and directory is not None and _FILE_NAME.fullmatch(value):
        return str(directory / Path(value).expanduser())
    return value
