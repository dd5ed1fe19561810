"""Values and tools as a reply shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from toolexec.model.binding import Binding
from toolexec.model.content import text as text_part
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.tool import Tool
from toolexec.model.visible import visible, visible_json, visible_line
from toolexec.model.visible_schema import visible_schema
from toolexec.run.framing import Framed, framed, note
from toolexec.run.large import Budget, is_small, off_loop
from toolexec.run.results import Shown
from toolexec.run.types import UndoneStep
from toolexec.server.tools.base import MetaCall
from toolexec.server.tools.errors import short_errors

T = TypeVar("T")
_MAX_DESCRIPTION: Final = 4000
_MAX_TITLE: Final = 200
_MAX_REASON: Final = 500
_MAX_PARTS: Final = 16 << 20
_HEAD: Final = 2000


async def beside_loop(make: Callable[[], T], *values: JSONValue) -> T:
    """Return what *make* gives; done off the event loop where one of *values* is large, as encoding it would stop all
    other callers meanwhile.
    """
    if all(map(is_small, values)):
        return make()
    return await off_loop(lambda _: make(), Budget())


def as_json(value: JSONValue) -> str:
    """*value* as compact JSON, of which everything can be seen."""
    return visible_json(value)


def milliseconds(seconds: float) -> float:
    """Return *seconds* in milliseconds, the unit of durations in replies."""
    return round(seconds * 1000, 3)


def cut_note(shown: Shown) -> JSONDict:
    """Return what a reply says beside a value that was cut (see the schema `CUT`); nothing beside a whole one."""
    if not shown.bytes:
        return {}
    return {"cut": True, "handle": shown.handle} if shown.handle else {"cut": True}


def shown_text(call: MetaCall, text: str, max_bytes: int | None = None) -> str:
    """*text*; of one that is too long its beginning, and how to read the rest."""
    shown = call.results.show(text, call.origin, max_bytes)
    if not shown.bytes:
        return framed(text)
    where = f"read_result has them, handle {shown.handle}" if shown.handle else "too many to be kept"
    return Framed(f"{framed(text[:_HEAD])}\n{note(f'{len(text)} characters in all; {where}')}")


def backend_data(binding: Binding) -> dict[str, str]:
    """Return where a tool lives: the backend's kind and name."""
    return {"kind": binding.kind, "name": binding.backend}


def tool_data(call: MetaCall, tool: Tool, *, schemas: bool = True) -> JSONDict:
    """Return a tool in MCP's spelling with its namespace, version and tags, fit to be read: strings are clean, a schema
    too large to be shown is an outline. Icons and free metadata, which a model has no use for, are left out, and
    without *schemas* those as well.
    """
    data = tool.to_dict()
    for key in ("icons", "_meta"):
        data.pop(key, None)
    for key, limit in (("title", _MAX_TITLE), ("description", _MAX_DESCRIPTION)):
        if key in data:
            data[key] = visible(data[key], limit)
    if "title" in data.get("annotations", {}):
        data["annotations"]["title"] = visible(data["annotations"]["title"], _MAX_TITLE)
    for key in ("inputSchema", "outputSchema"):
        if key in data and schemas:
            data[key] = call.results.show(visible_schema(data[key]), call.origin).value
        elif not schemas:
            data.pop(key, None)
    return data


def undone_data(undone: Sequence[UndoneStep]) -> list[JSONDict]:
    """Return what became of the effects of a chain or a workflow; see the schema `UNDONE`."""
    found: list[JSONDict] = []
    for each in undone:
        data: JSONDict = {"index": each.index, "tool_id": visible_line(each.tool_id, _MAX_TITLE), "ok": each.ok}
        words = {"undone_by": each.undo_id, "reason": each.reason}
        found.append(data | {key: visible_line(word, _MAX_REASON) for key, word in words.items() if word})
    return found


def text_beside(value: JSONObject, name: str) -> list[JSONDict] | None:
    """Return the content for *value* where its field *name* is a long text: that text as it is, as it would only grow
    in JSON, and then the rest. None where there is no such text.
    """
    found = value.get(name)
    if not isinstance(found, str) or len(found) <= _HEAD:
        return None
    rest = {key: part for key, part in value.items() if key != name}
    return [text_part(framed(found)), text_part(as_json(short_errors(rest)))]


def other_parts(content: Iterable[JSONObject]) -> list[JSONDict]:
    """Return the parts of a reply that are not text: images, audio, links, resources; see `sized_parts`."""
    return sized_parts(part for part in content if part.get("type") != "text")


def sized_parts(content: Iterable[JSONObject]) -> list[JSONDict]:
    """Return the parts of a reply, in their order. One that would make those that are not text more than 16 MiB
    together is replaced by a text that says so.
    """
    parts: list[JSONDict] = []
    room = _MAX_PARTS
    for part in content:
        size = _size(part) if part.get("type") != "text" else 0
        if size > room:
            kind = visible_line(str(part.get("type")), 40)
            parts.append({"type": "text", "text": Framed(note(f"left out: a part of type {kind}, {size} bytes"))})
            continue
        room -= size
        parts.append(dict(part))
    return parts


def _size(value: JSONValue) -> int:
    """About how many bytes *value* takes."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(key) + _size(item) for key, item in value.items())
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 8
