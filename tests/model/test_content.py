"""Replies in parts."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.model import ToolReply
from toolexec.model.content import audio, image, resource_link, text


def test_parts_have_the_mcp_spelling() -> None:
    """Each helper gives one content part."""
    assert text("hi") == {"type": "text", "text": "hi"}
    assert image(b"\x00\xff") == {"type": "image", "data": "AP8=", "mimeType": "image/png"}
    assert audio(b"\x00\xff", "audio/ogg") == {"type": "audio", "data": "AP8=", "mimeType": "audio/ogg"}
    assert resource_link("file:///a", "a") == {"type": "resource_link", "uri": "file:///a", "name": "a"}
    assert resource_link("file:///a", "a", "text/plain")["mimeType"] == "text/plain"


def test_round_trip() -> None:
    """`from_mcp` reads what `to_mcp` wrote, unknown kinds of parts included."""
    reply = ToolReply(
        content=[text("a"), {"type": "hologram", "x": 1}],
        structured={"n": 1},
        has_structured=True,
        is_error=True,
        meta={"k": "v"},
    )
    assert ToolReply.from_mcp(reply.to_mcp()) == reply


def test_unset_parts_are_left_out() -> None:
    """A plain reply is only its content; null can be a structured value."""
    assert ToolReply(content=[text("a")]).to_mcp() == {"content": [text("a")]}
    assert ToolReply(has_structured=True).to_mcp() == {"content": [], "structuredContent": None}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"content": None},
        {"content": 7, "_meta": []},
        {"content": ["text", None]},
        {"isError": "yes", "content": []},
    ],
)
def test_odd_data_counts_as_absent(data: dict[str, Any]) -> None:
    """Reads the sensible parts of a strange server's data."""
    reply = ToolReply.from_mcp(data)
    assert list(reply.content) == []
    assert not reply.is_error
    assert not reply.has_structured
    assert dict(reply.meta) == {}
