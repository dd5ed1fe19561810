"""A server over HTTP, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client

from toolexec.errors import ConfigurationError
from toolexec.model.redaction import redactor
from toolexec.server.auth import AuthSettings
from toolexec.server.http import Health, HttpSettings, build_app, serve_http
from toolexec.server.http import connections as connections_module

from .conftest import INITIALIZE, JSON_HEADERS, MODERN, Certificate, Serve, small_server, text


@pytest.mark.full
@pytest.mark.parametrize("era", ["legacy", "auto", "2026-07-28"])
async def test_both_eras_from_one_server(serve: Serve, era: str) -> None:
    """The official client lists and calls tools in either era."""
    server = await serve()
    async with server.client(era) as client:
        tools = await client.list_tools()
        assert [tool.name for tool in tools.tools] == ["echo", "who", "wait", "steps"]
        assert text(await client.call_tool("echo", {"text": "hello"})) == "hello"


async def test_progress_reaches_the_client(serve: Serve) -> None:
    """Events of a call arrive while it is made, in both eras."""
    server = await serve()
    for era in ("legacy", "auto"):
        seen: list[float] = []

        async def note(progress: float, total: float | None, message: str | None, seen: list[float] = seen) -> None:
            seen.append(progress)

        async with server.client(era) as client:
            await client.call_tool("steps", {}, progress_callback=note)
        assert seen == [1, 2, 3]


async def test_json_answers_on_demand(serve: Serve) -> None:
    """With json_response nothing is streamed."""
    server = await serve(HttpSettings(port=0, json_response=True))
    answer = await server.post(INITIALIZE)
    assert answer.headers["content-type"] == "application/json"
    async with server.client("legacy") as client:
        assert text(await client.call_tool("echo", {"text": "x"})) == "x"


async def test_the_older_transport(serve: Serve) -> None:
    """With sse, clients of the oldest kind are served as well, and with the same checks."""
    server = await serve(HttpSettings(port=0, sse=True))
    async with Client(sse_client(f"{server.root}/sse"), mode="legacy") as client:  # type: ignore[arg-type]
        assert text(await client.call_tool("echo", {"text": "old"})) == "old"
    assert (await server.post(INITIALIZE, path="/messages?session_id=00")).status_code == 400
    garbage = await server.request("POST", "/messages", content=b"{{{", headers=JSON_HEADERS)
    assert (garbage.status_code, garbage.json()["error"]["code"]) == (400, -32700)
    assert (await server.request("GET", "/messages")).status_code == 405
    assert (await server.request("GET", "/sse", headers={"host": "evil.example"})).status_code == 421


async def test_a_message_that_is_none_is_not_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A posted secret, for example, is not logged."""
    caplog.set_level(logging.DEBUG)
    server = await serve(HttpSettings(port=0, sse=True))
    for path in ("/messages", "/mcp"):
        await server.request("POST", path, json={"secret": "hunter2-hunter2"}, headers=JSON_HEADERS)
    assert "hunter2" not in caplog.text


async def test_the_port_must_be_free(serve: Serve) -> None:
    """A port in use is a mistake in the settings, not a crash."""
    first = await serve()
    with pytest.raises(ConfigurationError, match="cannot listen on 127"):
        await serve(HttpSettings(port=first.port))


async def test_tls(serve: Serve, certificate: Certificate) -> None:
    """With a certificate the server speaks HTTPS, and says so in its address."""
    settings = HttpSettings(port=0, tls_cert=certificate.cert, tls_key=certificate.key)
    server = await serve(settings)
    assert server.url.startswith("https://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=certificate.cert)
    assert (await server.request("GET", "/healthz", verify=trusting)).text == "OK"


async def test_stopping_does_not_wait_for_clients_to_end_tls(
    serve: Serve, certificate: Certificate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that had its answer, and reads no further, does not hold up the end for all of the grace of calls."""
    monkeypatch.setattr(connections_module, "_LEAVE", 0.0)
    settings = HttpSettings(port=0, tls_cert=certificate.cert, tls_key=certificate.key, shutdown_grace=20.0)
    server = await serve(settings)
    trusting = ssl.create_default_context(cafile=certificate.cert)

    def come() -> ssl.SSLSocket:
        client = trusting.wrap_socket(
            socket.create_connection(("127.0.0.1", server.port), 20), server_hostname="127.0.0.1"
        )
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert client.recv(1000)
        return client

    with await asyncio.to_thread(come):
        await server.end()
    assert "timeout graceful shutdown exceeded" not in caplog.text


async def test_a_certificate_that_cannot_be_used(serve: Serve, tmp_path: Path) -> None:
    """Refuses an unusable certificate at the start."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for path in (broken, tmp_path / "missing.pem"):
        with pytest.raises(ConfigurationError, match="tls_cert or tls_key cannot be used"):
            await serve(HttpSettings(port=0, tls_cert=str(path)))


@pytest.mark.full
async def test_stopping_lets_calls_finish(serve: Serve) -> None:
    """A call that is being made when the server stops is answered; new requests are not taken."""
    server = await serve()
    async with httpx2.AsyncClient(verify=False) as client:
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": _modern_call("wait", seconds=0.5)}
        call = asyncio.create_task(client.post(server.url, json=body, headers=_modern_headers("tools/call", "wait")))
        await asyncio.sleep(0.2)
        await server.end()
        assert (await call).json()["result"]["content"][0]["text"] == "waited"
    with pytest.raises(httpx2.ConnectError):
        await server.request("GET", "/healthz")


@pytest.mark.full
async def test_stopping_does_not_wait_for_ever(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Streams end at once, calls after their grace; clients get proper ends, and the log no tracebacks."""
    server = await serve(HttpSettings(port=0, shutdown_grace=0.2))
    opened = await server.post(INITIALIZE)
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    async with httpx2.AsyncClient(timeout=20, verify=False) as client:
        listening = asyncio.create_task(
            client.get(
                server.url, headers={"accept": "text/event-stream", "mcp-protocol-version": "2025-11-25", **session}
            )
        )
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": _modern_call("wait", seconds=60)}
        call = asyncio.create_task(client.post(server.url, json=body, headers=_modern_headers("tools/call", "wait")))
        await asyncio.sleep(0.3)
        await server.end()
        assert (await listening).status_code == 200
        assert (await call).status_code == 503
    assert "Traceback" not in caplog.text


async def test_being_cancelled_stops_the_server() -> None:
    """Without a stop event, cancelling is the way; everything is closed then."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_http(small_server(), HttpSettings(port=0), AuthSettings(), ready=address.set_result)
    )
    url = await address
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    async with httpx2.AsyncClient(verify=False) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(url)


async def test_an_object_with_a_server_inside(serve: Serve) -> None:
    """Whatever has a `lowlevel` can be served."""

    class Holder:
        lowlevel = small_server()

    server = await serve(server=Holder())
    async with server.client() as client:
        assert len((await client.list_tools()).tools) == 4


async def test_another_asgi_server_can_run_it() -> None:
    """The application speaks ASGI's lifespan, and answers nothing but HTTP."""
    app = build_app(small_server(), HttpSettings(), AuthSettings())
    said: list[Any] = []
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        said.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    await app({"type": "websocket"}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_failure_inside_is_not_shown(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """The client reads of an internal error; the log has the traceback without secrets."""
    redactor.add("s3cret-value")

    def broken() -> dict[str, Any]:
        raise RuntimeError("the key is s3cret-value")

    server = await serve(health=Health(broken))
    answer = await server.request("GET", "/health")
    assert (answer.status_code, answer.json()["error_description"]) == (500, "internal error")
    assert "RuntimeError: the key is [REDACTED]" in caplog.text
    assert "s3cret-value" not in caplog.text


async def test_requests_are_logged_without_queries(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """At level INFO, one line each: who, what, how it went."""
    caplog.set_level(logging.INFO)
    server = await serve()
    await server.request("GET", "/healthz?token=hunter2-hunter2", headers={"authorization": "Bearer hunter2-hunter2"})
    own = [record for record in caplog.records if record.name.startswith(("toolexec", "uvicorn", "mcp"))]
    assert any(" - GET '/healthz' 200 " in record.getMessage() for record in own)
    assert not any("hunter2" in record.getMessage() for record in own)


def _modern_call(name: str, **args: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    }
    return {"name": name, "arguments": args, "_meta": meta}


def _modern_headers(method: str, name: str) -> dict[str, str]:
    return {**JSON_HEADERS, "mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": name}


async def test_whoever_is_told_the_address_may_fail() -> None:
    """The server is closed then, and the failure is passed on as it is."""

    def fail(url: str) -> None:
        raise ValueError(url)

    with pytest.raises(ValueError, match=r"^http://127\.0\.0\.1:\d+/mcp$"):
        await serve_http(small_server(), HttpSettings(port=0), AuthSettings(), ready=fail)
