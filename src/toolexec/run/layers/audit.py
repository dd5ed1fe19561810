"""Log every call: before it is made where it may change something, and when it has ended, however it did."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import NamedTuple

from toolexec.discovery.index import Registered
from toolexec.errors import AuditError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Origin
from toolexec.model.redaction import has_secret_marks
from toolexec.model.settings import checked
from toolexec.model.tool import Tool
from toolexec.model.tree_size import has_many
from toolexec.run.audit.log import AuditLog
from toolexec.run.audit.record import answer_part, inside, origin_part, outcome_part, tool_part
from toolexec.run.gate import GroupEnd, GroupRun
from toolexec.run.large import walked
from toolexec.run.layer import CallEnd, ObserverLayer
from toolexec.run.resolve import Find, resolved, trail_of
from toolexec.run.runner import Runner
from toolexec.run.types import Result

__all__ = ["Audit"]

_MANY = 10_000
_MANY_ORIGINS = 1000


@checked("Audit")
class Audit:
    """Writes each call, chain and run of code to *log*, also those that are refused, fail or are cancelled.

    A call that cannot be logged is not made: it raises AuditError. Of a call that may change something, its beginning
    is written first (all but those of local tools that are marked read-only: remote ones are only said to be so). When
    the end of what was done cannot be written, its result is not lost, but no further call is made until it is.

    The record of a call is also that of the first attempt at it. Each further one (a retry, another binding, another
    tool, a check of the ledger) has a record of its own, with the kind `attempt`, its number, the tool and the backend
    that it went to, and how the attempt before it ended.
    """

    def __init__(self, log: AuditLog) -> None:
        self.log = log
        self._origins: dict[tuple[object, ...], str] = {}
        self._tools: dict[str, _Known] = {}

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that logs every call of *inner*."""
        return _Audited(inner, find, self)

    def begin_call(self, call: ToolCall, find: Find) -> CallEnd:
        """Log that a call begins, and its end. Raises AuditError: then it is not made."""
        try:
            entry = resolved(call, find)
        except ToolExecError:
            entry = None  # the call itself raises it again, and then it is logged
        known = self._known(entry)
        head = f'"run_id":"{call.identify()}",{self.origin(call.origin)},{self._subject(call, known)}'
        self._write_start("call", head, call, known)
        trail = trail_of(call)
        trail.record = _with_the_call
        started = perf_counter()

        def end(result: Result | None, failure: BaseException | None) -> None:
            outcome = self._outcome(result, failure, started)
            more = answer_part(result, entry, trail.attempts, trail.login)
            self.log.write_late(f'"kind":"call",{head},{outcome}{more}')

        return end

    def begin_attempt(self, call: ToolCall, entry: Registered | None, number: int, after: str) -> CallEnd:
        """Log that a further attempt at a call begins, and its end; see `RecordsAttempts`."""
        known = self._known(entry)
        which = inside({"attempt": number, "after": after})
        head = f'"run_id":"{call.identify()}",{self.origin(call.origin)},{self._subject(call, known)},{which}'
        self._write_start("attempt", head, call, known)
        started = perf_counter()

        def end(result: Result | None, failure: BaseException | None) -> None:
            outcome = self._outcome(result, failure, started) + answer_part(result, None, 1, trail_of(call).login)
            self.log.write_late(f'"kind":"attempt",{head},{outcome}')

        return end

    def _subject(self, call: ToolCall, known: _Known | None) -> str:
        """Return what a record says of the tool and the arguments."""
        tool = inside({"tool": self.log.redact.text(call.tool_id)}) if known is None else known.text
        return tool + self._arguments(call, known)

    def _arguments(self, call: ToolCall, known: _Known | None) -> str:
        trail = trail_of(call)
        noted, trail.noted = trail.noted, None  # for this moment only: a layer may change them in place
        if noted is not None and noted[0] is call.args:
            return noted[1]
        return self.log.args_part(call.args, known.schema if known is not None else None)

    async def prepare(self, call: ToolCall) -> None:
        """Find out off the event loop what the records of a call with large arguments say of these."""
        if self.log.args == "digest":
            trail_of(call).noted = call.args, await walked(partial(self.log.args_part, call.args, None))

    def _write_start(self, what: str, head: str, call: ToolCall, known: _Known | None) -> None:
        try:
            if known is None or not known.quick:
                self.log.write(f'"kind":"start","what":"{what}",{head}')
            elif self.log.broken:
                self.log.settle()
        except AuditError as error:
            raise error.locate(tool_id=call.tool_id) from None

    def _outcome(self, result: Result | None, failure: BaseException | None, started: float) -> str:
        error = failure if result is None else result.error
        return outcome_part(error, perf_counter() - started, self.log.redact)

    def _known(self, entry: Registered | None) -> _Known | None:
        if entry is None:
            return None
        key = f"{entry.tool.id}\0{entry.binding.backend}"
        known = self._tools.get(key)
        if known is not None and known.tool is entry.tool:
            return known
        if len(self._tools) >= _MANY:
            self._tools.clear()
        tool = entry.tool
        schema = tool.input_schema.to_json()
        quick = tool.annotations.read_only and entry.binding.kind == "local"
        known = _Known(tool, tool_part(entry), quick, schema if has_secret_marks(schema) else None)
        self._tools[key] = known
        return known

    def begin(self, group: GroupRun) -> GroupEnd:
        """Log that a chain or code begins, and its end. Raises AuditError: then it does not begin."""
        details = inside({"details": dict(group.details)}) if group.details else ""
        parts = (inside({"run_id": group.run_id}), self.origin(group.origin), details)
        head = ",".join(part for part in parts if part)
        self.log.write(f'"kind":"start","what":"{group.kind}",{head}')
        started = perf_counter()

        def end(failure: BaseException | None) -> None:
            outcome = outcome_part(failure, perf_counter() - started, self.log.redact)
            self.log.write_late(f'"kind":"{group.kind}",{head},{outcome}')

        return end

    def origin(self, origin: Origin) -> str:
        """Return what a record says of *origin*; calls come from few callers. The origin itself is not kept: that of a
        served call knows the whole request."""
        who = origin.caller
        caller = who.id, tuple(who.roles), who.tenant, who.method, who.endpoint
        key = origin.parent, origin.path, origin.session, caller, origin.client
        known = self._origins.get(key)
        if known is None:
            if len(self._origins) >= _MANY_ORIGINS:
                self._origins.clear()
            known = self._origins[key] = origin_part(origin, self.log.digest_key)
        return known


class _Known(NamedTuple):
    """What a record says of a tool, and how its calls are logged."""

    tool: Tool
    text: str
    quick: bool
    schema: JSONObject | None


def _with_the_call(result: Result | None, failure: BaseException | None) -> None:
    """Do nothing: the record of the call is that of the first attempt at it, and ends with the call."""


class _Audited(ObserverLayer):
    in_thread = False  # records are written in the order of the event loop

    def __init__(self, inner: Runner, find: Find, audit: Audit) -> None:
        super().__init__(inner)
        self._find = find
        self._audit = audit

    async def run(self, call: ToolCall) -> Result:
        if has_many(call.args):
            await self._audit.prepare(call)
        return await super().run(call)

    def begin(self, call: ToolCall) -> CallEnd:
        return self._audit.begin_call(call, self._find)
