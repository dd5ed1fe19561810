"""Text from strangers as parts of Python source."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.code.stub_dialects import PYTHON
from toolexec.code.stub_text import (
    constraints,
    docstring,
    harmless_comment,
    is_plain_name,
    joined_words,
    one_line,
    paragraph,
    quoted,
)
from toolexec.model.visible import visible_line

HOSTILE = st.text(st.sampled_from("\"'\\\n\r\x00\x0c\u2028\u202e#abc \t{}N:é"), max_size=60) | st.text(max_size=60)


@given(st.lists(HOSTILE, min_size=1, max_size=4))
def test_a_docstring_cannot_be_left(lines: list[str]) -> None:
    """Whatever is in it, it is one string and nothing more."""
    safe = [one_line(line, 200) for line in lines]
    text = "\n".join(["def f():", *docstring(safe, "    ")])
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    (only,) = function.body
    assert isinstance(only, ast.Expr)
    assert isinstance(only.value, ast.Constant)


@given(HOSTILE)
def test_a_quoted_text_is_itself(text: str) -> None:
    """On one line of printable characters."""
    literal = quoted(text)
    assert ast.literal_eval(literal) == text
    assert literal.isprintable()


@given(HOSTILE, st.integers(2, 50))
def test_one_line_is_one_visible_line(text: str, limit: int) -> None:
    """One line hides nothing, and has at most the given length."""
    line = one_line(text, limit)
    assert visible_line(line) == line
    assert len(line) <= limit
    assert line == line.strip()


def test_one_line_shows_colours_and_takes_only_strings() -> None:
    """A cut is shown."""
    assert one_line("a \x1b[31mred\x1b[0m\n\tb", 50) == "a \\x1b[31mred\\x1b[0m b"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line(5, 4) == ""


def test_a_paragraph_is_the_first_one() -> None:
    """Cut between words where there are any."""
    assert paragraph("\n one\n two \r\n\r\nthree", 100) == "one two"
    assert paragraph("one two three", 9) == "one two…"
    assert paragraph("x" * 100, 10) == f"{'x' * 9}…"
    assert paragraph("", 10) == ""


def test_long_docstrings_are_wrapped() -> None:
    """Lines that are set in go on further in."""
    lines = docstring(["word " * 40, "    name: " + "word " * 40], "    ")
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith('    """word')
    assert lines[1].startswith("    word")
    assert lines[-2].startswith("            word")
    assert lines[-1] == '    """'


@pytest.mark.parametrize(
    ("name", "plain"),
    [("title", True), ("größe", True), ("match", True), ("from", False), ("x-y", False), ("", False), ("1a", False)]
    + [("__x", False), ("_x", True), ("ﬁ", False), ("a" * 101, False), ("None", False)],
)
def test_is_plain_name(name: str, plain: bool) -> None:
    """Return whether Python takes the name as it is."""
    assert is_plain_name(name) is plain


@pytest.mark.parametrize(
    ("strings", "name"),
    [
        (["create_issue", "result"], "CreateIssueResult"),
        (["list-issues"], "ListIssues"),
        (["oldText"], "OldText"),
        (["2fa"], "T2fa"),
        (["größe"], "GrE"),
        (["--", ""], ""),
        (["x" * 500], "X" + "x" * 59),
    ],
)
def test_joined_words(strings: list[str], name: str) -> None:
    """Words of ASCII, each with a capital."""
    assert joined_words(*strings) == name


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, ""),
        ({"format": "uri", "minLength": 1, "maxLength": 5}, "format uri, at least 1 character, at most 5 characters"),
        ({"minimum": 1, "exclusiveMaximum": 2.5, "multipleOf": 0.5}, "multipleOf 0.5, >= 1, < 2.5"),
        ({"exclusiveMinimum": 0, "maximum": 9}, "> 0, <= 9"),
        ({"minItems": 1, "maxItems": 2, "uniqueItems": True}, "at least 1 item, at most 2 items, all different"),
        ({"minProperties": 2, "deprecated": True}, "at least 2 names, deprecated"),
        ({"pattern": '^"\n#'}, 'pattern "^\\"\\n#"'),
        ({"default": None}, "default None"),
        ({"default": True}, "default True"),
        ({"default": {"a": [1, "x"]}}, 'default {"a": [1, "x"]}'),
        ({"minimum": True, "format": 5, "minLength": "x", "uniqueItems": False}, "format 5"),
        ({"format": "x\ny"}, "format x y"),
    ],
)
def test_constraints(schema: dict[str, Any], text: str) -> None:
    """In few words, in one order, on one line; what is of the wrong type is left out."""
    assert constraints(schema, PYTHON.words) == text


def test_a_default_of_any_depth_is_short() -> None:
    """A deep default fills neither the page nor the stack."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert constraints({"default": deep}, PYTHON.words) == "default …"
    assert len(constraints({"default": list(range(1000))}, PYTHON.words)) < 80


@pytest.mark.parametrize("order", ["type: ignore", "pyright: basic", "noqa", "ruff: noqa", "TYPE : ignore"])
def test_a_comment_gives_no_orders(order: str) -> None:
    """Type checkers and linters read comments, too, and look at what follows a `#`."""
    assert harmless_comment(f"default #{order}") == f"default {order}"
    assert harmless_comment(f"# # {order}") == f"note: {order}"
    assert harmless_comment(f" {order}") == f"note: {order}"
    assert harmless_comment("# 5, type of x") == "# 5, type of x"
    assert harmless_comment("Type of x") == "Type of x"
