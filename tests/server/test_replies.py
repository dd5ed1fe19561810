"""Replies in MCP's spelling."""

from __future__ import annotations

import jsonschema
import pytest

from toolexec.errors import ToolTimeoutError
from toolexec.model.content import audio, resource_link
from toolexec.model.schema import Schema
from toolexec.server.replies import content_for, failure, meta_result, published_output, success
from toolexec.server.tools.base import MetaReply

LEGACY, MODERN = "2025-11-25", "2026-07-28"


def test_parts_that_a_version_does_not_know() -> None:
    """Older clients get words in place of parts that came later; what is too much for words is left out."""
    parts = [audio(b"abc"), resource_link("file:///x", "x")]
    assert [part["type"] for part in content_for(parts, "2024-11-05")] == ["text", "text"]
    assert [part["type"] for part in content_for(parts, "2025-03-26")] == ["audio", "text"]
    assert [part["type"] for part in content_for(parts, LEGACY)] == ["audio", "resource_link"]
    assert "YWJj" not in content_for(parts, "2024-11-05")[0]["text"]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_schemas_that_refer_to_themselves(version: str) -> None:
    """A wrapped schema still means the same: references to its own parts are moved along, data is left alone."""
    body = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/n"}}, {"const": {"$ref": "#/x"}}],
        "$defs": {"n": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}},
    }
    schema = Schema.of(body)
    published = published_output(schema, version)
    assert published is not None
    validator = jsonschema.Draft202012Validator(published)
    for value, fits in (([1, [2, [3]]], True), (["x"], False), ({"$ref": "#/x"}, True), (None, True)):
        assert validator.is_valid(success(value, schema, (), True, version)["structuredContent"]) is fits


def test_failures_keep_to_the_published_schema() -> None:
    """Where the schema has no place for an error the reply has none; the text always has it."""
    error = ToolTimeoutError("too late", tool_id="a:b")
    strict = Schema.of({"type": "object", "required": ["n"]})
    assert "structuredContent" not in failure(error, strict)
    assert failure(error, None)["structuredContent"]["error"]["code"] == "timeout"
    assert "too late" in failure(error, strict)["content"][0]["text"]


def test_the_text_of_an_own_reply() -> None:
    """A reply without words is told as JSON."""
    schema = Schema.of({"type": "object"})
    assert meta_result(MetaReply(value={"ä": 1}), schema, MODERN)["content"][0]["text"] == '{"ä":1}'
    assert meta_result(MetaReply(value={}, text="hello"), schema, MODERN)["content"][0]["text"] == "hello"


def test_nothing_published_for_nothing_given() -> None:
    """A tool without an output schema has none here, and null is no structured content."""
    assert published_output(None, LEGACY) is None
    published = published_output(Schema.of(True), MODERN)
    assert published is not None
    assert published["properties"]["result"] in (True, {})  # equal schemas are kept once, in the form that came first
    assert (published["type"], published["required"]) == ("object", ["result"])
    assert "structuredContent" not in success(None, None, (), True, MODERN)
