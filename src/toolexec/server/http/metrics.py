"""What is counted, as Prometheus reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from toolexec.backend.base import BackendStatus
from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    InputValidationError,
    PolicyError,
    RateLimitedError,
    ToolExecError,
)
from toolexec.run.context import ContextMeter
from toolexec.run.layers.trace import TraceEvent

_MOST_TOOLS = 2000
_OF_A_TOOL = (PolicyError, RateLimitedError, InputValidationError, BackendUnavailableError, asyncio.CancelledError)
"""What is raised only where the tool was found: other names are anything that a caller may have made up."""
_METHODS = ("GET", "POST", "DELETE", "OPTIONS", "HEAD")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counts calls and requests in a registry of its own.

    It is a trace hook: `Exec(trace=metrics)` notifies it of every call on every path, also of those that the gate
    refuses. *backends* gives the backends' states when the metrics are read; `watch_backends` sets it later.

    It cannot be made to grow without end: names of tools that do not exist are not kept, and after 2000 tools the
    others share one line.
    """

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, backends: Callable[[], Iterable[BackendStatus]] | None = None) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        self._tools: set[str] = set()
        self._calls = Counter(
            "toolexec_calls", "Calls of tools, by how they ended.", ["tool", "outcome"], registry=self.registry
        )
        self._errors = Counter(
            "toolexec_call_errors",
            "Calls that did not end well, by the error's code; a tool that says that it failed counts as well.",
            ["code"],
            registry=self.registry,
        )
        self._durations = Histogram(
            "toolexec_call_duration_seconds",
            "How long calls took.",
            ["tool"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._in_flight = Gauge("toolexec_calls_in_flight", "Calls that are being made.", registry=self.registry)
        self._requests = Counter(
            "toolexec_http_requests", "Requests that were answered.", ["method", "status"], registry=self.registry
        )
        self._request_durations = Histogram(
            "toolexec_http_request_duration_seconds",
            "How long requests took; streams count with their whole length.",
            ["method"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._rejected = Counter(
            "toolexec_http_rejected", "Requests that were refused, by reason.", ["reason"], registry=self.registry
        )
        self._pauses = Histogram(
            "toolexec_loop_pause_seconds",
            "How late the event loop was, measured 50 times a second while there is work.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._longest_pause = 0.0
        longest = Gauge(
            "toolexec_loop_pause_max_seconds", "The longest pause of the event loop.", registry=self.registry
        )
        longest.set_function(lambda: self._longest_pause)
        self._sessions = Gauge("toolexec_sessions", "Sessions that are open.", registry=self.registry)
        if backends is not None:
            self.watch_backends(backends)

    def __call__(self, event: TraceEvent) -> None:
        """Count a call."""
        if event.kind == "start":
            self._in_flight.inc()
            return
        self._in_flight.dec()
        error = event.error if event.error is not None else event.result.error if event.result is not None else None
        outcome = _outcome(error)
        if event.result is not None:
            tool = self._label(event.result.tool_id, found=True)
        else:
            name = (error.tool_id if isinstance(error, ToolExecError) else None) or event.call.tool_id
            tool = self._label(name, found=isinstance(error, _OF_A_TOOL))
        self._calls.labels(tool, outcome).inc()
        self._durations.labels(tool).observe(event.duration)
        if outcome != "ok":
            self._errors.labels(outcome).inc()

    def _label(self, tool: str, *, found: bool) -> str:
        if tool in self._tools:
            return tool
        if not found or len(tool) > 256:
            return "(unknown)"
        if len(self._tools) >= _MOST_TOOLS:
            return "(other)"
        self._tools.add(tool)
        return tool

    def answered(self, method: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        label = method if method in _METHODS else "other"
        self._requests.labels(label, str(status)).inc()
        self._request_durations.labels(label).observe(seconds)

    def rejected(self, reason: str) -> None:
        """Count a refused request; *reason* is one word out of few."""
        self._rejected.labels(reason).inc()

    def paused(self, seconds: float) -> None:
        """Count how late the event loop was."""
        self._pauses.observe(seconds)
        self._longest_pause = max(self._longest_pause, seconds)

    def watch_sessions(self, count: Callable[[], int]) -> None:
        """Have *count* say how many sessions are open."""
        self._sessions.set_function(count)

    def watch_backends(self, backends: Callable[[], Iterable[BackendStatus]]) -> None:
        """Have *backends* give the backends' states, as `Exec.backend_statuses` does. Raises ValueError the second
        time."""
        self.registry.register(_Backends(backends))

    def watch_context(self, meter: ContextMeter) -> None:
        """Have *meter* say what models have read and written. Raises ValueError the second time."""
        self.registry.register(_Tokens(meter))

    def text(self) -> bytes:
        """Everything that is counted, in Prometheus' text format."""
        return generate_latest(self.registry)


class _Backends:
    """The states of the backends, read when they are asked for."""

    def __init__(self, backends: Callable[[], Iterable[BackendStatus]]) -> None:
        self._backends = backends

    def describe(self) -> list[GaugeMetricFamily]:
        """Return what `collect` gives, without its values."""
        return [self._family()]

    def collect(self) -> list[GaugeMetricFamily]:
        """Return one value for each enabled backend."""
        family = self._family()
        with suppress(ConfigurationError):  # the Exec is closed: none can be used
            for status in self._backends():
                if status.enabled:
                    family.add_metric([status.name], float(status.available))
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily("toolexec_backend_up", "Whether a backend can be used.", labels=["backend"])


class _Tokens:
    """The tokens of all conversations, read when they are asked for."""

    def __init__(self, meter: ContextMeter) -> None:
        self._meter = meter

    def describe(self) -> list[CounterMetricFamily]:
        """Return what `collect` gives, without its values."""
        return [self._family()]

    def collect(self) -> list[CounterMetricFamily]:
        """Return one value for each cause and direction."""
        family = self._family()
        for direction, counts in (("read", self._meter.read), ("written", self._meter.written)):
            for cause, tokens in counts.items():
                family.add_metric([cause, direction], float(tokens))
        return [family]

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(
            "toolexec_context_tokens",
            "What models read and wrote, in tokens, by what they went into.",
            labels=["cause", "direction"],
        )


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "ok"
    if isinstance(error, ToolExecError):
        return error.code
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "internal"
