"""When schedules are due, and what becomes of times that passed unseen."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from toolexec.durable.schedules import Timing, firing_id
from toolexec.errors import ConfigurationError

BERLIN = ZoneInfo("Europe/Berlin")


def _at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs either cron"),
        ({"cron": "* * * * *", "every": 5}, "needs either cron"),
        ({"every": -1.0}, "1 second or more"),
        ({"every": float("inf")}, "1 second or more"),
        ({"every": 60.0, "most": 0}, "most must be 1 or more"),
        ({"cron": "0 0 30 2 *"}, "not a line of cron that is ever due"),
        ({"cron": "0 0 31 4,6 *"}, "ever due"),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "hello"}, "Wrong number of fields"),
        ({"cron": "0 7 * * *", "tz": "Europe/Atlantis"}, "no time zone 'Europe/Atlantis'"),
        ({"cron": "0 7 * * *", "tz": "../etc/passwd"}, "no time zone"),
    ],
)
def test_times_that_make_no_sense(settings: dict[str, object], message: str) -> None:
    """A time that is never due is refused where it is written down."""
    with pytest.raises(ConfigurationError, match=message):
        Timing(**settings)  # type: ignore[arg-type]


def test_cron_is_due_by_the_clocks_of_its_zone() -> None:
    """Seven o'clock is seven o'clock on both sides of a change."""
    timing = Timing(cron="0 7 * * 1-5", tz="Europe/Berlin")
    assert timing.first(_at("2026-10-23T08:00", "Europe/Berlin")) == _at("2026-10-26T07:00", "Europe/Berlin")
    assert firing_id("report", _at("2026-10-26T07:00", "Europe/Berlin")) == "report@2026-10-26T06:00:00Z"


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "0 */5 * * *", "15 1-3 * * *"])
def test_looking_back_finds_what_was_due(cron: str) -> None:
    """The times that passed unseen are those that would have been seen, also over changes of the clock."""
    timing = Timing(cron=cron, tz="Europe/Berlin", missed="all", most=400)
    for day in ("2026-03-28", "2026-10-24"):
        begin = _at(f"{day}T12:00", "Europe/Berlin")
        end = begin + timedelta(days=1, hours=6).total_seconds()
        seen, moment = [], timing.first(begin)
        while moment <= end:
            seen.append(moment)
            moment = timing.first(moment)
        look = timing.look(seen[0], end)
        assert list(look.times) == seen
        assert (look.missed, look.then) == (0, moment)


@pytest.mark.parametrize(
    ("missed", "times", "count"), [("once", [130.0], 3), ("all", [120.0, 130.0], 2), ("skip", [130.0], 3)]
)
def test_missed_times_of_every(missed: str, times: list[float], count: int) -> None:
    """The latest, the last ones, or those that are on time."""
    timing = Timing(every=10.0, missed=missed, most=2)  # type: ignore[arg-type]
    look = timing.look(100.0, 139.0)
    assert (list(look.times), look.missed, look.then) == (times, count, 140.0)
    assert look.is_late


def test_skip_makes_no_run_that_is_late() -> None:
    """An hour later nothing is made up for, and the next time is in the future."""
    look = Timing(every=3600.0, missed="skip").look(0.0, 3600.0 + 61)
    assert (look.times, look.missed, look.then, look.is_late) == ((), 2, 7200.0, True)


def test_a_year_unseen_takes_no_time() -> None:
    """Half a million minutes are not walked through; at most a thousand are counted."""
    look = Timing(cron="* * * * *", missed="all", most=3).look(0.0, 366 * 86_400.0)
    assert (len(look.times), look.missed, look.then) == (3, 997, 366 * 86_400.0 + 60)


def test_a_clock_that_is_put_back_makes_nothing_again() -> None:
    """A time that is due in the future waits for that."""
    look = Timing(every=10.0).look(100.0, 50.0)
    assert (look.times, look.missed, look.then) == ((), 0, 100.0)
