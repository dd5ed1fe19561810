"""What the answers of a gateway carry, back as the types it came from. Nothing in an answer is believed unchecked: what
is missing or of the wrong type counts as absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolexec.code.handles import HANDLE_KEY
from toolexec.discovery.docs import DetailLevel, ToolDoc
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.summary import Summary
from toolexec.errors import OutputValidationError, ToolExecError
from toolexec.model.binding import Binding, LocalBinding, MCPBinding, ProviderBinding, binding_from_dict
from toolexec.model.content import ToolReply
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.model.tool import Tool, ToolAnnotations
from toolexec.run.steps import Step, step_arguments
from toolexec.run.types import Result, StepResult
from toolexec.runtime.protocol.wire import read_error, read_violations


def read_result(payload: JSONObject, tool_id: str) -> Result:
    """Return the result of a `run_tool` request for *tool_id*."""
    reply = payload.get("mcpResult")
    return Result(
        _text(payload.get("tool")) or tool_id,
        read_value(payload),
        None,
        _seconds(payload),
        _binding(payload, tool_id),
        ToolReply.from_mcp(reply) if isinstance(reply, Mapping) else None,
        read_violations(payload.get("warnings")),
    )


def read_value(payload: JSONObject) -> JSONValue:
    """Return the value in an answer; for one that stays on the host a dict that stands for it in the arguments of other
    calls: `{"$handle": id, "type": ..., "bytes": ..., "length": ..., "preview": ...}`."""
    handle = payload.get("handle")
    if isinstance(handle, Mapping) and isinstance(handle.get("id"), str):
        kept = {key: handle[key] for key in ("type", "bytes", "length", "preview") if key in handle}
        return {HANDLE_KEY: handle["id"], **kept}
    return payload.get("structured")


def read_failure(payload: JSONObject, tool_id: str) -> Result | None:
    """Return the result of a tool that was called and failed, from an `error` message; None when it could not be
    called.
    """
    about = payload.get("result")
    if not isinstance(about, Mapping):
        return None
    result = read_result(about, tool_id)
    result.error = read_error(payload)
    if isinstance(result.error, OutputValidationError):
        result.error.value = result.value
    return result


def read_chain(payload: JSONObject, steps: Sequence[Step]) -> tuple[Result | None, list[StepResult]]:
    """Return what came of a chain of *steps*; of more outcomes than steps the surplus is left out."""
    outcomes: list[StepResult] = []
    previous: JSONValue = None
    for index, (step, item) in enumerate(zip(steps, _mappings(payload.get("stepResults")), strict=False)):
        outcome = _step(index, step, item, previous)
        outcomes.append(outcome)
        if outcome.ok:
            previous = outcome.value
    stopped = any(outcome.error is not None and steps[outcome.index].stop_on_error for outcome in outcomes)
    if "failed" in payload or stopped:
        return None, outcomes
    last = outcomes[-1].result if len(outcomes) == len(steps) else None
    result = last or Result(steps[-1].tool_id)
    result.value = read_value(payload)
    return result, outcomes


def _step(index: int, step: Step, data: JSONObject, previous: JSONValue) -> StepResult:
    args = step_arguments(step, previous)
    if step.use_previous and step.args is not None:
        args = {"previous": previous, **args}
    result = read_result(data, step.tool_id)
    result.tool_id = _text(data.get("toolId")) or step.tool_id
    error = data.get("error")
    failure = read_error(error) if isinstance(error, Mapping) else None
    skipped = data.get("skipped") is True
    attempts = data.get("attempts")
    result.error = failure
    return StepResult(
        index=index,
        tool_id=result.tool_id,
        args=args,
        value=result.value,
        error=failure,
        duration=result.duration,
        skipped=skipped,
        attempts=attempts if type(attempts) is int else 0 if skipped else 1,
        result=None if skipped or (failure is not None and "backendKind" not in data) else result,
    )


def read_summaries(payload: JSONObject) -> list[Summary]:
    """Return the tools that a search found."""
    return [_summary(item) for item in _mappings(payload.get("results")) if _text(item.get("id"))]


def _summary(data: JSONObject) -> Summary:
    score = data.get("score")
    return Summary(
        id=_text(data.get("id")),
        name=_text(data.get("name")),
        namespace=_text(data.get("namespace")),
        short_description=_text(data.get("shortDescription")),
        category=_text(data.get("category")),
        input_modes=_strings(data.get("inputModes")),
        output_modes=_strings(data.get("outputModes")),
        security_summary=_text(data.get("securitySummary")),
        tags=_strings(data.get("tags")),
        annotations=_annotations(data),
        bindings=_strings(data.get("bindings")),
        unavailable=_text(data.get("unavailable")) or None,
        score=float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None,
    )


def read_namespaces(payload: JSONObject) -> list[str]:
    """Return the namespaces of a `list_namespaces` request."""
    return list(_strings(payload.get("namespaces")))


def read_examples(payload: JSONObject) -> list[ToolExample]:
    """Return the examples in an answer."""
    return [
        ToolExample(
            title=_text(item.get("title")),
            description=_text(item.get("description")),
            args=args if isinstance(args := item.get("args"), dict) else {},
            result_hint=_text(item.get("resultHint")),
            id=_text(item.get("id")),
        )
        for item in _mappings(payload.get("examples"))
    ]


def read_doc(payload: JSONObject, tool_id: str, level: DetailLevel) -> ToolDoc:
    """Return the documentation of *tool_id* at *level*; a tool whose definition cannot be used counts as absent."""
    tool = _tool(payload.get("tool"))
    return ToolDoc(
        id=_text(payload.get("id")) or tool_id,
        level=level,
        summary=_text(payload.get("summary")),
        tool=tool,
        bindings=tuple(b for item in _mappings(payload.get("bindings")) if (b := _binding_of(item)) is not None),
        notes=_text(payload.get("notes")),
        examples=tuple(read_examples(payload)),
        external_refs=_strings(payload.get("externalRefs")),
        unavailable=_text(payload.get("unavailable")) or None,
        described=tool or _described(payload),
    )


def _described(data: JSONObject) -> Tool | None:
    """Return a tool that has what its summary says, without its schemas."""
    schemes = _text(data.get("securitySummary"))
    meta = {
        "inputModes": list(_strings(data.get("inputModes"))),
        "outputModes": list(_strings(data.get("outputModes"))),
        "securitySchemes": dict.fromkeys(schemes.split(",")) if schemes else {},
    }
    annotations = _annotations(data)
    if not any(meta.values()) and annotations == ToolAnnotations():
        return None
    return Tool(name="tool", input_schema={"type": "object"}, annotations=annotations, meta=meta)


def _tool(data: JSONValue) -> Tool | None:
    try:
        return Tool.from_dict(data) if isinstance(data, Mapping) else None
    except (ToolExecError, TypeError):
        return None


def _binding(data: JSONObject, tool_id: str) -> Binding | None:
    """Return where a tool ran; a host that names only the kind gets a binding of that kind with the tool's ID as its
    name."""
    whole = _binding_of(data.get("binding"))
    if whole is not None:
        return whole
    match data.get("backendKind"):
        case "local":
            return LocalBinding(tool_id)
        case "provider":
            return ProviderBinding("provider", tool_id)
        case "mcp":
            return MCPBinding("mcp", tool_id)
        case _:
            return None


def _binding_of(data: JSONValue) -> Binding | None:
    try:
        return binding_from_dict(data) if isinstance(data, Mapping) else None
    except ToolExecError:
        return None


def _annotations(data: JSONObject) -> ToolAnnotations:
    annotations = data.get("annotations")
    return ToolAnnotations.from_mcp(annotations) if isinstance(annotations, Mapping) else ToolAnnotations()


def _seconds(data: JSONObject) -> float:
    value = data.get("durationMs")
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else 0.0


def _mappings(value: JSONValue) -> list[JSONObject]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _text(value: JSONValue) -> str:
    return value if isinstance(value, str) else ""


def _strings(value: JSONValue) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
