"""What the replies of a server cost a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from mcp.shared.exceptions import MCPError
from pydantic_core import to_json

from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Origin
from toolexec.run.context import Cause, ContextMeter

Job: TypeAlias = Callable[[Origin, ProgressCallback | None], Awaitable[JSONDict]]
"""One parsed request: does it for an origin, reports its progress, and returns the reply."""
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


def metered(meter: ContextMeter, args: JSONObject, job: Job) -> Job:
    """Return the job of reading a resource or getting a prompt with its tokens counted: its text, as results are, and
    what refuses it. What is not text counts for nothing, as the images of a tool do. Lists and completions are for the
    person at the client, and need not be counted.
    """
    if not meter.counts:
        return job

    async def counted(origin: Origin, on_progress: ProgressCallback | None) -> JSONDict:
        try:
            reply = await job(origin, on_progress)
        except MCPError as error:
            meter.count(origin, "errors", error.message, args)
            raise
        meter.count(origin, "results", "\n".join(_strings_in(reply)), args)
        return reply

    return counted


def _strings_in(reply: JSONObject) -> Iterator[str]:
    """Yield the strings in what was read, or in the messages of a prompt."""
    for part in (*(reply.get("contents") or ()), *(message["content"] for message in reply.get("messages") or ())):
        held = part["resource"] if part.get("type") == "resource" else part
        if isinstance(held.get("text"), str):
            yield held["text"]
