"""Runs are spans in the traces of their callers."""

from __future__ import annotations

from pathlib import Path

import pytest
from packages.remote.tests.servers import runtime_server, signed_post

from toolexec.errors import CodeError
from toolexec.sandbox import ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.wire import encode_request

sdk = pytest.importorskip("opentelemetry.sdk.trace")
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_a_run_joins_the_trace_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The span says which sandbox ran it, for whom, and how it ended; a broken header begins a trace of its own."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    async with runtime_server(tmp_path, ScriptedSandbox({"one": 1, "fail": CodeError("boom")})) as endpoint:
        for code, parent in (("one", f"00-{TRACE}-{SPAN}-01"), ("fail", "00-nonsense")):
            body = encode_request(ExecuteRequest(code=code))
            await signed_post(endpoint, body, headers={"traceparent": parent, "Idempotency-Key": code})
    first, second = exporter.get_finished_spans()
    assert (f"{first.context.trace_id:032x}", f"{first.parent.span_id:016x}") == (TRACE, SPAN)
    assert first.attributes is not None
    assert (first.attributes["toolexec.run"], first.attributes["toolexec.tenant"]) == ("one", "ann")
    assert (first.attributes["toolexec.sandbox"], first.status.is_ok) == ("wasm", True)
    assert second.parent is None
    assert second.attributes is not None
    assert (second.attributes["error.type"], second.status.is_ok) == ("code_error", False)
