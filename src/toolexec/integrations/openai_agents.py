"""An `Exec` as tools of the OpenAI Agents SDK: `Agent(name="a", tools=toolset(ex))`."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from toolexec.discovery.summary import Filters
from toolexec.errors import MissingExtraError
from toolexec.exec.facade import Exec
from toolexec.integrations.toolset import Answer, Face, Mode, Toolset
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Origin
from toolexec.model.visible import visible_json

if TYPE_CHECKING:
    from agents import Tool

__all__ = ["NeedsApproval", "toolset"]

NeedsApproval: TypeAlias = Callable[[str, JSONObject], bool]
"""Takes a tool's ID (or `execute_code`) and the arguments; whether the SDK is to interrupt the run for approval."""

_MAX_LOOKS: Final = 10_000
_NO_CALL: Final = "no call has this ID"
_STRICT: Final = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items", "properties"}
    | {"required", "title", "type"}
)
"""The keywords that every model with strict tools takes."""


def toolset(
    ex: Exec,
    *,
    mode: Mode = "direct",
    filters: Filters | None = None,
    origin: Origin | None = None,
    needs_approval: NeedsApproval | None = None,
) -> list[Tool]:
    """Return the tools of *ex* for an agent of the OpenAI Agents SDK.

    In the mode `direct` they are the tools that *ex* has just now, so start it first; `search` has `search_tools`,
    `describe_tool` and `run_tool`, `code` has `execute_code` in place of the last. Every call goes through the gate of
    *ex*, and is made for *origin*. A failure is text for the model, with a code; it never ends the run. The SDK asks
    for approval, and interrupts the run, where the gate would ask, and where *needs_approval* says so; of what may need
    one, also for arguments that are not a JSON object. An approval of a
    call is the gate's for that call, with those arguments, once; one for all calls of a tool is not, as the gate asks
    about each.

    Raises MissingExtraError without the `openai-agents` extra, and ConfigurationError for a mode that cannot be.
    """
    try:
        from agents import FunctionTool
    except ImportError:
        raise MissingExtraError("openai-agents", needed_for="a toolset for the OpenAI Agents SDK") from None

    tools, decisions = Toolset(ex, mode, filters, origin), _Decisions()

    def make(face: Face) -> Tool:
        async def invoke(context: Any, arguments: str) -> Any:
            try:
                args = json.loads(arguments) if arguments.strip() else {}
            except ValueError as error:
                return json.dumps({"error": {"code": "validation_input", "message": f"arguments are no JSON: {error}"}})
            return _output(await tools.call(face, args, approved=asked and decisions.counts(context, face.name, args)))

        async def ask(context: Any, args: JSONObject, call_id: str) -> bool:
            decisions.look(context, face.name, args, call_id)
            if tools.needs_approval(face, args):
                return True
            if needs_approval is None:
                return False
            if face.name == "run_tool" and not face.tool_id:
                return needs_approval(str(args.get("tool_id", "")), args.get("args") or {})
            return needs_approval(face.tool_id or face.name, args)

        asked = _acts(face) and (needs_approval is not None or tools.may_ask(face))

        schema, strict = _parameters(face.schema)
        return FunctionTool(
            name=face.name,
            description=face.description,
            params_json_schema=schema,
            on_invoke_tool=invoke,
            strict_json_schema=strict,
            needs_approval=ask if asked else False,
        )

    return [make(face) for face in tools.faces()]


class _Decisions:
    """Distinguishes approvals of one call from those of all calls of a tool. The SDK does not ask about calls that such
    an approval covers, so no user has seen their arguments."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, str], None] = OrderedDict()

    def look(self, context: Any, name: str, args: JSONObject, call_id: str) -> None:
        """Record a call that is still to be decided."""
        if context.is_tool_approved(name, call_id) is None:
            self._open[call_id, visible_json(args)] = None
            if len(self._open) > _MAX_LOOKS:
                self._open.popitem(last=False)

    def counts(self, context: Any, name: str, args: JSONObject) -> bool:
        """Return whether the SDK's user has approved this call, and no other one."""
        call_id = context.tool_call_id
        key = (call_id, visible_json(args))
        was_open = key in self._open
        self._open.pop(key, None)
        if context.is_tool_approved(name, call_id) is not True:
            return False
        return was_open or context.is_tool_approved(name, _NO_CALL) is not True


def _acts(face: Face) -> bool:
    return bool(face.tool_id) or not face.annotations.read_only


def _output(answer: Answer) -> Any:
    if not answer.images:
        return answer.text
    from agents import ToolOutputImage, ToolOutputText

    pictures = [ToolOutputImage(image_url=f"data:{kind};base64,{data}") for kind, data in answer.images]
    return [ToolOutputText(text=answer.text), *pictures]


def _parameters(schema: JSONDict) -> tuple[JSONDict, bool]:
    """Return the schema for the model, and whether it is strict: only where that changes nothing of what it means."""
    from agents.exceptions import UserError
    from agents.strict_schema import ensure_strict_json_schema

    plain = {name: part for name, part in schema.items() if name != "$schema"}
    if not _is_simple(plain):
        return plain, False
    try:
        strict = ensure_strict_json_schema(copy.deepcopy(plain))
    except (UserError, TypeError, ValueError):
        return plain, False
    return (strict, True) if strict == plain else (plain, False)


def _is_simple(schema: Any) -> bool:
    """Return whether a schema and all in it have only keywords that strict tools may have, with every property
    required."""
    if not isinstance(schema, dict):
        return False
    properties = schema.get("properties", {})
    if not schema.keys() <= _STRICT or list(properties) != list(schema.get("required", ())):
        return False
    below = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    return all(map(_is_simple, [*below, schema["items"]] if "items" in schema else below))
