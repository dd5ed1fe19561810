"""Questions about a call that a run may wait for: whether it may be made, and whether it has done its work.

Each is recorded as a step of its own, `STEP?approve.1` or `STEP?settle.1`, so that an answer counts once, and is there
in every replay. It has the attempt at the call that it is about: another attempt is another question. While an approval
is open its call has certainly not begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from toolexec.durable.journal import CallRecord
from toolexec.durable.log import CallLog
from toolexec.durable.outcomes import outcome_of
from toolexec.durable.replay import is_over
from toolexec.durable.waits import Waits, approval_of
from toolexec.errors import ExecutionError
from toolexec.model.approval_text import argument_lines
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest
from toolexec.run.reconcile import read_check
from toolexec.run.types import Result

_APPROVE: Final = "approve"
_SETTLE: Final = "settle"


class Decisions:
    """Has questions about the calls of one run answered by signals.

    A call waits *waiting* for an answer, and no longer: while the question or the answer is being written the run is
    not suspended, as it would be without the question, or ask again.
    """

    def __init__(self, log: CallLog, waits: Waits, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        self._log = log
        self._waits = waits
        self._waiting = waiting
        self._records = log.replay.records

    async def approval(self, call: CallRecord, request: ApprovalRequest) -> ApprovalAnswer:
        """Return what was answered, before or now, to the question whether the call may be made.

        Raises ApprovalRequiredError for arguments that cannot be shown whole: no question is open then.
        """
        argument_lines(request)
        asked = self._last(call, _APPROVE)
        if asked is None or not is_over(asked) or asked.state != "done":
            asked = await self._ask(call, _APPROVE)
            with self._waiting():
                signal = await self._log.kept(self._waits.approval(asked, call, request))
            answer = approval_of(signal.payload)
            await self._close(asked, answer)
            return answer
        return _answer_of(asked)

    def has_not_begun(self, call: CallRecord) -> bool:
        """Return whether the call waits for its approval, or was refused it: then it has certainly not begun."""
        asked = self._last(call, _APPROVE)
        if asked is None:
            return False
        return not is_over(asked) or (asked.state == "done" and _answer_of(asked) == "no")

    async def reopen(self, call: CallRecord) -> None:
        """Close the question of a process that has died: the call is made again, and asks again if it must."""
        asked = self._last(call, _APPROVE)
        if asked is not None and not is_over(asked):
            signal = await self._log.kept(self._waits.taken(asked, call))
            if signal is not None:
                await self._close(asked, approval_of(signal.payload))
            else:
                await self._log.write(self._log.end, asked, "not_done", _outcome(asked, None))

    async def settled(self, call: ToolCall, record: CallRecord) -> Result | None:
        """Return what is decided that a call came to which may have done its work; None where it did not, and is to be
        made again."""
        last = self._last(record, _SETTLE)
        if last is not None and is_over(last):
            makes_sense, result = read_decision(call.tool_id, (last.outcome or {}).get("value"))
            # Its process died before it wrote down what that makes of the call, or before the call began again.
            if result is not None or (makes_sense and last.sent == _attempt(record)):
                return result
        asked = await self._ask(record, _SETTLE)
        while True:
            with self._waiting():
                signal = await self._log.kept(self._waits.settle(asked, call, record))
            makes_sense, result = read_decision(call.tool_id, signal.payload)
            await self._close(asked, signal.payload)
            if makes_sense:
                return result
            asked = await self._ask(record, _SETTLE)  # the answer made no sense

    def _last(self, call: CallRecord, kind: str) -> CallRecord | None:
        """Return the last question of this kind about the call."""
        number, found = 1, None
        while (record := self._records.get(f"{call.step}?{kind}.{number}")) is not None:
            number, found = number + 1, record
        return found

    async def _ask(self, call: CallRecord, kind: str) -> CallRecord:
        """Return the record of the question that is open, or of a new one."""
        last = self._last(call, kind)
        if last is not None and not is_over(last):
            return last
        number = int(last.step.rpartition(".")[2]) + 1 if last is not None else 1
        record = CallRecord(
            step=f"{call.step}?{kind}.{number}",
            tool=f"run:{kind}",
            definition="",
            args=call.args,
            sent=_attempt(call),
            began=self._log.clock(),
        )
        await self._log.write(self._log.begin, record)
        return record

    async def _close(self, asked: CallRecord, answer: JSONValue) -> None:
        await self._log.write(self._log.end, asked, "done", _outcome(asked, answer))


def _attempt(call: CallRecord) -> str:
    """Return what identifies one attempt at a call: none began when another one did."""
    return repr(call.began)


def _answer_of(asked: CallRecord) -> ApprovalAnswer:
    return approval_of((asked.outcome or {}).get("value"))


def read_decision(tool_id: str, answer: JSONValue) -> tuple[bool, Result | None]:
    """Return whether an answer about a call of unknown outcome makes sense, and what the call came to by it: a result,
    an error for `{"failed": why}`, or None where it is to be made again."""
    if isinstance(answer, Mapping) and "failed" in answer:
        why = answer["failed"]
        text = f": {why}" if isinstance(why, str) and why else ""
        error = ExecutionError(f"{tool_id} has failed, as was decided{text}", tool_id=tool_id, op="settle")
        return True, Result(tool_id, None, error)
    checked = read_check(answer)
    if checked is None:
        return False, None
    return True, Result(tool_id, checked.value) if checked.done else None


def _outcome(asked: CallRecord, answer: JSONValue) -> JSONDict:
    return outcome_of(Result(asked.tool, answer))
