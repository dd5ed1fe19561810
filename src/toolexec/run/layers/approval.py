"""Ask for approval before a call is made."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar, cast, get_args

from toolexec.discovery.index import Registered
from toolexec.errors import (
    ApprovalDeniedError,
    ApprovalRequiredError,
    ConfigurationError,
    InputValidationError,
    ToolExecError,
    Violation,
)
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject, NotJSONError, to_json
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Approver, Lasting
from toolexec.model.redaction import Redactor, redactor
from toolexec.model.settings import checked
from toolexec.model.tree_size import has_many
from toolexec.model.visible import visible_line
from toolexec.process.settling import retrieve
from toolexec.run.approval_requests import ApprovedArguments, argument_digests, arguments_digest, request_of
from toolexec.run.approvals import ApprovalMemory, Approved, approved
from toolexec.run.large import is_small, walked
from toolexec.run.layer import Layer
from toolexec.run.policy_rules import Decide, Verdict
from toolexec.run.refusals import denied, unapproved
from toolexec.run.resolve import Find, Resolution, decided, resolved, still_bound, trail_of
from toolexec.run.run_request import RunRequest
from toolexec.run.runner import Runner
from toolexec.run.settings import ApprovalSettings
from toolexec.run.still import StillAllowed

__all__ = ["Approval", "AskFirst"]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)
_ANSWERS: Final = get_args(ApprovalAnswer)
_MAX_SESSIONS: Final = 10_000
_MAX_REASON: Final = 500
_LASTING: Final = get_args(Lasting)
_UNANSWERED: Final = "unanswered"
_FAILED: Final = "failed"
_NO_MAPPING: Final = Violation(
    path="", keyword="type", message="arguments must be a mapping of names to values", expected="object"
)


@checked("Approval")
class Approval:
    """Asks an approver before calls that *decide* (a policy's, as a rule) gives the effect `ask`.

    The caller is asked, by `Origin.ask`; without that, *ask* is. It is called on the event loop and must not block it;
    it has *timeout* seconds. Raises ApprovalRequiredError if no approver can be asked, ApprovalDeniedError if the
    answer is no, comes too late, or is invalid. The call that is approved is the one that is made: later changes of its
    arguments, or of the tool, do not go with it.

    `once` is for this call. `session` covers all further calls of this tool by this caller in this session, on every
    path and with any arguments; without a session, that is as long as this object lives. `always` is kept in
    *remember*; without that, it lasts as long as this object, too. Both end when the tool's definition or backend
    changes.

    Arguments are shown without the secrets that *redact* knows of, those first that have changed since the last
    approval of the tool in the session; an approver that cannot show them whole refuses. Raises ConfigurationError for
    a timeout that is not above 0.
    """

    def __init__(
        self,
        decide: Decide,
        *,
        ask: Approver | None = None,
        timeout: float = ApprovalSettings.timeout,
        remember: ApprovalMemory | None = None,
        redact: Redactor = redactor,
    ) -> None:
        if not timeout > 0:
            raise ConfigurationError(f"the timeout of approvals must be above 0 seconds, not {timeout}")
        self.decide = decide
        self.ask = ask
        self.timeout = timeout
        self.memory = remember
        self.redact = redact
        self.arguments = ApprovedArguments()
        self._sessions: OrderedDict[tuple[str, Approved], None] = OrderedDict()
        self._always: OrderedDict[Approved, None] = OrderedDict()

    def by(self, decide: Decide) -> Approval:
        """Return the same approvers by another policy; what was answered counts for both."""
        other = copy(self)
        other.decide = decide
        return other

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that asks before it makes such calls."""
        return AskFirst(self, inner, find)

    def wrap_while(self, still: StillAllowed, inner: Runner, find: Find) -> Runner:
        """Implement `AsksApprovers.wrap_while`."""
        made = self.wrap(inner, find)
        if isinstance(made, AskFirst):
            made.still = still
        return made

    async def approve_run(self, run: RunRequest, verdict: Verdict) -> None:
        """Return once an approver has approved the run, which is for this one only. Raises as for calls."""
        ask = run.origin.ask or self.ask
        if ask is None:
            raise unapproved(run, verdict)
        request = await _looked_through(run.args, partial(self._run_request, run, verdict))
        answer = await _answer(ask, request, self.timeout)
        if answer not in _ANSWERS or answer == "no":
            raise _refusal(run.name, answer, self.timeout)

    def _run_request(self, run: RunRequest, verdict: Verdict) -> ApprovalRequest:
        return ApprovalRequest(
            tool_id=run.name,
            args=self.redact.value(run.args, None),
            reason=visible_line(verdict.reason, _MAX_REASON) or f"the policy ({verdict.rule}) requires an approval",
            description=f"run {run}",
            caller=run.origin.caller,
            path=run.origin.path,
            longest="once",
            digest=arguments_digest(run.args) if run.kind != "chain" else "",  # of those, only the whole is approved
        )

    def needs(self, entry: Registered, call: ToolCall) -> bool:
        """Return whether an approver is to be asked before this call of the tool."""
        if self.decide(entry, call).effect != "ask":
            return False
        origin = call.origin
        return not self.remembers(origin.session, approved(entry, origin.caller), origin.approvals)

    def remembers(self, session: str, wanted: Approved, longest: Lasting = "always") -> bool:
        """Return whether this needs no question any more. Callers that cannot be distinguished from others (see
        `Origin.approvals`) do not profit from what was answered for those."""
        if longest == "once":
            return False
        if (session, wanted) in self._sessions:
            self._sessions.move_to_end((session, wanted))
            return True
        if longest == "session":
            return False
        return wanted in self._always or (self.memory is not None and wanted in self.memory)

    def remember(self, session: str, wanted: Approved, answer: ApprovalAnswer, longest: Lasting = "always") -> None:
        """Record an answer that is for longer than one call, for no longer than *longest*."""
        if answer != "no" and _LASTING.index(answer) > _LASTING.index(longest):
            answer = longest
        if answer == "session":
            _keep(self._sessions, (session, wanted))
        elif answer == "always":
            if self.memory is not None:
                try:
                    self.memory.add(wanted)
                    return
                except OSError as error:
                    logger.warning("an approval is remembered until the end of this process only: %s", error)
            _keep(self._always, wanted)


def _keep(kept: OrderedDict[Any, None], key: Any) -> None:
    kept[key] = None
    if len(kept) > _MAX_SESSIONS:
        kept.popitem(last=False)  # the next call of that kind asks again


@dataclass(slots=True)
class _Line:
    """Calls that wait for the same question to be answered, one after the other."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    unanswered: int = 0


class AskFirst(Layer):
    """Makes calls, some of them only after an approver was asked; see `Approval`."""

    def __init__(self, approval: Approval, inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._approval = approval
        self._decide = approval.decide
        self._find = find
        self.still: StillAllowed | None = None
        """What refuses a call that is asked about no more, as one of a caller whose key was taken out meanwhile."""
        self._lines: dict[tuple[Hashable, str, Approved], _Line] = {}

    def before(self, call: ToolCall) -> Awaitable[ToolCall] | None:
        """Let a call pass that needs no approval, or return what gets it; see `Layer.before`."""
        entry = resolved(call, self._find)
        verdict = decided(call, entry, self._decide)
        return self._approved(entry, call, verdict) if verdict.effect != "allow" else None

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether the call needs no approval, which takes the event loop; see `ThreadRunner.runs_in_thread`."""
        if not super().runs_in_thread(call, within):
            return False
        try:
            return decided(call, resolved(call, self._find), self._decide).effect == "allow"
        except ToolExecError:
            return False  # the call on the loop raises it

    # -- asking -------------------------------------------------------------------------------------------------

    async def _approved(self, entry: Registered, call: ToolCall, verdict: Verdict) -> ToolCall:
        """Return the call as it was approved; raises as `Approval` says."""
        if verdict.effect == "deny":
            raise denied(entry, verdict)
        frozen = await walked(partial(_frozen, entry, call)) if has_many(call.args) else _frozen(entry, call)
        args = frozen.args or {}
        wanted = approved(entry, call.origin.caller)
        session, longest = call.origin.session, call.origin.approvals
        if self._approval.remembers(session, wanted, longest):
            return frozen
        ask = call.origin.ask or self._approval.ask
        if ask is None:
            raise _no_approver(entry, verdict, in_code=call.origin.path == "code")
        with self._line(ask, session, wanted) as line:
            unanswered = line.unanswered
            async with line.turn:
                if not self._approval.remembers(session, wanted, longest):
                    answer: object = _UNANSWERED  # as it was for one who stood before this one in the line
                    digests = await _looked_through(args, partial(argument_digests, args))
                    if line.unanswered == unanswered:
                        if self.still is not None:
                            self.still(entry, call)
                        changed = self._approval.arguments.changed(session, wanted, digests)
                        ask_for = partial(request_of, entry, frozen, verdict, self._approval.redact, changed)
                        request = await _looked_through(args, ask_for)
                        answer = await _answer(ask, request, self._approval.timeout)
                        line.unanswered += answer == _UNANSWERED
                    if answer not in _ANSWERS or answer == "no":
                        raise _refusal(entry.tool.id, answer, self._approval.timeout)
                    self._approval.remember(session, wanted, cast("ApprovalAnswer", answer), longest)
                    self._approval.arguments.keep(session, wanted, digests)
        frozen.resolution = Resolution(self._find, self._unchanged(call, entry, wanted), trail_of(call))
        return frozen

    @contextmanager
    def _line(self, ask: Approver, session: str, wanted: Approved) -> Generator[_Line, None, None]:
        """Yield the line, which exists as long as calls wait in it. Approvers that are reached in another way, such as
        the client of another request, have a line of their own: one that never answers does not hold up the others."""
        key = (ask if isinstance(ask, Hashable) else id(ask), session, wanted)
        line = self._lines.setdefault(key, _Line())
        line.waiting += 1
        try:
            yield line
        finally:
            line.waiting -= 1
            if not line.waiting:
                del self._lines[key]

    def _unchanged(self, call: ToolCall, entry: Registered, wanted: Approved) -> Registered:
        """Return the call's tool; raises when its ID leads to another tool by now, which no approver has seen."""
        entry = still_bound(self._find, entry)
        if approved(entry, call.origin.caller) != wanted:
            raise ApprovalDeniedError(
                f"{wanted.tool_id} has changed while somebody was asked to approve it; call it again to have it asked "
                "again",
                tool_id=wanted.tool_id,
                op="approval",
                retryable=True,
                details={"reason": "the tool has changed"},
            )
        return entry


async def _looked_through(args: JSONObject, look: Callable[[], T]) -> T:
    """Return what *look* gives, which digests *args* or looks for secrets in them: off the event loop where there is
    much in them."""
    return look() if is_small(args) else await walked(look)


async def _answer(ask: Approver, request: ApprovalRequest, timeout: float) -> object:
    """Return what was answered; `failed` where asking failed, and `unanswered` when no answer came in time. Raises
    ApprovalRequiredError where there was no approver to ask."""
    task = asyncio.ensure_future(_ask(ask, request))
    try:
        done, _ = await asyncio.wait([task], timeout=timeout)
    finally:
        if not task.done():
            task.cancel()
        task.add_done_callback(retrieve)  # also of one that has failed just when this was cancelled
    if not done:
        return _UNANSWERED
    failure = None if task.cancelled() else task.exception()
    if isinstance(failure, ApprovalRequiredError):
        raise failure.locate(tool_id=request.tool_id, op="approval")
    if isinstance(failure, TimeoutError):
        return _UNANSWERED
    if task.cancelled() or failure is not None:
        logger.warning("asking for approval of %s failed: %s", request.tool_id, type(failure).__name__)
        return _FAILED
    return task.result()


def _refusal(what: str, answer: object, timeout: float) -> ApprovalDeniedError:
    why = {
        "no": "somebody was asked and said no",
        _UNANSWERED: f"nobody answered within {timeout:g} s",
        _FAILED: "asking somebody failed, so that nobody has said yes",
    }.get(answer if isinstance(answer, str) else "", "somebody was asked, and the answer was neither yes nor no")
    return ApprovalDeniedError(
        f"{what} was not approved: {why}; do not call it again unless you are told to",
        tool_id=what,
        op="approval",
        details={"reason": why},
    )


async def _ask(ask: Approver, request: ApprovalRequest) -> object:
    answer = ask(request)
    return await answer if inspect.isawaitable(answer) else answer


def _frozen(entry: Registered, call: ToolCall) -> ToolCall:
    """Return the call with arguments of its own, which cannot change while an approver reads them."""
    args: Any = {} if call.args is None else call.args
    if not isinstance(args, Mapping):
        raise InputValidationError([_NO_MAPPING], tool_id=entry.tool.id, op="validate_input")
    try:
        own = to_json(args)
    except NotJSONError as error:
        raise InputValidationError(error.violations, tool_id=entry.tool.id, op="validate_input") from None
    call.identify()
    frozen = replace(call, args=own)
    frozen.resolution = call.resolution
    return frozen


def _no_approver(entry: Registered, verdict: Verdict, *, in_code: bool) -> ApprovalRequiredError:
    tool_id = entry.tool.id
    instead = "there is no approver to ask here; call it where there is one"
    if in_code:  # a framework asks its user between calls of the model, and cannot suspend a program
        instead = (
            "a program is not suspended to have a framework's user asked; call it outside of the program, where its "
            "user is asked, or give the gate an approver"
        )
    return ApprovalRequiredError(
        f"{tool_id} needs approval{_because(verdict)}, and {instead}, "
        f'or allow it by a rule of the policy: Rule("allow", tools="{tool_id}"), in a settings file '
        f'[[policy.rules]] with effect = "allow" and tools = ["{tool_id}"]; remote_destructive = "allow" is for all',
        tool_id=tool_id,
        op="approval",
        details={"rule": verdict.rule, "reason": verdict.reason},
    )


def _because(verdict: Verdict) -> str:
    return f": {verdict.reason}" if verdict.reason else f" (the policy's {verdict.rule})"
