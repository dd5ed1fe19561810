"""One plain value out of whatever a backend answered."""

from __future__ import annotations

import json
from typing import Any

from toolexec.errors import RemoteToolError
from toolexec.model.content import ToolReply
from toolexec.model.json_value import JSONObject, refuse_constant, to_json, to_json_lossy


def as_reply(raw: Any) -> ToolReply | None:
    """Return the answer as a ToolReply if it is one (or the MCP SDK's `CallToolResult`), else None: it is a plain
    value."""
    if isinstance(raw, ToolReply):
        return raw
    kind = type(raw)
    if kind.__name__ == "CallToolResult" and hasattr(kind, "model_dump"):
        return ToolReply.from_mcp(raw.model_dump(by_alias=True, mode="json", exclude_none=True))
    return None


def reply_value(reply: ToolReply) -> Any:
    """Return the value of a reply.

    The structured value if there is one. Else of its strings: a single part is parsed if it is JSON that can be kept
    exactly (no number out of range, no lone surrogate, at most 120 levels), and kept as text otherwise; one text among
    other parts is that text; several strings are a list of them; no text is None.
    """
    if reply.has_structured:
        return reply.structured
    strings = [text for part in reply.content if (text := _text_of(part))]
    if not strings:
        return None
    if len(reply.content) == 1:
        return _parsed(strings[0])
    return strings[0] if len(strings) == 1 else strings


def reply_error(tool_id: str, reply: ToolReply) -> RemoteToolError:
    """Return the error of a reply that reports one: its strings, or its structured value as JSON."""
    strings = [text for part in reply.content if (text := _text_of(part))]
    message = "\n".join(strings)
    if not message and reply.has_structured:
        message = json.dumps(to_json_lossy(reply.structured), ensure_ascii=False)
    return RemoteToolError(
        f"{tool_id} failed: {message[:4000] or 'it gave no reason'}",
        tool_id=tool_id,
        op="execute",
        details={"content": [to_json_lossy(part) for part in reply.content]},
    )


def _text_of(part: JSONObject) -> str:
    text = part.get("text")
    return to_json_lossy(text) if isinstance(text, str) else ""


def _parsed(text: str) -> Any:
    try:
        return to_json(_strict.decode(text))
    except (ValueError, RecursionError):
        return text


_strict = json.JSONDecoder(parse_constant=refuse_constant)
