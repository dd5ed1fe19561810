"""The tool that runs a tool: run_tool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from toolexec.errors import ToolExecError
from toolexec.model.content import ToolReply
from toolexec.model.content import text as text_part
from toolexec.model.schema import same_json
from toolexec.run.outline import MIN_BYTES
from toolexec.run.results import Shown
from toolexec.run.types import Result
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.errors import error_reply
from toolexec.server.tools.progress import Notices
from toolexec.server.tools.schemas import ANY, CUT, FLAG, NUMBER, OBJECT, closed, outcome, text
from toolexec.server.tools.values import (
    as_json,
    backend_data,
    cut_note,
    milliseconds,
    other_parts,
    shown_text,
    tool_data,
)

__all__ = ["BACKEND", "MAX_BYTES", "RUN_TOOL", "failure_parts", "lowest", "warnings_of"]

_MAX_WARNINGS: Final = 10
_SHORT: Final = 600

BACKEND: Final = closed({"kind": ANY, "name": ANY})
MAX_BYTES: Final = {"type": "integer", "minimum": MIN_BYTES}


async def _run(call: MetaCall) -> MetaReply:
    args = call.args
    notices = Notices(call.on_progress)
    notices.start()
    ending = "failed"
    try:
        result = await call.ex.run_tool(
            args["tool_id"],
            args.get("args"),
            timeout=lowest(args.get("timeout_seconds"), call.ex.options.default_timeout),
            on_progress=notices.callback,
        )
        ending = "finished" if result.ok else ending
    except ToolExecError as error:
        return error_reply(error)
    finally:
        notices.end(ending)
    beside = {"durationMs": milliseconds(result.duration), **_asked_for(call, result)}
    if result.error is not None:
        failed = error_reply(result.error, **beside)
        failed.content = failure_parts(result.error, result.reply)
        return failed
    shown = call.results.show(result.value, call.origin, _max_bytes(args))
    value = {"structured": shown.value, **cut_note(shown), **beside, **warnings_of(result)}
    return MetaReply(value=value, text=_text(result, shown), content=_content(call, result, shown))


def lowest(asked: float | None, most: float | None) -> float | None:
    """The time limit in seconds: a caller can lower what the operator set, and not raise it."""
    return min(asked, most) if asked is not None and most is not None else asked


def failure_parts(error: ToolExecError, reply: ToolReply | None) -> list[dict[str, Any]]:
    """What came along with a failure and is not text."""
    content = reply.content if reply is not None else error.details.get("content", ())
    return other_parts(part for part in content if isinstance(part, Mapping))


def warnings_of(result: Result) -> dict[str, Any]:
    """How the result breaks its schema, where that does not count as a failure."""
    warnings = [{"path": w.path, "message": w.message} for w in result.warnings[:_MAX_WARNINGS]]
    return {"warnings": warnings} if warnings else {}


def _max_bytes(args: Mapping[str, Any]) -> int | None:
    return int(args["max_bytes"]) if "max_bytes" in args else None


def _asked_for(call: MetaCall, result: Result) -> dict[str, Any]:
    args = call.args
    found: dict[str, Any] = {}
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


def _text(result: Result, shown: Shown) -> str:
    """What a model reads: the tool's own words where the value is made of them, else the value."""
    if not shown.bytes and result.reply is not None and not result.reply.has_structured:
        own = _words(result.reply)
        if own:
            return "\n".join(own)
    return shown.value if isinstance(shown.value, str) else as_json(shown.value)


def _content(call: MetaCall, result: Result, shown: Shown) -> list[dict[str, Any]]:
    """The parts that are not in the text: images and the like, and words beside a structured value that say more."""
    reply = result.reply
    if reply is None:
        return []
    words = _words(reply) if reply.has_structured or shown.bytes else []
    told = [word for word in words if not (shown.bytes and len(word) > _SHORT) and not _repeats(word, shown.value)]
    return [*(text_part(shown_text(call, word)) for word in told), *other_parts(reply.content)]


def _words(reply: ToolReply) -> list[str]:
    return [part["text"] for part in reply.content if part.get("type") == "text" and isinstance(part.get("text"), str)]


def _repeats(word: str, value: Any) -> bool:
    """Whether a text only says again what the value says: most servers send their structured values as text, too."""
    inner = value.get("result") if isinstance(value, dict) and value.keys() == {"result"} else value
    if word in (inner, value):
        return True
    try:
        return same_json(json.loads(word), value) or same_json(json.loads(word), inner)
    except (ValueError, RecursionError):
        return False


RUN_TOOL: Final = MetaTool(
    name="run_tool",
    title="Run a tool",
    description=(
        "Run one tool by its id, with args that fit its input schema (describe_tool has it). A result that is too "
        "long comes as an outline with a handle for read_result. For several calls use run_chain or execute_code."
    ),
    input_schema=closed(
        {
            "tool_id": text("namespace:name"),
            "args": OBJECT,
            "timeout_seconds": {**NUMBER, "exclusiveMinimum": 0},
            "max_bytes": MAX_BYTES,
            "include_tool": FLAG,
            "include_backend": FLAG,
            "include_mcp_result": FLAG,
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
    read_only=False,
    destructive=True,
    idempotent=False,
    open_world=True,
)
