"""When schedules of durable runs are due: each so many seconds, or by a line of cron."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Final, Literal, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.errors.extras import extra_needed
from toolexec.model.json_value import JSONDict

Missed: TypeAlias = Literal["once", "all", "skip"]
"""What becomes of times that passed while nothing looked: the latest makes a run (`once`), each of them does, up to a
number (`all`), or none that is more than a minute late (`skip`)."""
GRACE: Final = 60.0
_COUNTED: Final = 1000
_LEAST: Final = 1.0
_FIELDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a look at a schedule came to: the `times` that make runs now, how many of those before it has `missed`, and
    when it is due `then`."""

    times: tuple[float, ...]
    missed: int
    then: float

    @property
    def is_late(self) -> bool:
        """Whether one of its times had passed already when the next one came, or makes no run for being late."""
        return self.missed > 0 or len(self.times) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a schedule is due: by a line of *cron* in the time zone *tz*, or each *every* seconds from its beginning.

    Raises ConfigurationError for what makes no sense or never is due, and MissingExtraError for cron without the extra.
    """

    cron: str = ""
    tz: str = "UTC"
    every: float = 0.0
    missed: Missed = "once"
    most: int = 10

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ConfigurationError(f"most must be 1 or more, not {self.most!r}")
        if bool(self.cron) == bool(self.every):
            raise ConfigurationError("a schedule needs either cron, a line such as '0 7 * * 1-5', or every, in seconds")
        if self.every and not _LEAST <= self.every < math.inf:
            raise ConfigurationError(f"every must be {_LEAST:g} second or more, not {self.every!r}")
        zone = _zone(self.tz)
        if self.cron:
            self._after_cron(datetime.now(zone))

    def first(self, after: float) -> float:
        """Return the first time after *after*, where the schedule begins."""
        if self.every:
            return round(after + self.every, 3)
        return self._after_cron(datetime.fromtimestamp(after, _zone(self.tz)))

    def look(self, due: float, now: float) -> Due:
        """Return what is due now, where the schedule was due first at *due*."""
        if due > now:
            return Due(times=(), missed=0, then=due)
        times, count = self._between(due, now)
        if self.missed == "skip" and now - times[-1] > GRACE:
            times = []
        elif self.missed != "all":
            times = times[-1:]
        then = round(due + count * self.every, 3) if self.every else self.first(now)
        return Due(times=tuple(times), missed=count - len(times), then=then)

    def _between(self, due: float, now: float) -> tuple[list[float], int]:
        """Return the last times from *due* to *now*, and how many there are; of cron at most a thousand are counted."""
        if self.every:
            count = math.floor((now - due) / self.every) + 1
            first = max(0, count - self.most)
            return [round(due + number * self.every, 3) for number in range(first, count)], count
        # From the end, as what is needed is not the half a million minutes of a year in which nothing looked.
        end = datetime.fromtimestamp(math.floor(now) + 1, _zone(self.tz))
        found: list[float] = []
        for moment in islice(self._cron(end, reverse=True), _COUNTED):
            if moment.timestamp() < due:
                break
            found.append(moment.timestamp())
        return list(reversed(found[: self.most])) or [due], max(len(found), 1)

    def _after_cron(self, moment: datetime) -> float:
        found = next(self._cron(moment), None)
        if found is None:
            raise ConfigurationError(f"the cron line {self.cron!r} never is due; see its day and month")
        return found.timestamp()

    def _cron(self, moment: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        with extra_needed("schedules", "a schedule by cron"):
            from cronsim import CronSim, CronSimError
        try:
            return CronSim(self.cron, moment, reverse=reverse)
        except CronSimError as error:
            raise ConfigurationError(
                f"{self.cron!r} is not a line of cron that is ever due: {error}; write minute, hour, day, month and "
                "weekday, as in '0 7 * * 1-5'"
            ) from error

    def to_dict(self) -> JSONDict:
        """Return it as JSON-able data, without what is as usual."""
        data: JSONDict = {"cron": self.cron, "tz": self.tz} if self.cron else {"every": self.every}
        return data | {"missed": self.missed} | ({"most": self.most} if self.missed == "all" else {})

    @classmethod
    def from_dict(cls, data: JSONDict) -> Timing:
        """Return what `to_dict` has written."""
        return cls(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A program that makes a durable run again and again.

    `program` is what each of its runs is: its kind, source, settings, caller, queue and priority. It is `due` next at
    that time (seconds since 1970), and made its last run for `last`; `fired` and `missed` are how many of its times
    made runs and did not. `late` is how many looks in a row were late: they found more than one time, or one that it
    is too late for. A schedule whose number grows is always late.
    """

    name: str
    timing: Timing
    program: JSONDict
    due: float
    created: float = 0.0
    paused: bool = False
    last: float | None = None
    fired: int = 0
    missed: int = 0
    late: int = 0


def check_fields(cron: str) -> None:
    """Raise ConfigurationError for a line of cron that has seconds, or a year: which of six fields is which differs
    from one cron to the next. A schedule that a journal has already keeps the meaning that it was taken with."""
    fields = len(cron.split())
    if fields != _FIELDS:
        raise ConfigurationError(
            f"{cron!r} has {fields} fields, and a line of cron has {_FIELDS}; write minute, hour, day, month and "
            "weekday, as in '0 7 * * 1-5', or every=, in seconds, for more than once a minute"
        )


def firing_id(name: str, moment: float) -> str:
    """Return the ID of the run of a schedule at a time.

    >>> firing_id("report", 1795762800)
    'report@2026-11-27T07:00:00Z'
    """
    spec = "seconds" if moment == int(moment) else "milliseconds"
    text = (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=round(moment * 1000))).isoformat(timespec=spec)
    return f"{name}@{text.removesuffix('+00:00')}Z"


def _zone(name: str) -> tzinfo:
    """Return a time zone by its name in the IANA list."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"there is no time zone {name!r}; write it as Europe/Berlin (a system without them needs tzdata)"
        ) from error
