"""Kinds of values."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from toolexec.config.kinds import (
    BYTES,
    FILES,
    NUMBER,
    PATH,
    PYTHON,
    RATE,
    SECONDS,
    SWITCH,
    TABLES,
    TEXT,
    TEXTS,
    WHOLE,
    Kind,
    ValueRefusedError,
    bounded,
    choice,
    choices,
    plain,
    shown,
)

WORD = choice("a", "b")


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (TEXT, "x", "x"),
        (SWITCH, True, True),
        (WHOLE, 3, 3),
        (NUMBER, 3, 3.0),
        (SECONDS, 2, 2.0),
        (SECONDS, "5m", 300.0),
        (SECONDS, "1.5 h", 5400.0),
        (SECONDS, "250ms", 0.25),
        (BYTES, 10, 10),
        (BYTES, "4M", 4 * 1024**2),
        (BYTES, "64 KiB", 65536),
        (BYTES, "1g", 1024**3),
        (BYTES, "12b", 12),
        (RATE, 2, 2.0),
        (RATE, "60/min", "60/min"),
        (RATE, "1000/hour burst 50", "1000/hour burst 50"),
        (RATE, "0", 0.0),
        (TEXTS, ["a"], ("a",)),
        (TABLES, [{"a": 1}], ({"a": 1},)),
        (WORD, "a", "a"),
        (choices("a", "b"), ["b"], ("b",)),
        (bounded(WHOLE, 1, 5), 5, 5),
    ],
)
def test_a_value_of_a_file_is_read(kind: Kind, value: Any, read: Any) -> None:
    """Each kind has one form, whatever way it was written."""
    found = kind.read(value)
    assert found == read
    assert type(found) is type(read)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (TEXT, 1),
        (SWITCH, 1),
        (SWITCH, "true"),
        (WHOLE, True),
        (WHOLE, 1.0),
        (NUMBER, "1"),
        (NUMBER, False),
        (NUMBER, float("nan")),
        (NUMBER, float("inf")),
        (SECONDS, "5 weeks"),
        (SECONDS, "-1s"),
        (SECONDS, ""),
        (SECONDS, None),
        (BYTES, "4X"),
        (BYTES, 1.5),
        (BYTES, [1]),
        (RATE, -1),
        (RATE, "fast"),
        (RATE, {}),
        (TEXTS, "a"),
        (TEXTS, [1]),
        (TABLES, [1]),
        (TABLES, {}),
        (WORD, "c"),
        (WORD, ["a"]),
        (choices("a"), ["b"]),
        (choices("a"), "a"),
        (bounded(WHOLE, 1, 5), 6),
        (bounded(WHOLE, 1), 0),
    ],
)
def test_a_value_of_another_kind_is_refused(kind: Kind, value: Any) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueRefusedError):
        kind.read(value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (TEXT, " x ", " x "),
        (SWITCH, "Yes", True),
        (SWITCH, "0", False),
        (WHOLE, "12", 12),
        (NUMBER, "1.5", 1.5),
        (SECONDS, "10", 10.0),
        (SECONDS, "2h", 7200.0),
        (BYTES, "2k", 2048),
        (RATE, "5/s", "5/s"),
        (RATE, "5", 5.0),
        (TEXTS, '["a", "b"]', ("a", "b")),
        (TABLES, '[{"effect": "deny"}]', ({"effect": "deny"},)),
        (PATH, "a.pem", "a.pem"),
    ],
)
def test_a_text_of_a_variable_or_flag_is_read(kind: Kind, text: str, value: Any) -> None:
    """Lists and tables are JSON, all else as one would write it."""
    assert kind.from_text(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [(SWITCH, "perhaps"), (WHOLE, "1.5"), (WHOLE, "x"), (NUMBER, "nan"), (TEXTS, "a,b"), (TEXTS, "[" * 100_000)],
)
def test_a_text_that_is_none_is_refused(kind: Kind, text: str) -> None:
    """Also one that nests without end."""
    with pytest.raises(ValueRefusedError):
        kind.from_text(text)


def test_bounds_are_told() -> None:
    """They are a part of what is expected."""
    assert bounded(WHOLE, 0, 65535).expects == "a whole number, 0 to 65535"
    assert bounded(WHOLE, 1).expects == "a whole number, 1 or more"


def test_names_of_files_count_from_the_folder_of_their_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute ones, `~` and modules stay what they are."""
    monkeypatch.setenv("HOME", "/somewhere")
    locate = {kind: kind.locate for kind in (PATH, FILES, PYTHON)}
    assert all(locate.values())
    assert PATH.locate is not None
    assert FILES.locate is not None
    assert PYTHON.locate is not None
    assert PATH.locate("a/b.pem", tmp_path) == str(tmp_path / "a/b.pem")
    assert PATH.locate("a.pem", None) == "a.pem"
    assert PATH.locate("", tmp_path) == ""
    assert FILES.locate(("/x.json", "~/y.json"), tmp_path) == ("/x.json", "/somewhere/y.json")
    assert PYTHON.locate(("app.py", "pkg.tools"), tmp_path) == (str(tmp_path / "app.py"), "pkg.tools")


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


def test_dates_become_texts() -> None:
    """JSON data, whatever they were read from."""
    assert plain({"a": [date(2027, 1, 31)], "b": (1,)}) == {"a": ["2027-01-31"], "b": [1]}
