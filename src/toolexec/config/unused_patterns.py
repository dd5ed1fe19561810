"""Which patterns of the settings mean no tool that there is: such a rule has no effect, as that of a misspelt tool."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolexec.config.layers import folded
from toolexec.errors.hints import did_you_mean
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.ids import without_version

if TYPE_CHECKING:
    from toolexec.config.loaded import LoadedConfig

_LISTS: Final[Mapping[str, str]] = {
    "policy.rules": "rule",
    "cache.rules": "rule of the cache",
    "resilience.fallbacks": "fallback",
}
"""The settings that are lists of rules with patterns of tools, and what one of the list is called."""


class UnusedPattern(NamedTuple):
    """A pattern that means no tool, of which setting it is, and what is to be said of it."""

    setting: str
    pattern: str
    problem: str


def names_tools(loaded: LoadedConfig) -> bool:
    """Return whether any rule of the settings is about tools by their IDs."""
    return any(True for _ in _patterns(loaded))


def unused_patterns(loaded: LoadedConfig, ids: Collection[str], away: Collection[str]) -> list[UnusedPattern]:
    """Return the patterns in rules, of policy, endpoints, cache and fallbacks, that mean none of the tools with these
    *ids*. What may mean tools in the namespaces *away*, whose backends cannot be reached, is left out."""
    return [
        UnusedPattern(setting, pattern, f"{where}: {problem}")
        for setting, where, pattern in _patterns(loaded)
        if (problem := unused_pattern(pattern, ids, away)) is not None
    ]


def unused_pattern(pattern: str, ids: Collection[str], away: Collection[str] = ()) -> str | None:
    """Return what is to be said of a pattern that means none of the tools with these *ids*; None for one that does, and
    for one that may mean tools in the namespaces *away*, or no tool at all: what has a mark (`docs:review:+prompt`) is
    not among those that are known."""
    if ":+" in pattern or any(map(IDPatterns("a rule", [pattern]).match, ids)):
        return None
    namespace = pattern.partition(":")[0]
    has_wildcard = any(each in namespace for each in "*?[")
    if away and (has_wildcard or folded(namespace) in map(folded, away)):
        return None
    hint = did_you_mean(pattern, sorted({*ids, *map(without_version, ids)}), otherwise="")
    return f"no tool is named {pattern}, so it has no effect{hint and f'; {hint}'}"


def namespaces_of(loaded: LoadedConfig, backends: Iterable[str]) -> set[str]:
    """Return the namespaces that the settings give the tools of these backends."""
    names = set(backends)
    known = {server.name: server.namespace for server in loaded.servers}
    known |= {name: str(each.settings.get("namespace", "")) for name, each in loaded.providers.items()}
    return {*names, *(known.get(name, "") for name in names)} - {""}


def _patterns(loaded: LoadedConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the patterns of tools in rules, each after its setting and where it is."""
    for path, what in _LISTS.items():
        value = loaded.values.get(path)
        for number, rule in enumerate(_rules(value.value if value is not None else ())):
            for pattern in _tools(rule):
                where = value.where((number,)) if value is not None else ""
                yield path, where or f"{what} {number + 1}", pattern
    for name, endpoint in loaded.endpoints.items():
        for number, rule in enumerate(endpoint.rules, 1):
            for pattern in _tools(rule):
                where = f"{endpoint.origin}, rule {number} of the endpoint {name}"
                yield f"endpoints.{name}", where, pattern


def _rules(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _tools(rule: Any) -> list[str]:
    found = rule.get("tools", ()) if isinstance(rule, Mapping) else ()
    return [each for each in ((found,) if isinstance(found, str) else found) if isinstance(each, str)]
