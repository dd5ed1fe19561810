"""Settings are checked where they are given: names, types, places in messages, and what may be shown."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict, Unpack

import pytest

import toolexec
from toolexec.errors import ConfigurationError, InvalidToolError
from toolexec.errors.hints import did_you_mean
from toolexec.model import settings as settings_module
from toolexec.model.settings import check_settings, checked


class Part(Protocol):
    """Something with a method."""

    def wrap(self, inner: Any) -> Any: ...


class Unrelated:
    pass


class Wrapper:
    def wrap(self, inner: Any) -> Any:
        return inner


@checked("Thing")
@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    on: bool = True
    count: int = 1
    seconds: float | None = 1.0
    name: str = ""
    data: bytes = b""
    mode: Literal["fast", "slow"] = "fast"
    either: Literal["strict"] | bool | None = None
    names: Sequence[str] = ()
    pair: tuple[str, ...] = ()
    any_of: Collection[str] | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    part: Part | None = None
    hook: Callable[[int], None] | None = None
    where: str | Path | None = None
    other: Thing | None = None
    free: Any = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ConfigurationError("count must be 0 or more")


@checked("BiggerThing")
@dataclass(frozen=True, slots=True, kw_only=True)
class BiggerThing(Thing):
    extra: int = 0


GOOD: list[tuple[str, Any]] = [
    ("on", False),
    ("count", 5),
    ("seconds", 3),
    ("seconds", None),
    ("mode", "slow"),
    ("either", True),
    ("either", "strict"),
    ("names", ["a"]),
    ("names", ("a", "b")),
    ("pair", ["a"]),
    ("any_of", {"a"}),
    ("any_of", frozenset()),
    ("env", {"a": "b"}),
    ("part", Wrapper()),
    ("hook", print),
    ("where", Path("x")),
    ("other", Thing()),
    ("free", object()),
]
BAD: list[tuple[str, Any, str]] = [
    ("on", "no", "on must be true or false, not 'no'"),
    ("on", 1, "on must be true or false, not 1"),
    ("on", None, "on must be true or false, not None"),
    ("count", True, "count must be an integer, not True"),
    ("count", 1.0, "count must be an integer, not 1.0"),
    ("count", "1", "count must be an integer, not '1'"),
    ("seconds", True, "seconds must be a number or None, not True"),
    ("seconds", math.nan, "seconds must be a number or None, not nan"),
    ("seconds", math.inf, "seconds must be a number or None, not inf"),
    ("seconds", 10**400, "seconds must be a number or None, not an int"),
    ("name", 3, "name must be a string, not 3"),
    ("name", b"x", "name must be a string, not bytes"),
    ("data", "x", "data must be bytes, not a string"),
    ("mode", "fsat", "mode must be one of fast, slow, not 'fsat'; did you mean fast?"),
    ("mode", True, "mode must be one of fast, slow, not True"),
    ("either", 1, "either must be strict, true or false or None, not 1"),
    ("names", "abc", "names must be a list of strings, not a string"),
    ("names", b"abc", "names must be a list of strings, not bytes"),
    ("names", {"a": 1}, "names must be a list of strings, not a mapping"),
    ("names", ["a", 3], r"names[1] must be a string, not 3"),
    ("pair", "abc", "pair must be a list of strings, not a string"),
    ("any_of", "abc", "any_of must be a list of strings or None, not a string"),
    ("env", [("a", "b")], "env must be a mapping of strings to strings, not a list"),
    ("env", {3: "x"}, "the keys of env must be strings, not 3"),
    ("env", {"KEY": 3}, "env['KEY'] must be a string, not 3"),
    ("part", Unrelated(), "part must be a Part or None, not an Unrelated; it has no wrap"),
    ("part", Wrapper, "part must be a Part or None, not the class Wrapper; give an instance: Wrapper(...)"),
    ("hook", "x", "hook must be a function or None, not a string"),
    ("where", 3, "where must be a string, a Path or None, not 3"),
    ("other", {}, "other must be a Thing or None, not a mapping"),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_fits(name: str, value: Any) -> None:
    """A value of the annotated type is taken as it is."""
    assert getattr(Thing(**{name: value}), name) is value


@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_what_does_not_fit(name: str, value: Any, message: str) -> None:
    """Anything else is refused, with its place; the class itself never sees it."""
    with pytest.raises(ConfigurationError) as caught:
        Thing(**{name: value})
    assert str(caught.value) == f"Thing: {message}"
    assert caught.value.details == {"setting": name}


def test_unknown_names() -> None:
    """The nearest name is suggested, else all are listed."""
    with pytest.raises(ConfigurationError, match=r"^Thing has no setting 'secnods'; did you mean seconds\?$"):
        Thing(secnods=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigurationError, match=r"^Thing has no setting 'zzz'; there are on, count, "):
        Thing(zzz=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigurationError, match="did you mean seconds"):
        replace(Thing(), secnods=3)  # pyright: ignore[reportCallIssue]


@checked("Parcel")
@dataclass(frozen=True, slots=True)
class Parcel:
    to: str
    weight: float | None = None
    _: KW_ONLY
    tags: list[str] = field(default_factory=list[str])
    note: Any = None


PARCELS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 1.5), {"tags": ["x"], "note": object}),
    (("a",), {"weight": None, "note": None}),
    ((), {"to": "a", "weight": 3}),
    ((), {}),
    ((3,), {}),
    (("a", "heavy"), {}),
    (("a", math.inf), {}),
    (("a", 1, ["x"]), {}),
    (("a",), {"to": "b"}),
    (("a",), {"wieght": 1}),
    (("a",), {"tags": "x"}),
    (("a",), {"tags": None}),
    ((), {"weight": True}),
    (("a",), {"wieght": 1, "tags": "x", "weight": "heavy"}),
    ((), {"note": 3}),
]


def test_often_used_classes_check_the_same() -> None:
    """A class that is made often gets a quicker check; it accepts and refuses what the first one does, in its words."""

    def outcome(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, str]:
        try:
            return Parcel(*args, **named), ""
        except (ConfigurationError, TypeError) as error:
            return type(error), str(error)

    checks = [vars(Parcel)["__init__"]]
    before = [outcome(args, named) for args, named in PARCELS[4:]]
    for _ in range(4):
        made = [outcome(args, named) for args, named in PARCELS[:4]]
    checks.append(vars(Parcel)["__init__"])
    assert checks[0] is not checks[1]
    assert [outcome(args, named) for args, named in PARCELS] == made + before
    assert [type(value) for value, _ in made] == [Parcel] * 4
    assert {value for value, _ in before} == {ConfigurationError, TypeError}
    assert Parcel("a").tags is not Parcel("a").tags
    assert inspect.signature(Parcel) == inspect.signature(checks[0].__wrapped__.__get__(object()))


def test_a_subclass() -> None:
    """Fields of the base class are checked too, under the name of the subclass."""
    assert BiggerThing(extra=3, on=False).extra == 3
    with pytest.raises(ConfigurationError, match="BiggerThing: on must be true or false"):
        BiggerThing(on="no")  # pyright: ignore[reportArgumentType]


def test_the_class_checks_ranges_itself() -> None:
    """The class checks ranges that annotations cannot express."""
    with pytest.raises(ConfigurationError, match="0 or more"):
        Thing(count=-1)


def test_the_signature_stays() -> None:
    """Tools that read signatures see the parameters."""
    assert list(inspect.signature(Thing).parameters)[:2] == ["on", "count"]


def test_secrets_are_not_shown() -> None:
    """A message never holds what may be a secret: long strings, values of mappings, what is named as one."""

    @checked("Login")
    def login(*, password: int = 0, env: Mapping[str, int] | None = None, count: int = 0) -> None:
        raise AssertionError("it was called")

    for settings in ({"password": "hunter2"}, {"env": {"A": "hunter2"}}, {"env": "hunter2"}, {"count": "hunter2" * 9}):
        with pytest.raises(ConfigurationError) as caught:
            login(**settings)  # type: ignore[arg-type]
        assert "hunter2" not in str(caught.value)


class Settings(TypedDict, total=False):
    level: int


class MoreSettings(Settings, total=False):
    name: str


def test_a_typed_dict() -> None:
    """Settings by keyword have a TypedDict, which type checkers read as well."""
    check_settings("do", MoreSettings, {"level": 3, "name": "x"})
    with pytest.raises(InvalidToolError, match="do has no setting 'levle'; did you mean level"):
        check_settings("do", MoreSettings, {"levle": 3}, error=InvalidToolError)
    with pytest.raises(ConfigurationError, match="do: level must be an integer"):
        check_settings("do", MoreSettings, {"level": "3"})


async def test_functions() -> None:
    """Functions and coroutine functions are checked before they begin."""

    @checked("work")
    async def work(first: int, **settings: Unpack[MoreSettings]) -> Any:
        return first, settings

    assert await work(1, level=2) == (1, {"level": 2})
    assert inspect.iscoroutinefunction(work)
    for args, named in ((("1",), {}), ((1,), {"level": "2"}), ((1,), {"nmae": "x"})):
        with pytest.raises(ConfigurationError):
            await work(*args, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("timeuot", "did you mean timeout?"),
        ("Time-Out", "did you mean time_out?"),
        ("examples", "did you mean max_examples?"),
        ("q", "there are timeout, time_out, max_examples"),
        (3, "there are timeout, time_out, max_examples"),
        ("x" * 100_000, "there are timeout, time_out, max_examples"),
    ],
)
def test_did_you_mean(word: Any, said: str) -> None:
    """The nearest word, whatever its case; else all of them."""
    assert did_you_mean(word, ["timeout", "time_out", "max_examples"]) == said


def test_protocols_are_known_by_what_they_have() -> None:
    """A class that only type checkers import is known by its name, which an implementation of a protocol does not have."""
    protocols: set[str] = set()
    for info in pkgutil.walk_packages(toolexec.__path__, "toolexec."):
        if not any(part in info.name for part in (".guest.", ".frameworks.")) and not info.name.endswith(
            ("wasm.app", "__main__")
        ):
            module = importlib.import_module(info.name)
            protocols |= {name for name, value in [*vars(module).items()] if getattr(value, "_is_protocol", False)}
    for guard in settings_module._guards:
        _, kinds, _ = guard._known()
        for kind in kinds.values():
            for part in (kind, *kind.choices):
                name = part.one.removeprefix("an ").removeprefix("a ")
                assert part.members or name not in protocols, f"{guard.what}: name the home of {name}"
