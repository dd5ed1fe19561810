"""A span for each run, which joins the trace of its caller where OpenTelemetry is installed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from toolexec.sandbox import CodeResult, ExecuteRequest


class RunSpan:
    """The span of a run; without OpenTelemetry it does nothing."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def finish(self, result: CodeResult) -> None:
        """Note how the run has ended."""
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode

        if result.backend is not None:
            self._span.set_attribute("toolexec.sandbox", result.backend.kind)
        if result.error is not None:
            self._span.set_attribute("error.type", result.error.code)
            self._span.set_status(StatusCode.ERROR, result.error.code)


@contextmanager
def run_span(run: str, account: str, request: ExecuteRequest, traceparent: str) -> Generator[RunSpan]:
    """Have what happens in the block be a span, a child of the one in *traceparent* (W3C), if that is one."""
    try:
        from opentelemetry.trace import SpanKind, get_tracer
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ModuleNotFoundError:
        yield RunSpan()
        return
    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
    attributes = {
        "toolexec.run": run,
        "toolexec.tenant": account,
        "toolexec.language": request.language or "python",
        "toolexec.profile": request.profile,
    }
    with get_tracer("toolexec").start_as_current_span(
        "execute_code", context=context, kind=SpanKind.SERVER, attributes=attributes
    ) as span:
        yield RunSpan(span)
