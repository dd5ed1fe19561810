"""Results that are too large to be read at once: kept under a handle, shown as an outline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolexec.model.origin import Origin

__all__ = ["ResultStore", "Shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a value: the value itself when it fits, else an outline, with the `handle` of the whole."""

    value: Any
    handle: str = ""
    bytes: int = 0


class ResultStore:
    """Keeps values for those who may read them."""

    def show(self, value: Any, origin: Origin, max_bytes: int | None = None) -> Shown:
        """The value as it may be shown within *max_bytes* of JSON."""
        return Shown(value=value)
