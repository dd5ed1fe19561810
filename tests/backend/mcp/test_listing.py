"""Listing the tools of a server, whatever it answers."""

from __future__ import annotations

import pytest

from toolexec.model.call import ToolCall
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool


async def call(backend, name="echo", args=None):
    return await backend.call(name, ToolCall(f"s:{name}", args))


async def test_all_pages_are_read(connect):
    """A listing in pages is read to its end."""
    tools = [ScriptedTool(f"tool{number}") for number in range(25)]
    backend = connect(ScriptedServer(tools=tools, page_size=10))
    assert [tool.name for tool in await backend.list_tools()] == [tool.name for tool in tools]
    assert not backend.status().skipped


async def test_a_repeated_cursor_ends_the_listing(connect):
    """A server that gives one page again and again is read once, and the status says so."""
    backend = connect(ScriptedServer(pages="repeat"))
    assert [tool.name for tool in await backend.list_tools()] == ["echo"]
    assert backend.status().skipped["(listing)"] == "the server repeats a page; tools after that are missing"


@pytest.mark.parametrize(("limit", "said"), [("MAX_PAGES", "more than 30 pages"), ("MAX_TOOLS", "more than 30 tools")])
async def test_pages_without_end_are_cut(connect, monkeypatch, limit, said):
    """A listing that never ends is cut off, and what was read can be used."""
    monkeypatch.setattr(f"toolexec.backend.mcp.listing.{limit}", 30)
    backend = connect(ScriptedServer(pages="endless"))
    assert len(await backend.list_tools()) == 30
    assert said in backend.status().skipped["(listing)"]


async def test_illegal_and_duplicate_names(connect):
    """Foreign names are made legal and still called by their own; what remains ambiguous is left out with a reason."""
    tools = [
        ScriptedTool("get/user"),
        ScriptedTool("get user"),
        ScriptedTool("echo"),
        ScriptedTool("echo"),
        ScriptedTool("!!!"),
    ]
    backend = connect(ScriptedServer(tools=tools))
    found = {tool.name: tool for tool in await backend.list_tools()}
    assert sorted(found) == ["echo", "get-user"]
    skipped = backend.status().skipped
    assert "is that of an earlier tool" in skipped["get user"]
    assert "is that of an earlier tool" in skipped["echo"]
    assert "name is empty" in skipped["!!!"]
    binding = backend.bind(found["get-user"])
    assert binding.tool == "get/user"
    assert (await call(backend, binding.tool, {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize(
    ("listing", "said"),
    [
        ({"inputSchema": None}, "it is not a tool as MCP has it"),
        ({"inputSchema": 5}, "it is not a tool as MCP has it"),
        ({"description": ["no text"]}, "it is not a tool as MCP has it"),
        ({"inputSchema": {"type": "object", "$ref": "http://example.com/schema"}}, "http://example.com/schema"),
    ],
)
async def test_a_bad_tool_does_not_take_the_others_along(connect, listing, said):
    """One entry that is no tool is left out with its reason; the rest of the page stays."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("bad", listing=listing), ScriptedTool("echo")]))
    assert [tool.name for tool in await backend.list_tools()] == ["echo"]
    assert said in backend.status().skipped["bad"]


async def test_entries_without_a_name_are_counted(connect):
    """An entry that has not even a name is reported by its place."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("a"), ScriptedTool("x", listing={"name": 5})]))
    await backend.start()
    assert list(backend.status().skipped) == ["(tool 2)"]


async def test_hidden_characters_are_taken_out(connect):
    """Text that a terminal or a reader would not show does not reach a model either."""
    hidden = "a\x1b[31m\u202eb\U000e0041\u200b"
    listing = {"title": hidden, "annotations": {"title": hidden}}
    backend = connect(ScriptedServer(tools=[ScriptedTool("t", description=f"{hidden}\nc", listing=listing)]))
    (tool,) = await backend.list_tools()
    assert (tool.description, tool.title, tool.annotations.title) == ("a[31mb\nc", "a[31mb", "a[31mb")


async def test_the_whole_definition_is_kept(connect):
    """Schemas (with their nulls), annotations, icons and meta arrive."""
    schema = {"type": "object", "properties": {"a": {"default": None}}}
    listing = {
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "https://example.com/i.png"}],
        "_meta": {"k": 1},
    }
    backend = connect(
        ScriptedServer(tools=[ScriptedTool("t", input_schema=schema, output_schema=schema, listing=listing)])
    )
    (tool,) = await backend.list_tools()
    assert tool.input_schema.to_json() == tool.output_schema.to_json() == schema
    assert tool.annotations.read_only
    assert (tool.icons[0].src, tool.meta) == ("https://example.com/i.png", {"k": 1})
