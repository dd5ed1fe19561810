"""Read all tools of a server, whatever it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, cast

import pydantic
from mcp import Client
from mcp_types import Tool as SDKTool
from mcp_types.methods import SERVER_RESULTS

from toolexec.model.json_value import JSONDict

MAX_PAGES: Final = 1000
MAX_TOOLS: Final = 100_000
_OLDER: Final = "2025-11-25"
_NEWER: Final = "2026-07-28"


@dataclass(slots=True)
class Listing:
    """The tools as the server sent them, and what is missing and why."""

    tools: list[SDKTool] = field(default_factory=list[SDKTool])
    faults: dict[str, str] = field(default_factory=dict[str, str])


async def read_listing(client: Client) -> Listing:
    """Return all pages of `tools/list`; ends also where a server repeats a cursor or never stops."""
    found = Listing()
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found.tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found
        if cursor in seen:
            return _cut(found, "the server repeats a page")
        if len(found.tools) >= MAX_TOOLS:
            return _cut(found, f"there are more than {MAX_TOOLS} tools")
        seen.add(cursor)
    return _cut(found, f"there are more than {MAX_PAGES} pages")


def _cut(found: Listing, why: str) -> Listing:
    found.faults["(listing)"] = f"{why}; tools after that are missing"
    return found


def screen_tools(result: JSONDict) -> dict[str, str]:
    """Take invalid MCP tools out of a `tools/list` result, so that the others of the page are not lost with them;
    returns what is wrong with each."""
    tools = result.get("tools")
    if not isinstance(tools, list):
        return {}
    page = cast("type[pydantic.BaseModel]", SERVER_RESULTS["tools/list", _NEWER if "resultType" in result else _OLDER])
    faults: dict[str, str] = {}
    kept: list[Any] = []
    for tool in cast("list[Any]", tools):
        try:
            SDKTool.model_validate(tool, by_name=False)
            page.model_validate({**result, "tools": [tool]}, by_name=False)
        except pydantic.ValidationError as error:
            name = tool.get("name") if isinstance(tool, dict) else None
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])).removeprefix("tools.0.")
            label = name[:200] if isinstance(name, str) else f"(tool {len(kept) + len(faults) + 1})"
            faults[label] = f"it is not a tool as MCP has it: {first['msg']}{f' at {where}' if where else ''}"
        else:
            kept.append(tool)
    if faults:
        result["tools"] = kept
    return faults
