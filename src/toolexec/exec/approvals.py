"""Ask the gate which calls need an approval, and pass on one that was given outside of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import ApprovalRequiredError, ToolExecError
from toolexec.model.arguments import bounded
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject, to_json
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Approver, Caller, Origin, acting, current_origin
from toolexec.run.admission import asks_about
from toolexec.run.approval_requests import arguments_digest
from toolexec.run.default_gate import DefaultGate
from toolexec.run.layers.approval import Approval
from toolexec.run.policy import Policy
from toolexec.run.run_request import RunRequest

if TYPE_CHECKING:
    from toolexec.exec.code import CodeRuns
    from toolexec.exec.facade import Exec

EXECUTE_CODE: Final = "execute_code"
"""Stands for the ID of a tool where a run of code is meant."""


def approves(ex: Exec) -> bool:
    """Return whether the gate of *ex* may ask for approvals at all."""
    return _approval(ex) is not None


def may_ask(ex: Exec, tool_id: str) -> bool:
    """Return whether the gate of *ex*, as it is now, may ask about a call of the tool."""
    approval = _approval(ex)
    entry = ex.index.find(tool_id)
    policy = getattr(approval.decide, "__self__", None) if approval is not None else None
    if type(policy) is not Policy or entry is None:
        return approval is not None
    return policy.may_ask(entry)


def needs_approval(ex: Exec, tool_id: str, args: JSONObject | None, code: Callable[[], CodeRuns]) -> bool:
    """Implement `Exec.needs_approval`; *code* gives what runs code."""
    if _is_run(ex, tool_id):
        gate = ex.options.own_gate
        run = _run_of(args, code) if gate is not None else None
        return gate is not None and run is not None and asks_about(gate, run)
    approval = _approval(ex)
    entry = ex.visible()[0].find(tool_id) if approval is not None else None
    if approval is None or entry is None or not isinstance({} if args is None else args, Mapping):
        return False
    own = bounded(args, tool_id) if args else args
    return approval.needs(entry, ToolCall(tool_id, own, origin=current_origin()))


@contextmanager
def approved(
    ex: Exec, tool_id: str, args: JSONObject | None, code: Callable[[], CodeRuns]
) -> Generator[Origin, None, None]:
    """Implement `Exec.approved`; *code* gives what runs code."""
    origin, approval = current_origin(), _approval(ex)
    otherwise = origin.ask or (approval.ask if approval is not None else None)
    run = _run_of(args, code) if _is_run(ex, tool_id) else None
    if run is not None:
        tool_id, args = run.name, run.args
    with acting(replace(origin, ask=_Grant(tool_id, args or {}, origin.caller, otherwise))) as granted:
        yield granted


def _is_run(ex: Exec, tool_id: str) -> bool:
    return tool_id == EXECUTE_CODE and ex.index.find(tool_id) is None


def _run_of(args: JSONObject | None, code: Callable[[], CodeRuns]) -> RunRequest | None:
    """Return the run of code with *args*, the code and its settings; None for one that would be refused anyway."""
    settings: Any = dict(args or {})
    source = settings.pop("code", None)
    if not isinstance(source, str):
        return None
    try:
        runs = code()
        request = runs.request(source, settings)
        runs.check_on(request)
        return runs.asked(request)
    except ToolExecError:
        return None


def _approval(ex: Exec) -> Approval | None:
    gate = ex.options.gate
    full = gate.full() if isinstance(gate, DefaultGate) else gate
    return full.approval if full is not None and isinstance(full.approval, Approval) else None


class _Grant:
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
