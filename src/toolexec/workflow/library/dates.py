"""Functions of dates and times, which are strings as ISO 8601 has them, in UTC."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from toolexec.workflow.library.function import Context, Library
from toolexec.workflow.values import OperationError, Value, bounded, described

DATES: Final = Library("dates")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_MAX_FORMAT: Final = 1000


@DATES.function("now() -> string", "len(now())", 20)
def _now(context: Context) -> str:
    """Return the time at which the workflow began, to the second: it stays the same through a run."""
    return _text(_from_number(int(context.now)))


@DATES.function("today() -> string", "len(today())", 10)
def _today(context: Context) -> str:
    """Return the day on which the workflow began."""
    return _from_number(context.now).date().isoformat()


@DATES.function(
    "parse_date(value: string | number) -> string", 'parse_date("2026-03-01T12:00+02:00")', "2026-03-01T10:00:00Z"
)
def _parse_date(value: Value) -> str:
    """Return a time as ISO 8601 in UTC: of a text in ISO 8601 (without a zone it is UTC), or of Unix seconds."""
    return _text(_parsed(value))


@DATES.function(
    "format_date(value: string | number, format: string) -> string",
    'format_date("2026-03-01", "%d %B %Y")',
    "01 March 2026",
)
def _format_date(value: Value, format: str) -> str:
    """Return a time as text: `%Y %m %d %H %M %S`, `%y %j %I %p`, `%A %a` (day), `%B %b` (month), `%s` (Unix seconds)
    and `%%`."""
    if len(format) > _MAX_FORMAT:
        raise OperationError(f"a format may have {_MAX_FORMAT} characters, not {len(format)}", "value")
    at = _parsed(value)

    def written(found: re.Match[str]) -> str:
        write = _FORMATS.get(found[1])
        if write is None:
            raise OperationError(f"format_date does not know %{found[1]}; it knows {' '.join(_FORMATS)}", "value")
        return write(at)

    return re.sub(r"%(.?)", written, format)


_FORMATS: Final[dict[str, Callable[[datetime], str]]] = {
    "Y": lambda at: f"{at.year:04}",
    "m": lambda at: f"{at.month:02}",
    "d": lambda at: f"{at.day:02}",
    "H": lambda at: f"{at.hour:02}",
    "M": lambda at: f"{at.minute:02}",
    "S": lambda at: f"{at.second:02}",
    "y": lambda at: f"{at.year % 100:02}",
    "j": lambda at: f"{at.timetuple().tm_yday:03}",
    "I": lambda at: f"{(at.hour - 1) % 12 + 1:02}",
    "p": lambda at: "AM" if at.hour < 12 else "PM",
    "A": lambda at: _DAYS[at.weekday()],
    "a": lambda at: _DAYS[at.weekday()][:3],
    "B": lambda at: _MONTHS[at.month - 1],
    "b": lambda at: _MONTHS[at.month - 1][:3],
    "s": lambda at: str(int(at.timestamp())),
    "%": lambda at: "%",
}


@DATES.function(
    "add_time(value: string | number, seconds: number) -> string",
    'add_time("2026-03-01T10:00:00Z", 90m)',
    "2026-03-01T11:30:00Z",
)
def _add_time(value: Value, seconds: float) -> str:
    """Return the time so many seconds later; earlier where they are negative. A duration such as 2h is a number of
    seconds."""
    try:
        return _text(_parsed(value) + timedelta(seconds=seconds))
    except OverflowError:
        raise OperationError("add_time: the year must be within 1 and 9999", "value") from None


@DATES.function(
    "date_diff(start: string | number, end: string | number) -> number",
    'date_diff("2026-03-01", "2026-03-02")',
    86400,
)
def _date_diff(start: Value, end: Value) -> int | float:
    """Return the seconds from one time to another; negative where the second one is earlier."""
    seconds = (_parsed(end) - _parsed(start)).total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _parsed(value: Value) -> datetime:
    if type(value) is not str:
        return _from_number(value)
    bounded(len(value), "string")
    text = value.strip()
    try:
        if len(text) <= 40 and _DATE.fullmatch(text):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        found = datetime.fromisoformat(text) if len(text) <= 40 and _DATE.match(text) else None
        if found is not None:
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise OperationError(f"{described(value)} is not a date or time as ISO 8601 has it, 2026-03-01T10:00:00Z", "value")


def _from_number(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)
    except OverflowError:
        raise OperationError(f"{seconds} seconds are not within the years 1 to 9999", "value") from None


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
