"""What differs between two configurations: what a running server can take over, and what needs a restart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from toolexec.config.gate_maker import RATES
from toolexec.config.loaded import LoadedConfig
from toolexec.model.json_value import JSONDict

__all__ = ["API_KEYS", "Changes", "changes_between"]

API_KEYS: Final = "auth.api_keys"
_LIVE: Final = frozenset(["limits.code_per_caller", *(f"limits.{name}" for name in RATES)])
_LIVE_BLOCKS: Final = ("policy", "scan", "resilience", "cache")
_STARTED: Final = frozenset(["resilience.ledger", "resilience.ledger_path"])
_TABLES: Final = ("toolsets", "transforms", "queues", "journals", "moved", "python", "skills")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Names only: the `keys` that are exchanged, backends that were `added`, `removed` and `changed`, and what needs a
    `restart`."""

    keys: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything that a running server takes over."""
        return bool(self.keys or self.added or self.removed or self.changed)

    @property
    def of_gate(self) -> tuple[str, ...]:
        """The keys that the gate goes by."""
        return tuple(key for key in self.keys if key != API_KEYS)

    def to_dict(self) -> JSONDict:
        """Return them as JSON-able data, without what is empty."""
        names = {name: list(getattr(self, name)) for name in ("keys", "added", "removed", "changed", "restart")}
        return {name: value for name, value in names.items() if value}

    def __str__(self) -> str:
        """Return them as a line for a log."""
        parts = {
            "changed": self.keys,
            "servers added": self.added,
            "servers removed": self.removed,
            "servers changed": self.changed,
            "not before a restart": self.restart,
        }
        said = [f"{what}: {', '.join(names)}" for what, names in parts.items() if names]
        return "; ".join(said) or "nothing has changed"


def changes_between(
    started: LoadedConfig, before: LoadedConfig, after: LoadedConfig, *, has_keys: bool = True, own_gate: bool = False
) -> Changes:
    """Return what *after* changes of *before*; what needs a restart is compared with what was *started*.

    Without *has_keys* nothing accepts API keys; with *own_gate* the settings do not say what the gate is.
    """
    keeps_cache = any(each.values["cache.path"].value for each in (started, after))
    live = {path for path in after.values if _is_live(path, has_keys, own_gate, keeps_cache)}
    exchanged = sorted(path for path in live if _value(before, path) != _value(after, path))
    frozen = {path for path in after.values.keys() - live if _value(started, path) != _value(after, path)}
    frozen |= {name for name in _TABLES if getattr(started, name) != getattr(after, name)}
    servers = _difference(_servers(before), _servers(after))
    providers = _difference(_providers(before), _providers(after))
    added, removed, changed = (sorted({*one, *two}) for one, two in zip(servers, providers, strict=True))
    moved = {*added} & {*removed}  # from a server to a provider of its name, or back
    return Changes(
        keys=tuple(exchanged),
        added=tuple(name for name in added if name not in moved),
        removed=tuple(name for name in removed if name not in moved),
        changed=tuple(sorted({*changed, *moved})),
        restart=tuple(sorted(frozen)),
    )


def _is_live(path: str, has_keys: bool, own_gate: bool, keeps_cache: bool) -> bool:
    block = path.partition(".")[0]
    if path == API_KEYS:
        return has_keys
    if own_gate or path in _STARTED or (block == "cache" and keeps_cache):
        return False
    return path in _LIVE or block in _LIVE_BLOCKS


def _value(loaded: LoadedConfig, path: str) -> Any:
    return loaded.values[path].value if path in loaded.values else None


def _servers(loaded: LoadedConfig) -> Mapping[str, Any]:
    return {server.name: server for server in loaded.servers}


def _providers(loaded: LoadedConfig) -> Mapping[str, Any]:
    return {
        name: (each.kind, {key: value for key, value in each.settings.items() if key != "secrets"})
        for name, each in loaded.providers.items()
    }


def _difference(
    before: Mapping[str, V], after: Mapping[str, V]
) -> tuple[Collection[str], Collection[str], Collection[str]]:
    """Return the names that were added, removed and changed."""
    changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    return after.keys() - before.keys(), before.keys() - after.keys(), changed
