"""The queues of a configuration: what `[queues.NAME]` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from toolexec.config.entries import NamedTable
from toolexec.config.mistakes import Mistakes
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.durable.queues import Queue

BLOCK: Final = "queues"
"""The table of a file that has the queues of durable runs, each a table by its name."""


def read_queues(entries: Mapping[str, NamedTable], mistakes: Mistakes) -> dict[str, Queue]:
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
