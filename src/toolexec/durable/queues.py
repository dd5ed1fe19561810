"""Queues of durable runs: their limits, what is known of them, and the protocol of the stores that have some."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

from toolexec.durable.journal import RunRecord
from toolexec.durable.schedules import Schedule
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.declared import setting
from toolexec.model.json_value import JSONDict
from toolexec.model.settings import checked


@checked("Queue")
@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How many runs of a queue take place at once, and how often one begins.

    >>> Queue(concurrency=5, rate=(10, 1.0))
    Queue(concurrency=5, worker_concurrency=8, rate=(10, 1.0))

    `concurrency` is for all processes together (0: any number), `worker_concurrency` for each of them. `rate` is a
    number and seconds: so many runs begin within any such time, in all processes together; one that goes on after a
    wait, or after its process has died, has begun before. Raises ConfigurationError for a limit that makes no sense.
    """

    concurrency: int = setting(
        0, "How many runs take place at once, in all processes together; 0: any number.", least=0
    )
    worker_concurrency: int = setting(8, "How many runs take place at once in one process.", least=1)
    rate: Sequence[float] | None = setting(None, "How many runs begin within how many seconds.")

    def __post_init__(self) -> None:
        if self.rate is None:
            return
        if len(self.rate) != 2:
            raise _no_rate(self.rate)
        number, seconds = self.rate
        if number != int(number) or number < 1 or not 0 < seconds < math.inf:
            raise _no_rate(self.rate)
        object.__setattr__(self, "rate", (int(number), float(seconds)))

    @classmethod
    def from_dict(cls, data: Any) -> Queue:
        """Return the queue of a table of settings. Raises ConfigurationError."""
        if not isinstance(data, Mapping):
            raise ConfigurationError("a queue must be a table of settings")
        known = [each.name for each in fields(cls)]
        for name in data:
            if name not in known:
                raise ConfigurationError(f"unknown key {name!s:.100}; {did_you_mean(str(name), known)}")
        return cls(**data)

    def to_dict(self) -> JSONDict:
        """Return the limits as JSON-able data, without those that there are not."""
        data: JSONDict = {"concurrency": self.concurrency, "worker_concurrency": self.worker_concurrency}
        if self.rate is not None:
            data["rate"] = list(self.rate)
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """What there is in a queue: `queued` runs that have not begun (of which `delayed` must not yet), `running` ones (of
    which the process of `lost` has died: the next worker takes them), and `waiting` ones, which hold no place. The
    first of those that are queued was put there at `queued_since`, the first of those that run began at
    `running_since`, in seconds since 1970; None where there is none."""

    name: str
    queued: int = 0
    delayed: int = 0
    running: int = 0
    lost: int = 0
    waiting: int = 0
    queued_since: float | None = None
    running_since: float | None = None


@runtime_checkable
class QueueStore(Protocol):
    """What a `Journal` has beside its methods where it keeps queues and schedules. Each method is one transaction."""

    def enqueue(self, run: RunRecord, *, ready: float = 0.0) -> RunRecord:
        """Write down a run that waits in its `queue`, to begin from *ready* on (seconds since 1970), and return it; or
        the one that has its ID already, with nothing written."""
        ...

    def take_next(self, name: str, limits: Queue, owner: str, lease: float) -> RunRecord | None:
        """Make *owner* the one that runs the next run of a queue, and return that; None when none may begin now.

        The first are those that have begun and can go on: what they waited for is there, or their process has died.
        Then the lowest `priority`, and of these the one that was put there first.
        """
        ...

    def queues(self) -> list[QueueRecord]:
        """Return the queues that have runs which have not ended, by name."""
        ...

    def add_schedule(self, schedule: Schedule, *, replace: bool) -> Schedule:
        """Write down a schedule and return it; or the one that has its name already, unless that is to be replaced."""
        ...

    def schedules(self) -> list[Schedule]:
        """Return the schedules, by name."""
        ...

    def remove_schedule(self, name: str) -> bool:
        """Forget a schedule; return whether there was one. Runs of it stay."""
        ...

    def pause_schedule(self, name: str, paused: bool, due: float) -> bool:
        """Have a schedule fire no more, or again from *due* on; return whether there is one."""
        ...

    def fire(
        self, name: str, due: float, runs: Sequence[RunRecord], *, then: float, missed: int, last: float | None
    ) -> bool:
        """Write down the runs of a schedule that was due at *due* and is so again at *then*: they are for times of
        which the latest is *last*, and *missed* others made none. Return False, with nothing written, when it is not
        due at that time (any more). A run whose ID is there already is left as it is."""
        ...


def _no_rate(rate: object) -> ConfigurationError:
    return ConfigurationError(
        f"Queue: rate must be a number of runs from 1 on and seconds above 0, as in (10, 1.0), not {rate!r}",
        details={"setting": "rate"},
    )
