"""The tools of the replay: those of the services, and others that are not needed."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from benchmarks.context.long_tasks import long_tasks
from benchmarks.context.office_tasks import office_tasks
from benchmarks.context.services import calendar, crm, files, inventory, mail, notes, payments, repos, tickets
from benchmarks.context.shop_tasks import shop_tasks
from benchmarks.context.task import Task
from benchmarks.ranking.labelled import operations
from toolexec import Exec, Tool

SERVICES: Final[tuple[ModuleType, ...]] = (calendar, crm, files, inventory, mail, notes, payments, repos, tickets)
FEW: Final = 227
"""How many tools the smaller catalogue has."""
INTENTS: Final = {
    f"{service.__name__.rpartition('.')[2]}:{name}": words
    for service in SERVICES
    for name, words in service.INTENTS.items()
}
"""What a model types to find a tool that it misses, by its ID."""


def tasks() -> list[Task]:
    """Return all tasks, in a fixed order."""
    return [*office_tasks(), *shop_tasks(), *long_tasks()]


def add_unneeded(ex: Exec, total: int | None = None) -> None:
    """Add operations of real services until *ex* has *total* tools, or all of them: those that have least to do with
    the tasks come first."""
    every = operations()
    kin = {"asana", "calendar", "drive", "filesystem", "git", "github", "gmail", "hubspot", "jira", "linear", "notion"}
    kin |= {"google-calendar", "google-drive", "shopify", "stripe", "trello", "confluence", "sheets"}
    for op in sorted(every, key=lambda op: op.namespace in kin):
        if total is not None and len(ex.index) >= total:
            return
        ex.add(Tool.from_dict(op.to_dict()), handler=dict)
