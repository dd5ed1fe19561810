"""The tool that reads results which were too large for one reply."""

from __future__ import annotations

import asyncio
from typing import Final

from toolexec.model.json_value import JSONDict
from toolexec.run.framing import framed, note
from toolexec.run.reading import READ_ARGUMENTS
from toolexec.server.kept_answers import AnswerRights
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.schemas import unlisted

_RARE: Final = frozenset({"limit", "as_json", "max_bytes"})
_ARGUMENTS: Final[JSONDict] = {
    **READ_ARGUMENTS,
    "properties": {
        name: unlisted(part) if name in _RARE else part for name, part in READ_ARGUMENTS["properties"].items()
    },
}
_WHOLE: Final[JSONDict] = {"type": "integer"}
_OUTPUT: Final[JSONDict] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["text", "array", "object", "value", "json", "matches"]},
        "value": {},
        "offset": _WHOLE,
        "count": _WHOLE,
        "total": _WHOLE,
        "next": {"type": "integer", "description": "Offset of the next page; absent on the last."},
        "cut": {"type": "array", "items": {"type": "string"}, "description": "Paths of items too large for a page."},
        "error": {"type": "object"},
    },
    "anyOf": [{"required": ["kind", "value", "offset", "count", "total"]}, {"required": ["error"]}],
}


async def _read(call: MetaCall) -> MetaReply:
    args = dict(call.args)
    handle = args.pop("handle")
    if call.kept is not None:
        await call.kept.find(handle, call.origin)
    await AnswerRights(call.ex).check_result(call.results.tools(handle, call.origin), call.origin)
    # A large value takes a while to decode and search, and others are served by this thread.
    page = await asyncio.to_thread(call.results.read, handle, call.origin, **args)
    if page.kind != "text":
        return MetaReply(value=page.to_dict())
    more = f"; offset {page.next} reads on" if page.next is not None else ""
    words = note(f"characters {page.offset:,} to {page.offset + page.count:,} of {page.total:,}{more}")
    return MetaReply(value=page.to_dict(), text=f"{framed(page.value)}\n{words}")


READ_RESULT: Final = MetaTool(
    name="read_result",
    description="Read a result too large for one reply, by the handle in its outline.",
    input_schema=_ARGUMENTS,
    output_schema=_OUTPUT,
    handle=_read,
)
"""`read_result`: pages, slices and greps what a ResultStore keeps for the caller."""
