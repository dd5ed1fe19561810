"""What a journal keeps of a durable run as a whole, as JSON: its settings, where it comes from, its result."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any, Final

from toolexec.code.deliveries import is_timer
from toolexec.code.limits import Limits
from toolexec.code.types import BackendInfo, CodeResult, ToolCallRecord
from toolexec.durable.journal import CallRecord, RunRecord
from toolexec.durable.outcomes import error_from_json, error_to_json, read_outcome
from toolexec.errors import (
    ClosedError,
    ConfigurationError,
    InvalidRequestError,
    RunError,
    SandboxError,
    ToolExecError,
)
from toolexec.exec.chain import ChainResult, Step
from toolexec.model.json_value import JSONDict, JSONObject, NotJSONError, to_json, to_json_lossy
from toolexec.model.origin import Caller, Origin
from toolexec.run.audit.record import canonical
from toolexec.run.types import StepResult, UndoneStep

APPROVED: Final = "approved"
"""The setting of a run that says whether it was approved when it began."""
TIMERS: Final = "timers"
"""The setting of a run that says what its program's timers are."""
OFFLINE: Final = "offline"
"""The setting of a fork that only a caller who asks for it may go on with on real tools."""
PARENT: Final = "parent"
"""The setting of a fork that says which run it was forked from, and where."""


SESSION: Final = "session"
"""The setting of a recorded program of a session that says which one it is, and what the session was opened with."""


def run_digest(kind: str, source: str, settings: JSONObject) -> str:
    """Return what distinguishes a run from others that were begun with other things."""
    return blake2b(canonical([kind, source, dict(settings)]), digest_size=16).hexdigest()


# -- settings -----------------------------------------------------------------------------------------------------


def settings_to_json(settings: Mapping[str, Any]) -> JSONDict:
    """Return the settings of a run of code as JSON-able data. Raises ConfigurationError for metadata that is none."""
    data: JSONDict = {}
    for name, value in settings.items():
        if value is None or name == "on_event":
            continue
        try:
            data[name] = to_json(_setting_to_json(name, value))
        except NotJSONError as error:
            raise ConfigurationError(f"{name} of a durable run must be JSON, as it is kept: {error}") from error
    return data


def _setting_to_json(name: str, value: Any) -> Any:
    if isinstance(value, Limits):
        return {key: number for key, number in asdict(value).items() if number}
    if name == "files":
        return {path: base64.b64encode(content).decode() for path, content in value.items()}
    if name == "stdin":
        return base64.b64encode(value).decode()
    return sorted(value) if name == "allowed_tools" else value


def settings_from_json(data: JSONObject) -> dict[str, Any]:
    """Return the settings that `settings_to_json` has written."""
    settings: dict[str, Any] = dict(data)
    if "limits" in settings:
        settings["limits"] = Limits(**settings["limits"])
    if "files" in settings:
        settings["files"] = {path: base64.b64decode(content) for path, content in settings["files"].items()}
    if "stdin" in settings:
        settings["stdin"] = base64.b64decode(settings["stdin"])
    return settings


def code_settings(run: RunRecord) -> tuple[dict[str, Any], bool]:
    """Return the settings of a run of code or a workflow as it was begun, and whether its timers are steps of it. Of
    that its clock follows what is recorded; one that the caller has fixed stays fixed, and so does that of runs which
    were begun without this."""
    given = run.settings.get("given") or {}
    settings = settings_from_json(given)
    if run.kind == "code":
        settings.setdefault("seed", run.settings["seed"])
    settings.setdefault("now", clock_of(run))
    if settings.get("allowed_tools") is not None:
        settings["allowed_tools"] = [*settings["allowed_tools"], "run:*"]
    return settings, run.settings.get(TIMERS) == "steps" and "now" not in given


def clock_of(run: RunRecord) -> float:
    """Return the time at which the clock of code or a workflow begins, unless the caller has fixed it: when the run was
    begun, or taken from its queue."""
    if not run.started:
        return run.settings["now"]
    return round(run.started, 6) if run.kind == "code" else float(int(run.started))


def parent_of(run: RunRecord) -> JSONDict:
    """Return which run a fork was forked from: its `id`, the `step` and number of the `call`, and what was changed;
    empty for a run that is not a fork."""
    return dict(run.settings.get(PARENT) or {})


def session_of(run: RunRecord) -> JSONDict:
    """Return of which session a recorded program is: its `number` there, the run of the `previous` program, and what
    the session was `opened` with; empty for any other run."""
    return dict(run.settings.get(SESSION) or {})


def check_parent(run: RunRecord, calls: Sequence[CallRecord]) -> None:
    """Raise RunError for a fork that lacks calls of its parent, as its process died while it wrote them: those would be
    made again."""
    wanted = parent_of(run).get("reused", 0)
    if sum(call.outcome is not None for call in calls) < wanted:
        raise RunError(
            f"the fork {run.id} was not written to its end, and lacks answers of its parent; cancel and delete it, and "
            "fork again",
            code="run_changed",
            op="resume",
            details={"run_id": run.id},
        )


def was_resumed(run: RunRecord, calls: Sequence[CallRecord]) -> bool:
    """Return whether a fork that was made offline has begun calls of its own: only a caller who resumed it has it do
    that, but for the timers of its program."""
    reused = parent_of(run).get("reused", 0)
    return any(call.number > reused and not is_timer(call.step) for call in calls)


def origin_to_json(origin: Origin) -> JSONDict:
    """Return who a run is for."""
    caller = {key: value for key, value in asdict(origin.caller).items() if value}
    return {
        "caller": to_json_lossy(caller),
        "session": origin.session,
        "client": origin.client,
        "approvals": origin.approvals,
    }


def origin_from_json(data: JSONObject) -> Origin:
    """Return who a run is for, as `origin_to_json` has written it; such a caller can be asked by signals only."""
    caller = dict(data.get("caller") or {})
    for name in ("roles", "scopes"):
        caller[name] = tuple(caller.get(name) or ())
    return Origin(
        caller=Caller(**caller),
        session=data.get("session") or "",
        client=data.get("client") or "",
        approvals=data.get("approvals") or "always",
    )


def steps_to_text(steps: Sequence[Step]) -> str:
    """Return a chain as JSON. Raises ConfigurationError for arguments that are not."""
    try:
        return json.dumps([to_json(_fields(step)) for step in steps])
    except NotJSONError as error:
        raise ConfigurationError(f"the arguments of a durable chain must be JSON, as they are kept: {error}") from error


def _fields(step: Step) -> JSONDict:
    return {name: getattr(step, name) for name in Step.__dataclass_fields__ if name != "_"}


def steps_from_text(text: str) -> list[Step]:
    """Return the chain that `steps_to_text` has written."""
    return [Step.from_dict(step) for step in json.loads(text)]


# -- results ------------------------------------------------------------------------------------------------------


def chain_to_json(result: ChainResult) -> JSONDict:
    """Return the result of a chain as JSON-able data."""
    stopped = [step.index for step in result.steps if step.error is not None and step.error is result.error]
    return {
        "value": result.value,
        "tool_id": result.tool_id,
        "duration": result.duration,
        "stopped": stopped[0] if stopped else None,
        "error": _error(result.error),
        "steps": [_step_to_json(step) for step in result.steps],
        "undone": [_undone_to_json(step) for step in result.undone],
    }


def chain_from_json(data: JSONObject) -> ChainResult:
    """Return the result that `chain_to_json` has written."""
    steps = [_step_from_json(step) for step in data.get("steps") or ()]
    stopped = data.get("stopped")
    error = steps[stopped].error if isinstance(stopped, int) else _read_error(data.get("error"))
    undone = [_undone_from_json(step) for step in data.get("undone") or ()]
    return ChainResult(data.get("value"), error, data.get("tool_id") or "", data.get("duration") or 0.0, steps, undone)


def code_to_json(result: CodeResult) -> JSONDict:
    """Return the result of code as JSON-able data; its tool calls are in the journal anyway."""
    backend = result.backend
    return {
        "value": result.value,
        "error": _error(result.error),
        "stdout": result.stdout,
        "stderr": result.stderr,
        "duration": result.duration,
        "language": result.language,
        "files": {path: base64.b64encode(content).decode() for path, content in result.files.items()},
        "undone": [_undone_to_json(step) for step in result.undone],
        "backend": {"kind": backend.kind, "isolation": backend.isolation} if backend is not None else None,
    }


def code_from_json(data: JSONObject, calls: Sequence[CallRecord]) -> CodeResult:
    """Return the result that `code_to_json` has written; of the tool calls the arguments are not kept."""
    backend = data.get("backend")
    return CodeResult(
        value=data.get("value"),
        stdout=data.get("stdout") or "",
        stderr=data.get("stderr") or "",
        tool_calls=trace_of([call for call in calls if "?" not in call.step]),
        duration=data.get("duration") or 0.0,
        error=_read_error(data.get("error")),
        files={path: base64.b64decode(content) for path, content in (data.get("files") or {}).items()},
        language=data.get("language") or "",
        undone=[_undone_from_json(step) for step in data.get("undone") or ()],
        backend=BackendInfo(**backend) if isinstance(backend, dict) else None,
    )


def trace_of(calls: Sequence[CallRecord]) -> list[ToolCallRecord]:
    """Return the trace of recorded calls, without their arguments, which are not kept."""
    return [_traced(call, calls[0].began) for call in calls]


def _traced(call: CallRecord, began: float) -> ToolCallRecord:
    record = ToolCallRecord(call.tool, started=call.began - began, at=call.at)
    record.cut = True
    record.duration = (call.ended or call.began) - call.began
    if call.outcome is None:
        record.error = ToolExecError(f"{call.tool} was stopped: the run ended before the call did", tool_id=call.tool)
        return record
    try:
        result = read_outcome(call.outcome)
    except ToolExecError as error:
        record.error = error
        return record
    record.error = result.error
    record.settle(json.dumps(result.value))
    record.backend_kind = result.binding.kind if result.binding is not None else ""
    return record


def why_stopped(result: ChainResult | CodeResult) -> ToolExecError | None:
    """Return the error of a result that says nothing about its run but that its process or sandbox ended; else None."""
    if isinstance(result, ChainResult):
        errors = (result.error, *(step.error for step in result.steps))
        return next((error for error in errors if isinstance(error, ClosedError)), None)
    error = result.error
    stops = isinstance(error, ClosedError) or (
        isinstance(error, SandboxError) and not isinstance(error, InvalidRequestError)
    )
    return error if stops else None


def _step_to_json(step: StepResult) -> JSONDict:
    data: JSONDict = {name: getattr(step, name) for name in ("index", "tool_id", "name", "value", "duration")}
    return data | {
        "args": to_json_lossy(dict(step.args)),
        "error": _error(step.error),
        "skipped": step.skipped,
        "attempts": step.attempts,
    }


def _step_from_json(data: JSONObject) -> StepResult:
    fields: dict[str, Any] = {**data, "error": _read_error(data.get("error"))}
    return StepResult(**fields)


def _undone_to_json(step: UndoneStep) -> JSONDict:
    data = {name: getattr(step, name) for name in step.__dataclass_fields__}
    return {**data, "args": to_json_lossy(dict(step.args)), "error": _error(step.error)}


def _undone_from_json(data: JSONObject) -> UndoneStep:
    fields: dict[str, Any] = {**data, "error": _read_error(data.get("error"))}
    return UndoneStep(**fields)


def _error(error: ToolExecError | None) -> JSONDict | None:
    return error_to_json(error) if error is not None else None


def _read_error(data: object) -> ToolExecError | None:
    return error_from_json(data) if isinstance(data, dict) else None
