"""What a durable run may wait for: a time, a signal, an input, an approval, a decision on an unknown outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import toolexec.durable.clock as host_clock
from toolexec.discovery.docs import DetailLevel, DocEntry, DocStore, InMemoryDocStore, ToolDoc
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.index import Index, Registered, bulk
from toolexec.discovery.memory import InMemoryIndex
from toolexec.discovery.results import SearchResults
from toolexec.discovery.summary import Filters
from toolexec.durable.journal import CallRecord, Signal, Wait, WaitKind
from toolexec.errors import InputValidationError, InvalidSchemaError, ToolTimeoutError, Violation
from toolexec.model.approval_text import approval_details
from toolexec.model.binding import Binding, LocalBinding
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject, JSONValue, to_json_lossy
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest
from toolexec.model.schema import Schema
from toolexec.model.tool import Tool, ToolAnnotations
from toolexec.run.types import Result

if TYPE_CHECKING:
    from toolexec.discovery.index import ChangeListener
    from toolexec.durable.log import RunLog

SETTLE_QUESTION: Final = (
    "Did this call do its work? The process that made it may still be at work, where only its connection was lost: "
    "make sure that it has ended before you say no. Answer true, false, {done: ..., value: ...}, or {failed: why}."
)
"""What is asked about a call of unknown outcome."""
_LOOK: Final = 0.05
_LOOK_REMOTE: Final = 0.5
_ANSWERS: Final[Mapping[JSONValue, ApprovalAnswer]] = {
    True: "once",
    "once": "once",
    "yes": "once",
    "session": "session",
    "always": "always",
}
_TIMEOUT: Final = {"type": "number", "exclusiveMinimum": 0, "description": "Seconds after which it fails."}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 200}


def _tool(
    name: str, title: str, description: str, properties: Mapping[str, object], required: Sequence[str] = ()
) -> Tool:
    schema = {"type": "object", "properties": {**properties}, "additionalProperties": False}
    return Tool(
        name=name,
        namespace="run",
        title=title,
        description=description,
        input_schema={**schema, "required": [*required]} if required else schema,
        annotations=ToolAnnotations(read_only=True, open_world=False),
    )


RUN_TOOLS: Final[Mapping[str, Tool]] = {
    tool.id: tool
    for tool in (
        _tool(
            "sleep",
            "Sleep",
            "Waits for so many seconds, or until a moment (ISO 8601, or seconds since 1970), and holds no process.",
            {"seconds": {"type": "number", "minimum": 0}, "until": {"type": ["string", "number"]}},
        ),
        _tool(
            "signal",
            "Wait for a signal",
            "Waits until this run is sent the signal of that name, and returns what was sent with it.",
            {"name": _NAME, "timeout": _TIMEOUT},
            ["name"],
        ),
        _tool(
            "input",
            "Ask a person",
            "Waits until a person has answered a question, and returns the answer, which fits the schema if one is "
            "given. The name is that of the signal that answers; without one it is input:STEP.",
            {
                "question": {"type": "string", "minLength": 1},
                "schema": {"type": "object"},
                "name": _NAME,
                "timeout": _TIMEOUT,
            },
            ["question"],
        ),
    )
}
"""The tools that only a durable run has."""


class Waits:
    """What one run waits for just now. Its methods return once that is there; what came of it the runner writes down.

    Where *index* has a tool of the same name as one of the run, that is called.
    """

    def __init__(self, log: RunLog, index: Index, *, clock: Callable[[], float] | None = None) -> None:
        self.open: dict[str, Wait] = {}
        """What is waited for, by step."""
        self._log = log
        self._own = frozenset(tool_id for tool_id in RUN_TOOLS if index.find(tool_id) is None)
        self._clock: Callable[[], float] = clock or host_clock.now
        self._look = _LOOK_REMOTE if log.is_remote else _LOOK

    def concerns(self, tool_id: str) -> bool:
        """Return whether a call of the tool is a wait."""
        return tool_id in self._own

    async def answer(self, call: ToolCall, record: CallRecord) -> Result:
        """Return the result of a tool that waits. Raises InputValidationError."""
        args = dict(call.args or {})
        tool = RUN_TOOLS[call.tool_id]
        violations = tool.input_schema.violations(args) or _unanswerable(args)
        if violations:
            raise InputValidationError(violations, tool_id=tool.id, op="validate_input")
        if tool.name == "sleep":
            await self.sleep(record, args)
            return Result(tool.id)
        timeout = args.get("timeout")
        due = record.began + timeout if timeout is not None else None
        kind: WaitKind = "signal" if tool.name == "signal" else "input"
        name = args.get("name") or f"input:{record.step}"
        signal = await self._until(record, kind, name, {k: v for k, v in args.items() if k != "timeout"}, due)
        if signal is None:
            late = ToolTimeoutError(f"nothing came within {timeout:g} s", tool_id=tool.id, op="wait")
            return Result(tool.id, None, late)
        if kind == "input":
            check_input(signal.payload, args.get("schema"), tool.id)
        return Result(tool.id, signal.payload)

    async def sleep(self, record: CallRecord, args: JSONObject) -> None:
        """Wait as `run:sleep` does, since the step was first begun. Raises InputValidationError."""
        await self._until(record, "time", "", None, _moment(args, record.began))

    async def approval(self, asked: CallRecord, call: CallRecord, request: ApprovalRequest) -> Signal:
        """Return the answer to the question whether the call may be made."""
        details = {**approval_details(request), "digest": call.args}
        return await self._answered(asked, "approval", f"approve:{call.step}", details)

    async def taken(self, asked: CallRecord, call: CallRecord) -> Signal | None:
        """Return the answer to such a question, if it is there."""
        return await self._take(asked.step, f"approve:{call.step}")

    async def settle(self, asked: CallRecord, call: ToolCall, record: CallRecord) -> Signal:
        """Return what was decided on a call that may have done its work."""
        details = {
            "tool": call.tool_id,
            "args": to_json_lossy(dict(call.args or {})),
            "began": record.began,
            "idempotency_key": record.sent,
            "question": SETTLE_QUESTION,
        }
        return await self._answered(asked, "settle", f"settle:{record.step}", details)

    async def _answered(self, asked: CallRecord, kind: WaitKind, name: str, details: JSONObject) -> Signal:
        signal = await self._until(asked, kind, name, details, None)
        assert signal is not None, "without a time limit it waits for the signal"
        return signal

    async def _until(
        self, record: CallRecord, kind: WaitKind, name: str, details: JSONObject | None, due: float | None
    ) -> Signal | None:
        """Return the signal of that name once it is there; None when the time is over."""
        step = record.step
        self.open[step] = Wait(step=step, kind=kind, name=name, details=details, due=due, since=record.began)
        try:
            while True:
                signal = await self._take(step, name) if name else None
                if signal is not None:
                    return signal
                left = due - self._clock() if due is not None else self._look
                if left <= 0:
                    return None
                if not name:  # nothing else ends it
                    await host_clock.pause(min(left, whole_length(self.open[step])))
                    return None
                await asyncio.sleep(min(left, self._look))
        finally:
            self.open.pop(step, None)

    async def _take(self, step: str, name: str) -> Signal | None:
        if self._log.is_remote:
            return await asyncio.to_thread(self._log.take, step, name)
        return self._log.take(step, name)


def whole_length(wait: Wait) -> float:
    """Return how many seconds a wait takes at most: it is no longer for a clock that was set back meanwhile."""
    return float("inf") if wait.due is None else max(wait.due - wait.since, 0.0)


def approval_of(payload: JSONValue) -> ApprovalAnswer:
    """Return what a signal means as the answer to whether a call may be made; whatever is not a yes is a no."""
    return _ANSWERS.get(payload, "no") if isinstance(payload, bool | str) else "no"


def _unanswerable(args: JSONObject) -> tuple[Violation, ...]:
    """Return what is wrong with the schema of a question: no answer would ever fit it."""
    schema = args.get("schema")
    try:
        if isinstance(schema, Mapping):
            Schema.of(dict(schema)).check()
    except InvalidSchemaError as error:
        return (Violation(path=f"/schema{error.pointer}", keyword="schema", message=error.message),)
    return ()


def check_input(payload: JSONValue, schema: object, tool_id: str = "run:input") -> None:
    """Raise InputValidationError for an answer that does not fit the schema that was asked for."""
    violations = Schema.of(dict(schema)).violations(payload) if isinstance(schema, Mapping) else ()
    if violations:
        raise InputValidationError(violations, tool_id=tool_id, op="validate_input")


def _moment(args: JSONObject, began: float) -> float:
    """Return when a sleep is over, in seconds since 1970."""
    until = args.get("until")
    if until is None:
        return began + float(args.get("seconds") or 0)
    if isinstance(until, int | float):
        return float(until)
    try:
        moment = datetime.fromisoformat(until)
    except ValueError as error:
        message = f"not a moment of ISO 8601: {error}"
        raise InputValidationError([Violation(path="/until", keyword="format", message=message)]) from None
    return moment.timestamp() if moment.tzinfo is not None else datetime.fromisoformat(f"{until}+00:00").timestamp()


class IndexOfRun:
    """The index of a durable run: *index*, and *tools*, those that only such a run has. Implements `Index`."""

    def __init__(self, index: Index, tools: Mapping[str, Tool] = RUN_TOOLS) -> None:
        self._index = index
        self._own = InMemoryIndex()
        for tool_id, tool in tools.items():
            if index.find(tool_id) is None:
                self._own.register(tool, LocalBinding(tool_id))

    def register(self, tool: Tool, binding: Binding) -> None:
        """Implement `Index.register`."""
        self._index.register(tool, binding)

    def replace(self, tool: Tool, binding: Binding) -> None:
        """Implement `BulkIndex.replace`."""
        bulk(self._index).replace(tool, binding)

    def unregister(self, tool_id: str, binding: Binding | None = None) -> None:
        """Implement `Index.unregister`."""
        self._index.unregister(tool_id, binding)

    def find(self, tool_id: str) -> Registered | None:
        """Implement `Index.find`."""
        return self._index.find(tool_id) or self._own.find(tool_id)

    def is_own(self, tool_id: str) -> bool:
        """Return whether it is a tool of the run itself."""
        return self._own.find(tool_id) is not None

    def search(
        self, query: str, limit: int = 10, *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """Implement `Index.search`; a tool of the run comes after the others."""
        found = self._index.search(query, limit, filters=filters, explain=explain)
        more = self._own.search(query, limit, filters=filters, explain=explain)
        return found.like([*found, *more][: max(limit, 0)])

    def tools(self) -> Sequence[Registered]:
        """Implement `Index.tools`."""
        return sorted([*self._index.tools(), *self._own.tools()], key=lambda entry: entry.tool.id)

    def on_change(self, listener: ChangeListener) -> Callable[[], None]:
        """Implement `Index.on_change`."""
        return self._index.on_change(listener)

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._index.version

    def __len__(self) -> int:
        return len(self._index) + len(self._own)


class DocsOfRun:
    """Describes the tools of a durable run, too. Implements `DocStore`."""

    def __init__(self, docs: DocStore, index: IndexOfRun) -> None:
        self._docs = docs
        self._own = InMemoryDocStore(index)
        self._index = index

    def register_doc(self, tool_id: str, entry: DocEntry) -> None:
        """Implement `DocStore.register_doc`."""
        self._docs.register_doc(tool_id, entry)

    def register_examples(self, tool_id: str, examples: Iterable[ToolExample]) -> None:
        """Implement `DocStore.register_examples`."""
        self._docs.register_examples(tool_id, examples)

    def describe(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Implement `DocStore.describe`."""
        return self._of(tool_id).describe(tool_id, level)

    def list_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """Implement `DocStore.list_examples`."""
        return self._of(tool_id).list_examples(tool_id, limit)

    def _of(self, tool_id: str) -> DocStore:
        return self._own if self._index.is_own(tool_id) else self._docs
