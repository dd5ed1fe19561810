"""The chainable way to write a tool."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import InvalidSchemaError, InvalidToolError
from toolexec.model import Icon, ToolAnnotations, ToolBuilder

OBJECT: dict[str, Any] = {"type": "object"}


def test_all_parts() -> None:
    """Every setter fills its part, and gives the builder back."""
    builder = ToolBuilder("ping")
    same = (
        builder.namespace("net")
        .version("1.0.0")
        .title("Ping")
        .description("Sends a ping")
        .tags("Net Work", "net-work", "x")
        .input_schema(OBJECT)
        .output_schema({"type": "number"})
        .icons(Icon(src="https://example.com/i.png"))
        .meta({"k": [1]})
    )
    assert same is builder
    tool = builder.build()
    assert tool.id == "net:ping:1.0.0"
    assert (tool.title, tool.description, tool.tags) == ("Ping", "Sends a ping", ("net-work", "x"))
    assert tool.output_schema is not None
    assert tool.output_schema.to_json() == {"type": "number"}
    assert tool.icons[0].src == "https://example.com/i.png"
    assert tool.meta == {"k": [1]}


def test_single_hints_add_up() -> None:
    """Each hint method changes one hint."""
    tool = ToolBuilder("t").input_schema(OBJECT).read_only().idempotent().destructive(False).open_world(False).build()
    assert tool.annotations == ToolAnnotations(read_only=True, idempotent=True, destructive=False, open_world=False)
    loud = ToolBuilder("t").input_schema(OBJECT).destructive().open_world().build().annotations
    assert (loud.destructive, loud.open_world) == (True, True)


def test_all_hints_at_once() -> None:
    """Given annotations are kept, and single hints change them."""
    given = ToolAnnotations(title="T")
    tool = ToolBuilder("t").input_schema(OBJECT).annotations(given).read_only().build()
    assert tool.annotations == ToolAnnotations(title="T", read_only=True)


def test_refuses_what_a_tool_refuses() -> None:
    """A missing schema and illegal names are found at the end."""
    with pytest.raises(InvalidSchemaError):
        ToolBuilder("t").build()
    with pytest.raises(InvalidToolError):
        ToolBuilder("").input_schema(OBJECT).build()
    with pytest.raises(InvalidToolError):
        ToolBuilder("bad:name").input_schema(OBJECT).build()


def test_built_tools_share_nothing() -> None:
    """Later changes to the builder, or to what it was given, do not reach a built tool."""
    schema, meta = {"type": "object", "required": ["a"]}, {"k": [1]}
    builder = ToolBuilder("t").input_schema(schema).meta(meta)
    first = builder.build()
    schema["required"].append("b")  # type: ignore[attr-defined]
    meta["k"].append(2)
    second = builder.title("later").build()
    assert first.input_schema.to_json()["required"] == ["a"]
    assert (first.meta, first.title) == ({"k": [1]}, "")
    assert (second.meta, second.title) == ({"k": [1, 2]}, "later")
