"""Sending spans and metrics: only where a collector is named, and no other provider has been set up."""

import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from toolexec.config.exporting import start_exporting
from toolexec.errors import MissingExtraError

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


def test_without_a_collector() -> None:
    """Nothing is set up."""
    assert start_exporting("tools", {}) is None
    assert start_exporting("tools", {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:9"}) is None


def test_where_there_is_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that is set up already stays."""
    provider = TracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    assert start_exporting("tools", ENDPOINT) is None


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector without the SDK is a mistake that names the extra."""
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(MissingExtraError, match=r"toolexec\[otel\]"):
        start_exporting("tools", ENDPOINT)
