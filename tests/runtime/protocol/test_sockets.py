"""Listening at Unix sockets and at the loopback interface."""

from __future__ import annotations

import asyncio
import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from toolexec.errors import ConfigurationError, ConnectionClosedError
from toolexec.runtime.protocol.connections import Connection
from toolexec.runtime.protocol.sockets import TCPAddress, connect_tcp, connect_unix, listen_tcp, listen_unix


async def echo(connection: Connection) -> None:
    """Send everything back."""
    while True:
        await connection.send(await connection.receive())


async def echo_until_gone(connection: Connection) -> None:
    """The same, without complaint at the end."""
    try:
        await echo(connection)
    except ConnectionClosedError:
        return


class TestUnix:
    """At a path."""

    async def test_several_clients(self, tmp_path: Path) -> None:
        """Each has a connection of its own."""
        async with listen_unix(tmp_path / "s", echo_until_gone) as path:
            clients = [await connect_unix(path) for _ in range(3)]
            for number, client in enumerate(clients):
                await client.send(bytes([number]))
            assert [await client.receive() for client in clients] == [b"\0", b"\1", b"\2"]
            for client in clients:
                await client.aclose()

    async def test_only_for_the_owner(self, tmp_path: Path) -> None:
        """No other user may connect; at the end the file is gone."""
        async with listen_unix(tmp_path / "s", echo) as path:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not path.exists()

    async def test_a_path_that_is_taken(self, tmp_path: Path) -> None:
        """Refuses such a path, and whatever is there stays."""
        (tmp_path / "s").write_text("mine")
        with pytest.raises(ConfigurationError, match="cannot listen at"):
            async with listen_unix(tmp_path / "s", echo):
                pass
        assert (tmp_path / "s").read_text() == "mine"

    async def test_a_path_that_is_too_long(self, tmp_path: Path) -> None:
        """Refuses such a path with advice."""
        with pytest.raises(ConfigurationError, match="short"):
            async with listen_unix(tmp_path / ("x" * 200), echo):
                pass

    async def test_nobody_listens(self, tmp_path: Path) -> None:
        """The connection is closed before it began."""
        with pytest.raises(ConnectionClosedError, match="cannot connect"):
            await connect_unix(tmp_path / "nothing")


class TestTCP:
    """On the loopback interface."""

    async def test_with_the_token(self) -> None:
        """The address has all that is needed, and does not show the token."""
        async with listen_tcp(echo_until_gone) as address:
            assert address.token not in repr(address)
            client = await connect_tcp(address)
            await client.send(b"hello")
            assert await client.receive() == b"hello"
            await client.aclose()

    @pytest.mark.parametrize("token", ["", "wrong", "x" * 43], ids=["none", "short", "of the right length"])
    async def test_without_the_token(self, token: str, caplog: pytest.LogCaptureFixture) -> None:
        """Nothing of what the client says is read; the connection is closed."""
        seen: list[Connection] = []

        async def handle(connection: Connection) -> None:
            seen.append(connection)

        async with listen_tcp(handle) as address:
            client = await connect_tcp(TCPAddress(port=address.port, token=token))
            with caplog.at_level(logging.WARNING):
                await client.send(b'{"type":"run_tool"}' * 10)
                with pytest.raises(ConnectionClosedError):
                    await client.receive()
            await client.aclose()
        assert seen == []
        assert "without the token" in caplog.text

    async def test_a_client_that_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A silent client is not waited for for long."""
        monkeypatch.setattr("toolexec.runtime.protocol.sockets._PATIENCE", 0.01)
        async with listen_tcp(echo) as address:
            client = await connect_tcp(TCPAddress(port=address.port, token=""))
            with pytest.raises(ConnectionClosedError):
                await asyncio.wait_for(client.receive(), 10)
            await client.aclose()

    async def test_a_port_that_is_taken(self) -> None:
        """Refuses such a port with advice."""
        async with listen_tcp(echo) as address:
            with pytest.raises(ConfigurationError, match="use 0"):
                async with listen_tcp(echo, port=address.port):
                    pass
        with pytest.raises(ConnectionClosedError, match="cannot connect"):
            await connect_tcp(address)


class TestHandlers:
    """What listeners do with their handlers."""

    async def test_at_the_end(self, tmp_path: Path) -> None:
        """Handlers are cancelled, and clients see the connection closed."""
        outcomes: list[str] = []

        async def handle(connection: Connection) -> None:
            try:
                await connection.receive()
            except asyncio.CancelledError:
                outcomes.append("cancelled")
                raise

        async with listen_unix(tmp_path / "s", handle) as path:
            client = await connect_unix(path)
            await client.send(b"")
            await asyncio.sleep(0.01)
            waiting = await connect_unix(path)
            await asyncio.sleep(0.01)
        assert outcomes == ["cancelled"]
        for each in (client, waiting):
            with pytest.raises(ConnectionClosedError):
                await each.receive()
            await each.aclose()

    async def test_one_that_fails(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The exception is logged; the next client is served."""

        async def handle(connection: Connection) -> None:
            if await connection.receive() == b"fail":
                raise RuntimeError("no")
            await connection.send(b"fine")

        async with listen_unix(tmp_path / "s", handle) as path:
            for word in (b"fail", b"work"):
                client = await connect_unix(path)
                await client.send(word)
                if word == b"work":
                    assert await client.receive() == b"fine"
                with pytest.raises(ConnectionClosedError):
                    await client.receive()
                await client.aclose()
        assert "a gateway failed on a connection" in caplog.text

    async def test_too_many(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
        """One more than there may be (2 here) is closed at once."""
        monkeypatch.setattr("toolexec.runtime.protocol.sockets._MAX_CONNECTIONS", 2)
        async with listen_unix(tmp_path / "s", echo_until_gone) as path:
            clients = [await connect_unix(path) for _ in range(3)]
            for client in clients[:2]:
                await client.send(b"x")
                assert await client.receive() == b"x"
            with pytest.raises(ConnectionClosedError):
                await clients[2].receive()
            for client in clients:
                await client.aclose()
        assert "2 connections" in caplog.text
