"""Errors, results and documentation as they travel in messages, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import toolexec.errors as errors
from toolexec.errors import CodeError, Outcome, ProtocolError, ToolExecError, Violation
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.run.steps import Step, read_chain_steps
from toolexec.run.types import Result, StepResult
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES

_MAX_TEXT = 20_000
_MAX_CODE = 100
_MAX_DETAILS = 4 << 20


def _classes(kind: type[ToolExecError]) -> Iterator[type[ToolExecError]]:
    """Yield the public classes of errors, each after those that it is derived from."""
    if kind.__name__[0] != "_":
        yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith(errors.__name__):
            yield from _classes(child)


_BY_NAME = {kind.__name__: kind for kind in _classes(ToolExecError)}
_BY_CODE = {code: kind for kind in _BY_NAME.values() for code in (kind.code, *vars(kind).get("further_codes", ()))}


def _class_of(error: ToolExecError) -> str:
    """Return the name of the class that an error is read as; empty where its code says that: a tool may fail with any
    code, such as `closed`, and is not what has that code here."""
    kind = next(each for each in type(error).__mro__ if _BY_NAME.get(each.__name__) is each)
    return "" if _BY_CODE.get(error.code, ToolExecError) is kind else kind.__name__


def error_payload(error: BaseException) -> JSONDict:
    """Return the payload of an `error` message; one that is not toolexec's says only its class, as its text may hold
    what a sandbox must not see.
    """
    if not isinstance(error, ToolExecError):
        return {"error": f"the host failed: {type(error).__name__}", "code": ToolExecError.code, "retryable": False}
    error = error.public()
    payload: JSONDict = {"error": error.message[:_MAX_TEXT], "code": error.code, "retryable": error.retryable}
    fields = (
        ("class", _class_of(error)),
        ("op", error.op),
        ("toolId", error.tool_id),
        ("backend", error.backend),
    )
    payload |= {key: value[:_MAX_TEXT] for key, value in fields if value}
    if error.outcome is not error.default_outcome:
        payload["outcome"] = error.outcome.value
    if error.details and _jsonable(error.details, _MAX_DETAILS) is not None:
        payload["details"] = error.details
    return payload


def read_error(payload: JSONObject) -> ToolExecError:
    """Return the error that the payload of an `error` message describes, of the class that it names, or else its code
    (a ToolExecError with that code, if none has it); fields of the wrong type count as absent.
    """
    code, named = payload.get("code"), payload.get("class")
    code = code[:_MAX_CODE] if isinstance(code, str) else ""
    kind = _BY_NAME.get(named) if isinstance(named, str) else None
    kind = kind or _BY_CODE.get(code, ToolExecError)
    error = kind.__new__(kind)
    details = payload.get("details")
    details = details if isinstance(details, dict) else {}
    retryable = payload.get("retryable")
    # Past the class's own constructor: it would word the message again.
    ToolExecError.__init__(
        error,
        _text(payload.get("error")) or "unknown error",
        tool_id=_text(payload.get("toolId")),
        op=_text(payload.get("op")),
        backend=_text(payload.get("backend")),
        retryable=retryable if isinstance(retryable, bool) else None,
        details=details,
        code=code if code and kind.code != code else None,
        outcome=Outcome.read(payload.get("outcome")),
    )
    if isinstance(error, errors.InputValidationError | errors.OutputValidationError):
        error.violations = read_violations(details.get("violations"))
    elif isinstance(error, CodeError):
        error.line, error.column = _number(details.get("line")), _number(details.get("column"))
        error.source, error.kind = _text(details.get("source")) or "", _text(details.get("kind")) or ""
        error.traceback = _text(details.get("traceback")) or ""
    return error


def read_violations(data: JSONValue) -> tuple[Violation, ...]:
    """Return violations as an error's details or a result list them; what is not a violation is left out."""
    return tuple(
        Violation(
            path=_text(item.get("path")) or "",
            keyword=_text(item.get("keyword")) or "",
            message=_text(item.get("message")) or "",
            expected=item.get("expected"),
            got=item.get("got"),
        )
        for item in (data if isinstance(data, list) else ())
        if isinstance(item, dict)
    )


def read_code_error(payload: JSONValue) -> CodeError:
    """Return the failure that a guest reports in its `result`; its `__cause__` is the tool's error that was not
    caught.
    """
    data = payload if isinstance(payload, dict) else {}
    error = CodeError(
        _text(data.get("message")) or "the program failed",
        line=_number(data.get("line")),
        column=_number(data.get("column")),
        source=(_text(data.get("source")) or "")[:1000],
        kind=(_text(data.get("kind")) or "")[:200],
        traceback=_text(data.get("traceback")) or "",
    )
    held = data.get("held")
    if isinstance(held, list) and held:
        error.details["held"] = held
    tool_error = data.get("tool_error")
    if isinstance(tool_error, dict):
        error.__cause__ = cause = read_error(tool_error)
        error.tool_id = cause.tool_id
        error.retryable = cause.retryable
    return error


def read_steps(payload: JSONObject) -> list[Step]:
    """Return the steps of a `run_chain` request.

    Raises ProtocolError for what is not a list, InvalidChainError that names the first wrong step, as `Exec.run_chain`
    does.
    """
    items = payload.get("steps")
    if not isinstance(items, list):
        raise ProtocolError("run_chain needs a list of steps")
    return read_chain_steps(items)


def result_fields(result: Result, most: int) -> JSONDict:
    """Return what travels of a result beside its value and its error; a raw reply of more than *most* bytes stays
    behind.
    """
    data: JSONDict = {"tool": result.tool_id, "durationMs": round(result.duration * 1000, 3)}
    if result.binding is not None:
        data |= {"backendKind": result.binding.kind, "binding": result.binding.to_dict()}
    if result.warnings:
        data["warnings"] = _jsonable([asdict(violation) for violation in result.warnings], _MAX_DETAILS)
    if result.reply is not None:
        reply = replace(result.reply, has_structured=False).to_mcp()  # the value has that
        if (kept := _jsonable(reply, most)) is not None:
            data["mcpResult"] = kept
    return data


def step_payload(step: StepResult, most: int = MAX_FRAME_BYTES) -> JSONDict:
    """Return one step's outcome as it travels; see `result_fields` for *most*."""
    data: JSONDict = result_fields(step.result, most) if step.result is not None else {}
    data.pop("tool", None)
    data |= {"toolId": step.tool_id, "structured": step.value, "durationMs": round(step.duration * 1000, 3)}
    if step.attempts > 1:
        data["attempts"] = step.attempts
    if step.skipped:
        data["skipped"] = True
    if step.error is not None:
        data["error"] = error_payload(step.error)
    return data


def _jsonable(value: object, most: int) -> JSONValue:
    """*value*, or None when it is not JSON or longer than *most* bytes."""
    try:
        return value if len(json.dumps(value, allow_nan=False)) <= most else None
    except (TypeError, ValueError, RecursionError):
        return None


def _text(value: JSONValue) -> str | None:
    return value[:_MAX_TEXT] if isinstance(value, str) else None


def _number(value: JSONValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
