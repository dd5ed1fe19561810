"""Tables of a file that users name themselves, as they are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolexec.config.formats import Place

ENDPOINTS: Final = "endpoints"
"""The table of a file that has the endpoints, each a table by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """One table, such as `[queues.mail]`: its data, the place that messages name, and where it comes from."""

    data: Any
    where: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEntry:
    """One endpoint as it is written: its data, what messages name a place in it, where it comes from, and the directory
    that its files' names count from."""

    data: Any
    where: Callable[[Place], str]
    origin: str
    directory: Path | None = None
