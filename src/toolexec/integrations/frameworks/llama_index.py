"""The tools of a toolset as those of LlamaIndex, and the events of their approvals."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from llama_index.core.base.llms.types import ImageBlock, TextBlock  # pyright: ignore[reportMissingImports]
from llama_index.core.bridge.pydantic import (  # pyright: ignore[reportMissingImports]
    BaseModel,
    ConfigDict,
    Field,
    create_model,
)
from llama_index.core.tools import (  # pyright: ignore[reportMissingImports]
    FunctionTool,
    ToolMetadata,
    ToolOutput,
)
from llama_index.core.workflow import (  # pyright: ignore[reportMissingImports]
    HumanResponseEvent,
    InputRequiredEvent,
)

from toolexec.errors import ApprovalDeniedError
from toolexec.integrations.blocking import Blocking, finish
from toolexec.integrations.toolset import Answer, Face, Toolset, failed_answer
from toolexec.model.json_value import JSONDict
from toolexec.model.visible import visible_json

_CONTEXT: Final = "toolexec context"  # no argument that a model gives by name has a space in it by chance
_MAX_REPLIES: Final = 10_000


class ApprovalRequested(InputRequiredEvent):  # pyright: ignore[reportUntypedBaseClass]
    """A call waits for its approval: `tool` with `args`. Send `event.reply(True)` or `event.reply(False)` to the run:
    `handler.ctx.send_event(event.reply(True))`."""

    tool: str
    args: dict[str, Any]
    key: str
    nonce: str = Field(default_factory=lambda: uuid4().hex)

    def reply(self, approved: bool) -> ApprovalReply:
        """Return the event that answers this one, and no other; only True itself is a yes."""
        return ApprovalReply(approved=approved is True, key=self.key, nonce=self.nonce)


class ApprovalReply(HumanResponseEvent):  # pyright: ignore[reportUntypedBaseClass]
    """The answer to an `ApprovalRequested`; it is for one call."""

    approved: bool
    key: str
    nonce: str


def exec_tools(found: Toolset) -> list[ExecTool]:
    """Return the tools of *found*; see `toolexec.integrations.llama_index.tools`."""
    replies = _Replies()
    return [ExecTool(found, face, replies) for face in found.faces()]


@dataclass
class _Metadata(ToolMetadata):  # pyright: ignore[reportUntypedBaseClass]
    """What a model reads, with the schema as it is: `ToolMetadata` would leave keywords out."""

    parameters: JSONDict = field(default_factory=dict[str, Any])

    def get_parameters_dict(self) -> JSONDict:
        return self.parameters


class ExecTool(FunctionTool):  # pyright: ignore[reportUntypedBaseClass]
    """One tool of an `Exec`; see `exec_tools`."""

    def __init__(self, found: Toolset, face: Face, replies: _Replies) -> None:
        parameters = {key: value for key, value in face.schema.items() if key != "$schema"}
        metadata = _Metadata(
            name=face.name,
            description=face.description,
            fn_schema=_model(face.name, parameters),
            parameters=parameters,
        )
        super().__init__(fn=self.call, async_fn=self.acall, metadata=metadata)
        self._found = found
        self._face = face
        self._replies = replies
        # The workflow passes its context under this name.
        self.requires_context = found.approves and (bool(face.tool_id) or not face.annotations.read_only)
        self.ctx_param_name = _CONTEXT if self.requires_context else None

    def __deepcopy__(self, memo: object) -> ExecTool:
        """Return the tool itself, as there is one Exec behind all copies."""
        return self

    # A tool may have arguments of any name, `self` among them.

    def call(self, /, *given: Any, **arguments: Any) -> Any:
        """Call the tool in a blocking way; the gate asks for approvals."""
        args = self._arguments(given, arguments)
        return self._output(args, finish(self._found.call(self._face, args, Blocking(self._found.ex))))

    async def acall(self, /, *given: Any, **arguments: Any) -> Any:
        """Call the tool. In a workflow, its user approves what the gate would ask about."""
        context = arguments.pop(_CONTEXT, None)
        args = self._arguments(given, arguments)
        approved = False
        item = _work_item() if context is not None else ""
        if item and self._found.needs_approval(self._face, args):
            approved = await self._ask(context, item, args)
            if not approved:
                message = f"{self._face.name} was not approved; call it again only if the user wants it"
                return self._output(args, failed_answer(ApprovalDeniedError(message, op="approval")))
        return self._output(args, await self._found.call(self._face, args, approved=approved))

    def _arguments(self, given: tuple[Any, ...], arguments: JSONDict, /) -> JSONDict:
        names = self._face.schema.get("properties", {})
        return {**dict(zip(names, given, strict=False)), **arguments}

    async def _ask(self, context: Any, item: str, args: JSONDict) -> bool:
        """Wait for the user. What raises here suspends the step, which begins again once there is a reply."""
        text = visible_json([item, self._face.name, args])
        key = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        request = ApprovalRequested(tool=self._face.name, args=args, key=key)
        reply = await context.wait_for_event(ApprovalReply, request, requirements={"key": key}, timeout=None)
        return reply.approved is True and self._replies.take(reply.nonce)

    def _output(self, args: JSONDict, answer: Answer) -> Any:
        pictures = [ImageBlock(image=data.encode(), image_mimetype=kind) for kind, data in answer.images]
        return ToolOutput(
            tool_name=self._face.name,
            blocks=[TextBlock(text=answer.text), *pictures],
            raw_input=args,
            raw_output=answer.value,
            is_error=answer.error is not None,
        )


class _Replies:
    """The requests that were answered: each reply is for one call, even if it is sent twice."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, None] = OrderedDict()

    def take(self, nonce: str) -> bool:
        """Return whether the request was not answered before."""
        if nonce in self._used:
            return False
        self._used[nonce] = None
        if len(self._used) > _MAX_REPLIES:
            self._used.popitem(last=False)
        return True


def _work_item() -> str:
    """Return what the workflow knows the call by that it makes now, the same when its step is done again; empty outside
    of a workflow, and for one that has no name for it, where the gate asks."""
    try:
        from workflows.runtime.types.results import (  # pyright: ignore[reportMissingImports]
            StepWorkerStateContextVar,
        )

        return str(StepWorkerStateContextVar.get().state.work_item_id or "")
    except (ImportError, LookupError, AttributeError):
        return ""


def _model(name: str, schema: JSONDict) -> Any:
    """Return a class of arguments that takes any, as the runner checks them, and has this schema."""

    class Arguments(BaseModel):  # pyright: ignore[reportUntypedBaseClass]
        model_config = ConfigDict(extra="allow")

        @classmethod
        def model_json_schema(cls, *args: Any, **settings: Any) -> JSONDict:
            return schema

    return create_model(name, __base__=Arguments)
