"""Which tools the server offers, and what they cost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.model.schema import Schema
from toolexec.server.instructions import instructions
from toolexec.server.tools.catalogue import meta_tools, unlisted_tools

from .conftest import size

EVERY = meta_tools("meta", code_enabled=True, list_all=True)
LISTED = meta_tools("meta", code_enabled=True)


def names(expose: Any, code_enabled: bool = True) -> set[str]:
    """The names of what is offered."""
    return {tool.name for tool in meta_tools(expose, code_enabled=code_enabled)}


def test_all_are_there() -> None:
    """Twelve tools, each with a name of its own; a model sees the five that it needs."""
    assert len(EVERY) == len({tool.name for tool in EVERY}) == 12
    assert names("meta") == {"search_tools", "describe_tool", "run_tool", "execute_code", "read_result"}
    assert names("meta", code_enabled=False) == names("meta") - {"execute_code"} | {"run_chain"}
    for code_enabled in (True, False):
        every = {tool.name for tool in meta_tools("meta", code_enabled=code_enabled, list_all=True)}
        assert every == {tool.name for tool in EVERY} - (set() if code_enabled else {"execute_code", "stubs"})


@pytest.mark.parametrize(
    ("expose", "code_enabled"), [("auto", True), ("auto", False), ("meta", True), ("meta", False), ("code", True)]
)
def test_what_is_not_listed_can_be_called(expose: Any, code_enabled: bool) -> None:
    """Each of the server's tools is either listed or not, and none is missing."""
    unlisted = {tool.name for tool in unlisted_tools(expose, code_enabled=code_enabled)}
    every = {tool.name for tool in meta_tools("meta", code_enabled=code_enabled, list_all=True)}
    assert unlisted | names(expose, code_enabled) >= every
    assert not unlisted & names(expose, code_enabled)


def test_other_ways_to_expose() -> None:
    """For code what finds and what runs code; beside direct tools what reads long results."""
    assert names("code") == {"find", "execute"}
    assert unlisted_tools("direct", code_enabled=True) == []
    assert names("direct") == names("direct", code_enabled=False) == {"read_result"}
    assert names("auto") == names("code")
    assert names("auto", code_enabled=False) == names("meta", code_enabled=False)
    with pytest.raises(ConfigurationError, match="switched off"):
        meta_tools("code", code_enabled=False)
    with pytest.raises(ConfigurationError, match="unknown expose"):
        names("other")


@pytest.mark.parametrize("tool", EVERY, ids=lambda tool: tool.name)
def test_schemas_are_closed(tool: Any) -> None:
    """Both are objects that can be compiled, and whatever they name forbids other names."""
    for schema in (tool.input_schema, tool.output_schema):
        Schema.of(dict(schema)).guard().accepts({})
        assert schema["type"] == "object"
    for schema in _objects(tool.input_schema):
        assert schema.get("additionalProperties") is False
    if tool.name != "read_result":
        for schema in _objects(tool.output_schema):
            assert schema.get("additionalProperties") is False


def test_what_acts_says_so() -> None:
    """Tools that run others may destroy, repeat badly and reach out, which is what MCP takes a tool without hints for;
    all others only read."""
    acting = {"run_tool", "run_chain", "run_workflow", "execute_code"}
    for tool in EVERY:
        hints = tool.to_mcp().get("annotations", {})
        assert hints == ({} if tool.name in acting else {"readOnlyHint": True})
        if tool.name in acting:
            assert (tool.destructive, tool.idempotent, tool.open_world) == (True, False, True)


def test_hints_of_other_tools() -> None:
    """Whatever differs from MCP's defaults is published."""
    tool = replace(EVERY[0], title="Own", read_only=False, destructive=False, idempotent=True, open_world=False)
    hints = {"title": "Own", "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    assert tool.to_mcp()["annotations"] == hints


def test_they_cost_little() -> None:
    """A model reads less than 3 KB of those that are listed and the instructions, less than 7 KB of all."""
    for tools, whole, most in ((LISTED, False, 3_000), (EVERY, True, 7_000)):
        listed = [tool.to_mcp(whole=whole) for tool in tools]
        assert size({"tools": listed}) + size(instructions("meta", tools=500)) < most
        assert json.loads(json.dumps(listed)) == listed


def test_arguments_that_are_hardly_needed() -> None:
    """Takes them, and publishes them only where all is to be listed; the mark of them never."""
    run_tool = next(tool for tool in EVERY if tool.name == "run_tool")
    assert run_tool.to_mcp()["inputSchema"]["properties"].keys() == {"tool_id", "args", "timeout_seconds"}
    assert "include_structured" in run_tool.to_mcp(whole=True)["inputSchema"]["properties"]
    assert Schema.of(dict(run_tool.input_schema)).accepts({"tool_id": "a", "include_structured": True})
    assert not any("x-unlisted" in json.dumps(tool.to_mcp(whole=whole)) for tool in EVERY for whole in (True, False))


@pytest.mark.parametrize("tool", EVERY, ids=lambda tool: tool.name)
def test_what_is_published_takes_no_less(tool: Any) -> None:
    """The published schema names each parameter with its type, default and highest value; only bounds that a mistake
    breaks are left to the server."""
    checked, shown = tool.input_schema, tool.to_mcp(whole=True)["inputSchema"]
    assert shown["properties"].keys() == checked["properties"].keys()
    assert shown.get("required") == checked.get("required")
    for name, part in checked["properties"].items():
        for key in ("type", "enum", "default", "maximum", "description"):
            assert shown["properties"][name].get(key) == part.get(key)


def _objects(schema: Any) -> list[Any]:
    found: list[Any] = [schema] if isinstance(schema, dict) and isinstance(schema.get("properties"), dict) else []
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return found + [one for part in parts for one in _objects(part)]
