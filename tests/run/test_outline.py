"""What an outline says of a value."""

from __future__ import annotations

import base64
import os
from typing import Any

import jsonschema_rs
import pytest

from toolexec.run.excerpt import encode, end_within, excerpt, media_kind, size, start_within
from toolexec.run.large import surely_fits
from toolexec.run.outline import OUTLINE_SCHEMA, Outline, child_path, describe, outline

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + os.urandom(3000)).decode()
ROWS = {"items": [{"id": n, "name": f"row {n}"} for n in range(900)], "total": 900, "picture": PNG}


def of(value: Any, max_bytes: int = 4000) -> Outline:
    found = outline(value, total=size(value), max_bytes=max_bytes, handle="r-1", kept=", for a while")
    assert size(found) <= max_bytes
    assert jsonschema_rs.is_valid(dict(OUTLINE_SCHEMA), found)
    return found


def test_an_object_is_told_by_its_paths() -> None:
    """Small members are shown as they are, of large ones there is a type, a count, the fields and the size."""
    found = of(ROWS)
    assert found["kind"] == "object"
    assert found["count"] == 3
    items = found["parts"]["items"]
    assert items.startswith("array of 900 items, each object; fields: id (integer), name (text), ")
    assert items.endswith(f"{size(ROWS['items']):,} bytes")
    assert found["samples"] == {"total": 900, **{f"items[{n}]": ROWS["items"][n] for n in range(3)}}
    assert "left_out" not in found


def test_an_array_shows_its_first_items() -> None:
    """An array has its count, its fields and its first three items."""
    found = of(ROWS["items"])
    assert found["count"] == 900
    assert found["parts"][""].startswith("array of 900 items, each object; fields: id (integer)")
    assert list(found["samples"]) == ["[0]", "[1]", "[2]"]


def test_a_text_shows_its_beginning_and_its_end() -> None:
    """Of a text there are whole lines from both ends, six tenths from the beginning, and what is between them."""
    text = "".join(f"line {n}\n" for n in range(3000))
    found = of(text)
    head, cut, tail = found["head"], found["cut"], found["tail"]
    assert head.endswith("\n")
    assert text == head + text[cut["offset"] : cut["offset"] + cut["characters"]] + tail
    assert cut["lines"] == 3000 - head.count("\n") - tail.count("\n")
    assert 0.55 < len(head) / len(head + tail) < 0.65
    assert len(head + tail) > 3000
    assert (found["characters"], found["lines"]) == (len(text), 3001)


def test_a_long_text_in_an_object_shows_its_ends_too() -> None:
    """The room that is left goes to the beginnings and ends of the longest strings."""
    found = of({"path": "a.py", "content": "x = 1\n" * 5000, "log": "y\n" * 3000})
    assert found["samples"] == {"path": "a.py"}
    assert set(found["strings"]) == {"content", "log"}
    assert found["strings"]["content"]["head"].startswith("x = 1\n")
    assert found["parts"]["content"] == "text of 30,000 characters, 35,002 bytes"


def test_media_is_never_shown() -> None:
    """Neither whole, nor in part, nor within a sample is there anything of a picture."""
    for value in (PNG, ROWS, [{"id": n, "png": PNG[:600]} for n in range(50)], {"a": [[PNG, "x" * 5000]]}):
        assert PNG[:60] not in encode(of(value))
    assert of(PNG)["looks_like"] == "a PNG image"
    assert of(PNG)["kind"] == "binary"
    assert "looks like a PNG image" in of(ROWS)["parts"]["picture"]


def test_what_is_not_listed_is_counted() -> None:
    """Of very many keys some are listed, and the number of the others is told."""
    found = of({f"key {n}": n for n in range(5000)})
    assert len(found["samples"]) + found["left_out"] == 5000
    assert '["key 0"]' in found["samples"]


def test_long_names_are_cut() -> None:
    """A key of a megabyte is told by its beginning and its length."""
    found = of({"k" * 1_000_000: 1})
    (path,) = found["samples"]
    assert path == f'["{"k" * 60}... (1,000,000 characters)"]'
    assert "(1,000,000 characters)" in describe([{"k" * 1_000_000: 1}])


def test_a_value_that_is_not_kept_says_so() -> None:
    """Without a handle the advice is to ask for less."""
    found = outline("x" * 5000, total=5002, max_bytes=1000)
    assert found["about"].endswith("The whole is not kept; ask the tool for less.")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("abc", "text of 3 characters"),
        ({"a": 1}, "object of 1 keys"),
        ([], "array of 0 items"),
        ([1, 2], "array of 2 items, each integer"),
        ([1, "a", 1.5, None, True, [], {}], "array of 7 items, of several types: integer, text, number, null, boolean, array, object"),
        ([{"a": 1}, {"a": "x", "b": 2}], "array of 2 items, each object; fields: a (integer or text), b (integer)"),
        ([{str(n): n for n in range(30)}], ", ..."),
        (None, "null"),
        (1j, '"1j"'),
    ],
)  # fmt: skip
def test_values_are_described_in_a_few_words(value: Any, words: str) -> None:
    """A description has the type, the count and the fields."""
    assert describe(value).startswith(words) or describe(value).endswith(words)


def test_paths_read_like_code() -> None:
    """Plain names follow a dot, others are quoted."""
    assert child_path(child_path(child_path("", "a"), 0), "b-c") == "a[0].b-c"
    assert child_path("", 3) == "[3]"
    assert child_path("x", 'say "hi"') == 'x["say \\"hi\\""]'


@pytest.mark.parametrize(
    "value",
    [None, True, 5, 10**500, 1.5, "é" * 50, {"a": [1, {"b": "\x00"}]}, [], [[[]]], {"k" * 30: 1}],
)
def test_what_surely_fits_does_fit(value: Any) -> None:
    """The quick estimate never says yes to what is too long."""
    limit = size(value)
    assert not surely_fits(value, limit - 1)
    assert surely_fits(value, limit * 20 + 100)


@pytest.mark.parametrize("value", [list(range(100)), (1, 2), {1: 2}, {"a": object()}, [1] * 16])
def test_the_quick_estimate_gives_up_early(value: Any) -> None:
    """Many parts, or odd ones, are left to the exact count."""
    assert not surely_fits(value, 10**6) or len(value) < 16


def test_pieces_of_text_keep_to_their_room() -> None:
    """A piece is as long as its room allows, whatever the characters cost."""
    for text in ("a" * 100, "é" * 100, "😀" * 100, "\x00" * 100, '"' * 100, "\ud800" * 100):
        for room in (-1, 0, 1, 7, 50, 1000):
            end, start = end_within(text, 10, room), start_within(text, room)
            assert size(text[10:end]) - 2 <= max(room, 0)
            assert size(text[start:]) - 2 <= max(room, 0)
            assert end == len(text) or size(text[10 : end + 1]) - 2 > room
            assert start == 0 or size(text[start - 1 :]) - 2 > room


def test_an_excerpt_without_line_ends_is_cut_anywhere() -> None:
    """One long line is cut in the middle of it."""
    pieces = excerpt("x" * 10_000, 1000)
    assert size(pieces) <= 1000
    assert len(pieces["head"]) + len(pieces["tail"]) + pieces["cut"]["characters"] == 10_000


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PNG, "a PNG image"),
        ("\n".join(PNG[n : n + 76] for n in range(0, 3000, 76)) + "\n", "a PNG image"),
        (base64.b64encode(os.urandom(400)).decode(), "base64 data"),
        (os.urandom(300).hex(), "hexadecimal data"),
        (f"data:image/png;base64,{PNG}", "a data URL (image/png)"),
        (f"data:,{'x' * 300}", "a data URL (text/plain)"),
        ("\x00\x01" * 200, "binary data"),
        ("\ufffd" * 300, "binary data"),
        (PNG[:100], ""),
        ("word " * 100, ""),
        ("a" * 500, ""),
        ("1234567890" * 50, ""),
        ("abcdef" * 1000 + " and so on", ""),
        (PNG[:4000] + " " + "x" * 5000, ""),
    ],
    ids=[*map(str, range(14))],
)
def test_media_is_told_from_text(text: str, kind: str) -> None:
    """Encoded bytes are recognised by what they look like; words, numbers and short strings are not."""
    assert media_kind(text) == kind
