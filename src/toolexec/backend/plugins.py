"""Parts of other distributions, by entry points: loaded when they are asked for by name, and never before.

The packages beside the core (`packages/` in the repository) are such distributions, too. `PACKAGES` is the one place
that knows of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from toolexec.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint


class _Kind(Protocol):
    """What describes a kind, and the version of the plugin API that it was written for."""

    @property
    def kind(self) -> str: ...
    @property
    def api(self) -> int: ...


K = TypeVar("K", bound=_Kind)

BACKENDS: Final = "toolexec.backends"
"""Kinds of providers: each a `MakeSource`."""
SANDBOXES: Final = "toolexec.sandboxes"
"""Kinds of sandboxes: each a `SandboxPlugin`."""
JOURNALS: Final = "toolexec.journals"
"""Kinds of journals and engines of durable runs: each a `JournalPlugin`."""
STATES: Final = "toolexec.states"
"""Stores of a server's state, by the scheme of their address: each a function from the address to a `StateStore`."""
PACKAGES: Final[Mapping[str, Mapping[str, str]]] = {
    BACKENDS: {"grpc": "toolexec-grpc"},
    JOURNALS: {"temporal": "toolexec-temporal"},
    SANDBOXES: {
        "docker": "toolexec-containers",
        "containerd": "toolexec-containers",
        "gvisor": "toolexec-containers",
        "kata": "toolexec-containers",
        "firecracker": "toolexec-microvms",
        "qemu": "toolexec-microvms",
        "kubernetes": "toolexec-kubernetes",
        "proxmox_lxc": "toolexec-remote",
        "remote": "toolexec-remote",
        "temporal": "toolexec-temporal",
    },
    STATES: {
        "redis": "toolexec-valkey",
        "rediss": "toolexec-valkey",
        "valkey": "toolexec-valkey",
        "valkeys": "toolexec-valkey",
    },
}
"""By group, the kinds of the packages beside the core, each with its distribution. The extra `NAME` of toolexec has
`toolexec-NAME`, and no other distribution can have its kinds."""


@cache
def _entries(group: str) -> dict[str, list[EntryPoint]]:
    from importlib.metadata import entry_points  # slow to import, and few programs ask

    found: dict[str, list[EntryPoint]] = {}
    names: dict[Distribution, str] = {}  # each look at one's name parses its whole description
    for entry in entry_points(group=group):
        owner = PACKAGES.get(group, {}).get(entry.name)
        if owner is not None and entry.dist is not None and entry.dist not in names:
            names[entry.dist] = _plain(entry.dist.name)
        if owner is None or (entry.dist is not None and names[entry.dist] == owner):
            found.setdefault(entry.name, []).append(entry)
    return found


def plugin_names(group: str) -> list[str]:
    """Return the names of the plugins of a group that are installed, sorted. None of them is loaded."""
    return sorted(_entries(group))


def known_plugins(group: str) -> list[str]:
    """Return the names of the plugins of a group that are installed, or could be as they are in `PACKAGES`, sorted."""
    return sorted({*_entries(group), *PACKAGES.get(group, ())})


def owners_of(group: str, name: str) -> str:
    """Return the distributions that have the plugin *name* of a group, with their versions."""
    return ", ".join(sorted(map(_owner, _entries(group).get(name, []))))


def _is_function(loaded: object) -> str:
    return "" if callable(loaded) else f"must be a function, not {type(loaded).__name__}"


def load_plugin(group: str, name: str, problem: Callable[[object], str] = _is_function, *, needed_for: str = "") -> Any:
    """Return what the plugin *name* of a group provides.

    *problem* returns what keeps it from being used, such as "must be a function, not int"; "" for nothing. Raises
    ConfigurationError, with the distribution it comes from: there is none of this name, several distributions have one,
    it cannot be loaded, or it has a problem. Raises MissingExtraError, which says what to install, for one of
    `PACKAGES` that is absent; *needed_for* is what needs it.
    """
    entries = _entries(group).get(name, [])
    if not entries:
        package = PACKAGES.get(group, {}).get(name)
        if package is not None:
            raise MissingExtraError(package.removeprefix("toolexec-"), needed_for=needed_for or name)
        raise ConfigurationError(f"no distribution has a plugin {name!r} for {group}")
    if len({entry.value for entry in entries}) > 1:
        raise ConfigurationError(
            f"the plugin {name!r} for {group} is in several distributions: {owners_of(group, name)}; uninstall one"
        )
    entry = entries[0]
    try:
        loaded = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever it does when it is imported
        what = f"cannot be loaded: {type(error).__name__}: {str(error)[:1000]}"
        raise ConfigurationError(f"{_where(name, entry)} {what}") from error
    if wrong := problem(loaded):
        raise ConfigurationError(f"{_where(name, entry)} {wrong}")
    return loaded


def load_kind(group: str, kind: str, shape: type[K], api: int, *, needed_for: str) -> K:
    """Return the *shape* that describes *kind* in a plugin of a group, written for version *api* of it; raises as
    `load_plugin` does."""

    def problem(loaded: object) -> str:
        if not isinstance(loaded, shape):
            return f"must be a {shape.__name__}, not {type(loaded).__name__}; see docs/extending.md"
        if loaded.api != api:
            newer = "toolexec" if loaded.api > api else "the plugin"
            return f"is written for the plugin API {loaded.api}, and this toolexec has {api}; update {newer}"
        return "" if loaded.kind == kind else f"is one of the kind {loaded.kind!r}; both names must be the same"

    found: K = load_plugin(group, kind, problem, needed_for=needed_for)
    return found


def _plain(distribution: str) -> str:
    """Return the name of a distribution in the one spelling that all of its spellings have."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _where(name: str, entry: EntryPoint) -> str:
    return f"the plugin {name!r} of {_owner(entry)} ({entry.value})"


def _owner(entry: EntryPoint) -> str:
    """Return the distribution that an entry point is from, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown distribution"
