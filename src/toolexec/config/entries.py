"""Tables of a file that users name themselves, as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["NamedTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """One table, such as `[queues.mail]`: its data, the place that messages name, and where it comes from."""

    data: Any
    where: str
    origin: str
