"""Points in time as people type them: yesterday, 6h, 2026-11-27."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from toolexec.errors import ConfigurationError

_AGO: Final = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS: Final = {"today": 0, "yesterday": 1}


def point_in_time(text: str, now: datetime | None = None) -> datetime:
    """Return the point in time, in UTC: the beginning of a day here (`today`, `yesterday`, a date), a local time
    without a zone, or so many seconds, minutes, hours, days or weeks (`90m`, `7d`) before *now*.

    Raises ConfigurationError for anything else.
    """
    now = (now or datetime.now(UTC)).astimezone()
    word = text.strip().lower()
    try:
        if word in _DAYS:
            return _begin_of_day(now - timedelta(days=_DAYS[word]))
        ago = _AGO.fullmatch(word)
        if ago is not None:
            return (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).astimezone(UTC)
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigurationError(
            f"cannot read the time {text!r}; write yesterday, today, a date (2026-11-27), a time "
            "(2026-11-27T14:30), or how long ago (90m, 6h, 7d)"
        ) from error


def _begin_of_day(day: datetime) -> datetime:
    return datetime(day.year, day.month, day.day).astimezone(UTC)
