"""An `Exec` as a toolset of Pydantic AI: `Agent(model, toolsets=[ExecToolset(ex)])`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from toolexec.discovery.summary import Filters
from toolexec.errors import InputValidationError, MissingExtraError, Violation
from toolexec.exec.facade import Exec
from toolexec.integrations.toolset import Face, Mode, Toolset, failed_answer
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Origin

try:
    from pydantic_ai import ApprovalRequired, BinaryContent, ModelRetry, RunContext, ToolDefinition, ToolFailed
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, ValidationError, core_schema
except ImportError:
    raise MissingExtraError("pydantic-ai", needed_for="a toolset for Pydantic AI") from None

__all__ = ["ExecToolset"]

_ANY_ARGUMENTS: Final = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


class _Arguments:
    """Takes every JSON object, as the runner checks the arguments and reports in plain words what is wrong. Anything
    else is a failure of the call: as an error of validation it would end the run the second time."""

    def validate_json(self, input: str | bytes | bytearray, *, allow_partial: Any = False, **kwargs: Any) -> Any:
        return self._validated(_ANY_ARGUMENTS.validate_json, input, allow_partial)

    def validate_python(self, input: Any, *, allow_partial: Any = False, **kwargs: Any) -> Any:
        return self._validated(_ANY_ARGUMENTS.validate_python, input, allow_partial)

    def _validated(self, validate: Callable[..., Any], input: Any, allow_partial: Any) -> Any:
        try:
            return validate(input, allow_partial=allow_partial)
        except ValidationError as error:
            problem = str(error.errors(include_url=False, include_input=False)[0]["msg"])
            wrong = Violation(path="", keyword="type", message=f"not a JSON object: {problem}", expected="object")
            raise ToolFailed(failed_answer(InputValidationError([wrong], op="validate_input")).text) from None


@dataclass(kw_only=True)
class _FaceTool(ToolsetTool[Any]):
    """A tool of one step of one run. It holds what it calls, as another run may see other tools at the same time."""

    face: Face


class ExecToolset(AbstractToolset[Any]):
    """The tools of *ex* for an agent of Pydantic AI; any number of runs, of any number of agents, may share one.

    In the mode `direct` the agent has the tools that *ex* has at that step; `search` has `search_tools`,
    `describe_tool` and `run_tool`, `code` has `execute_code` in place of the last. Every call goes through the gate of
    *ex*, and is made for *origin*. A failure is a failed tool result with a code, and the run goes on. Arguments that
    do not fit make the model try again, *max_retries* times in a row; after that, they are such a failure, too. The
    output schema of a tool is its `return_schema`, which `IncludeToolReturnSchemas` shows to the model. A call that the
    gate would ask about is deferred: the agent needs `DeferredToolRequests` among its output types, and the approval of
    a call is the gate's for that call, once. *id* is what durable runs know the toolset by.

    Raises ConfigurationError for a mode that cannot be; importing the module raises MissingExtraError without the
    `pydantic-ai` extra.
    """

    def __init__(
        self,
        ex: Exec,
        *,
        mode: Mode = "direct",
        filters: Filters | None = None,
        origin: Origin | None = None,
        max_retries: int = 1,
        id: str | None = None,
    ) -> None:
        self._tools = Toolset(ex, mode, filters, origin)
        self._max_retries = max_retries
        self._id = id

    @property
    def id(self) -> str | None:
        """What durable runs know the toolset by."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools at this step of a run; starts the backends of *ex* that are not started."""
        await self._tools.ex.start()
        return {
            face.name: _FaceTool(
                face=face,
                toolset=self,
                tool_def=ToolDefinition(
                    name=face.name,
                    description=face.description,
                    parameters_json_schema=face.schema,
                    return_schema=face.returns,
                    include_return_schema=None if face.returns else False,
                    metadata={"tool_id": face.tool_id, "annotations": face.annotations.to_mcp()},
                ),
                max_retries=self._max_retries,
                args_validator=_Arguments(),
            )
            for face in self._tools.faces()
        }

    async def call_tool(self, name: str, tool_args: JSONDict, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        """Call a tool; raises ModelRetry when its arguments do not fit, ToolFailed for any other failure and where the
        model may not try again, ApprovalRequired for a call to approve.
        """
        assert isinstance(tool, _FaceTool)
        if not ctx.tool_call_approved and self._tools.needs_approval(tool.face, tool_args):
            raise ApprovalRequired(metadata={"tool_id": tool.face.tool_id or tool_args.get("tool_id", name)})
        answer = await self._tools.call(tool.face, tool_args, approved=ctx.tool_call_approved)
        if isinstance(answer.error, InputValidationError) and not ctx.last_attempt:
            raise ModelRetry(answer.error.message)
        if answer.error is not None:  # one more retry than is allowed would end the run
            raise ToolFailed(answer.text)
        if not answer.images:
            return answer.value
        try:
            pictures = [
                BinaryContent(data=base64.b64decode(data, validate=True), media_type=kind)
                for kind, data in answer.images
            ]
        except binascii.Error:
            return answer.value
        return [answer.value, *pictures] if answer.value is not None else pictures
