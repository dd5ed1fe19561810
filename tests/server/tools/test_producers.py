"""What produces an argument, over MCP."""

from __future__ import annotations

from toolexec import Tool
from toolexec.server.tools.finding import SEARCH_TOOLS
from toolexec.server.tools.reading import DESCRIBE_TOOL

from .conftest import Counter

ANY = {"type": "object"}
ISSUE = {"type": "object", "properties": {"id": {"type": "string"}}}
CLOSING = {"type": "object", "properties": {"issue_id": {"type": "string"}}, "required": ["issue_id"]}


async def test_over_mcp() -> None:
    """search_tools takes `produces`, describe_tool names producers."""
    counter = Counter()
    for name, takes, gives in (("create_issue", ANY, ISSUE), ("close_issue", CLOSING, None)):
        tool = Tool(name=name, namespace="tracker", input_schema=takes, output_schema=gives)
        counter.ex.add(tool, handler=lambda args: args)
    found = await counter.value(SEARCH_TOOLS, query="", produces="issue_id")
    assert [(hit["id"], hit["produces"]) for hit in found["tools"]] == [("tracker:create_issue", "id")]
    told = await counter.value(DESCRIBE_TOOL, tool_id="tracker:close_issue", detail_level="full")
    assert told["producers"] == {"issue_id": ["tracker:create_issue id"]}
    nothing = await counter.value(SEARCH_TOOLS, query="", produces="zebra_id")
    assert "no tool is known to produce zebra_id" in nothing["note"]
    assert (await counter.error(SEARCH_TOOLS, query="", produces="tracker:gone.x"))["code"] == "tool_not_found"
    await counter.ex.aclose()
