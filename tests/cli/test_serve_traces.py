"""`toolexec serve` sends its spans to a collector, as parts of the client's trace."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.servers import server_environment

pytestmark = pytest.mark.full

TRACE = "0af7651916cd43dd8448eb211c80319c"
TOOLS = "from toolexec import tool\n@tool('math:add')\ndef add(a: int, b: int) -> int:\n    return a + b\n"


@pytest.fixture
def collector() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """The address of a collector, and the bodies that were posted to each of its paths."""
    posted: dict[str, list[bytes]] = {}

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.setdefault(self.path, []).append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_spans_reach_the_collector(collector: tuple[str, dict[str, list[bytes]]], tmp_path: Path) -> None:
    """A chain over MCP is one trace, the client's: the request, the chain, its steps; and calls are counted."""
    address, posted = collector
    (tmp_path / "tools.py").write_text(TOOLS)
    config = {"sources": {"python": [str(tmp_path / "tools.py")]}, "telemetry": {"enabled": True}}
    (tmp_path / "toolexec.json").write_text(json.dumps(config))
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "toolexec", "serve", "-c", str(tmp_path / "toolexec.json")],
        env=server_environment(XDG_STATE_HOME=str(tmp_path), OTEL_EXPORTER_OTLP_ENDPOINT=address),
    )
    with (tmp_path / "stderr").open("w") as stderr:
        async with Client(stdio_client(server, errlog=stderr)) as client:
            step = {"tool_id": "math:add", "args": {"a": 1, "b": 2}}
            meta = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
            reply = await client.call_tool("run_chain", {"steps": [step, step]}, meta=meta)
            assert reply.structured_content["final"] == 3
    spans = [
        span
        for body in posted["/v1/traces"]
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if span.trace_id.hex() == TRACE
    ]
    names = [span.name for span in spans]
    assert names.count("execute_tool add") == 2
    assert {"tools/call run_chain", "toolexec.chain"} <= set(names)
    chain = next(span for span in spans if span.name == "toolexec.chain")
    assert all(span.parent_span_id == chain.span_id for span in spans if span.name == "execute_tool add")
    metrics = [
        metric.name
        for body in posted["/v1/metrics"]
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    assert "gen_ai.execute_tool.duration" in metrics
