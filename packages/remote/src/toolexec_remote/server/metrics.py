"""What a server of sandboxes counts, as Prometheus reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from toolexec.errors import ToolExecError

if TYPE_CHECKING:
    from toolexec_remote.server.admission import Admission
    from toolexec_remote.server.shares import Shares

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class RemoteMetrics:
    """Counts runs and connections in a registry of its own."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        registry = self.registry
        self._runs = Counter(
            "toolexec_remote_runs", "Runs that are over, by how they ended.", ["outcome"], registry=registry
        )
        self._seconds = Histogram(
            "toolexec_remote_run_seconds", "How long runs took, once started.", buckets=_SECONDS, registry=registry
        )
        self._refused = Counter(
            "toolexec_remote_refused", "Requests that were not accepted, by code.", ["code"], registry=registry
        )
        self._running = Gauge("toolexec_remote_running", "Runs and sessions that take place.", registry=registry)
        self._queued = Gauge("toolexec_remote_queued", "Runs that wait.", registry=registry)
        self._held = Gauge(
            "toolexec_remote_held_bytes", "Bytes of requests and results that are held.", registry=registry
        )
        self._waits = Histogram(
            "toolexec_remote_queue_seconds", "How long runs waited for a place.", buckets=_SECONDS, registry=registry
        )
        self._taken_back = Counter(
            "toolexec_remote_taken_back",
            "Places that were not used, and were needed by another tenant.",
            ["kind"],
            registry=registry,
        )
        self._cut = Counter(
            "toolexec_remote_cut", "Connections that were cut to leave room for others.", ["why"], registry=registry
        )
        self._connections = Gauge("toolexec_remote_connections", "Duplex connections.", registry=registry)
        self._reconnects = Counter(
            "toolexec_remote_resumed", "Runs that went on over a new connection.", registry=registry
        )

    def watch(self, admission: Admission, shares: Shares) -> None:
        """Have *admission* say how many run and wait, and *shares* how much is held."""
        self._running.set_function(lambda: admission.running)
        self._queued.set_function(lambda: admission.queued)
        self._held.set_function(lambda: shares.held.used + shares.sending.used)

    def waited(self, seconds: float) -> None:
        """Count how long a run waited for its place."""
        self._waits.observe(seconds)

    def taken_back(self, kind: str) -> None:
        """Count a place that was taken back: `unconfirmed`, `waiting` or `session`."""
        self._taken_back.labels(kind).inc()

    def cut(self, why: str) -> None:
        """Count a connection that was cut: `anonymous`, `malformed`, `slow` or `held`."""
        self._cut.labels(why).inc()

    def ended(self, kind: str, error: ToolExecError | None, seconds: float) -> None:
        """Count a run that is over."""
        self._runs.labels(error.code if error is not None else "ok").inc()
        if kind == "result":
            self._seconds.observe(seconds)

    def refused(self, error: ToolExecError) -> None:
        """Count a request that was not accepted."""
        self._refused.labels(error.code).inc()

    def connected(self, change: int) -> None:
        """Count a connection that was opened (1) or closed (-1)."""
        self._connections.inc(change)

    def resumed(self) -> None:
        """Count a run that goes on over a new connection."""
        self._reconnects.inc()

    def text(self) -> bytes:
        """Return everything that is counted, in Prometheus' text format."""
        return generate_latest(self.registry)
