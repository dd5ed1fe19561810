"""Approvals that were given elsewhere, such as in the user interface of an agent framework."""

from __future__ import annotations

import inspect

from toolexec.errors import ApprovalRequiredError
from toolexec.model.json_value import JSONObject, to_json
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Approver, Caller
from toolexec.run.approval_requests import arguments_digest

__all__ = ["Grant"]


class Grant:
    """An approver that says yes once: to a call of this tool with exactly these arguments, by *caller*. Any other
    question goes to *otherwise*; without that, there is no approver for it.
    """

    def __init__(self, tool_id: str, args: JSONObject, caller: Caller, otherwise: Approver | None = None) -> None:
        self._tool_id = tool_id
        self._digest = arguments_digest(to_json(args))
        self._caller = caller
        self._otherwise = otherwise
        self._used = False

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Answer a question; see `Approver`."""
        if not self._used and self._is_for(request):
            self._used = True
            return "once"
        if self._otherwise is None:
            raise ApprovalRequiredError(
                f"{request.tool_id} needs an approval of its own: what was approved is another call, or was made "
                "already; have this call approved, too",
                tool_id=request.tool_id,
                op="approval",
                details={"reason": request.reason},
            )
        answer = self._otherwise(request)
        return await answer if inspect.isawaitable(answer) else answer

    def _is_for(self, request: ApprovalRequest) -> bool:
        return (request.tool_id, request.digest, request.caller) == (self._tool_id, self._digest, self._caller)
