"""From the SDK's objects to this package's values."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mcp_types import CallToolResult
from mcp_types import Tool as SDKTool

from toolexec.errors import ToolExecError
from toolexec.model.content import ToolReply
from toolexec.model.ids import clean_segment
from toolexec.model.json_value import JSONDict
from toolexec.model.tool import Tool

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")


def without_hidden_characters(text: str) -> str:
    """Return the string without control characters, and characters that cannot be seen."""
    return _HIDDEN.sub("", text)


def convert_tools(tools: Iterable[SDKTool], namespace: str) -> tuple[dict[str, Tool], dict[str, str]]:
    """Return the tools by the name that the server gave them, and why others were left out.

    A name that cannot be part of an ID is made legal. Control characters and characters that cannot be seen, which can
    hide text from a person who reads it, are taken out of titles and descriptions.
    """
    taken: dict[str, Tool] = {}
    skipped: dict[str, str] = {}
    ids: set[str] = set()
    for sdk_tool in tools:
        remote = sdk_tool.name
        try:
            data = sdk_tool.model_dump(by_alias=True, mode="json", exclude_none=True)
            data["name"] = clean_segment(remote)
            for key in ("title", "description"):
                if key in data:
                    data[key] = _HIDDEN.sub("", data[key])
            hints = data.get("annotations")
            if hints and "title" in hints:
                hints["title"] = _HIDDEN.sub("", hints["title"])
            tool = Tool.from_mcp(data, namespace=namespace)
        except ToolExecError as error:
            skipped[remote[:200]] = str(error)
            continue
        if tool.id in ids:
            skipped[remote[:200]] = f"its ID {tool.id} is that of an earlier tool of this server"
            continue
        ids.add(tool.id)
        taken[remote] = tool
    return taken, skipped


def convert_reply(result: CallToolResult) -> ToolReply:
    """Return the reply with every content part as it came."""
    content: list[JSONDict] = [
        part.model_dump(by_alias=True, mode="json", exclude_none=True) for part in result.content
    ]
    return ToolReply(
        content=content,
        structured=result.structured_content,
        has_structured=result.structured_content is not None,
        is_error=result.is_error,
        meta=dict(result.meta or {}),
    )
