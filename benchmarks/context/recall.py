"""How many of the tools that a task needs a search by its text finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from statistics import fmean

from benchmarks.context.task import Task


def halves(tasks: Iterable[Task]) -> tuple[list[Task], list[Task]]:
    """Return the tasks that search is tuned with, and the others: those that need the same tools are in one half."""
    found: tuple[list[Task], list[Task]] = ([], [])
    for task in tasks:
        found[1 - sha256(" ".join(task.tool_ids).encode()).digest()[0] % 2].append(task)
    return found


def recall(search: Callable[[str, int], Sequence[str]], tasks: Iterable[Task], depth: int) -> float:
    """Return which share of its tools a task has among the first *depth* for its text, as the mean of all *tasks*."""
    shares: list[float] = []
    for task in tasks:
        found = set(search(task.text, depth))
        shares.append(sum(one in found for one in task.tool_ids) / len(task.tool_ids))
    return fmean(shares)
