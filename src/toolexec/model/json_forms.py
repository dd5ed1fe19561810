"""Which JSON stands for a value of Python's other types: one table for the host and for the guests, which get this
file as a module of theirs. So it imports nothing that takes time: of a module that is not loaded there are no values.
"""

from __future__ import annotations

import _collections_abc as abc  # always loaded
import sys
from typing import Any

MAX_INTEGER = 10**4300
"""No integer is this large, as Python neither writes nor reads longer ones."""

_DAY = 86_400
_TEXTS = (("decimal", "Decimal"), ("uuid", "UUID"), ("pathlib", "PurePath"), ("fractions", "Fraction"))


def json_form(value: Any, convert: Any) -> tuple[str, Any] | None:
    """Return what *value* is in JSON, one step nearer to it: ("object", a mapping), ("array", an iterable) or
    ("value", what has the same JSON). None for what has no form that everybody would expect.

    *convert* makes JSON of a part of a pydantic model; it raises TypeError or ValueError.
    """
    kind = type(value)
    modules = sys.modules
    enum = modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        return "value", value.value
    if isinstance(value, str):
        return "value", str.__str__(value)
    if isinstance(value, int):
        return "value", int.__int__(value)
    if isinstance(value, float):
        return "value", float.__float__(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return "value", value.decode()
        except UnicodeDecodeError:
            return None
    if "pydantic_core" in modules and hasattr(kind, "__pydantic_serializer__"):
        return _model_form(value, convert)
    if isinstance(value, abc.Mapping):
        return "object", value
    if isinstance(value, (abc.Sequence, abc.Set, abc.ValuesView)) and not isinstance(value, memoryview):
        return "array", value
    dataclasses = modules.get("dataclasses")
    if dataclasses is not None and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return "object", {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(kind, "iloc") and hasattr(kind, "notna"):
        return "array", _of_table(value)
    form = _of_array(value) if _is_array(kind) else _known_form(value)
    return None if form is None else ("value", form)


def key_text(key: Any) -> str | None:
    """Return a key as `json.dumps` writes it, or the exact string that its value is in JSON; None if it has neither."""
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if _is_array(type(key)):
        key = _of_array(key)
    if _is_number(key, "Integral"):
        whole = int(key)
        return int.__repr__(whole) if -MAX_INTEGER < whole < MAX_INTEGER else None
    if isinstance(key, float):
        return float.__repr__(key) if key - key == 0 else None
    form = None if isinstance(key, (bytes, tuple)) else _known_form(key)
    return form if isinstance(form, str) else None


def _model_form(value: Any, convert: Any) -> tuple[str, Any]:
    """A pydantic model, or another object that pydantic can write: its fields themselves where one has no form."""
    unknown: list[Any] = []

    def form(part: Any) -> Any:
        try:
            return convert(part)
        except (TypeError, ValueError):
            unknown.append(part)
            return None

    plain = sys.modules["pydantic_core"].to_jsonable_python(value, by_alias=True, fallback=form)
    if not unknown:
        return "value", plain
    return "object", {name: getattr(value, name) for name in getattr(type(value), "__pydantic_fields__", {})}


def _of_table(table: Any) -> Any:
    """The rows of a DataFrame, each an object of its columns, or the values of a Series. What is missing is null: that
    is what NaN, NaT and NA mean in a table."""
    plain = table.astype(object).where(table.notna(), None)
    if not hasattr(table, "columns"):
        return plain.tolist()
    split = plain.to_dict("split")
    names = split["columns"]
    if len(set(names)) != len(names):
        raise ValueError("two columns have one name; rename one")
    return (dict(zip(names, row)) for row in split["data"])


def _is_array(kind: Any) -> bool:
    """Whether values of this class are arrays, or numbers out of one, of NumPy or of a library like it."""
    return hasattr(kind, "tolist") and hasattr(kind, "dtype")


def _of_array(value: Any) -> Any:
    """The numbers of an array as lists, or a number as Python's; None for one that Python does not have."""
    plain = value.tolist()
    return None if type(plain) is type(value) else plain


def _is_number(value: Any, name: str) -> bool:
    numbers = sys.modules.get("numbers")
    return isinstance(value, getattr(numbers, name) if numbers is not None else int)


def _known_form(value: Any) -> Any:
    """The JSON form of numbers, and of dates, paths and the like; else None."""
    modules = sys.modules
    if _is_number(value, "Integral"):
        return int(value)
    if _is_number(value, "Real"):
        return str(value) if _is_number(value, "Rational") else float(value)
    datetime = modules.get("datetime")
    if datetime is not None:
        if isinstance(value, (datetime.datetime, datetime.time)):
            return _time_text(value, datetime) if value == value else None  # pandas has a time that is none
        if isinstance(value, datetime.date):
            return value.isoformat()
        if isinstance(value, datetime.timedelta):
            return _duration_text(value)
    for module, name in _TEXTS:
        if module in modules and isinstance(value, getattr(modules[module], name)):
            return str(value)
    where = type(value).__module__
    if where == "ipaddress":
        return str(value)
    if where == "re" and hasattr(value, "pattern"):
        return value.pattern
    core = modules.get("pydantic_core")
    if core is None or not where.startswith("pydantic"):
        return None
    try:  # its own kinds of text, such as URLs
        return core.to_jsonable_python(value)
    except core.PydanticSerializationError:
        return None


def _time_text(value: Any, datetime: Any) -> str:
    """A time in ISO 8601: UTC is Z, offsets have no seconds, and seconds have at most six digits."""
    kind = datetime.time if isinstance(value, datetime.time) else datetime.datetime
    text, offset = kind.isoformat(value.replace(tzinfo=None)), value.utcoffset()
    if offset is None:
        return text
    seconds = offset.days * _DAY + offset.seconds
    if seconds == 0:
        return text + "Z"
    minutes = abs(seconds) // 60
    return "{}{}{:02}:{:02}".format(text, "-" if seconds < 0 else "+", minutes // 60, minutes % 60)


def _duration_text(value: Any) -> str:
    """A timedelta in ISO 8601, as pydantic writes it: a year has 365 days there."""
    micros = (value.days * _DAY + value.seconds) * 1_000_000 + value.microseconds
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    days, rest = divmod(micros, _DAY * 1_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    years, days = divmod(days, 365)
    date = (f"{years}Y" if years else "") + (f"{days}D" if days else "")
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if seconds or fraction:
        time += f"{seconds}" + (f".{fraction:06}".rstrip("0") if fraction else "") + "S"
    if not date and not time:
        time = "0S"
    return sign + "P" + date + ("T" + time if time else "")
