"""One plain value out of whatever a tool answered."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import CallToolResult, ImageContent, TextContent

from toolexec.model import ToolReply
from toolexec.model.content import audio, image, resource_link, text
from toolexec.run.normalize import as_reply, reply_error, reply_value

PICTURE = image(b"not really")
EMBEDDED = {"type": "resource", "resource": {"uri": "file:///a", "text": "one level down"}}


def _reply(*content: dict[str, Any]) -> ToolReply:
    return ToolReply(content=content)


@pytest.mark.parametrize("value", [{}, "", 0, False, [], {"a": 1}, None])
def test_the_structured_value_wins(value: Any) -> None:
    """The structured value is taken as it is, empty or not, and the text blocks are ignored."""
    assert reply_value(ToolReply(content=[text("5")], structured=value, has_structured=True)) == value


def test_no_content() -> None:
    """A reply without anything is null."""
    assert reply_value(ToolReply()) is None


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ("[1, 2]", [1, 2]),
        ("5", 5),
        (" 5 \n", 5),
        ("true", True),
        ("null", None),
        ('"quoted"', "quoted"),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("9007199254740993", 9007199254740993),
        ("1e400x", "1e400x"),
        ("plain text", "plain text"),
        ("NaN", "NaN"),
        ("[Infinity]", "[Infinity]"),
        ("{'a': 1}", "{'a': 1}"),
        ("01", "01"),
        ("5 and more", "5 and more"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_a_single_text(given: str, value: Any) -> None:
    """A single text is parsed if it is strict JSON, with integers exact, and kept as a string otherwise."""
    result = reply_value(_reply(text(given)))
    assert result == value
    assert type(result) is type(value)


def test_one_text_among_other_parts() -> None:
    """Such a text is the value, and is not parsed."""
    assert reply_value(_reply(PICTURE, text("5"))) == "5"


def test_several_strings() -> None:
    """Several text blocks are a list, in order and unparsed."""
    assert reply_value(_reply(text("1"), PICTURE, text("2"))) == ["1", "2"]


@pytest.mark.parametrize(
    "parts",
    [
        [PICTURE],
        [audio(b"x")],
        [resource_link("file:///a", "a")],
        [EMBEDDED],
        [text("")],
        [{"type": "text", "text": 5}],
        [{}],
    ],
)
def test_nothing_that_is_text(parts: list[dict[str, Any]]) -> None:
    """Pictures, sounds, links, embedded resources and empty strings give null; they stay in the content."""
    assert reply_value(_reply(*parts)) is None


def test_a_kind_that_nobody_knows() -> None:
    """A part of a future kind counts by its text."""
    assert reply_value(_reply({"type": "hologram", "text": "hi"})) == "hi"


def test_the_sdks_result_is_a_reply() -> None:
    """The SDK's result is read with all its parts, under the names of the protocol."""
    result = CallToolResult(
        content=[TextContent(type="text", text="hi"), ImageContent(type="image", data="aGk=", mime_type="image/png")],
        structured_content={"n": 1},
        is_error=True,
    )
    reply = as_reply(result)
    assert reply is not None
    assert [part["type"] for part in reply.content] == ["text", "image"]
    assert reply.content[1]["mimeType"] == "image/png"
    assert (reply.structured, reply.has_structured, reply.is_error) == ({"n": 1}, True, True)


@pytest.mark.parametrize("value", [None, 1, "text", {"content": []}, object()])
def test_other_values_are_no_replies(value: Any) -> None:
    """A plain value stays one, even if it looks like a reply."""
    assert as_reply(value) is None


def test_a_class_of_the_same_name_is_no_reply() -> None:
    """The SDK's class is told by what it can do, not by its name alone."""

    class CallToolResult:
        pass

    assert as_reply(CallToolResult()) is None


def test_a_reply_is_its_own_reply() -> None:
    """A ToolReply passes as it is."""
    reply = _reply()
    assert as_reply(reply) is reply


def test_an_error_says_its_strings() -> None:
    """All strings are the message, and the whole content is in the details."""
    error = reply_error("ns:t", _reply(text("one"), PICTURE, text("two")))
    assert str(error) == "ns:t failed: one\ntwo"
    assert error.details["content"] == [text("one"), PICTURE, text("two")]
    assert (error.code, error.tool_id, error.retryable) == ("remote_tool_failed", "ns:t", False)


def test_an_error_without_text_says_its_value() -> None:
    """The structured value is the next best message."""
    error = reply_error("t", ToolReply(structured={"reason": "größer"}, has_structured=True, is_error=True))
    assert str(error) == 't failed: {"reason": "größer"}'


def test_an_error_without_anything() -> None:
    """An empty error still has a message."""
    assert "it gave no reason" in str(reply_error("t", ToolReply(is_error=True)))


def test_a_very_long_error() -> None:
    """The message is cut; the details have all of it."""
    error = reply_error("t", _reply(text("x" * 100_000)))
    assert len(str(error)) < 5000
    assert len(error.details["content"][0]["text"]) == 100_000


@pytest.mark.parametrize(
    "given",
    ["1e999", '{"a": -1e999}', "NaN", '"\\ud800"', '{"\\udfff": 1}', "[" * 121 + "]" * 121, "9" * 5000, "[" * 100_000],
)
def test_text_that_json_cannot_hold_stays_text(given: str) -> None:
    """JSON that cannot be kept exactly stays the string that it is, and is not a failure."""
    assert reply_value(_reply(text(given))) == given


def test_half_a_character_in_a_text() -> None:
    """Half a character is replaced, as nothing else could carry it."""
    assert reply_value(_reply(text("a\ud800b"))) == "a?b"
