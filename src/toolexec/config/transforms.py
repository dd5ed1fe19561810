"""The transforms of a configuration: what `[transforms."NAMESPACE:NAME"]` says of how a tool is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolexec.config.mistakes import Mistakes
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.model.transform import ToolTransform

BLOCK: Final = "transforms"
"""The table of a file that has the transforms, each a table by the ID of its tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformEntry:
    """One transform as it is written, and the place that messages name."""

    data: Any
    where: str


def read_transforms(entries: Mapping[str, TransformEntry], mistakes: Mistakes) -> dict[str, ToolTransform]:
    """Return the transforms by the IDs of their tools; what is wrong with one is added to *mistakes*."""
    found: dict[str, ToolTransform] = {}
    if not entries:
        return found
    from toolexec.model.transform import ToolTransform

    for tool_id, entry in entries.items():
        try:
            found[tool_id] = ToolTransform.from_settings(f"{BLOCK}.{tool_id}", entry.data)
        except ConfigurationError as error:
            mistakes.add(entry.where, error.message)
    return found
