"""The tool that runs several tools, one after the other: run_chain."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final

from toolexec.errors import ChainStepLimitError, ToolExecError
from toolexec.exec.chain import ChainResult, Step
from toolexec.exec.facade import Exec
from toolexec.model.content import text as text_part
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.run.results import Shown
from toolexec.run.types import StepResult
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.errors import error_object, error_reply, short_errors
from toolexec.server.tools.running import BACKEND, MAX_BYTES, Notices, asked_timeout, result_parts
from toolexec.server.tools.schemas import (
    ANY,
    CUT,
    FLAG,
    NUMBER,
    OBJECT,
    ON_ERROR,
    TEXT,
    UNDONE,
    closed,
    count,
    outcome,
    unlisted,
)
from toolexec.server.tools.values import (
    as_json,
    backend_data,
    beside_loop,
    cut_note,
    milliseconds,
    other_parts,
    text_beside,
    tool_data,
    undone_data,
)

_MAX_STEPS: Final = 50
_STEP_BYTES: Final = 2000
_MAX_RETRIES: Final = 5


async def _run(call: MetaCall) -> MetaReply:
    steps = [_step(call, step) for step in call.args.get("steps", ())]  # none of a durable run that is resumed
    most = call.ex.options.code_limits.max_chain_steps
    if most and len(steps) > most:
        refused = ChainStepLimitError(f"a chain may have {most} steps here, not {len(steps)}; make several chains")
        return error_reply(refused, results=[])
    notices = Notices(call.on_progress)
    notices.start(len(steps))
    ending = "failed"
    try:
        chain = await _chain(call, steps, notices)
        ending = "finished" if chain.ok else ending
    except ToolExecError as error:
        return error_reply(error, results=[])
    finally:
        notices.end(ending)
    return await beside_loop(lambda: _reply(call, chain), *(step.value for step in chain.steps))


async def _chain(call: MetaCall, steps: Sequence[Step], notices: Notices) -> ChainResult:
    def begin() -> Awaitable[ChainResult]:
        return call.ex.run_chain(
            steps,
            on_progress=notices.callback,
            on_error=call.args.get("on_error", "stop"),
            dry_run=call.args.get("dry_run", False),
            durable=call.run_id,
        )

    return await (begin() if call.durable is None else call.durable.result(begin, on_progress=notices.callback))


def _durable(ex: Exec, args: JSONObject) -> JSONDict | None:
    if args.get("dry_run"):
        return None
    return {name: args[name] for name in ("max_bytes", "include_backends", "include_tools") if name in args}


def _step(call: MetaCall, data: JSONObject) -> Step:
    return Step(
        data["tool_id"],
        data.get("args"),
        use_previous=data.get("use_previous", False),
        stop_on_error=data.get("stop_on_error", True),
        name=data.get("name", ""),
        timeout=asked_timeout(data.get("timeout"), call.ex.options),
        retries=int(data.get("retries", 0)),
    )


def _reply(call: MetaCall, chain: ChainResult) -> MetaReply:
    value: JSONDict = {"results": [_result(call, step) for step in chain.steps]}
    shown = Shown(value=None)
    last = next((step for step in reversed(chain.steps) if step.ok), None)
    if last is not None:
        most = int(call.args["max_bytes"]) if "max_bytes" in call.args else None
        shown = call.results.show(last.value, call.origin, most)
        value |= {"final": shown.value, **cut_note(shown)}
    value["durationMs"] = milliseconds(chain.duration)
    if chain.error is not None:
        value["error"] = _failure(chain)
    if chain.undone:
        value["undone"] = undone_data(chain.undone)
    result = last.result if last is not None else None
    content = other_parts(result.content) if result is not None else []
    if result is not None and content:  # the last tool's parts in their order, as run_tool gives them
        rest = {key: part for key, part in value.items() if key != "final"}
        parts = [*result_parts(call, result, shown), text_part(as_json(short_errors(rest)))]
    else:
        parts = text_beside(value, "final")
    return MetaReply(value=value, content=content, parts=parts, is_error=chain.error is not None)


def _result(call: MetaCall, step: StepResult) -> JSONDict:
    data: JSONDict = {"tool_id": step.tool_id}
    if step.name:
        data["name"] = step.name
    if step.skipped:
        return data | {"skipped": True}
    if step.error is not None:
        data["error"] = error_object(step.error, step_index=step.index)
    if step.error is None or step.value is not None:
        # What comes in between is for the chain more than for the reader, who has the last value in full.
        shown = call.results.show(step.value, call.origin, _STEP_BYTES)
        data |= {"structured": shown.value, **cut_note(shown)}
    data["durationMs"] = milliseconds(step.duration)
    if step.attempts > 1:
        data["attempts"] = step.attempts
    binding = step.result.binding if step.result is not None else None
    if binding is not None and call.args.get("include_backends", True):
        data["backend"] = backend_data(binding)
    if call.args.get("include_tools"):
        entry = call.ex.visible()[0].find(step.tool_id)
        if entry is not None:
            data["tool"] = tool_data(call, entry.tool)
    return data


def _failure(chain: ChainResult) -> JSONDict:
    """Return what stopped the chain, with the code of the cause in its details."""
    step = next((step for step in chain.steps if step.error is chain.error), None)
    if step is None:  # a durable run that cannot go on
        return error_object(chain.error or ToolExecError("the chain was stopped"))
    cause = error_object(step.error or ToolExecError("the chain was stopped"))
    details = {"cause_code": cause["code"], "cause_op": cause.get("op"), "cause_backend": cause.get("backend")}
    if step.result is not None and step.result.binding is not None:
        details["cause_backend_kind"] = step.result.binding.kind
    failure: JSONDict = {
        "code": "chain_step_failed",
        "message": f"step {step.index} ({step.tool_id}) failed: {cause['message']}",
        "tool_id": step.tool_id,
        "retryable": False,  # steps before it have done their work, which a repeated chain would do again
        "step_index": step.index,
    }
    return failure | {"details": {key: part for key, part in details.items() if part is not None}}


_STEP: Final = closed(
    {
        "tool_id": TEXT,
        "args": OBJECT,
        "use_previous": FLAG,
        "name": TEXT,
        "stop_on_error": unlisted({**FLAG, "default": True}),
        "timeout": unlisted({**NUMBER, "exclusiveMinimum": 0, "description": "seconds"}),
        "retries": unlisted(count(0, _MAX_RETRIES)),
    },
    ["tool_id"],
)
_RESULT: Final = closed(
    {
        "tool_id": TEXT,
        "name": TEXT,
        "structured": ANY,
        **CUT,
        "error": {"$ref": "#/properties/error"},
        "skipped": FLAG,
        "durationMs": NUMBER,
        "attempts": ANY,
        "backend": BACKEND,
        "tool": OBJECT,
    },
    ["tool_id"],
)

RUN_CHAIN: Final = MetaTool(
    name="run_chain",
    description=(
        "Run tools in order. use_previous makes the value before the args (with args: adds it as `previous`). An "
        'arg may be {"$ref": "steps.0.items[0].id"}; steps.0 may be a step\'s name.'
    ),
    input_schema=closed(
        {
            "steps": {"type": "array", "minItems": 1, "maxItems": _MAX_STEPS, "items": _STEP},
            "on_error": ON_ERROR,
            "dry_run": FLAG,
            "max_bytes": unlisted(MAX_BYTES),
            "include_backends": unlisted({**FLAG, "default": True}),
            "include_tools": unlisted(FLAG),
        },
        ["steps"],
    ),
    output_schema=outcome(
        {"results": {"type": "array", "items": _RESULT}, "final": ANY, **CUT, "durationMs": NUMBER, "undone": UNDONE},
        "results",
    ),
    handle=_run,
    durable=_durable,
    read_only=False,
    destructive=True,
    idempotent=False,
)
