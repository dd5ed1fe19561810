"""What a configuration refers to outside of itself, and which of it is missing here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from toolexec.backend.secrets import FILL_IN, references_in
from toolexec.config.loaded import LoadedConfig


def named_variables(loaded: LoadedConfig) -> dict[str, list[str]]:
    """Return the environment variables that must be set, each with the keys that name it."""
    found: dict[str, list[str]] = {}
    for key, provider, name in _references(loaded):
        if provider == "env" and key not in found.setdefault(name, []):
            found[name].append(key)
    return found


def missing_references(loaded: LoadedConfig, environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for every variable that is not set in *environment* and every secret's file that is not there.

    No command and no keyring is asked.
    """
    missing = [
        f"the environment variable {name} is not set here; it is named by {_joined(keys)}"
        for name, keys in named_variables(loaded).items()
        if environment.get(name, FILL_IN) == FILL_IN
    ]
    files = {name: key for key, provider, name in _references(loaded) if provider == "file"}
    missing += [f"{key} needs the file {name}, which is not there" for name, key in files.items() if not _is_file(name)]
    return missing


def _references(loaded: LoadedConfig) -> Iterator[tuple[str, str, str]]:
    """Yield key, provider and name of every reference of enabled servers and providers, and of the egress secrets."""
    enabled = {server.name for server in loaded.servers if server.enabled}
    for name, entry in loaded.entries.items():
        if name in enabled:
            yield from _within(f"mcpServers.{name}", entry)
    for name, provider in loaded.providers.items():
        if provider.enabled:
            yield from _within(f"providers.{name}", provider.entry)
    for number, table in enumerate(loaded.settings.sandboxes.egress_secrets):
        yield from _within(f"sandboxes.egress_secrets[{number}]", table)


def _within(key: str, value: object) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, str):
        for provider, name in references_in(value):
            yield key, provider, name
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _within(f"{key}.{name}", item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _within(f"{key}[{number}]", item)


def _is_file(name: str) -> bool:
    try:
        return Path(name).expanduser().is_file()
    except (OSError, RuntimeError, ValueError):
        return False


def _joined(keys: list[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])} and {keys[-1]}"
