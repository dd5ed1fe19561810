"""The queues of a configuration: what `[queues.NAME]` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolexec.config.mistakes import Mistakes
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.durable.queues import Queue

__all__ = ["BLOCK", "QueueEntry", "read_queues"]

BLOCK: Final = "queues"
"""The table of a file that has the queues of durable runs, each a table by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """One queue as it is written: its data, the place that messages name, and where it comes from."""

    data: Any
    where: str
    origin: str


def read_queues(entries: Mapping[str, QueueEntry], mistakes: Mistakes) -> dict[str, Queue]:
    """Return the queues by name; what is wrong with one is added to *mistakes*."""
    found: dict[str, Queue] = {}
    if not entries:
        return found
    from toolexec.durable.queues import Queue

    for name, entry in entries.items():
        try:
            found[name] = Queue.from_dict(entry.data)
        except ConfigurationError as error:
            mistakes.add(entry.where, f"{BLOCK}.{name}: {error.message}")
    return found
