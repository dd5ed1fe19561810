"""Switches that make the API of the tests slow, silent or wrong; set by tests, over HTTP."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Faults:
    """What goes wrong.

    `answers` are refusals of requests, by a pattern of `METHOD /path`: status, message and how often. `delays` holds
    seconds in the same way, `task_delays` by the type of a task (`vzstart`), `task_failures` its exit status. With `old`
    the message of a refusal is in the status line only. `no_address` hides addresses, `cut` breaks connections. With `ha`
    containers are managed for high availability: they start and stop so many seconds after the task has ended.
    """

    answers: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    delays: dict[str, float] = field(default_factory=dict[str, float])
    task_delays: dict[str, float] = field(default_factory=dict[str, float])
    task_failures: dict[str, str] = field(default_factory=dict[str, str])
    cut: str = ""
    old: bool = False
    no_address: bool = False
    ha: float = 0.0

    async def before(self, what: str) -> tuple[int, str] | None:
        """Wait as long as a request is to wait; return what it is refused with."""
        for pattern, seconds in self.delays.items():
            if re.search(pattern, what):
                await asyncio.sleep(seconds)
        for pattern, answer in self.answers.items():
            if re.search(pattern, what) and answer[2]:
                answer[2] -= 1
                return int(answer[0]), str(answer[1])
        return None

    def cuts(self, what: str) -> bool:
        """Return whether the connection breaks, once the request has been carried out."""
        return bool(self.cut) and re.search(self.cut, what) is not None
