"""What hides in a string is shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.model.visible import has_hidden, visible, visible_json, visible_line, without_hidden
from toolexec.model.visible_schema import visible_schema

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext ü 漢字", "plain\n\ttext ü 漢字"),
        ("a\x1b[31mred\x1b[0m", r"a\x1b[31mred\x1b[0m"),
        ("a\x1b]0;title\x07b", r"a\x1b]0;title\x07b"),
        ("a\x9b31mb", r"a\x9b31mb"),
        ("a\x00\x7fb", r"a\x00\x7fb"),
        ("a\rb\r\nc", "a\\x0db\nc"),
        ("a\u202eb\u2066", r"a\u202eb\u2066"),
        ("a\u200bb\ufeff\xad", r"a\u200bb\ufeff\xad"),
        ("a\u2028b", r"a\u2028b"),
        ("a\U000e0041\U000e0042", r"a\U000e0041\U000e0042"),
        ("a\ufe01\U000e0100", r"a\ufe01\U000e0100"),
        ("a\u3164b\u2060", r"a\u3164b\u2060"),
        ("a\ud800", r"a\ud800"),
        ("\u2764\ufe0f " + FAMILY + " 1\ufe0f\u20e3", "\u2764\ufe0f " + FAMILY + " 1\ufe0f\u20e3"),
        ("\u2764\ufe0f\ufe0f x\u200dy", "\u2764\ufe0f\\ufe0f x\\u200dy"),
    ],
)
def test_control_and_hidden_characters_are_written_as_escapes(text: str, shown: str) -> None:
    """A reader sees everything that is there, and an emoji stays an emoji."""
    assert visible(text) == shown
    assert visible(shown) == shown


def test_length_is_bounded() -> None:
    """A cut string ends in an ellipsis, on one line or on several."""
    assert visible("x" * 50, 10) == "x" * 9 + "…"
    assert len(visible("\u200b" * 1000 + "x", 10)) == 10
    assert visible_line(" a\n\n b ", 10) == "a b"
    assert visible_line("abcdef", 4) == "abc…"
    assert visible_line("a" + " " * 1000 + "b", 4) == "a…"


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_shows_all_and_keeps_the_value(value: object) -> None:
    """JSON whose hidden characters are escaped has exactly the value that it was made of."""
    shown = visible_json(value)
    assert json.loads(shown) == value
    assert visible(shown) == shown


def test_hidden_characters_are_found_and_left_out() -> None:
    """A search sees what a reader sees."""
    assert has_hidden("ig\u200bnore")
    assert without_hidden("ig\u200bn\U000e0041ore") == "ignore"
    assert not has_hidden("\u2764\ufe0f and\n\x1b")


def test_every_string_of_a_schema_is_visible() -> None:
    """Names, enums, defaults, constants, examples and titles of a schema hide nothing."""
    hidden, seen = "a\u202e\U000e0041", r"a\u202e\U000e0041"
    made = visible_schema(
        {
            "title": hidden * 2000,
            "properties": {hidden: {"enum": [hidden, 1], "default": {"x": [hidden]}, "const": hidden}, "b": True},
            "required": [hidden],
            "examples": [hidden],
        }
    )
    assert isinstance(made, dict)
    assert len(made.pop("title")) == 2000
    assert made == {
        "properties": {seen: {"enum": [seen, 1], "default": {"x": [seen]}, "const": seen}, "b": True},
        "required": [seen],
        "examples": [seen],
    }
