"""What a tool answers when it answers in parts: text, images, audio, links, resources, and a structured value."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

__all__ = ["ToolReply", "audio", "image", "resource_link", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """A reply in MCP's shape: content parts, an optional structured value, and whether it reports an error.

    Handlers may return one to send an image along, or to report an error without raising. `content` holds the parts
    in MCP's spelling, so that every kind, known here or not, is kept as it came. `structured` counts only when
    `has_structured` is true (null is a value too).

    >>> from toolexec import Exec
    >>> def draw() -> ToolReply:
    ...     return ToolReply(content=[{"type": "image", "data": "aGk=", "mimeType": "image/png"}])
    >>> with Exec().sync as ex:
    ...     _ = ex.add(draw, "art:draw")
    ...     ex.run_tool("art:draw").reply.content[0]["mimeType"]
    'image/png'
    """

    content: Sequence[JSONObject] = ()
    structured: JSONValue = None
    has_structured: bool = False
    is_error: bool = False
    meta: JSONObject = field(default_factory=JSONDict)

    @classmethod
    def from_mcp(cls, data: Mapping[str, object]) -> ToolReply:
        """Read MCP's `CallToolResult` as JSON data."""
        content = data.get("content")
        meta = data.get("_meta")
        return cls(
            content=[part for part in content if isinstance(part, Mapping)] if isinstance(content, Sequence) else (),
            structured=data.get("structuredContent"),
            has_structured=data.get("structuredContent") is not None,
            is_error=data.get("isError") is True,
            meta=meta if isinstance(meta, Mapping) else {},
        )

    def to_mcp(self) -> JSONDict:
        """MCP's `CallToolResult` as JSON data."""
        data: JSONDict = {"content": [dict(part) for part in self.content]}
        if self.has_structured:
            data["structuredContent"] = self.structured
        if self.is_error:
            data["isError"] = True
        if self.meta:
            data["_meta"] = dict(self.meta)
        return data


def text(value: str) -> JSONDict:
    """Return a text part."""
    return {"type": "text", "text": value}


def image(data: bytes, mime_type: str = "image/png") -> JSONDict:
    """Return an image part."""
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type}


def audio(data: bytes, mime_type: str = "audio/wav") -> JSONDict:
    """Return an audio part."""
    return {"type": "audio", "data": base64.b64encode(data).decode(), "mimeType": mime_type}


def resource_link(uri: str, name: str, mime_type: str = "") -> JSONDict:
    """Return a part that names a resource without carrying it."""
    part = {"type": "resource_link", "uri": uri, "name": name}
    return part | {"mimeType": mime_type} if mime_type else part
