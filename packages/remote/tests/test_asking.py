"""Signed requests over HTTP, and the turns that their tenants have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from packages.remote.tests.servers import OTHER, identity, runtime_server, signed_get, signed_post
from tests.waiting import PATIENCE, until

from toolexec.sandbox import ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.server.rounds import Rounds
from toolexec_remote.signature import Target, signed_headers
from toolexec_remote.wire import encode_request


class Watched(Rounds):
    """Rounds that keep whose turns there were."""

    def __init__(self) -> None:
        super().__init__(lambda: True)
        self.asked: list[str] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def turn(self, account: str) -> None:
        """Wait for it, and keep it."""
        self.asked.append(account)
        await self.goes_on.wait()
        await super().turn(account)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Return the rounds in which the server reads."""
    made = Watched()
    given: list[Rounds] = [made]

    def make(is_shared: Callable[[], bool]) -> Rounds:
        return given.pop() if given else Rounds(is_shared)

    monkeypatch.setattr("toolexec_remote.server.shares.Rounds", make)
    return made


@pytest.fixture
async def endpoint(tmp_path: Path, rounds: Watched) -> AsyncIterator[str]:
    async with runtime_server(tmp_path, ScriptedSandbox(default=1), max_anonymous=2) as found:
        yield found


@pytest.mark.parametrize("path", ["/v1/execute/capacity", "/v1/execute/runs/r1", "/metrics"])
async def test_each_signed_question_has_a_turn_of_its_tenant(endpoint: str, rounds: Watched, path: str) -> None:
    """A tenant that asks for a run, the capacity or the metrics has one answer where another one has one."""
    status, _ = await signed_get(endpoint.removesuffix("/v1/execute") + path, endpoint, OTHER)
    assert (status in (200, 404), rounds.asked) == (True, ["", OTHER.account])


async def test_strangers_who_ask_for_the_identity_are_one_wasteful_tenant(endpoint: str, rounds: Watched) -> None:
    """Each answer is signed, so that each is a turn, and many of them leave the loop to those who have a key."""
    for _ in range(20):
        await identity(endpoint)
    assert rounds.asked == [""] * 20
    assert (rounds.is_wasteful(""), rounds.is_wasteful(OTHER.account)) == (True, False)


async def test_a_tenant_that_asks_for_the_identity_is_no_stranger(endpoint: str, rounds: Watched) -> None:
    """Over a connection that has shown a key it is a turn of that, which leads to something."""
    target = Target(await identity(endpoint), "GET", "/v1/execute/capacity")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        async with session.get(f"{endpoint}/capacity", headers=signed_headers(OTHER, target)) as response:
            assert response.status == 200
            await response.read()
        async with session.get(f"{endpoint}/identity?nonce=ours") as response:
            assert (await response.json())["proof"]
    assert rounds.asked == ["", OTHER.account, OTHER.account]
    assert not rounds.is_wasteful(OTHER.account)


async def test_strangers_who_wait_for_their_turn_keep_no_one_out(endpoint: str, rounds: Watched) -> None:
    """The oldest of them makes room for a newer connection."""
    rounds.goes_on.clear()
    parts = urlsplit(endpoint)
    writers: list[asyncio.StreamWriter] = []

    async def ask() -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writers.append(writer)
        writer.write(f"GET {parts.path}/identity?nonce=n HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        await until(lambda: len(rounds.asked) == len(writers))
        return reader

    readers = [await ask() for _ in range(3)]
    with suppress(ConnectionError):
        assert await asyncio.wait_for(readers[0].read(), PATIENCE) == b""
    rounds.goes_on.set()
    for reader in readers[1:]:
        assert (await asyncio.wait_for(reader.read(), PATIENCE)).startswith(b"HTTP/1.1 200 ")
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("what", ["body", "signature"])
async def test_what_is_refused_is_a_turn_for_nothing(endpoint: str, rounds: Watched, what: str) -> None:
    """A tenant whose requests are refused again and again is a wasteful one, over HTTP, too."""
    good = encode_request(ExecuteRequest(code="1"))
    for _ in range(20):
        if what == "body":
            status, _, _ = await signed_post(endpoint, b"{}", key=OTHER)
        else:
            status, _, _ = await signed_post(endpoint, good, key=OTHER, incarnation="0" * 64)
        assert status in (400, 421)
    assert rounds.is_wasteful(OTHER.account)


async def test_what_is_run_is_a_turn_for_something(endpoint: str, rounds: Watched) -> None:
    """A tenant whose programs run, and end, wastes nothing, though it asks before each whether it may."""
    for number in range(20):
        await signed_get(f"{endpoint}/runs/r{number}", endpoint, OTHER)
        await signed_post(endpoint, encode_request(ExecuteRequest(code="1")), key=OTHER)
    assert not rounds.is_wasteful(OTHER.account)
