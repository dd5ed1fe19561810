"""Replies in MCP's spelling, fit for the client's era."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mcp_types import ContentBlock
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from toolexec.adapter.mcp import listed_schema
from toolexec.errors import OutputValidationError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.schema import Schema
from toolexec.model.visible import visible, visible_json
from toolexec.model.visible_schema import visible_schema
from toolexec.run.framing import framed_parts, framed_value, note
from toolexec.server.tools.base import MetaReply
from toolexec.server.tools.errors import error_object, short_errors

_BLOCK: Final[TypeAdapter[Any]] = TypeAdapter(ContentBlock)
_SINCE: Final = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
_ERROR_TEXT = 20_000
_TWICE: Final = 4000
_ANY_TEXT: Final = frozenset({"$schema", "type", "title", "description"})


def meta_result(reply: MetaReply, output: Schema, version: str) -> JSONDict:
    """Return the reply of one of the server's own tools; *output* is that tool's output schema.

    Some clients have a model read the content, some the structured content, and some both: a reply that is longer than
    4,000 characters is content only, so that no model reads it twice.
    """
    value = dict(reply.value)
    parts = reply.parts
    if parts is None:
        parts = [{"type": "text", "text": reply.text or _json(short_errors(value))}, *reply.content]
    data = _complete(content_for(parts, version))
    if reply.is_error:
        data["isError"] = True
        if not output.conforms(value):
            return data
    if not reply.once and (reply.structured or _characters(parts) <= _TWICE):
        data["structuredContent"] = value
    return data


def _characters(parts: Sequence[JSONObject]) -> int:
    return sum(len(part["text"]) for part in parts if isinstance(part.get("text"), str))


def failure(error: ToolExecError, output: Schema | None, content: Sequence[JSONObject] = ()) -> JSONDict:
    """Return the reply of a tool that failed: as text what a model needs to do better, and all that programs may ask
    as structured content, where *output* has a place for it. *content* takes the place of the text. A tool that ran and
    broke its output schema gives its value, too.
    """
    facts: JSONDict = {"error": error_object(error)}
    broken = isinstance(error, OutputValidationError)
    if isinstance(error, OutputValidationError) and error.value is not None and not content:
        facts["value"] = error.value
    text: JSONDict = {"type": "text", "text": visible(_json(short_errors(facts)), _ERROR_TEXT)}
    parts = [text, *content] if broken or not content else list(content)
    data = _complete(parts) | {"isError": True}
    if output is None or output.conforms(facts):
        data["structuredContent"] = facts
    return data


def internal_failure(name: str) -> ToolExecError:
    """Return the error that a client gets for an unforeseen failure: no more than that; the log has the rest."""
    return ToolExecError(f"{name} failed inside of the server; its log says more", op="serve")


def published_output(schema: Schema | None, version: str) -> JSONDict | None:
    """Return the output schema of a tool as clients of this version receive it.

    Text of any kind needs none: it is the content. In the handshake era structured content is an object, so any other
    value is wrapped: `{"result": value}`. A null cannot be sent as structured content in any era, so where it is a
    possible value all values are wrapped.
    """
    if schema is None or _says_nothing(schema):
        return None
    body = visible_schema(schema.to_json())
    if not is_wrapped(schema, version):
        if not isinstance(body, dict):
            return {}
        return listed_schema(body) if body.get("type") == "object" else body
    wrapped: JSONDict = {"type": "object", "properties": {"result": _moved(body)}, "required": ["result"]}
    if isinstance(body, dict):
        wrapped |= {key: body[key] for key in ("$schema",) if key in body}
    return listed_schema(wrapped)


def is_wrapped(schema: Schema, version: str) -> bool:
    """Return whether values of this output schema are wrapped for clients of this version."""
    body = schema.to_json()
    if version not in MODERN_PROTOCOL_VERSIONS:
        return not (isinstance(body, dict) and body.get("type") == "object")
    return schema.accepts(None)


def success(
    value: JSONValue, schema: Schema | None, parts: Sequence[JSONObject], has_value: bool, version: str
) -> JSONDict:
    """Return the reply of a tool of the catalogue. *parts* are those of its own reply, if it answered in parts;
    *has_value* says whether *value* is more than the parts' text. The value fits *schema*.
    """
    own = framed_parts(parts)
    content = content_for(own, version) or [{"type": "text", "text": framed_value(value)}]
    exact = [part.get("text") for part in own] == [part.get("text") for part in parts]
    data = _complete(content)
    if schema is not None and not _says_nothing(schema):
        data["structuredContent"] = {"result": value} if is_wrapped(schema, version) else value
    elif (has_value or not exact) and value is not None and not _is_told(value, content):
        plain_object = isinstance(value, dict) or version in MODERN_PROTOCOL_VERSIONS
        data["structuredContent"] = value if plain_object else {"result": value}
    return data


def _says_nothing(schema: Schema) -> bool:
    """Return whether this is the output schema of any text: it would only have clients get the text twice."""
    body = schema.to_json()
    return isinstance(body, dict) and body.get("type") == "string" and body.keys() <= _ANY_TEXT


def _is_told(value: JSONValue, content: Sequence[JSONObject]) -> bool:
    """Return whether *value* is the text of one of the parts."""
    return isinstance(value, str) and any(part.get("text") == value for part in content)


def _complete(content: list[JSONValue]) -> JSONDict:
    return {"content": content, "resultType": "complete"}


def content_for(parts: Sequence[JSONObject], version: str) -> list[JSONDict]:
    """Return the parts as a client of this version can read them; those that it does not know become text."""
    return [_part(dict(part), version) for part in parts]


def _part(part: JSONDict, version: str) -> JSONDict:
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str) and part.keys() <= {"type", "text"}:
        return part
    since = _SINCE.get(str(kind))
    if since is not None and version < since:
        return _as_text(part)
    try:
        return _BLOCK.dump_python(
            _BLOCK.validate_python(part, by_name=False), by_alias=True, mode="json", exclude_none=True
        )
    except ValidationError:
        return _as_text(part)


def _as_text(part: JSONObject) -> JSONDict:
    short = {key: value for key, value in part.items() if key not in {"data", "blob"}}
    return {"type": "text", "text": f"{note('a part that this client cannot read')} {visible(_json(short), 2000)}"}


def _json(value: JSONValue) -> str:
    return visible_json(value)


def _moved(schema: JSONValue, at: str = "#/properties/result") -> JSONValue:
    """Return a schema as a part of another one, at *at*: references to its own parts go there."""
    if isinstance(schema, list):
        return [_moved(item, at) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved: JSONDict = {}
    for key, value in schema.items():
        if key in {"$ref", "$dynamicRef"} and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            moved[key] = at + value[1:]
        elif key in {"const", "enum", "default", "examples"}:
            moved[key] = value
        else:
            moved[key] = _moved(value, at)
    return moved
