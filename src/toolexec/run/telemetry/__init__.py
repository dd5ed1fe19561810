"""Spans and metrics of calls; needs the OpenTelemetry API, so `toolexec.run.layers.telemetry` imports it when asked."""
