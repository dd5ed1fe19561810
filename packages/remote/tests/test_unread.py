"""Clients that do not read their results: none is made for them until they do, and others notice nothing."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from packages.remote.tests.servers import KEY, OTHER, Client, identity, runtime_server, signed_post
from tests.waiting import PATIENCE

from toolexec.remote import RuntimeServerSettings, TenantQuota
from toolexec.sandbox import CodeResult, ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.server.admission import Admission
from toolexec_remote.server.shares import Shares
from toolexec_remote.signature import Target, signed_headers
from toolexec_remote.wire import encode_request

LITTLE: dict[str, Any] = {"max_running": 2, "max_held": 1 << 20, "max_body_bytes": 1 << 20}


class Sandbox(ScriptedSandbox):
    """Gives large values to programs, and has sessions."""

    def __init__(self) -> None:
        super().__init__({"large": "x" * (8 << 20)}, default=1)

    async def open_session(self, request: ExecuteRequest) -> _Session:
        """Return a session that keeps nothing."""
        return _Session(self)


class _Session:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run it like any other."""
        return await self._sandbox.execute(request)

    async def aclose(self) -> None:
        """Do nothing."""


async def begun(sandbox: Sandbox, endpoint: str, run: str) -> list[str]:
    """Run a program of another tenant to its end; return the programs that have begun until then."""
    async with Client(endpoint, KEY) as ann:
        await ann.execute(run, "1")
        assert (await ann.result(run)).value == 1
    return [request.code for request in sandbox.requests]


@pytest.mark.parametrize("session", ["", "open"])
async def test_who_acknowledges_no_result_has_no_program_started(tmp_path: Path, session: str) -> None:
    """The next one waits until the first result has arrived, with a place of its own or in a session; programs of
    another tenant do not."""
    sandbox = Sandbox()
    async with runtime_server(tmp_path, sandbox, **LITTLE) as endpoint, Client(endpoint, OTHER) as bob:
        if session:
            await bob.begin("open", session, encode_request(ExecuteRequest(code="0"), run=session))
            await bob.expect("opened")
        await bob.execute("r1", "large", session=session)
        await bob.expect("result", run="r1")
        await bob.execute("r2", "large", session=session)
        assert await begun(sandbox, endpoint, "r3") == ["large", "1"]
        await bob.put(bob.links["r1"].ack())
        assert len((await bob.result("r2")).value) == 8 << 20


async def test_who_reads_no_response_has_no_program_started(tmp_path: Path) -> None:
    """The same holds for requests by POST, of which each has a connection of its own."""
    sandbox = Sandbox()
    body = encode_request(ExecuteRequest(code="large"))
    async with runtime_server(tmp_path, sandbox, **LITTLE) as endpoint:
        parts = urlsplit(endpoint)
        headers = signed_headers(OTHER, Target(await identity(endpoint), "POST", parts.path), body)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {parts.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 12)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        writer.write(head.encode() + body)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        waiting = asyncio.create_task(signed_post(endpoint, body, key=OTHER))
        assert await begun(sandbox, endpoint, "r1") == ["large", "1"]
        writer.transport.abort()
        assert (await waiting)[0] == 200


async def test_who_does_not_come_back_is_waited_for_no_longer(tmp_path: Path) -> None:
    """A result whose client was away for too long counts no more."""
    sandbox = Sandbox()
    async with runtime_server(tmp_path, sandbox, reconnect=0.05, **LITTLE) as endpoint:
        async with Client(endpoint, OTHER) as bob:
            await bob.execute("r1", "large")
            await bob.expect("result", run="r1")
        async with Client(endpoint, OTHER) as bob:
            await bob.execute("r2", "large")
            await bob.expect("result", run="r2")


async def test_a_run_that_was_given_up_has_nothing_to_be_read(tmp_path: Path) -> None:
    """The output of a program whose client was given up is counted no more: the next one of its tenant starts."""
    stopped = asyncio.Event()

    async def print_and_wait(request: ExecuteRequest) -> None:
        for stream in ("stdout", "stderr"):
            request.output.write("x" * (256 << 10), stream)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    sandbox = ScriptedSandbox({"print": print_and_wait}, default=1)
    async with runtime_server(tmp_path, sandbox, **LITTLE, reconnect=0.01) as endpoint:
        async with Client(endpoint, OTHER) as client:
            await client.execute("r1", "print")
            await client.expect("started")
            await client.lose()
            await asyncio.wait_for(stopped.wait(), PATIENCE)
        async with Client(endpoint, OTHER, name="next") as client:
            await client.execute("r2", "1")
            assert (await client.result("r2")).value == 1


async def test_who_reads_nothing_takes_no_place_from_others() -> None:
    """A tenant that waits because it does not read counts neither as one with room, nor as one that lacks a place."""
    shares = Shares(RuntimeServerSettings(keys=[KEY, OTHER], max_held=1600, max_body_bytes=1600))
    queue = Admission(2, 10, lambda _: TenantQuota(), lambda: 0.0, reads=shares.reads)
    busy = [queue.enter("ann"), queue.enter("ann")]
    shares.unread.add("bob", 1000)
    waiting = queue.enter("bob")
    assert (queue.free_for("bob"), queue.holds_too_much()) == (0, [])
    busy[0].leave()
    assert not waiting.turn.done()
    shares.unread.give("bob", 1000)
    queue.fill()
    assert waiting.turn.done()
