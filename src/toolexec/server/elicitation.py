"""Asking the person behind an MCP client whether a call may be made."""

from __future__ import annotations

import logging
from typing import Any, Final, cast

from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import REQUEST_TIMEOUT, ElicitRequest, ElicitRequestFormParams, ElicitResult
from pydantic import ValidationError

from toolexec.errors import ApprovalRequiredError
from toolexec.model.approval_text import argument_lines
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Approver, Lasting
from toolexec.model.redaction import redactor
from toolexec.model.visible import visible_json, visible_line
from toolexec.server.callers import RequestContext

logger: logging.Logger = logging.getLogger(__name__)
_LINE = 300
_ANSWERS: Final[dict[str, ApprovalAnswer]] = {"no": "no", "once": "once", "session": "session", "always": "always"}
_MEANINGS: Final = {
    "once": "once: this call",
    "session": "session: calls like it in this session",
    "always": "always: from now on",
}
_PATHS: Final = {"direct": "", "chain": ", as a step of a chain", "code": ", from code"}


def question(request: ApprovalRequest) -> ElicitRequest:
    """Return the form that puts *request* before a person.

    Name, arguments and description come from strangers: each stands on a line of its own, and shows what hides in it,
    so that none of them can look like a part of the question. Raises ApprovalRequiredError for arguments that cannot be
    shown whole.
    """
    caller = visible_line(request.caller.id, 100)
    lines = [
        f"The tool {visible_line(request.tool_id, 200)} is to run{_where(request)}{_PATHS.get(request.path, '')}."
        + (f" {caller} wants it." if caller else "")
    ]
    if request.reason:
        lines.append(f"Why you are asked: {visible_line(redactor.text(request.reason), _LINE)}")
    shown = argument_lines(request)
    lines += ["Arguments:", *(f"  {line}" for line in shown)] if shown else ["It gets no arguments."]
    if request.description:
        lines.append(f"The tool says of itself: {visible_json(visible_line(request.description, _LINE))}")
    schema = _schema(request.longest)
    return ElicitRequest(params=ElicitRequestFormParams(message="\n".join(lines), requested_schema=schema))


def _where(request: ApprovalRequest) -> str:
    return f" on {visible_line(request.backend, 200)}" if request.backend else ""


def _schema(longest: Lasting) -> JSONDict:
    """Return the form: no, and the yeses that may be given."""
    offered = [*_MEANINGS][: [*_MEANINGS].index(longest) + 1]
    answer = {
        "type": "string",
        "title": "May it run?",
        "description": "; ".join(["no", *(_MEANINGS[name] for name in offered)]),
        "enum": ["no", *offered],
    }
    return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}


def answer_in(reply: object) -> ApprovalAnswer:
    """Return what a client's reply means; everything but a filled-in and accepted form is a no."""
    if not isinstance(reply, ElicitResult) or reply.action != "accept" or reply.content is None:
        return "no"
    answer = reply.content.get("answer")
    return _ANSWERS.get(answer, "no") if isinstance(answer, str) else "no"


async def put_to_client(
    ctx: RequestContext, asked: ElicitRequest, timeout: float, meta: JSONObject | None = None
) -> ElicitResult:
    """Return what the client of a handshake connection replies to a question, while its request lasts.

    *meta* goes with the question. Raises MCPError, also for no answer within *timeout* seconds, and ValidationError.
    """
    if meta is not None:
        asked.params.meta = cast("Any", dict(meta))
    return await ctx.session.send_request(
        asked,
        ElicitResult,
        request_read_timeout_seconds=timeout,
        metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
    )


def handshake_approver(ctx: RequestContext, timeout: float, meta: JSONObject | None = None) -> Approver:
    """Asks the client of a handshake connection while its request lasts, and waits at most *timeout* seconds; then it
    raises TimeoutError. *meta* goes with each question. Raises ApprovalRequiredError where the client cannot be asked,
    or its answer cannot be read."""

    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        asked = question(request)
        try:
            reply = await put_to_client(ctx, asked, timeout, meta)
        except (MCPError, ValidationError) as error:
            logger.info("nobody could be asked about %s: %s", request.tool_id, type(error).__name__)
            if isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT:
                raise TimeoutError from error
            raise ApprovalRequiredError(
                f"{request.tool_id} needs somebody's approval, and the client has put the question to nobody, or its "
                "answer cannot be read",
                tool_id=request.tool_id,
                op="approval",
                details={"reason": request.reason},
            ) from error
        return answer_in(reply)

    return ask
