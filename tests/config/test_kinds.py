"""Kinds of values."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, create_model

from toolexec.config.declared import Block
from toolexec.config.kinds import File, Files, Kind, ListOf, PythonNames, Rate, Seconds, Size, kind_of, plain, shown

Word = Literal["a", "b"]
Tables = ListOf[dict[str, Any]]
FromOneToFive = Annotated[int, Field(ge=1, le=5)]
FromOne = Annotated[int, Field(ge=1)]


def table_of(kind: Any) -> type[Block]:
    """A block with one key of this kind."""
    return create_model("Table", __base__=Block, key=(kind, ...))


def read(kind: Any, value: Any, directory: Path | None = None) -> Any:
    """Read a value of a file."""
    return table_of(kind).model_validate({"key": value}, context=directory).key


def words(kind: Any) -> Kind:
    """The words for a kind."""
    return kind_of(table_of(kind).model_fields["key"])


def from_text(kind: Any, text: str) -> Any:
    """Read the string of a variable or a flag."""
    return read(kind, words(kind).parse(text))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (str, "x", "x"),
        (bool, True, True),
        (int, 3, 3),
        (float, 3, 3.0),
        (Seconds, 2, 2.0),
        (Seconds, "5m", 300.0),
        (Seconds, "1.5 h", 5400.0),
        (Seconds, "250ms", 0.25),
        (Size, 10, 10),
        (Size, "4M", 4 * 1024**2),
        (Size, "64 KiB", 65536),
        (Size, "1g", 1024**3),
        (Size, "12b", 12),
        (Rate, 2, 2.0),
        (Rate, "60/min", "60/min"),
        (Rate, "1000/hour burst 50", "1000/hour burst 50"),
        (Rate, "0", 0.0),
        (ListOf[str], ["a"], ("a",)),
        (Tables, [{"a": 1}], ({"a": 1},)),
        (Word, "a", "a"),
        (ListOf[Word], ["b"], ("b",)),
        (FromOneToFive, 5, 5),
    ],
)
def test_a_value_of_a_file_is_read(kind: Any, value: Any, expected: Any) -> None:
    """Each kind has one form, whatever way it was written."""
    found = read(kind, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, 1),
        (bool, 1),
        (bool, "true"),
        (int, True),
        (int, 1.0),
        (float, "1"),
        (float, False),
        (float, float("nan")),
        (float, float("inf")),
        (Seconds, "5 weeks"),
        (Seconds, "-1s"),
        (Seconds, ""),
        (Seconds, None),
        (Size, "4X"),
        (Size, 1.5),
        (Size, [1]),
        (Rate, -1),
        (Rate, "fast"),
        (Rate, {}),
        (ListOf[str], "a"),
        (ListOf[str], [1]),
        (Tables, [1]),
        (Tables, {}),
        (Word, "c"),
        (Word, ["a"]),
        (ListOf[Literal["a"]], ["b"]),
        (ListOf[Literal["a"]], "a"),
        (FromOneToFive, 6),
        (FromOne, 0),
    ],
)
def test_a_value_of_another_kind_is_refused(kind: Any, value: Any) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError):
        read(kind, value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (str, " x ", " x "),
        (bool, "Yes", True),
        (bool, "0", False),
        (int, "12", 12),
        (float, "1.5", 1.5),
        (Seconds, "10", 10.0),
        (Seconds, "2h", 7200.0),
        (Size, "2k", 2048),
        (Rate, "5/s", "5/s"),
        (Rate, "5", 5.0),
        (ListOf[str], '["a", "b"]', ("a", "b")),
        (Tables, '[{"effect": "deny"}]', ({"effect": "deny"},)),
        (File, "a.pem", "a.pem"),
    ],
)
def test_a_text_of_a_variable_or_flag_is_read(kind: Any, text: str, value: Any) -> None:
    """Lists and tables are JSON, all else as one would write it."""
    assert from_text(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [(bool, "perhaps"), (int, "1.5"), (int, "x"), (float, "nan"), (ListOf[str], "a,b"), (ListOf[str], "[" * 100_000)],
)
def test_a_text_that_is_none_is_refused(kind: Any, text: str) -> None:
    """Refuses an invalid string, even one that nests without end."""
    with pytest.raises(ValueError):
        from_text(kind, text)


def test_bounds_are_told() -> None:
    """The bounds are a part of the expected type."""
    assert words(Annotated[int, Field(ge=0, le=65535)]).expects == "an integer, 0 to 65535"
    assert words(FromOne).expects == "an integer, 1 or more"


def test_names_of_files_count_from_the_directory_of_their_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute ones, `~` and modules stay what they are."""
    monkeypatch.setenv("HOME", "/somewhere")
    assert read(File, "a/b.pem", tmp_path) == str(tmp_path / "a/b.pem")
    assert read(File, "a.pem", None) == "a.pem"
    assert read(File, "", tmp_path) == ""
    assert read(Files, ("/x.json", "~/y.json"), tmp_path) == ("/x.json", "/somewhere/y.json")
    assert read(PythonNames, ("app.py", "pkg.tools"), tmp_path) == (str(tmp_path / "app.py"), "pkg.tools")


def test_values_are_quoted_in_short() -> None:
    """Tables and lists only by what they are."""
    assert shown("x" * 100) == '"' + "x" * 36 + "..."
    assert shown({"a": 1}) == "a table"
    assert shown([1]) == "a list"
    assert shown(1) == "1"
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "a list"


def test_dates_become_strings() -> None:
    """JSON data, whatever they were read from."""
    assert plain({"a": [date(2027, 1, 31)], "b": (1,)}) == {"a": ["2027-01-31"], "b": [1]}
