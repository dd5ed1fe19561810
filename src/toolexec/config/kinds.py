"""The kinds of values that settings have: types that pydantic checks, and the words for what each expects."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, PlainValidator, Strict, ValidationInfo
from pydantic.fields import FieldInfo

from toolexec.durable.journals import is_address, is_journal_kind
from toolexec.errors import ConfigurationError
from toolexec.model.json_document import read_document
from toolexec.model.json_value import JSONDict, to_json_lossy
from toolexec.model.units import seconds, size
from toolexec.runtime.kinds import KINDS, installed_kinds, lent_kinds
from toolexec.runtime.plugin import REMOVED

T = TypeVar("T")

_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Kind:
    """The words for one kind of value.

    `name` is for tables of settings, `expects` finishes the sentence "must be ...". `parse` turns the string of a
    variable or a flag into a value to validate, and raises ValueError for what is not JSON where that is expected.
    """

    name: str
    expects: str
    parse: Callable[[str], Any] = str


def _rate(value: object) -> str | float:
    """Return a rate as `Rate.parse` reads it, or calls in one second; 0 for none."""
    from toolexec.run.layers.rate_limit import Rate as Parsed

    if isinstance(value, str):
        if value.strip() in ("", "0"):
            return 0.0
        try:
            Parsed.parse(value)
        except ConfigurationError as error:
            raise ValueError("not a rate") from error
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError("not a rate")
    return float(value)


def _workers(value: object) -> int | str:
    """Return `auto`, or how many worker processes there may be. Raises ValueError for anything else."""
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_WORKERS:
        raise ValueError("not a number of workers")
    return value


def _file(name: str, info: ValidationInfo) -> str:
    """Return *name* as counted from the directory in the context, or from the current one."""
    if not name:
        return name
    path = Path(name).expanduser()
    return str(path if info.context is None else info.context / path)


def _files(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    return tuple(_file(name, info) for name in names)


def _journal(name: str, info: ValidationInfo) -> str:
    """Return the name of a file as `_file` does; that of a kind of journal as it is. Raises ValueError for an address:
    those of databases have a key of their own."""
    if is_address(name):
        raise ValueError("an address")
    return name if is_journal_kind(name) else _file(name, info)


def _python(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Return the files; what does not end with .py is a module's name."""
    return tuple(_file(name, info) if name.endswith(".py") else name for name in names)


def _sandboxes(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return kinds of sandboxes, of our own and of plugins that are installed; raises ValueError for others, but for
    those that there were once: `SandboxSettings` says what to use instead."""
    unknown = {*kinds} - {*KINDS} - {*REMOVED}
    if unknown and unknown - {*installed_kinds()}:
        raise ValueError("no such sandbox")
    return kinds


def _one_of(words: Collection[str]) -> Callable[[str], str]:
    """Return a check that raises ValueError for what is not among *words*."""

    def check(value: str) -> str:
        if value not in words:
            raise ValueError("no such word")
        return value

    return check


def _parse_switch(text: str) -> Any:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else text


def _parse_number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text.strip())
        except ValueError:
            continue
    return text


def _parse_json(text: str) -> Any:
    try:
        return read_document(text)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error


def _words(words: Collection[str]) -> Kind:
    return Kind(" / ".join(words), f"one of {', '.join(words)}")


ListOf = Annotated[tuple[T, ...], Strict(False)]  # files have lists
Seconds = Annotated[
    float,
    BeforeValidator(seconds),
    Kind("seconds", 'a time in seconds, or a text such as "5m" or "2h"', _parse_number),
]
Size = Annotated[
    int, BeforeValidator(size), Kind("size", 'a size in bytes, or a text such as "64K" or "4M"', _parse_number)
]
Rate = Annotated[
    str | float,
    PlainValidator(_rate),
    Kind("rate", 'calls in one second, or a text such as "60/min" or "1000/h burst 50"', _parse_number),
]
_MAX_WORKERS: Final = 1024
WorkerCount = Annotated[
    int | str,
    PlainValidator(_workers),
    Kind("auto / integer", f'"auto", or an integer, 0 to {_MAX_WORKERS}', _parse_number),
]
File = Annotated[str, AfterValidator(_file), Kind("file", "the name of a file")]
JournalName = Annotated[
    str,
    AfterValidator(_journal),
    Kind("file", "the name of a file (a database is named by `postgres`), or a kind of journal that is installed"),
]
_FILES: Final = Kind("list of files", "a list of strings", _parse_json)
Files = Annotated[ListOf[str], AfterValidator(_files), _FILES]


LentKind = Annotated[str, AfterValidator(_one_of(lent_kinds())), _words(lent_kinds())]
"""A kind of sandbox that a remote runtime may run code in."""
SandboxKinds = Annotated[
    ListOf[str],
    AfterValidator(_sandboxes),
    Kind(
        f"list of {', '.join(KINDS)}",
        f"a list of some of {', '.join(KINDS)}, and of plugins that are installed",
        _parse_json,
    ),
]
PythonNames = Annotated[ListOf[str], AfterValidator(_python), _FILES]

_PLAIN: Final[Mapping[Any, Kind]] = {
    str: Kind("text", "a text"),
    bool: Kind("true/false", "true or false", _parse_switch),
    int: Kind("integer", "an integer", _parse_number),
    float: Kind("number", "a number", _parse_number),
    tuple[str, ...]: Kind("list of strings", "a list of strings", _parse_json),
    tuple[JSONDict, ...]: Kind("list of tables", "a list of tables", _parse_json),
}


def kind_of(field: FieldInfo) -> Kind:
    """Return the kind of a model's field, with its bounds in what it expects."""
    kind = next((each for each in field.metadata if isinstance(each, Kind)), None) or _derived(field.annotation)
    low = next((each.ge for each in field.metadata if hasattr(each, "ge")), None)
    high = next((each.le for each in field.metadata if hasattr(each, "le")), None)
    if low is None:
        return kind
    bounds = f"{low:g} or more" if high is None else f"{low:g} to {high:.15g}"
    return Kind(kind.name, f"{kind.expects}, {bounds}", kind.parse)


def _derived(annotation: object) -> Kind:
    if get_origin(annotation) is Literal:
        return _words(get_args(annotation))
    item = get_args(annotation)[0] if get_origin(annotation) is tuple else None
    if get_origin(item) is Literal:
        names = ", ".join(get_args(item))
        return Kind(f"list of {names}", f"a list of some of {names}", _parse_json)
    return _PLAIN[annotation]


def shown(value: object) -> str:
    """Return a value as a message can quote it: short, and on one line."""
    try:
        text = json.dumps(value, default=to_json_lossy)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return text if len(text) <= 40 else f"{text[:37]}..."


def plain(value: object) -> Any:
    """Return *value* with dates as strings: JSON data, whatever it was read from."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
