"""The contract suite for gateways against one in this process and one over each kind of connection."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from tests.memory_connection import memory_pair

from toolexec.code.gateway import Gateway
from toolexec.code.tools import Tools
from toolexec.runtime.protocol.connections import Connection, StreamConnection
from toolexec.runtime.protocol.proxy import ProxyGateway
from toolexec.runtime.protocol.serving import serve_gateway
from toolexec.testing.gateway_suite import GATEWAY_CHECKS, check_gateway, run_gateway_check
from toolexec.testing.gateway_testbed import GatewayParts

# A gateway over its own stdio, served again over a socket that it was given: requests go from here to the child, from
# there to the tools, which are here, and the answers all the way back.
RELAY = """
import asyncio, os, socket, sys
from toolexec.runtime.protocol.connections import StreamConnection
from toolexec.runtime.protocol.proxy import ProxyGateway
from toolexec.runtime.protocol.serving import serve_gateway

async def main():
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out = os.fdopen(os.dup(1), "wb")
    transport, protocol = await loop.connect_write_pipe(lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), out)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    async with ProxyGateway(StreamConnection(reader, writer)) as gateway:
        sock = socket.socket(fileno=int(sys.argv[1]))
        await serve_gateway(gateway, StreamConnection(*await asyncio.open_connection(sock=sock)))

asyncio.run(main())
"""


class Traced(ProxyGateway):
    """A proxy under test, where the other side's trace is at hand."""

    def __init__(self, connection: Connection, host: Tools) -> None:
        super().__init__(connection, timeout=60)
        self.tool_calls = host.tool_calls


@asynccontextmanager
async def direct(parts: GatewayParts) -> AsyncGenerator[Gateway]:
    yield parts.direct()


@asynccontextmanager
async def over(here: Connection, there: Connection, host: Tools) -> AsyncGenerator[Gateway]:
    serving = asyncio.create_task(serve_gateway(host, there))
    async with Traced(here, host) as gateway:
        yield gateway
    await asyncio.wait_for(serving, 30)


@asynccontextmanager
async def over_memory(parts: GatewayParts) -> AsyncGenerator[Gateway]:
    async with over(*memory_pair(), parts.direct()) as gateway:
        yield gateway


async def connected(sock: socket.socket) -> Connection:
    return StreamConnection(*await asyncio.open_connection(sock=sock))


@asynccontextmanager
async def over_a_socketpair(parts: GatewayParts) -> AsyncGenerator[Gateway]:
    here, there = [await connected(sock) for sock in socket.socketpair()]
    async with over(here, there, parts.direct()) as gateway:
        yield gateway


@asynccontextmanager
async def over_a_listener(listener: socket.socket, client: socket.socket, host: Tools) -> AsyncGenerator[Gateway]:
    """A client of a server that serves *host* to everyone who connects to *listener*."""
    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.ensure_future(serve_gateway(host, StreamConnection(reader, writer))))

    async with await asyncio.start_server(accept, sock=listener):
        client.connect(listener.getsockname())
        async with Traced(await connected(client), host) as gateway:
            yield gateway
        await asyncio.wait_for(asyncio.gather(*serving), 30)


@asynccontextmanager
async def over_a_unix_socket(parts: GatewayParts) -> AsyncGenerator[Gateway]:
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{directory}/gateway")
        async with over_a_listener(listener, socket.socket(socket.AF_UNIX), parts.direct()) as gateway:
            yield gateway


@asynccontextmanager
async def over_tcp(parts: GatewayParts) -> AsyncGenerator[Gateway]:
    async with over_a_listener(socket.create_server(("127.0.0.1", 0)), socket.socket(), parts.direct()) as gateway:
        yield gateway


@asynccontextmanager
async def over_a_subprocess(parts: GatewayParts) -> AsyncGenerator[Gateway]:
    here, there = socket.socketpair()
    with there:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RELAY, str(there.fileno())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[there.fileno()],
        )
    assert process.stdout is not None
    assert process.stdin is not None
    stdio = StreamConnection(process.stdout, process.stdin)
    async with over(await connected(here), stdio, parts.direct()) as gateway:
        yield gateway
    await asyncio.wait_for(process.wait(), 30)


GATEWAYS: dict[str, Callable[[GatewayParts], AbstractAsyncContextManager[Gateway]]] = {
    "direct": direct,
    "memory": over_memory,
    "socketpair": over_a_socketpair,
    "unix": over_a_unix_socket,
    "tcp": over_tcp,
    "subprocess": over_a_subprocess,
}


@pytest.mark.parametrize("check", GATEWAY_CHECKS)
@pytest.mark.parametrize(
    "gateway", [pytest.param(name, marks=pytest.mark.full) if name == "subprocess" else name for name in GATEWAYS]
)
async def test_every_gateway_keeps_the_contract(gateway: str, check: str) -> None:
    """Each gateway passes each check of the suite."""
    await run_gateway_check(GATEWAYS[gateway], check)


class Leaky(Tools):
    """A gateway that forgets the caps and the list of allowed tools: a bad example."""

    def __init__(self, parts: GatewayParts) -> None:
        super().__init__(parts.index, parts.docs, parts.runner)


@asynccontextmanager
async def leaky(parts: GatewayParts) -> AsyncGenerator[Gateway]:
    yield Leaky(parts)


GAPS = [
    "the_call_cap_holds_under_load",
    "failing_calls_count",
    "a_chain_gives_back_what_it_did_not_use",
    "a_chain_over_a_cap_does_not_begin",
    "a_tool_that_is_not_allowed_is_not_called",
    "the_trace_is_a_snapshot",
]


async def test_the_suite_passes_as_a_whole() -> None:
    """`check_gateway` takes every check at once."""
    await check_gateway(over_memory)


async def test_the_suite_reports_every_breach_by_name() -> None:
    """A gateway that breaks the contract gets one failure for each check, with the check's name as a note."""
    with pytest.raises(ExceptionGroup) as caught:
        await check_gateway(leaky)
    assert [note for error in caught.value.exceptions for note in error.__notes__] == [
        f"gateway check: {name}" for name in GAPS
    ]


async def test_known_gaps_are_excused() -> None:
    """Gaps that are listed by name do not fail the suite."""
    await check_gateway(leaky, known_gaps=GAPS)


async def test_a_gap_that_was_closed_is_news() -> None:
    """A listed gap that passes fails the suite, so that the list stays true."""
    with pytest.raises(ExceptionGroup) as caught:
        await check_gateway(direct, known_gaps=["a_tool_runs"])
    assert "listed as a known gap, but it passes" in str(caught.value.exceptions[0])
