"""Report every call to OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.errors import MissingExtraError
from toolexec.model.redaction import Redactor, redactor
from toolexec.model.settings import checked
from toolexec.run.gate import GroupEnd, GroupRun
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner
from toolexec.run.settings import TelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from toolexec.run.context import Cause

__all__ = ["Telemetry"]


@checked("Telemetry")
class Telemetry:
    """A part of a `Gate`: a span for every call, with the steps of chains and the calls of code as children of theirs,
    and metrics.

    A call's span is named `execute_tool NAME`, follows OpenTelemetry's conventions for generative AI, belongs to the
    trace that is current where the call is made, and is current while the tool works: MCP servers get the trace with
    each call. The metric is `gen_ai.execute_tool.duration` (seconds; its count is the number of calls, those with
    `error.type` failed), for at most 2,000 tools. What models read and write is counted by `toolexec.context.tokens`,
    by cause, and noted on the span of the request (`toolexec.context.cause`, `.tokens_read`, `.tokens_written`).

    *tracer_provider* and *meter_provider* take the place of the global ones. With *record_args* a span has the first
    4,096 characters of the call's arguments as JSON; results are never recorded. Strings pass through *redact* first.
    Raises MissingExtraError without the OpenTelemetry API (the `otel` extra has it, and the SDK).
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        record_args: bool = TelemetrySettings.record_args,
        redact: Redactor = redactor,
    ) -> None:
        try:
            from toolexec.run.telemetry import Recorder
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "opentelemetry":
                raise
            raise MissingExtraError("otel", needed_for="tracing calls") from error
        self._recorder = Recorder(tracer_provider, meter_provider, redact, record_args=record_args)
        self._redact = redact

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that makes each call of *inner* in a span."""
        from toolexec.run.telemetry import FactBook, Traced

        return Traced(inner, self._recorder, FactBook(find, self._redact))

    def counted(self, cause: Cause, read: int, written: int) -> None:
        """Count the tokens of a reply for its cause, and note them on the current span; see `ContextMeter`."""
        self._recorder.count_tokens(cause, read, written)

    def begin(self, group: GroupRun) -> GroupEnd:
        """Begin the span `toolexec.chain` or `toolexec.code`; see `GroupObserver.begin`."""
        return self._recorder.begin_group(group)
