"""What the replies of a server cost a model."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import to_json

from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Origin
from toolexec.run.context import Cause, ContextMeter

__all__ = ["count_list", "count_reply"]

_READ = ("name", "description", "inputSchema")


def count_list(meter: ContextMeter, origin: Origin, entries: Sequence[JSONObject], *, first: bool) -> None:
    """Count a page of the list of tools: what clients give a model of it. The *first* page takes the place of a list
    that was read before."""
    shown = [{key: entry[key] for key in _READ if key in entry} for entry in entries]
    meter.count(origin, "tools", to_json(shown).decode(), again=first)


def count_reply(meter: ContextMeter, origin: Origin, cause: Cause, args: JSONObject, reply: JSONObject) -> None:
    """Count the reply to a call, and its arguments. Of a reply that has the same as text and as structured content,
    models get one; text counts, as most clients take that."""
    parts = reply.get("content") or ()
    strings = [part["text"] for part in parts if part.get("type") == "text"]
    if strings:
        text = strings[0] if len(strings) == 1 else "\n".join(strings)
    else:
        structured = reply.get("structuredContent")
        text = to_json(structured).decode() if structured is not None and not parts else ""
    meter.count(origin, "errors" if reply.get("isError") else cause, text, args)
