"""The toolsets of a configuration: what `[toolsets.NAME]` says, and which of them a server shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from toolexec.config.entries import NamedTable
from toolexec.config.mistakes import Mistakes
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONObject

if TYPE_CHECKING:
    from toolexec.config.loaded import LoadedConfig
    from toolexec.discovery.toolset import Toolset

BLOCK: Final = "toolsets"
"""The table of a file that has the toolsets, each a table by its name."""

_SERVED: Final = "server.toolsets"


def read_toolsets(entries: Mapping[str, NamedTable], mistakes: Mistakes) -> dict[str, Toolset]:
    """Return the toolsets by name; what is wrong with one is added to *mistakes*."""
    found: dict[str, Toolset] = {}
    if not entries:
        return found
    from toolexec.discovery.toolset import Toolset

    for name, entry in entries.items():
        try:
            toolset = Toolset.from_dict(entry.data, name)
            if toolset.is_empty:
                raise ConfigurationError('it says nothing of the tools in it, so it has none; allow = ["*"] means all')
        except ConfigurationError as error:
            mistakes.add(entry.where, f"{BLOCK}.{name}: {error.message}")
        else:
            found[name] = toolset
    return found


def served_toolset(loaded: LoadedConfig) -> Toolset | None:
    """Return what a server shows: all that is in any of the toolsets that it names; None when it names none.

    Raises ConfigurationError for a name that no toolset has.
    """
    return toolset_of(loaded, loaded.settings.server.toolsets)


def toolset_of(loaded: LoadedConfig, names: Sequence[str]) -> Toolset | None:
    """Return all that is in any of the toolsets with these names; None where none is named.

    Raises ConfigurationError for a name that no toolset has.
    """
    if not names:
        return None
    from toolexec.discovery.toolset import Toolset

    for name in names:
        if name not in loaded.toolsets:
            raise ConfigurationError(f"there is no toolset {name!r}; {_hint(name, loaded.toolsets)}")
    if len(names) == 1:
        return loaded.toolsets[names[0]]
    return Toolset.union((loaded.toolsets[name] for name in names), " or ".join(names))


def check_served(loaded: LoadedConfig, known: JSONObject, mistakes: Mistakes) -> None:
    """Add to *mistakes* the names of undefined toolsets: a server that shows more than was meant is worse than none.
    *known* are all that are defined, those with mistakes of their own, too."""
    value = loaded.values[_SERVED]
    for number, name in enumerate(value.value):
        if name not in known:
            mistakes.add(value.where((number,)), f"there is no toolset {name!r}; {_hint(name, known)}")


def _hint(name: str, known: Mapping[str, object]) -> str:
    return did_you_mean(name, known) or f"write one as [{BLOCK}.{name}]"
