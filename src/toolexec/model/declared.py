"""Declare settings: the fields of a dataclass, each with what it is and what values it may have.

That is the one place that says so. `checked` refuses what is out of bounds; the blocks of files, the names of
variables, the template and the table of the documents are derived from it (`toolexec.config.declared`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypedDict, TypeVar, Unpack

T = TypeVar("T")

_KEY: Final = "toolexec.setting"


@dataclass(frozen=True, slots=True)
class Form:
    """How files may write a value that is more than its type says; `unit` is what messages count it in."""

    name: str
    unit: str = ""


Seconds: TypeAlias = Annotated[float, Form("seconds", " seconds")]
"""A time in seconds; files may write `5m`."""
Bytes: TypeAlias = Annotated[int, Form("size")]
"""A number of bytes; files may write `4M`."""
FileName: TypeAlias = Annotated[str, Form("file")]
"""The name of a file; in a file of settings it counts from the directory of that."""
PathName: TypeAlias = Annotated[str | Path, Form("file")]
"""The same, also as a `Path`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one setting is (`help`), and its bounds: `above`, `least`, `most` and `below` hold wherever it is given,
    `file_least` and `file_most` those of files where they are narrower. A `secret` one is never shown."""

    help: str
    above: float | None = None
    least: float | None = None
    most: float | None = None
    below: float | None = None
    file_least: float | None = None
    file_most: float | None = None
    secret: bool = False

    def holds(self, value: object) -> bool:
        """Return whether *value* is within the bounds, which are for numbers only."""
        if not isinstance(value, int | float):
            return True
        return (
            (self.above is None or value > self.above)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def bounds(self, form: Form | None = None) -> str:
        """Return the bounds in words, as `0 to 60 seconds`; empty where there are none."""
        unit = form.unit if form is not None else ""
        if self.least is not None and self.most is not None:
            return f"{self.least:.15g} to {self.most:.15g}{unit}"
        low = f"above {self.above:.15g}{unit}" if self.above is not None else ""
        low = f"{self.least:.15g}{unit} or more" if self.least is not None else low
        high = f"{self.most:.15g}{unit} or less" if self.most is not None else ""
        high = f"below {self.below:.15g}{unit}" if self.below is not None else high
        return " and ".join(each for each in (low, high) if each)


class Given(TypedDict, total=False):
    """What a `Setting` has beside its help."""

    above: float
    least: float
    most: float
    below: float
    file_least: float
    file_most: float
    secret: bool


def about(help: str, **given: Unpack[Given]) -> Mapping[str, Setting]:
    """Return the metadata of a field that has no default: `name: str = field(metadata=about("What it is."))`."""
    return {_KEY: Setting(help=help, **given)}


def setting(default: T, help: str, **given: Unpack[Given]) -> T:
    """Return a field of a dataclass that is a setting; see `Setting`. Where it is secret, the `repr` leaves it out.

    As in `open_for: Seconds = setting(10.0, "How long the door stays open.", above=0)`.
    """
    return field(default=default, metadata=about(help, **given), repr=not given.get("secret", False))


def duration(default: float, help: str, *, file_least: float = 0.001) -> float:
    """Return a field that is a time above 0, and short enough for timers."""
    return setting(default, help, above=0, below=1e7, file_least=file_least)


def same_as(owner: type, name: str) -> Any:
    """Return a field that is the setting *name* of another dataclass: with its default, its help and its bounds."""
    of: Field[Any] = owner.__dataclass_fields__[name]  # type: ignore[attr-defined]
    return field(default=of.default, metadata=of.metadata, repr=of.repr)


def declared(owner: type | None) -> Mapping[str, Setting]:
    """Return the settings that a dataclass declares, by name, in its order."""
    fields: Mapping[str, Field[Any]] = getattr(owner, "__dataclass_fields__", {})
    return {name: each.metadata[_KEY] for name, each in fields.items() if _KEY in each.metadata}


def form_of(annotation: object) -> Form | None:
    """Return the form that an annotation has, if it has one."""
    return next((each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Form)), None)


def annotation_of(owner: type, name: str) -> Any:
    """Return the annotation of a field, read in the module of its class."""
    text = owner.__annotations__[name]
    return eval(text, vars(sys.modules[owner.__module__])) if isinstance(text, str) else text  # noqa: S307 - own source
