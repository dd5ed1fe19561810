"""HTTP servers: what is sent, what happens when they go away, and how failures read."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from toolexec.errors import BackendUnavailableError, ConnectionLostError, ExecutionError
from toolexec.model.call import ToolCall

pytestmark = pytest.mark.full


async def call(backend, name="add", args=None, **settings):
    args = {"a": 1, "b": 1} if name == "add" else args
    return await backend.call(name, ToolCall(f"s:{name}", args, **settings))


@pytest.mark.parametrize(("transport", "era"), [("http", "old"), ("http", "new"), ("sse", "old")])
async def test_headers_are_sent(http_server, connect, transport, era):
    """The headers of the configuration go with every request."""
    backend = connect(http_server(transport, era).url, headers={"X-Token": "abc"})
    if transport == "sse":  # the request in question is the one that opened the stream
        await backend.start()
        assert backend.status().available
    reply = await call(backend, "header", {"name": "x-token"})
    assert reply.structured == {"result": "abc"}


async def test_auto_falls_back_to_sse(http_server, connect):
    """A server that refuses the POST of the newer transport is reached over the older one."""
    backend = connect(http_server("sse", "old").url)
    assert (await call(backend)).structured == {"result": 2}
    assert backend.status().available


async def test_http_does_not_fall_back(http_server, connect):
    """transport="http" means that, and the reason is what the server said."""
    backend = connect(http_server("sse", "old").url, transport="http", max_restarts=0)
    await backend.start()
    assert "answered HTTP 405 Method Not Allowed" in backend.status().reason


async def test_sse_can_be_asked_for(http_server, connect):
    """transport="sse" goes there directly."""
    backend = connect(http_server("sse", "old").url, transport="sse")
    assert (await call(backend)).structured == {"result": 2}


async def test_a_path_with_nothing_behind_it(http_server, connect):
    """A wrong path is reported with the address and the status."""
    server = http_server("http", "new")
    backend = connect(server.url.replace("/mcp", "/nope"), max_restarts=0)
    await backend.start()
    assert backend.status().reason == f"http://127.0.0.1:{server.port}/nope answered HTTP 404 Not Found"


async def test_a_port_with_nothing_behind_it(connect):
    """When nothing listens, calls fail at once and say where nothing answers."""
    backend = connect("http://127.0.0.1:9/mcp", max_restarts=0)
    with pytest.raises(BackendUnavailableError, match=r"nothing answers at http://127\.0\.0\.1:9/mcp"):
        await call(backend)


@pytest.mark.parametrize(("transport", "era"), [("http", "old"), ("http", "new"), ("sse", "old")])
async def test_a_server_that_restarts_between_calls_is_not_noticed(http_server, connect, transport, era):
    """A forgotten session or a broken connection is renewed for the next call, which works."""
    server = http_server(transport, era)
    backend = connect(server.url, max_restarts=100)  # a slow start must not use them up
    assert (await call(backend)).structured == {"result": 2}
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    assert (await call(backend)).structured == {"result": 2}


@pytest.mark.parametrize(("transport", "era"), [("http", "old"), ("http", "new"), ("sse", "old")])
async def test_a_server_that_dies_during_a_call(http_server, connect, until, transport, era):
    """The call fails as lost, the next ones as unavailable, and when the server is back they work again."""
    server = http_server(transport, era)
    backend = connect(server.url, max_restarts=100)
    await backend.start()
    task = asyncio.create_task(call(backend, "wait", {"seconds": 60}))
    await call(backend)
    await asyncio.to_thread(server.kill)
    with pytest.raises(ConnectionLostError, match="went away during the call"):
        await task
    with pytest.raises(BackendUnavailableError, match="nothing answers at"):
        await call(backend)
    assert not backend.status().available
    await asyncio.to_thread(server.start)
    assert (await call(backend)).structured == {"result": 2}
    await until(lambda: backend.status().available)


async def test_a_server_that_comes_up_late(http_server, connect, until):
    """A server that is started after us is found without a request."""
    server = http_server("http", "new")
    await asyncio.to_thread(server.kill)
    backend = connect(server.url, max_restarts=100)
    await backend.start()
    assert not backend.status().available
    await asyncio.to_thread(server.start)
    await until(lambda: backend.status().available)


class _Answers(http.server.BaseHTTPRequestHandler):
    """Answers as the test says: a status, or a JSON-RPC result by method."""

    protocol_version = "HTTP/1.1"
    status = 200
    results: dict[str, object] = {}
    session = ""
    content_type = "application/json"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        result = self.results.get(message["method"])
        if callable(result):
            result = result(self, message)
        status, body = self.status, b""
        if status == 200 and "id" not in message:
            status = 202
        elif status == 200 and isinstance(result, tuple):
            status, body = result
        elif status == 200:
            answer = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode()
        self.send_response(status)
        if self.session and message["method"] == "initialize":
            self.send_header("Mcp-Session-Id", self.session)
        self.send_header("Content-Type", self.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        pass


INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "f", "version": "1"},
}
LIST = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}


@pytest.fixture
def answers() -> Iterator[type[_Answers]]:
    handler = type("Answers", (_Answers,), {"results": {"initialize": INITIALIZE, "tools/list": LIST}})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        handler.url = f"http://127.0.0.1:{server.server_port}/mcp"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "said"), [(401, "HTTP 401 Unauthorized; check the headers"), (500, "HTTP 500"), (599, "HTTP 599")]
)
async def test_a_refusal_names_its_status(answers, connect, status, said):
    """The status of a refusal is the reason, with a hint where there is one; no secret shows."""
    answers.status = status
    backend = connect(f"{answers.url}?key=sesame123", headers={"Authorization": "Bearer sesame456"}, max_restarts=0)
    await backend.start()
    reason = backend.status().reason
    assert said in reason
    assert "sesame" not in reason + repr(backend.server) + str(backend.status().to_dict())


@pytest.mark.parametrize("gone", [(404, b""), (400, b'{"error": "no valid Session ID"}')], ids=["404", "400"])
async def test_a_forgotten_session_costs_nothing(answers, connect, gone):
    """The call that finds its session gone is made again in a new one."""
    answers.session = "one"
    seen = []

    def act(handler, message):
        seen.append(handler.headers["Mcp-Session-Id"])
        if len(seen) == 1:
            answers.session = "two"
            return gone
        return {"content": [], "structuredContent": {"n": len(seen)}}

    answers.results["tools/call"] = act
    backend = connect(answers.url)
    assert (await call(backend)).structured == {"n": 2}
    assert seen == ["one", "two"]


async def test_a_session_that_is_never_known_fails_in_the_end(answers, connect):
    """A server that forgets every session gets a call twice, not for ever."""
    answers.session = "one"
    answers.results["tools/call"] = lambda *_: (404, b"")
    backend = connect(answers.url)
    with pytest.raises(ExecutionError):
        await call(backend)


async def test_a_reply_that_is_no_json_fails_its_call(answers, connect):
    """A damaged reply is that call's error."""
    answers.results["tools/call"] = lambda *_: (200, b"{nope")
    backend = connect(answers.url)
    with pytest.raises(ExecutionError, match="parse"):
        await call(backend)
    assert backend.status().available


async def test_a_server_that_hangs_does_not_hold_up_closing(answers, connect):
    """Closing waits for a hanging server no longer than its stop_timeout."""
    begun, release = threading.Event(), threading.Event()
    answers.results["tools/call"] = lambda *_: begun.set() or release.wait(60)
    answers.do_DELETE = lambda _: release.wait(60)
    answers.session = "one"
    backend = connect(answers.url, stop_timeout=0.2)
    task = asyncio.create_task(call(backend))
    await asyncio.to_thread(begun.wait, 30)
    try:
        async with asyncio.timeout(20):
            await backend.aclose()
    finally:
        release.set()
    with pytest.raises(ConnectionLostError):
        await task
