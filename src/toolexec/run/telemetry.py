"""A span and a measurement of every call. This needs the OpenTelemetry API, so it is imported only when asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from time import perf_counter
from typing import Any, Final

from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import MeterProvider, get_meter
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

from toolexec.discovery.index import Registered
from toolexec.errors import ToolExecError
from toolexec.model.arguments import RefusedArgs
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.redaction import Redactor
from toolexec.run.audit.record import beginning
from toolexec.run.gate import GroupEnd, GroupRun
from toolexec.run.large import is_small
from toolexec.run.layer import CallEnd, ObserverLayer
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result
from toolexec.version import __version__

_SCOPE: Final = "toolexec"
_MOST_MESSAGE: Final = 500
_MOST_ARGS: Final = 4096
_CANCELLED: Final = "cancelled"
_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

MOST_DESCRIPTION: Final = 256
MOST_TOOLS: Final = 2000
_MOST_KEPT: Final = 10_000
_MOST_ID: Final = 200
_OPERATION: Final = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}


class Recorder:
    """Makes spans and measurements with the given providers, None being the global ones."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        redact: Redactor,
        *,
        record_args: bool,
    ) -> None:
        self.tracer: Tracer = get_tracer(_SCOPE, __version__, tracer_provider)
        self.redact = redact
        self._record_args = record_args
        self._groups: dict[str, Context] = {}
        meter = get_meter(_SCOPE, __version__, meter_provider)
        self._durations = meter.create_histogram(
            "gen_ai.execute_tool.duration",
            "s",
            "How long calls of tools took.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._tokens = meter.create_counter(
            "toolexec.context.tokens", "{token}", "What models read and wrote, by cause, in tokens."
        )

    def count_tokens(self, cause: str, read: int, written: int) -> None:
        """Count what a model reads and writes for a cause, and note it on the current span."""
        for direction, tokens in (("read", read), ("written", written)):
            if tokens:
                self._tokens.add(tokens, {"toolexec.context.cause": cause, "toolexec.context.direction": direction})
        span = get_current_span()
        if span.is_recording():
            span.set_attributes(
                {
                    "toolexec.context.cause": cause,
                    "toolexec.context.tokens_read": read,
                    "toolexec.context.tokens_written": written,
                }
            )

    def begin_group(self, group: GroupRun) -> GroupEnd:
        """Begin the span of a chain or of code; see `GroupObserver.begin`."""
        span = self.tracer.start_span(f"toolexec.{group.kind}", kind=SpanKind.INTERNAL)
        if span.get_span_context().is_valid:
            self._groups[group.run_id] = set_span_in_context(span)
        if span.is_recording():
            span.set_attributes({f"toolexec.{group.kind}.{key}": value for key, value in group.details.items()})
            span.set_attribute("toolexec.run_id", group.run_id)
            if group.origin.caller.id:
                span.set_attribute("toolexec.caller", self.redact.text(group.origin.caller.id))

        def end(failure: BaseException | None) -> None:
            self._groups.pop(group.run_id, None)
            if failure is not None and span.is_recording():
                self._blame(span, failure)
            span.end()

        return end

    def parent(self, call: ToolCall) -> Context | None:
        """Return where the call's span belongs: to its chain or code, which may run in another task or thread; else
        None, for the current span.
        """
        group = call.origin.parent
        return self._groups.get(group) if group else None

    def finish(
        self,
        span: Span,
        facts: ToolFacts,
        call: ToolCall,
        started: float,
        error: BaseException | None,
        result: Result | None = None,
    ) -> None:
        """Measure a call that has ended, and end its span."""
        seconds = perf_counter() - started
        labels = facts.labels if error is None else {**facts.labels, "error.type": _error_type(error)}
        self._durations.record(seconds, labels)
        if span.is_recording():
            self._describe(span, facts, call)
            if result is not None and (result.cached or result.attempts != 1):
                span.set_attributes({"toolexec.cached": result.cached, "toolexec.attempts": result.attempts})
            if error is not None:
                self._blame(span, error)
        span.end()

    def _describe(self, span: Span, facts: ToolFacts, call: ToolCall) -> None:
        run_id, origin = call.identify(), call.origin
        attributes: JSONDict = {
            "gen_ai.tool.call.id": run_id,
            "toolexec.run_id": run_id,
            "toolexec.path": origin.path,
        }
        if origin.parent:
            attributes["toolexec.parent_run_id"] = origin.parent
        if origin.caller.id:
            attributes["toolexec.caller"] = self.redact.text(origin.caller.id)
        if self._record_args and type(call.args) is not RefusedArgs:
            attributes["gen_ai.tool.call.arguments"] = self._arguments(facts, call)
        span.set_attributes(attributes)

    def _arguments(self, facts: ToolFacts, call: ToolCall) -> str:
        args = call.args or {}
        shown = self.redact.value(args if is_small(args) else beginning(args, self.redact, _MOST_ARGS), facts.marks())
        return json.dumps(shown, ensure_ascii=False)[:_MOST_ARGS]

    def _blame(self, span: Span, error: BaseException) -> None:
        # No exception is recorded: its traceback and its causes may hold unknown secrets.
        span.set_attribute("error.type", _error_type(error))
        message = error.message if isinstance(error, ToolExecError) else type(error).__name__
        span.set_status(StatusCode.ERROR, self.redact.text(message)[:_MOST_MESSAGE])


class Traced(ObserverLayer):
    """*inner* with a span around every call and every stream; the span is the current one while *inner* works."""

    def __init__(self, inner: Runner, recorder: Recorder, facts: FactBook) -> None:
        super().__init__(inner)
        self._recorder = recorder
        self._facts = facts

    def begin(self, call: ToolCall) -> CallEnd:
        """Begin the call's span, and make it the current one; see `ObserverLayer.begin`."""
        started = perf_counter()
        span, facts, context = self._begin(call)
        token = attach(context) if context is not None else None

        def end(result: Result | None, failure: BaseException | None) -> None:
            try:
                if result is not None or failure is not None:  # else the event loop makes the call, and its span
                    error = failure if result is None else result.error
                    self._recorder.finish(span, facts, call, started, error, result)
            finally:
                if token is not None:
                    detach(token)

        return end

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Stream the call in a span that lasts from the first event asked for to the end of the stream."""
        started = perf_counter()
        span, facts, context = self._begin(call)
        events = self.inner.stream(call)
        failure: BaseException | None = None
        settled = False
        try:
            while (event := await _step(events, context)) is not None:
                if event.kind == "error":
                    failure = event.error or ToolExecError("the stream ended with an error")
                settled = settled or event.kind in ("done", "error")
                yield event
        except GeneratorExit:
            if not settled:  # who has the last event may leave without asking for another
                failure = asyncio.CancelledError("the stream was closed early")
            raise
        except BaseException as error:
            failure = error
            raise
        finally:
            try:
                await events.aclose()
            finally:
                self._recorder.finish(span, facts, call, started, failure)

    def _begin(self, call: ToolCall) -> tuple[Span, ToolFacts, Context | None]:
        """Return the call's span, and the context in which it is current; None where that makes no difference."""
        facts = self._facts.of(call)
        parent = self._recorder.parent(call)
        span = self._recorder.tracer.start_span(facts.name, parent, SpanKind.INTERNAL, facts.attributes)
        if span is get_current_span() or not span.get_span_context().is_valid:
            return span, facts, None
        return span, facts, set_span_in_context(span)


async def _step(events: AsyncGenerator[StreamEvent, None], context: Context | None) -> StreamEvent | None:
    """The next event. The span is the current one during each step only: between two of them the consumer runs, in the
    same context."""
    if context is None:
        return await anext(events, None)
    token = attach(context)
    try:
        return await anext(events, None)
    finally:
        detach(token)


def _error_type(error: BaseException) -> str:
    if isinstance(error, ToolExecError):
        return error.code
    return _CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__


class ToolFacts:
    """The attributes of one tool's spans (at their start) and metrics, and the name of its spans."""

    __slots__ = ("attributes", "entry", "labels", "name", "schema")

    def __init__(self, name: str, attributes: JSONDict, label: str, entry: Registered | None) -> None:
        self.name: str = name
        self.attributes: JSONDict = attributes
        self.entry: Registered | None = entry
        self.schema: Any = None
        tool = label if label.startswith("(") else attributes["gen_ai.tool.name"]
        self.labels: JSONDict = {**_OPERATION, "gen_ai.tool.name": tool, "toolexec.tool.id": label}

    def marks(self) -> JSONObject | None:
        """Return the tool's input schema, which may mark arguments as secret."""
        if self.schema is None and self.entry is not None:
            self.schema = self.entry.tool.input_schema.to_json()
        return self.schema if isinstance(self.schema, dict) else None


class FactBook:
    """The facts of every tool that was called, made once.

    Metrics distinguish at most 2,000 tools: the rest are `(other)`, and an ID that no tool has is `(unknown)`. So
    inventing or renaming tools cannot fill the memory of a metrics system.
    """

    def __init__(self, find: Find, redact: Redactor) -> None:
        self._find = find
        self._redact = redact
        self._known: dict[str, ToolFacts] = {}
        self._labels: set[str] = set()

    def of(self, call: ToolCall) -> ToolFacts:
        """Return the facts of the tool that the call means."""
        tool_id = call.tool_id
        try:
            entry = resolved(call, self._find)
        except ToolExecError:
            shown = self._redact.text(str(tool_id))[:_MOST_ID]
            attributes = {**_OPERATION, "gen_ai.tool.name": "(unknown)", "toolexec.tool.id": shown}
            return ToolFacts("execute_tool", attributes, "(unknown)", None)
        facts = self._known.get(tool_id)
        if facts is None or facts.entry is not entry:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            facts = self._known[tool_id] = self._facts(entry)
        return facts

    def _facts(self, entry: Registered) -> ToolFacts:
        tool = entry.tool
        attributes: JSONDict = {
            **_OPERATION,
            "gen_ai.tool.name": tool.name,
            "toolexec.tool.id": tool.id,
            "toolexec.backend": entry.binding.backend,
        }
        if tool.description:
            attributes["gen_ai.tool.description"] = self._redact.text(tool.description)[:MOST_DESCRIPTION]
        if tool.namespace:
            attributes["toolexec.tool.namespace"] = tool.namespace
        if tool.version:
            attributes["toolexec.tool.version"] = str(tool.version)
        if tool.id in self._labels or len(self._labels) < MOST_TOOLS:
            self._labels.add(tool.id)
            label = tool.id
        else:
            label = "(other)"
        return ToolFacts(f"execute_tool {tool.name}", attributes, label, entry)
