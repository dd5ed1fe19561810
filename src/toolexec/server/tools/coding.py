"""The tools that run programs: execute_code and run_workflow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from toolexec.code.types import CodeEvent, CodeResult, ToolCallRecord
from toolexec.errors import InputValidationError, ToolExecError, Violation
from toolexec.exec.code import CodeSettings, WorkflowSettings
from toolexec.exec.facade import Exec
from toolexec.exec.options import Options
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.languages import ALIASES
from toolexec.model.visible import visible_line
from toolexec.run.ceilings import refuse_above
from toolexec.runtime.sandboxes import make_runtime
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.errors import error_object, error_reply
from toolexec.server.tools.results import READ_RESULT
from toolexec.server.tools.running import MAX_BYTES, Notices, asked_timeout
from toolexec.server.tools.schemas import (
    ANY,
    CUT,
    FLAG,
    NUMBER,
    OBJECT,
    ON_ERROR,
    TEXT,
    TEXTS,
    UNDONE,
    closed,
    count,
    outcome,
    text,
    unlisted,
)
from toolexec.server.tools.values import beside_loop, cut_note, milliseconds, shown_text, text_beside, undone_data

_MAX_CALLS: Final = 1000
_LARGEST: Final = 10**9
"""Of any number in a request; what may be asked for is up to the operator's ceilings."""

_loaded = threading.Event()
_MAX_ALLOWED: Final = 100
_MAX_TRACED: Final = 40
_OUTPUT_BYTES: Final = 8000
_BESIDE: Final = frozenset({"durationMs", "toolCalls", "toolCallCount", "backend"})
_READS: Final = frozenset({"handle", "path", "offset", "limit", "grep", "max_bytes"})


async def _load_sandboxes() -> None:
    """Import the modules of all sandboxes in a thread: the first program of a process would hold up all callers for
    0.15 s of CPU."""
    if not _loaded.is_set():
        await asyncio.to_thread(lambda: make_runtime().backends)
        _loaded.set()


async def _execute_or_read(call: MetaCall) -> MetaReply:
    """Run a program, or read a part of what an earlier one gave that was too long."""
    if "handle" in call.args:
        return await READ_RESULT.handle(replace(call, args={k: v for k, v in call.args.items() if k in _READS}))
    if not call.args.get("code", "").strip():
        missing = Violation(path="", keyword="required", message="code is required, or the handle of a result")
        raise InputValidationError([missing], tool_id="execute", op="validate_input")
    reply = await _execute(call)
    value = {key: part for key, part in reply.value.items() if key not in _BESIDE}
    if failed := [one for one in reply.value.get("toolCalls", ()) if not one["ok"]]:
        value["failedCalls"] = failed
    parts = text_beside(value, "value")
    return replace(reply, value=value, parts=parts)


async def _execute(call: MetaCall) -> MetaReply:
    await _load_sandboxes()
    args = call.args
    more: CodeSettings = {"language": args.get("language", ""), "allowed_tools": args.get("allowed_tools")}
    execute = call.ex.execute_code
    return await _run(call, lambda settings: execute(args["code"], durable=call.run_id, **{**settings, **more}))


async def _run_workflow(call: MetaCall) -> MetaReply:
    args = call.args
    more: WorkflowSettings = {"on_error": args.get("on_error", "stop"), "dry_run": args.get("dry_run", False)}
    run = call.ex.run_workflow
    return await _run(
        call,
        lambda settings: run(args["workflow"], args.get("inputs"), durable=call.run_id, **{**settings, **more}),
    )


def _durable_code(ex: Exec, args: JSONObject) -> JSONDict | None:
    if "handle" in args:
        return None
    language = args.get("language") or ex.options.default_language
    if ALIASES.get(language, language) == "workflow":
        return _durable_workflow(ex, args)
    profile = ex.options.security_profile
    return _durable_workflow(ex, args) if ex.runtime.can_repeat(args["code"], language, profile) else None


def _durable_workflow(ex: Exec, args: JSONObject) -> JSONDict | None:
    if args.get("dry_run"):
        return None
    return {"max_bytes": args["max_bytes"]} if "max_bytes" in args else {}


async def _run(call: MetaCall, run: Callable[[WorkflowSettings], Awaitable[CodeResult]]) -> MetaReply:
    """Run a program with the limits that were asked for, and report its tool calls as progress."""
    notices = Notices(call.on_progress)
    notices.start()
    ending = "failed"
    try:
        settings = _settings(call.args, notices, call.ex.options)
        if call.durable is None:
            result = await run(settings)
        else:
            result = await call.durable.result(lambda: run(settings), on_event=settings.get("on_event"))
        ending = "finished" if result.ok else ending
    except ToolExecError as error:
        return error_reply(error)
    finally:
        notices.end(ending)
    return await beside_loop(lambda: _reply(call, result), result.value, result.stdout, result.stderr)


def _settings(args: JSONObject, notices: Notices, options: Options) -> WorkflowSettings:
    """Return what a caller asks for. Raises InvalidLimitsError for more than the ceilings of a server whose operator
    set none; the Exec refuses more than those that were set."""
    settings: WorkflowSettings = {}
    if "timeout_ms" in args:
        settings["timeout"] = asked_timeout(args["timeout_ms"] / 1000, options)
    if "max_tool_calls" in args:
        calls = int(args["max_tool_calls"])
        if not options.max_tool_calls:
            refuse_above("max_tool_calls", calls, max(_MAX_CALLS, options.tool_calls))
        settings["max_tool_calls"] = calls
    if notices.callback is not None:
        settings["on_event"] = _listener(notices)
    return settings


def _listener(notices: Notices) -> Any:
    def hear(event: CodeEvent) -> None:
        if event.kind == "call_end" and event.call is not None:
            notices.step(visible_line(event.call.tool_id, 100))

    return hear


def _reply(call: MetaCall, result: CodeResult) -> MetaReply:
    value: JSONDict = {}
    if result.error is None:
        most = int(call.args["max_bytes"]) if "max_bytes" in call.args else None
        shown = call.results.show(result.value, call.origin, most)
        value |= {"value": shown.value, **cut_note(shown)}
        if result.notes:
            value["notes"] = list(result.notes)
    else:
        value["error"] = error_object(result.error)
    for name, printed in (("stdout", result.stdout), ("stderr", result.stderr)):
        if printed:
            value[name] = shown_text(call, printed, _OUTPUT_BYTES)
    if result.tool_calls:
        value |= {"toolCalls": _trace(result.tool_calls), "toolCallCount": len(result.tool_calls)}
    value["durationMs"] = milliseconds(result.duration)
    if result.undone:
        value["undone"] = undone_data(result.undone)
    if result.backend is not None:
        value["backend"] = {"kind": result.backend.kind, "isolation": result.backend.isolation}
    return MetaReply(value=value, parts=text_beside(value, "value"), is_error=result.error is not None)


def _trace(calls: Sequence[ToolCallRecord]) -> list[JSONDict]:
    """Return the calls in few words; of very many only those that failed and the first others, in order."""
    kept = set(sorted(range(len(calls)), key=lambda number: (calls[number].ok, number))[:_MAX_TRACED])
    return [_traced(record) for number, record in enumerate(calls) if number in kept]


def _traced(record: ToolCallRecord) -> JSONDict:
    data: JSONDict = {"tool": visible_line(record.tool_id, 400), "ok": record.ok, "ms": milliseconds(record.duration)}
    return data if record.error is None else {**data, "code": record.error.code}


_OUTPUT: Final = outcome(
    {
        "value": ANY,
        **CUT,
        "notes": {"type": "array", "items": TEXT},
        "stdout": TEXT,
        "stderr": TEXT,
        "durationMs": NUMBER,
        "toolCalls": {
            "type": "array",
            "items": closed({"tool": TEXT, "ok": FLAG, "ms": ANY, "code": ANY}, ["tool", "ok"]),
        },
        "toolCallCount": ANY,
        "undone": UNDONE,
        "backend": closed({"kind": ANY, "isolation": ANY}),
    },
    "value",
)

EXECUTE_CODE: Final = MetaTool(
    name="execute_code",
    description=(
        "Run a program that calls tools; only its answer comes back. "
        'Python: tools.github.list_issues(repo="a/b") calls github:list_issues; arguments go by name, '
        "odd characters become _; tools.run(id, {...}) takes any id; "
        'tools.search("words"), tools.describe(id). In parallel, and then await every call: import asyncio; '
        "await asyncio.gather(tools.x.f(), tools.x.g()). A failed tool raises ToolError (.code, .message). Answer by "
        "a top-level return or the last expression, in JSON. No network, no host files. Know a tool's arguments first."
    ),
    input_schema=closed(
        {
            "code": TEXT,
            "language": text("default python"),
            "timeout_ms": unlisted(count(1, _LARGEST)),
            "max_tool_calls": unlisted(count(1)),
            "allowed_tools": unlisted({**TEXTS, "maxItems": _MAX_ALLOWED, "description": "ids, or github:*"}),
            "max_bytes": unlisted(MAX_BYTES),
        },
        ["code"],
    ),
    output_schema=_OUTPUT,
    handle=_execute,
    cause="code",
    durable=_durable_code,
    read_only=False,
    destructive=True,
    idempotent=False,
)

EXECUTE: Final = MetaTool(
    name="execute",
    description=(
        "Run a program that calls tools; only its answer comes back. Python: "
        "tools.a.b(x=1), arguments by name; tools.run(id, {...}) takes any id. In parallel: "
        "import asyncio; await asyncio.gather(tools.x.f(), tools.x.g()), and then await every call. A failed tool "
        "raises ToolError (.code, .message). Answer by a top-level return, in JSON. No network, no host files. handle, "
        "in place of code, reads a result that was cut: path (items[0].name), offset or grep."
    ),
    input_schema=closed(
        {
            "code": TEXT,
            "language": text("default python"),
            "timeout_ms": count(1, _LARGEST),
            "max_bytes": MAX_BYTES,
            "handle": TEXT,
            "path": TEXT,
            "offset": count(0),
            "grep": TEXT,
        }
    ),
    output_schema=outcome(
        {
            **{key: part for key, part in _OUTPUT["properties"].items() if key not in {*_BESIDE, "error"}},
            "failedCalls": _OUTPUT["properties"]["toolCalls"],
            **dict.fromkeys(("kind", "offset", "count", "total", "next", "cut"), ANY),
        },
        "value",
    ),
    handle=_execute_or_read,
    cause="code",
    durable=_durable_code,
    read_only=False,
    destructive=True,
    idempotent=False,
)

RUN_WORKFLOW: Final = MetaTool(
    name="run_workflow",
    description=(
        "Run a small program of tool calls, checked before it runs. "
        'late := collect o in run("shop:orders") where o.days > 9 {o.id}; '
        'parallel for id in late limit 5 {retry 3 {run("shop:remind", {id})}}; if a {}; for x in xs {}; '
        'try {} catch e {}; "${len(xs)}"; return late. Inputs: input n: integer = 1'
    ),
    input_schema=closed(
        {
            "workflow": TEXT,
            "inputs": OBJECT,
            "on_error": ON_ERROR,
            "dry_run": FLAG,
            "timeout_ms": count(1, _LARGEST),
            "max_bytes": MAX_BYTES,
        },
        ["workflow"],
    ),
    output_schema=_OUTPUT,
    handle=_run_workflow,
    cause="code",
    durable=_durable_workflow,
    read_only=False,
    destructive=True,
    idempotent=False,
)
