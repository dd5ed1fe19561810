"""The server over real descriptors: lines of all kinds, and a stdout that carries the protocol only."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult
from tests.server.harness import ERAS
from tests.servers import server_environment

from toolexec import Exec
from toolexec.server.app import ToolServer
from toolexec.server.settings import ServeSettings
from toolexec.server.stdio import Wire, serve_stdio, stdio_wire

both = pytest.mark.parametrize("era", ERAS)
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "probe", "version": "0"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
ROOT = Path(__file__).parents[2]


def run_request(number: int, tool_id: str = "t:one", **params: Any) -> dict[str, Any]:
    params = {"name": "run_tool", "arguments": {"tool_id": tool_id}, **params}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


class Lines:
    """The client's end of two pipes."""

    def __init__(self, write: int, read: int) -> None:
        self._write = write
        self._read = read
        self._rest = b""

    async def send(self, *messages: Any) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            data = memoryview(line + b"\n")
            while data:
                await anyio.wait_writable(self._write)
                data = data[os.write(self._write, data[:4096]) :]

    async def read(self) -> dict[str, Any]:
        with anyio.fail_after(10):
            while b"\n" not in self._rest:
                await anyio.wait_readable(self._read)
                chunk = os.read(self._read, 1 << 20)
                assert chunk, "the server has closed its stdout"
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    async def hang_up(self) -> None:
        os.close(self._write)
        self._write = -1

    def close(self) -> None:
        for fd in (self._write, self._read):
            if fd >= 0:
                os.close(fd)
        self._write = self._read = -1


def catalogue() -> Exec:
    ex = Exec()
    ex.add(lambda: 1, "t:one")
    ex.add(lambda: "x" * 3_000_000, "t:big")

    async def slow() -> str:
        await asyncio.sleep(0.2)
        return "slow"

    ex.add(slow, "t:slow")
    return ex


@asynccontextmanager
async def piped(ex: Exec | None = None, **settings: Any) -> AsyncIterator[tuple[Lines, asyncio.Task[None]]]:
    their_read, our_write = os.pipe()
    our_read, their_write = os.pipe()
    lines = Lines(our_write, our_read)
    server = ToolServer(ex or catalogue(), ServeSettings(**settings))
    task = asyncio.create_task(serve_stdio(server, Wire(their_read, their_write)))
    try:
        yield lines, task
    finally:
        lines.close()
        with anyio.fail_after(10):
            await asyncio.wait([task])
        os.close(their_read)
        os.close(their_write)
        if not task.cancelled():
            task.result()


async def test_lines_that_are_no_messages() -> None:
    """Garbage is answered with a parse error, JSON that is no message with an invalid request, under its ID if it has
    one; empty lines are ignored; the server goes on."""
    bad: list[tuple[bytes, int, Any]] = [
        (b"{garbage", -32700, None),
        (b"\xff\xfe\x00", -32700, None),
        (b"[" * 5000, -32700, None),
        (b"[]", -32600, None),
        (b"42", -32600, None),
        (b'{"jsonrpc":"2.0","id":7}', -32600, 7),
        (b'{"jsonrpc":"1.0","id":"a","method":"ping"}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
    ]
    async with piped() as (lines, _):
        await lines.send(b"", b"  \r", HELLO)
        assert (await lines.read())["result"]["serverInfo"]["name"] == "toolexec"
        await lines.send(READY)
        for line, code, request_id in bad:
            await lines.send(line)
            reply = await lines.read()
            assert reply["error"]["code"] == code, line
            assert reply["id"] == request_id
        await lines.send(run_request(2))
        assert (await lines.read())["result"]["structuredContent"]["structured"] == 1


async def test_lines_that_are_too_long() -> None:
    """A line over the limit is answered with a parse error, however it is cut into pieces; one just within it is
    served."""
    async with piped(max_line_bytes=10_000) as (lines, _):
        await lines.send(HELLO)
        await lines.read()
        await lines.send(b"x" * 200_000, b"y" * 10_001)
        for _ in range(2):
            reply = await lines.read()
            assert reply["error"]["code"] == -32700
            assert "10000 bytes" in reply["error"]["message"]
        fits = json.dumps(run_request(2)).encode()
        await lines.send(fits + b" " * (10_000 - len(fits)))
        assert (await lines.read())["id"] == 2


@pytest.mark.parametrize("first", ["tools/list", "tools/call", "nonsense"])
async def test_requests_in_the_wrong_order(first: str) -> None:
    """A request before the handshake is refused and does no harm: the handshake still works."""
    request = run_request(5) | {"method": first}
    async with piped() as (lines, _):
        await lines.send(request)
        assert (await lines.read())["error"]["code"] in (-32602, -32601)
        await lines.send(HELLO)
        assert "result" in await lines.read()
        await lines.send(READY, run_request(6))
        assert (await lines.read())["result"]["structuredContent"]["structured"] == 1


async def test_the_wrong_era() -> None:
    """A connection keeps the era that it began with; requests of the other one are refused."""
    async with piped() as (lines, _):
        await lines.send(HELLO, READY)
        await lines.read()
        await lines.send(run_request(2, _meta=META))
        assert (await lines.read())["error"]["code"] == -32600
        await lines.send({"jsonrpc": "2.0", "id": 3, "method": "what/ever"})
        assert (await lines.read())["error"]["code"] == -32601
    async with piped() as (lines, _):
        await lines.send(run_request(1, _meta=META))
        assert (await lines.read())["result"]["resultType"] == "complete"
        await lines.send(HELLO)
        assert (await lines.read())["error"]["code"] == -32022
        await lines.send(run_request(2, _meta={**META, "io.modelcontextprotocol/protocolVersion": "1999-01-01"}))
        assert (await lines.read())["error"]["code"] == -32022
        await lines.send(run_request(3))
        assert (await lines.read())["error"]["code"] == -32602


async def test_everything_said_at_once() -> None:
    """A client that writes all its requests and closes stdin still gets its answers, then the server ends."""
    async with piped() as (lines, task):
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
        await lines.send(HELLO, READY, run_request(2, "t:slow"), run_request(9, "t:slow"), cancelled)
        last = json.dumps(run_request(3)).encode()
        await lines.send(last)
        await lines.hang_up()
        replies = {reply["id"]: reply for reply in [await lines.read() for _ in range(3)]}
        assert replies[2]["result"]["structuredContent"]["structured"] == "slow"
        assert replies[3]["result"]["structuredContent"]["structured"] == 1
        with anyio.fail_after(10):
            await asyncio.wait([task])


@pytest.mark.full
async def test_the_end_of_input_ends_what_lasts() -> None:
    """A call that does not end, and a subscription, do not keep the server from ending."""
    ex = catalogue()
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    ex.add(endless, "t:endless")
    async with piped(ex) as (lines, task):
        listen = {"notifications": {"toolsListChanged": True}, "_meta": META}
        await lines.send({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen})
        assert (await lines.read())["method"] == "notifications/subscriptions/acknowledged"
        await lines.send(run_request(2, "t:endless", _meta=META))
        await lines.hang_up()
        with anyio.fail_after(10):
            await asyncio.wait([task])
    assert ended.is_set()


async def test_a_last_line_without_its_end() -> None:
    """Input before its end counts, even without a newline; too much of it is refused."""
    for line, key in ((json.dumps(HELLO).encode(), "result"), (b"x" * 300_000, "error")):
        async with piped(max_line_bytes=100_000) as (lines, _):
            await lines.send(HELLO | {"id": 7})
            await lines.read()
            data = memoryview(line)
            while data:
                await anyio.wait_writable(lines._write)
                data = data[os.write(lines._write, data[:4096]) :]
            await lines.hang_up()
            assert key in await lines.read()


async def test_a_client_that_does_not_read() -> None:
    """A client that reads slowly holds up nothing but itself: the event loop goes on, and the reply arrives whole."""
    async with piped(max_result_bytes=4_000_000) as (lines, _):
        await lines.send(HELLO, READY, run_request(2, "t:big"))
        beats = 0
        for _ in range(50):
            await asyncio.sleep(0.005)
            beats += 1
        assert beats == 50
        await lines.read()
        assert len((await lines.read())["result"]["content"][0]["text"]) == 3_000_000


async def test_a_client_that_is_gone() -> None:
    """When its output has no reader any more, the server ends, although its input is still open."""
    async with piped() as (lines, task):
        await lines.send(HELLO)
        await lines.read()
        os.close(lines._read)
        lines._read = -1
        await lines.send(run_request(2))
        with anyio.fail_after(10):
            await asyncio.wait([task])


async def test_files_in_place_of_pipes(tmp_path: Path) -> None:
    """Requests from a file, answers to a file: for scripts."""
    requests, answers = tmp_path / "in", tmp_path / "out"
    requests.write_text("".join(json.dumps(line) + "\n" for line in (HELLO, READY, run_request(2))))
    read = os.open(requests, os.O_RDONLY)
    write = os.open(answers, os.O_WRONLY | os.O_CREAT)
    try:
        with anyio.fail_after(10):
            await serve_stdio(ToolServer(catalogue()), Wire(read, write))
    finally:
        os.close(read)
        os.close(write)
    replies = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [reply["id"] for reply in replies] == [1, 2]


NOISY = """
    import asyncio, logging, os, subprocess, sys
    from toolexec import Exec
    from toolexec.errors import ApprovalDeniedError, ApprovalRequiredError
    from toolexec.server.app import ToolServer
    from toolexec.server.settings import ServeSettings
    from toolexec.server.stdio import serve_stdio, stdio_wire
    from tests.server.harness import gated

    def noisy() -> str:
        "Writes to stdout in every way there is, and reads stdin."
        print("NOISE from print")
        os.write(1, b"NOISE from write\\n")
        subprocess.run(["sh", "-c", "echo NOISE from a child; cat"], check=True)
        logging.basicConfig(stream=sys.stdout, force=True)
        logging.warning("NOISE from logging")
        sys.__stdout__.write("NOISE from __stdout__\\n")
        return sys.stdin.read()

    with stdio_wire() as wire:
        print("NOISE before it begins")
        ex, _ = gated()
        ex.add(noisy, "t:noisy")
        ex.add(lambda path: "gone " + path, "fs:danger")
        ex.add(lambda a, b: a + b, "math:add")
        asyncio.run(serve_stdio(ToolServer(ex, ServeSettings(max_line_bytes=1 << 20)), wire))
        print("NOISE at the end")
"""


def server_process() -> StdioServerParameters:
    environment = server_environment(PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    return StdioServerParameters(command=sys.executable, args=["-c", textwrap.dedent(NOISY)], env=environment)


@pytest.mark.full
@both
async def test_the_official_client_and_a_process_of_its_own(era: str, tmp_path: Path) -> None:
    """The official client drives a server process; whatever a tool prints, stdout carries the protocol only."""

    async def yes(context: Any, params: Any) -> Any:
        return ElicitResult(action="accept", content={"answer": "once"})

    with (tmp_path / "stderr").open("w+") as stderr:
        transport = stdio_client(server_process(), errlog=stderr)
        async with Client(transport, mode=era, elicitation_callback=yes) as client:
            assert "run_tool" in [tool.name for tool in (await client.list_tools()).tools]
            for _ in range(3):
                reply = await client.call_tool("run_tool", {"tool_id": "t:noisy"})
                assert reply.structured_content["structured"] == ""
            reply = await client.call_tool("run_tool", {"tool_id": "fs:danger", "args": {"path": "/x"}})
            assert reply.structured_content["structured"] == "gone /x"
            code = {"language": "python", "code": "sum(tools.math.add(a=i, b=i) for i in range(10))"}
            reply = await client.call_tool("execute_code", code)
            assert reply.structured_content["value"] == 90
        stderr.seek(0)
        text = stderr.read()
    for word in ("before", "print", "write", "a child", "logging", "__stdout__", "the end"):
        assert word in text, word


@pytest.mark.full
async def test_every_byte_of_stdout_is_protocol() -> None:
    """Read raw, stdout has one JSON message per line; a line of 100 MB takes no memory to speak of."""
    parameters = server_process()
    process = await asyncio.create_subprocess_exec(
        parameters.command, *parameters.args, env=parameters.env,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def say(line: bytes) -> dict[str, Any]:
        stdin.write(line + b"\n")
        await stdin.drain()
        return json.loads(await asyncio.wait_for(stdout.readline(), 20))

    assert (await say(json.dumps(HELLO).encode()))["id"] == 1
    assert (await say(json.dumps(run_request(2, "t:noisy")).encode()))["id"] == 2
    before = psutil.Process(process.pid).memory_info().rss
    for _ in range(1600):
        stdin.write(b"z" * 65_536)
        await stdin.drain()
    assert (await say(b""))["error"]["code"] == -32700
    assert psutil.Process(process.pid).memory_info().rss - before < 20 * 1024 * 1024
    stdin.close()
    assert await asyncio.wait_for(stdout.read(), 20) == b""
    assert await asyncio.wait_for(process.wait(), 20) == 0


def test_stdin_and_stdout_come_back() -> None:
    """Inside of the block both are somewhere else; afterwards they are what they were."""
    before = [os.fstat(fd).st_ino for fd in (0, 1)]
    with stdio_wire() as wire:
        assert [os.fstat(fd).st_ino for fd in (wire.read, wire.write)] == before
        assert os.read(0, 10) == b""
        assert os.fstat(1).st_ino == os.fstat(2).st_ino
        assert not os.get_inheritable(wire.write)
        assert not os.get_inheritable(wire.read)
    assert [os.fstat(fd).st_ino for fd in (0, 1)] == before
