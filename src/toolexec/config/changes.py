"""What differs between two configurations: what a running server can take over, and what needs a restart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolexec.backend.mcp.choosing import differs_by_choice
from toolexec.config.entries import ENDPOINTS
from toolexec.config.gate_maker import RATES
from toolexec.config.loaded import LoadedConfig
from toolexec.config.toolsets import BLOCK as TOOLSETS
from toolexec.model.json_value import JSONDict

if TYPE_CHECKING:
    from toolexec.config.endpoints import Endpoint

API_KEYS: Final = "auth.api_keys"
_SERVED: Final = "server.toolsets"
_LIVE: Final = frozenset([_SERVED, "limits.code_per_caller", *(f"limits.{name}" for name in RATES)])
_LIVE_BLOCKS: Final = ("policy", "scan", "resilience", "cache")
_STARTED: Final = frozenset(["resilience.ledger", "resilience.ledger_path"])
_SHOWN: Final = ("tools", "transforms")
_TABLES: Final = ("queues", "journals", "moved", "python", "skills")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Names only: the `keys` that are exchanged, backends that were `added`, `removed` and `changed`, servers of which
    other parts are `chosen`, endpoints that are `opened`, `closed`, and `reopened` with their sessions lost, composed
    `tools` and `transforms` that were added, removed or changed, and what needs a `restart`."""

    keys: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything that a running server takes over."""
        backends = (self.added, self.removed, self.changed, self.chosen)
        endpoints = (self.opened, self.closed, self.reopened)
        return bool(self.keys) or any(backends) or any(endpoints) or self.of_tools

    @property
    def of_tools(self) -> bool:
        """Whether tools are composed or shown differently."""
        return bool(self.tools or self.transforms)

    @property
    def of_gate(self) -> tuple[str, ...]:
        """The keys that the gate goes by."""
        of_rules = [ENDPOINTS] if self.opened or self.closed or self.reopened else []
        return (*(key for key in self.keys if key != API_KEYS), *of_rules)

    def to_dict(self) -> JSONDict:
        """Return them as JSON-able data, without what is empty."""
        names = {each.name: list(getattr(self, each.name)) for each in fields(self)}
        return {name: value for name, value in names.items() if value}

    def __str__(self) -> str:
        """Return them as a line for a log."""
        parts = {
            "changed": self.keys,
            "endpoints opened": self.opened,
            "endpoints closed": self.closed,
            "endpoints opened again": self.reopened,
            "servers added": self.added,
            "servers removed": self.removed,
            "servers changed": self.changed,
            "parts of servers chosen": self.chosen,
            "composed tools": self.tools,
            "transforms": self.transforms,
            "not before a restart": self.restart,
        }
        said = [f"{what}: {', '.join(names)}" for what, names in parts.items() if names]
        return "; ".join(said) or "nothing has changed"


def changes_between(
    started: LoadedConfig,
    before: LoadedConfig,
    after: LoadedConfig,
    *,
    has_keys: bool = True,
    own_gate: bool = False,
    has_endpoints: bool = True,
    chooses: bool = True,
    shows: bool = True,
) -> Changes:
    """Return what *after* changes of *before*; what needs a restart is compared with what was *started*.

    Without *has_keys* nothing accepts API keys; with *own_gate* the settings do not say what the gate is; without
    *has_endpoints* there is nothing that serves those; without *chooses* the toolsets are those of the start, without
    *shows* the composed tools and transforms are.
    """
    keeps_cache = any(each.values["cache.path"].value for each in (started, after))
    live = {path for path in after.values if _is_live(path, has_keys, own_gate, keeps_cache)}
    chooses = chooses and not own_gate
    live -= set() if chooses else {_SERVED}
    exchanged = [path for path in live if _value(before, path) != _value(after, path)]
    frozen = {path for path in after.values.keys() - live if _value(started, path) != _value(after, path)}
    tables = _TABLES if shows else (*_TABLES, *_SHOWN)
    frozen |= {name for name in tables if getattr(started, name) != getattr(after, name)}
    keys = set(exchanged)
    opened, closed, reopened = set[str](), set[str](), set[str]()
    if not chooses:
        frozen |= {TOOLSETS} if started.toolsets != after.toolsets else set()
    elif before.toolsets != after.toolsets:
        keys.add(TOOLSETS)
    if has_endpoints and chooses:
        opened, closed, other = map(set, _difference(before.endpoints, after.endpoints))
        for name in other:
            differing = _differing(name, before.endpoints[name], after.endpoints[name])
            keys |= differing
            reopened |= set() if differing else {name}
    elif started.endpoints != after.endpoints:
        frozen.add(ENDPOINTS)
    servers = _difference(_servers(before), _servers(after))
    providers = _difference(_providers(before), _providers(after))
    added, removed, changed = (sorted({*one, *two}) for one, two in zip(servers, providers, strict=True))
    was, now = _servers(before), _servers(after)
    chosen = [name for name in servers[2] if differs_by_choice(was[name], now[name])]
    moved = {*added} & {*removed}  # from a server to a provider of its name, or back
    return Changes(
        keys=tuple(sorted(keys)),
        opened=tuple(sorted(opened)),
        closed=tuple(sorted(closed)),
        reopened=tuple(sorted(reopened)),
        added=tuple(name for name in added if name not in moved),
        removed=tuple(name for name in removed if name not in moved),
        changed=tuple(sorted({*changed, *moved} - {*chosen})),
        chosen=tuple(sorted(chosen)),
        tools=_all_differences(before.tools, after.tools) if shows else (),
        transforms=_all_differences(before.transforms, after.transforms) if shows else (),
        restart=tuple(sorted(frozen)),
    )


def _is_live(path: str, has_keys: bool, own_gate: bool, keeps_cache: bool) -> bool:
    block = path.partition(".")[0]
    if path == API_KEYS:
        return has_keys
    if own_gate or path in _STARTED or (block == "cache" and keeps_cache):
        return False
    return path in _LIVE or block in _LIVE_BLOCKS


def _differing(name: str, before: Endpoint, after: Endpoint) -> set[str]:
    """Return the keys of an endpoint that have changed; none where it has to be opened again."""
    if not before.settings.differs_by_keys(after.settings):
        return set()
    own = f"{ENDPOINTS}.{name}"
    parts = {
        f"{own}.{API_KEYS}": before.settings != after.settings,
        f"{own}.toolsets": before.toolsets != after.toolsets,
        f"{own}.policy": (before.rules, before.policy) != (after.rules, after.policy),
    }
    return {key for key, changed in parts.items() if changed}


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


def _all_differences(before: Mapping[str, V], after: Mapping[str, V]) -> tuple[str, ...]:
    return tuple(sorted({name for names in _difference(before, after) for name in names}))
