"""What kinds of values settings have: how each is read from a file, and from the text of a variable or a flag."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from toolexec.errors import ConfigurationError

__all__ = [
    "BYTES",
    "FILES",
    "NUMBER",
    "PATH",
    "PYTHON",
    "RATE",
    "SECONDS",
    "SWITCH",
    "TABLES",
    "TEXT",
    "TEXTS",
    "WHOLE",
    "Kind",
    "ValueRefusedError",
    "bounded",
    "choice",
    "choices",
    "plain",
    "shown",
]


_TIME_UNITS: Final = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


class ValueRefusedError(ValueError):
    """A value is not of its kind; the text says what is wrong beyond `Kind.expects`, if there is more to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of value.

    `name` is the word for tables of settings, `expects` finishes the sentence "must be ...". `read` takes a value from
    a file and gives it in its one form; `parse` takes the text of a variable or a flag and gives a value for `read`.
    Both raise ValueRefusedError. `locate` is for names of files: a relative one counts from the folder that is given
    (None: the current one).
    """

    name: str
    expects: str
    read: Callable[[Any], Any]
    parse: Callable[[str], Any]
    locate: Callable[[Any, Path | None], Any] | None = None

    def from_text(self, text: str) -> Any:
        """The value that *text* stands for; raises ValueRefusedError."""
        return self.read(self.parse(text))


def shown(value: Any) -> str:
    """A value as a message can quote it: short, and on one line."""
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return text if len(text) <= 40 else f"{text[:37]}..."


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueRefusedError
    return value


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueRefusedError
    return value


def _parse_switch(text: str) -> Any:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else text


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueRefusedError
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueRefusedError
    return float(value)


def _parse_number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text.strip())
        except ValueError:
            continue
    return text


def _with_unit(value: Any, pattern: str, units: Mapping[str, float]) -> float:
    if isinstance(value, str):
        match = re.fullmatch(pattern, value.strip().lower())
        if match is None or match[2] not in units:
            raise ValueRefusedError
        return float(match[1]) * units[match[2]]
    return _number(value)


def _seconds(value: Any) -> float:
    return _with_unit(value, r"(\d+(?:\.\d+)?) ?([a-z]*)", _TIME_UNITS)


def _bytes(value: Any) -> int:
    size = _with_unit(value, r"(\d+(?:\.\d+)?) ?([a-z]?)(?:i?b)?", _SIZE_UNITS)
    if size != int(size):
        raise ValueRefusedError
    return int(size)


def _rate(value: Any) -> str | float:
    """A rate as `Rate.parse` reads it, or calls in one second; 0 for none."""
    from toolexec.run.layers.rate_limit import Rate

    if not isinstance(value, str):
        number = _number(value)
        if number < 0:
            raise ValueRefusedError
        return number
    if value.strip() in ("", "0"):
        return 0.0
    try:
        Rate.parse(value)
    except ConfigurationError as error:
        raise ValueRefusedError from error
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueRefusedError
    return tuple(value)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueRefusedError("as JSON") from error


def _file(name: str, folder: Path | None) -> str:
    if not name:
        return name
    path = Path(name).expanduser()
    return str(path if folder is None else folder / path)


def _files(names: tuple[str, ...], folder: Path | None) -> tuple[str, ...]:
    return tuple(_file(name, folder) for name in names)


def _python_files(names: tuple[str, ...], folder: Path | None) -> tuple[str, ...]:
    """The files; what does not end with .py is a module's name."""
    return tuple(_file(name, folder) if name.endswith(".py") else name for name in names)


def _tables(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise ValueRefusedError
    return tuple(value)


def plain(value: Any) -> Any:
    """*value* with dates as texts: JSON data, whatever it was read from."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value


TEXT: Final = Kind(name="text", expects="a text", read=_text, parse=str)
SWITCH: Final = Kind(name="true/false", expects="true or false", read=_switch, parse=_parse_switch)
WHOLE: Final = Kind(name="whole number", expects="a whole number", read=_whole, parse=_parse_number)
NUMBER: Final = Kind(name="number", expects="a number", read=_number, parse=_parse_number)
SECONDS: Final = Kind(
    name="seconds", expects='a time in seconds, or a text such as "5m" or "2h"', read=_seconds, parse=_parse_number
)
BYTES: Final = Kind(
    name="size", expects='a size in bytes, or a text such as "64K" or "4M"', read=_bytes, parse=_parse_number
)
RATE: Final = Kind(
    name="rate",
    expects='calls in one second, or a text such as "60/min" or "1000/h burst 50"',
    read=_rate,
    parse=_parse_number,
)
TEXTS: Final = Kind(name="list of texts", expects="a list of texts", read=_texts, parse=_parse_json)
TABLES: Final = Kind(name="list of tables", expects="a list of tables", read=_tables, parse=_parse_json)
PATH: Final = Kind(name="file", expects="the name of a file", read=_text, parse=str, locate=_file)
FILES: Final = Kind(name="list of files", expects="a list of texts", read=_texts, parse=_parse_json, locate=_files)
PYTHON: Final = Kind(
    name="list of files", expects="a list of texts", read=_texts, parse=_parse_json, locate=_python_files
)


def choice(*words: str) -> Kind:
    """One of *words*."""

    def read(value: Any) -> str:
        if value not in words:
            raise ValueRefusedError
        return value

    return Kind(name=" / ".join(words), expects=f"one of {', '.join(words)}", read=read, parse=str)


def choices(*words: str) -> Kind:
    """A list of some of *words*."""

    def read(value: Any) -> tuple[str, ...]:
        found = _texts(value)
        if not all(word in words for word in found):
            raise ValueRefusedError
        return found

    names = ", ".join(words)
    return Kind(name=f"list of {names}", expects=f"a list of some of {names}", read=read, parse=_parse_json)


def bounded(kind: Kind, low: float, high: float = math.inf) -> Kind:
    """*kind*, from *low* to *high*."""
    most = f"{high:.15g}" if high < math.inf else ""
    expects = f"{kind.expects}, {low:g} to {most}" if most else f"{kind.expects}, {low:g} or more"

    def read(value: Any) -> Any:
        number = kind.read(value)
        if not low <= number <= high:
            raise ValueRefusedError
        return number

    return Kind(name=kind.name, expects=expects, read=read, parse=kind.parse)
