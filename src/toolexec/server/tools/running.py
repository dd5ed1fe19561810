"""The tool that runs a tool: run_tool; and the progress that all tools of the server report."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Mapping
from typing import Final

from toolexec.errors import ToolExecError
from toolexec.exec.facade import Exec
from toolexec.exec.options import Options
from toolexec.model.call import Progress, ProgressCallback, tell
from toolexec.model.content import ToolReply
from toolexec.model.content import text as text_part
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.schema import same_json
from toolexec.run.ceilings import refuse_above
from toolexec.run.framing import Framed, framed_parts, framed_value
from toolexec.run.results import Shown
from toolexec.run.settings import MIN_BYTES
from toolexec.run.types import Result
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.errors import error_reply
from toolexec.server.tools.schemas import ANY, CUT, FLAG, NUMBER, OBJECT, closed, outcome, text, unlisted
from toolexec.server.tools.values import (
    as_json,
    backend_data,
    beside_loop,
    cut_note,
    milliseconds,
    other_parts,
    shown_text,
    sized_parts,
    tool_data,
)

_MAX_WARNINGS: Final = 10
_SHORT: Final = 600
_MAX_LEAVES: Final = 10_000
_FLAGS: Final = ("include_structured", "include_tool", "include_backend", "include_mcp_result")

BACKEND: Final[JSONDict] = closed({"kind": ANY, "name": ANY})
MAX_SECONDS: Final = 600.0
"""The longest time limit that a caller may ask for, where the operator has set no ceiling."""
MAX_BYTES: Final = {"type": "integer", "minimum": MIN_BYTES}


async def _run(call: MetaCall) -> MetaReply:
    notices = Notices(call.on_progress)
    notices.start()
    ending = "error"
    try:
        result = await _result(call, notices)
        ending = "completed" if result.error is None else ending
    except ToolExecError as error:
        return error_reply(error)
    finally:
        notices.end(ending)
    content = result.reply.content if result.reply is not None else ()
    return await beside_loop(lambda: _reply(call, result), result.value, content)


async def _result(call: MetaCall, notices: Notices) -> Result:
    args = call.args

    def begin() -> Awaitable[Result]:
        return call.ex.run_tool(
            args["tool_id"],
            args.get("args"),
            timeout=asked_timeout(args.get("timeout_seconds"), call.ex.options),
            on_progress=notices.callback,
            idempotency_key=call.idempotency_key,
        )

    return await (begin() if call.durable is None else call.durable.result_of_skill(args["tool_id"], begin))


def _durable(ex: Exec, args: JSONObject) -> JSONDict | None:
    entry = ex.visible()[0].find(args["tool_id"])
    if entry is None or entry.tool.id not in ex.skills:
        return None
    return {name: args[name] for name in ("tool_id", "max_bytes", *_FLAGS) if name in args}


def _reply(call: MetaCall, result: Result) -> MetaReply:
    args = call.args
    beside = {"durationMs": milliseconds(result.duration), **_asked_for(call, result)}
    if result.error is not None:
        if result.value is not None:  # it ran, and broke its output schema
            shown = call.results.show(result.value, call.origin, _max_bytes(args))
            beside = {"structured": shown.value, **cut_note(shown), **beside}
        failed = error_reply(result.error, **beside)
        failed.content = failure_parts(result.error, result.reply)
        return failed
    shown = call.results.show(result.value, call.origin, _max_bytes(args))
    warnings = warnings_of(result)
    value = {"structured": shown.value, **cut_note(shown), **beside, **warnings}
    parts = result_parts(call, result, shown)
    if warnings:
        parts.append(text_part(as_json(warnings)))
    return MetaReply(value=value, parts=parts, structured=any(map(args.get, _FLAGS)))


def asked_timeout(asked: float | None, options: Options) -> float | None:
    """Return the time limit in seconds that a caller asks for; raises InvalidLimitsError for one above the operator's
    ceiling, which is ten minutes where none was set, or the default where that is longer."""
    if asked is not None and options.max_timeout is None and options.default_timeout is not None:
        refuse_above("timeout", asked, max(MAX_SECONDS, options.default_timeout))
    return asked


def failure_parts(error: ToolExecError, reply: ToolReply | None) -> list[JSONDict]:
    """Return what came along with a failure and is not text."""
    content = reply.content if reply is not None else error.details.get("content", ())
    return other_parts(part for part in content if isinstance(part, Mapping))


def warnings_of(result: Result) -> JSONDict:
    """Return how the result breaks its schema, where that does not count as a failure."""
    warnings = [{"path": w.path, "message": w.message} for w in result.warnings[:_MAX_WARNINGS]]
    return {"warnings": warnings} if warnings else {}


def _max_bytes(args: JSONObject) -> int | None:
    return int(args["max_bytes"]) if "max_bytes" in args else None


def _asked_for(call: MetaCall, result: Result) -> JSONDict:
    args = call.args
    found: JSONDict = {}
    if args.get("include_tool"):
        entry = call.ex.visible()[0].find(result.tool_id)
        if entry is not None:
            found["tool"] = tool_data(call, entry.tool)
    if args.get("include_backend") and result.binding is not None:
        found["backend"] = backend_data(result.binding)
    if args.get("include_mcp_result") and result.ok:
        reply = result.reply or ToolReply(structured=result.value, has_structured=True)
        found["mcpResult"] = call.results.show(reply.to_mcp(), call.origin, _max_bytes(args)).value
    return found


def result_parts(call: MetaCall, result: Result, shown: Shown) -> list[JSONDict]:
    """Return the content: the tool's own parts as it gave them, in their order, and the value as text where none of
    them says it. What would be read twice, or is too long, is left out.
    """
    value = {"type": "text", "text": Framed(framed_value(shown.value))}
    reply = result.reply
    if reply is None or not reply.content:
        return [value]
    given = sized_parts(reply.content)
    if not shown.bytes and not reply.has_structured:
        return framed_parts(given)  # the value is made of them
    parts: list[JSONDict] = []
    place = -1  # of the value: where a part stood that it takes the place of
    said = False
    leaves = _leaves(result.value)
    for part in given:
        word = _word(part)
        if word is None:
            parts.append(part)
        elif not shown.bytes and _says(word, result.value):
            if not said:
                parts.append(part)
            said = True
        elif word in leaves or (shown.bytes and len(word) > _SHORT):
            place = len(parts) if place < 0 else place
        else:
            parts.append({**part, "text": shown_text(call, word)})
    if not said:
        parts.insert(max(place, 0), value)
    return framed_parts(parts)


def _word(part: JSONObject) -> str | None:
    word = part.get("text")
    return word if part.get("type") == "text" and isinstance(word, str) else None


def _says(word: str, value: JSONValue) -> bool:
    """Return whether a text says the whole value: many servers send their structured values as text, too."""
    inner = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
    if word in (inner, value):
        return True
    try:
        return same_json(json.loads(word), value) or same_json(json.loads(word), inner)
    except (ValueError, RecursionError):
        return False


def _leaves(value: JSONValue) -> set[str]:
    """Return the strings in a value, of its first 10,000 items."""
    found: set[str] = set()
    todo, left = [value], _MAX_LEAVES
    while todo and left:
        left -= 1
        item = todo.pop()
        if isinstance(item, str):
            found.add(item)
        elif isinstance(item, dict | list):
            todo += item.values() if isinstance(item, dict) else item
    return found


RUN_TOOL: Final = MetaTool(
    name="run_tool",
    description="Run one tool; describe_tool has the schema of its args.",
    input_schema=closed(
        {
            "tool_id": text("namespace:name"),
            "args": OBJECT,
            "timeout_seconds": {**NUMBER, "exclusiveMinimum": 0},
            "max_bytes": unlisted(MAX_BYTES),
            **dict.fromkeys(_FLAGS, unlisted(FLAG)),
        },
        ["tool_id"],
    ),
    output_schema=outcome(
        {
            "structured": ANY,
            **CUT,
            "durationMs": NUMBER,
            "warnings": {"type": "array", "items": closed({"path": ANY, "message": ANY})},
            "tool": OBJECT,
            "backend": BACKEND,
            "mcpResult": ANY,
        },
        "structured",
    ),
    handle=_run,
    durable=_durable,
    read_only=False,
    destructive=True,
    idempotent=False,
)


class Notices:
    """Passes progress on to the client that asked for it, in the order and with the numbers that MCP wants: each one
    greater than the one before. Nothing is passed on before `start` and after `end`, or if the client did not ask."""

    def __init__(self, callback: ProgressCallback | None) -> None:
        self._callback = callback
        self._last = -1.0
        self._total: float | None = None
        self._open = False

    @property
    def callback(self) -> ProgressCallback | None:
        """The callback for reports of progress; None when the client did not ask."""
        return self.hear if self._callback is not None else None

    def start(self, total: float | None = None) -> None:
        """Say that work begins."""
        self._open = True
        self.hear(Progress(done=0, total=total, message="started"))

    def hear(self, progress: Progress) -> None:
        """Pass *progress* on if it is one."""
        if self._callback is None or not self._open:
            return
        if progress.done > self._last and math.isfinite(progress.done):
            self._last, self._total = progress.done, progress.total
            tell(self._callback, progress)

    def step(self, message: str) -> None:
        """Say that one more of who knows how many is done."""
        self.hear(Progress(done=self._last + 1, message=message))

    def end(self, message: str = "finished") -> None:
        """Say that the work is over, unless the last notice said so; what comes later is dropped."""
        done = self._last + 1 if self._total is None else self._total
        self.hear(Progress(done=done, total=done, message=message))
        self._open = False
