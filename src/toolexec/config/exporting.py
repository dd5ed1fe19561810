"""Send spans and metrics to a collector, as the usual variables of OpenTelemetry say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolexec.errors import MissingExtraError

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_METRICS = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


def start_exporting(name: str, environment: Mapping[str, str]) -> Callable[[], None] | None:
    """Have this process's spans and metrics sent over OTLP/HTTP to the collector that *environment* names.

    *name* is the service's, where `OTEL_SERVICE_NAME` says nothing. Gives what sends the rest and stops, or None where
    there is nothing to do: no collector is named, or a provider is set up already (by
    `opentelemetry-instrument`, for example). Raises MissingExtraError when a collector is named and the SDK is not
    installed.
    """
    from opentelemetry import metrics, trace

    stops: list[Callable[[], Any]] = []
    resource: Any = None
    wanted = environment.get(_TRACES) or environment.get(_ENDPOINT)
    if wanted and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        resource = _resource(name, environment)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(tracers)
        stops.append(tracers.shutdown)
    if stops and (environment.get(_METRICS) or environment.get(_ENDPOINT)):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        meters = MeterProvider(
            resource=resource,
            metric_readers=[PeriodicExportingMetricReader(OTLPMetricExporter())],
            shutdown_on_exit=False,
        )
        metrics.set_meter_provider(meters)
        stops.append(meters.shutdown)
    if not stops:
        return None

    def stop() -> None:
        for each in stops:
            each()

    return stop


def _resource(name: str, environment: Mapping[str, str]) -> Any:
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    except ModuleNotFoundError as error:
        raise MissingExtraError("otel", needed_for="sending spans to a collector") from error
    return Resource.create({} if environment.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: name})
