"""Log every call: before it is made where it may change something, and when it has ended, however it did."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from toolexec.discovery.index import Registered
from toolexec.errors import AuditError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Origin
from toolexec.model.redaction import has_secret_marks
from toolexec.model.settings import checked
from toolexec.run.audit.log import AuditLog
from toolexec.run.audit.record import answer_part, inside, origin_part, outcome_part, tool_part
from toolexec.run.gate import GroupEnd, GroupRun
from toolexec.run.layer import CallEnd, ObserverLayer
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result

__all__ = ["Audit"]

_MANY = 10_000


@checked("Audit")
class Audit:
    """Writes each call, chain and run of code to *log*, also those that are refused, fail or are cancelled.

    A call that cannot be logged is not made: it raises AuditError. Of a call that may change something, its beginning
    is written first (all but those of local tools that are marked read-only: remote ones are only said to be so). When
    the end of what was done cannot be written, its result is not lost, but no further call is made until it is.
    """

    def __init__(self, log: AuditLog) -> None:
        self.log = log
        self._origins: dict[int, tuple[Origin, str]] = {}

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that logs every call of *inner*."""
        return _Audited(inner, find, self.log, self._origin)

    def begin(self, group: GroupRun) -> GroupEnd:
        """Log that a chain or code begins, and its end. Raises AuditError: then it does not begin."""
        details = inside({"details": dict(group.details)}) if group.details else ""
        parts = (inside({"run_id": group.run_id}), self._origin(group.origin), details)
        head = ",".join(part for part in parts if part)
        self.log.write(f'"kind":"start","what":"{group.kind}",{head}')
        started = perf_counter()

        def end(failure: BaseException | None) -> None:
            outcome = outcome_part(failure, perf_counter() - started, self.log.redact)
            self.log.write_late(f'"kind":"{group.kind}",{head},{outcome}')

        return end

    def _origin(self, origin: Origin) -> str:
        """Return what a record says of *origin*; calls come from few of them."""
        known = self._origins.get(id(origin))
        if known is not None and known[0] is origin:
            return known[1]
        if len(self._origins) >= _MANY:
            self._origins.clear()
        text = origin_part(origin, self.log.digest_key)
        self._origins[id(origin)] = (origin, text)
        return text


class _Known(NamedTuple):
    """What a record says of a tool, and how its calls are logged."""

    entry: Registered
    text: str
    quick: bool
    schema: JSONObject | None


class _Audited(ObserverLayer):
    in_thread = False  # records are written in the order of the event loop

    def __init__(self, inner: Runner, find: Find, log: AuditLog, origin: Callable[[Origin], str]) -> None:
        super().__init__(inner)
        self._find = find
        self._log = log
        self._origin = origin
        self._tools: dict[str, _Known] = {}

    def begin(self, call: ToolCall) -> CallEnd:
        head, tool_id = self._begin(call)
        started = perf_counter()

        def end(result: Result | None, failure: BaseException | None) -> None:
            outcome = outcome_part(
                failure if result is None else result.error, perf_counter() - started, self._log.redact
            )
            self._log.write_late(f'"kind":"call",{head},{outcome}{answer_part(result, tool_id)}')

        return end

    def _begin(self, call: ToolCall) -> tuple[str, str]:
        """Write that the call begins, and return what all its records say, and the tool's ID, where it is known. Raises
        AuditError: then it is not made."""
        log = self._log
        known = self._known(call)
        if known is None:
            tool = inside({"tool": log.redact.text(call.tool_id)})
            args = log.args_part(call.args, None)
            quick = False
        else:
            tool = known.text
            args = log.args_part(call.args, known.schema)
            quick = known.quick
        head = f'"run_id":"{call.identify()}",{self._origin(call.origin)},{tool}{args}'
        try:
            if not quick:
                log.write(f'"kind":"start","what":"call",{head}')
            elif log.broken:
                log.settle()
        except AuditError as error:
            raise error.locate(tool_id=call.tool_id) from None
        return head, known.entry.tool.id if known is not None else ""

    def _known(self, call: ToolCall) -> _Known | None:
        try:
            entry = resolved(call, self._find)
        except ToolExecError:
            return None  # the call itself raises it again, and then it is logged
        known = self._tools.get(call.tool_id)
        if known is not None and known.entry is entry:
            return known
        if len(self._tools) >= _MANY:
            self._tools.clear()
        tool = entry.tool
        schema = tool.input_schema.to_json()
        quick = tool.annotations.read_only and entry.binding.kind == "local"
        known = _Known(entry, tool_part(entry), quick, schema if has_secret_marks(schema) else None)
        self._tools[call.tool_id] = known
        return known
