"""Putting what MCP servers ask while they work on a call to the client that made it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

import pydantic
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CreateMessageRequest,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitResult,
    InputRequest,
    ListRootsRequest,
    ListRootsResult,
)

from toolexec.model.json_value import JSONDict
from toolexec.model.questions import ClientAnswerer, ClientQuestion
from toolexec.model.visible import visible
from toolexec.model.visible_schema import visible_schema
from toolexec.server.callers import RequestContext, is_modern

Ask: TypeAlias = Callable[[InputRequest], Awaitable[object]]
"""Puts a request to the client of the newer era, between two of its own requests; None where that is not possible."""
_MESSAGE: Final = 4000


def client_answerer(ctx: RequestContext, timeout: float, ask: Ask | None) -> ClientAnswerer:
    """Return what puts questions to the client of *ctx*: with *ask* in the newer era, and else while its request lasts,
    for at most *timeout* seconds each. It gives None for what the client has not said that it can answer."""

    async def answer(question: ClientQuestion) -> JSONDict | None:
        if not _can_answer(ctx, question):
            return None
        request, results = _request(question)
        if is_modern(ctx):
            reply = await ask(request) if ask is not None else None
        elif ctx.session.can_send_request:
            reply = await ctx.session.send_request(
                request,
                results[-1] if question.params.get("tools") else results[0],
                request_read_timeout_seconds=timeout,
                metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
            )
        else:
            return None
        if not isinstance(reply, results):  # also for an answer to something else
            return None
        return cast("pydantic.BaseModel", reply).model_dump(by_alias=True, mode="json", exclude_none=True)

    return answer


def _can_answer(ctx: RequestContext, question: ClientQuestion) -> bool:
    has = ctx.session.client_capabilities
    if has is None:
        return False
    if question.kind == "sampling":
        wants_tools = bool(question.params.get("tools"))
        return has.sampling is not None and not (wants_tools and has.sampling.tools is None)
    if question.kind == "roots":
        return has.roots is not None
    offered = has.elicitation
    if offered is None:
        return False
    if question.params.get("mode") == "url":
        return offered.url is not None
    return offered.form is not None or offered.url is None


def _request(question: ClientQuestion) -> tuple[InputRequest, tuple[type[Any], ...]]:
    params: JSONDict = dict(question.params)
    if question.kind == "roots":
        return ListRootsRequest(), (ListRootsResult,)
    if question.kind == "sampling":
        data = {"method": "sampling/createMessage", "params": params}
        request = CreateMessageRequest.model_validate(data, by_name=False)
        return request, (CreateMessageResult, CreateMessageResultWithTools)
    # The person must see who asks: a server could else put the very question by which this one asks for an approval.
    said = visible(str(params.get("message", "")), _MESSAGE)
    quoted = "".join(f"\n> {line}" for line in said.splitlines()) if len(said.splitlines()) > 1 else f" {said}"
    params["message"] = f"The MCP server {question.backend} asks:{quoted}"
    if "requestedSchema" in params:
        params["requestedSchema"] = visible_schema(params["requestedSchema"])
    data = {"method": "elicitation/create", "params": params}
    return ElicitRequest.model_validate(data, by_name=False), (ElicitResult,)
