"""The composed tools of a configuration: what `[tools.NAME]` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from toolexec.config.entries import NamedTable
from toolexec.config.mistakes import Mistakes
from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONObject

if TYPE_CHECKING:
    from toolexec.workflow.skill import Skill

BLOCK: Final = "tools"
"""The table of a file that has the composed tools, each a table by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTool:
    """One composed tool: the `skill` that it is, as it is written in `entry`, and where that is."""

    skill: Skill = field(compare=False)
    entry: JSONObject
    origin: str = field(compare=False)


def read_tools(entries: Mapping[str, NamedTable], mistakes: Mistakes) -> dict[str, ConfiguredTool]:
    """Return the tools by name; what is wrong with one is added to *mistakes*."""
    found: dict[str, ConfiguredTool] = {}
    if not entries:
        return found
    from toolexec.workflow.composed import composed_skill

    for name, entry in entries.items():
        try:
            skill = composed_skill(name, entry.data)
            skill.tool()  # whose definition may be none that a tool can have
        except ToolExecError as error:
            mistakes.add(entry.where, f"{BLOCK}.{name}: {error.message}")
        else:
            found[name] = ConfiguredTool(skill=skill, entry=entry.data, origin=entry.origin)
    return found
