"""Event streams that a client comes back to, at the same server and at another one over the same file."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from tests.server.http.conftest import Serve
from tests.server.http.links import BOB, Servers, Shop, lost, settled, text

from toolexec.server.app import ToolServer
from toolexec.server.auth import AuthSettings
from toolexec.server.http import HttpSettings
from toolexec.server.http.event_ids import EventID, request_id
from toolexec.server.http.stream import Ended, SessionLog, Stream
from toolexec.server.settings import ServeSettings


@pytest.fixture
def shop() -> Shop:
    """A shop that waits."""
    return Shop()


@pytest.fixture
def servers(serve: Serve, tmp_path: Path, shop: Shop) -> Servers:
    """Servers over a new file."""
    return Servers(serve, tmp_path / "state" / "server.db", shop)


@pytest.mark.parametrize("kept", [True, False])
async def test_comes_back_to_the_same_server(servers: Servers, shop: Shop, kept: bool) -> None:
    """A client that lost its connection gets the answer of its call, which is made once: while it is made, after it,
    and again; no other caller does."""
    async with servers.up(kept=kept) as link:
        session = await link.open()
        last = await lost(link, session, shop)
        waiting = asyncio.create_task(link.back(session, last))
        assert (await link.back({**session, **BOB}, last))[0] == 404
        shop.may_end.set()
        status, [(answered, message)] = await waiting
        assert (status, message["id"], text(message)) == (200, 7, "paid ")
        again = await link.back(session, last)
        assert again == (200, [(answered, message)])
        assert (await link.back(session, answered))[1] == []
        assert shop.runs == 1


@pytest.mark.parametrize("request_", [7, "7", "a b"])
async def test_an_answer_outlives_its_server(servers: Servers, shop: Shop, request_: int | str) -> None:
    """An answer that no client was there to take is got from the next server, by its caller alone, under the ID that the
    request had; the file does not have it in clear."""
    async with servers.up() as link:
        session = await link.open()
        last = await lost(link, session, shop, request_)
        shop.may_end.set()
        await settled(servers.path, "result")
    assert b"paid " not in servers.path.read_bytes()
    async with servers.up() as link:
        assert (await link.back({**session, **BOB}, last))[0] == 404
        _, [(name, message)] = await link.back(session, last)
        assert (message["id"], text(message)) == (request_, "paid ")
        assert (await link.back(session, name))[1] == []
        other = await link.open(BOB)
        _, [(_, refused)] = await link.back(other, last)  # an ID gives no access
        assert refused["error"]["data"] == {"reason": "cut_off", "outcome": "unknown", "retryable": False}
    assert shop.runs == 1


async def test_another_server_waits_for_the_answer(servers: Servers, shop: Shop) -> None:
    """A client that comes back at another server while the first one still works on its call gets the answer there."""
    async with servers.up() as first, servers.up() as second:
        session = await first.open()
        last = await lost(first, session, shop)
        await settled(servers.path, "stream")
        waiting = asyncio.create_task(second.back(session, last))
        await asyncio.sleep(0)
        shop.may_end.set()
        _, [(_, message)] = await waiting
        assert text(message) == "paid "
    assert shop.runs == 1


async def test_a_call_that_was_cut_off(servers: Servers, shop: Shop) -> None:
    """The next server says of a call that ended with its server that what it did is unknown, and does not make it."""
    async with servers.up() as link:
        session = await link.open()
        last = await lost(link, session, shop)
    async with servers.up() as link:
        _, [(_, message)] = await link.back(session, last)
        assert message["id"] == 7
        assert message["error"]["data"] == {"reason": "cut_off", "outcome": "unknown", "retryable": False}
        assert "nothing was run again" in message["error"]["message"]
    assert shop.runs == 1


async def test_events_of_no_server(servers: Servers) -> None:
    """An ID that no server can have given is refused at once; what a client makes up is a call that is not known."""
    async with servers.up() as link:
        session = await link.open()
        for name in ("7", "x" * 16 + ".1.Nw==", f"{'0' * 16}.1.!", f"{'0' * 16}.1.W10=", f"{'0' * 16}.1.dHJ1ZQ=="):
            assert (await link.back(session, name))[0] == 400
        _, [(_, message)] = await link.back(session, EventID("0" * 16, 3, 99).text())
        assert (message["id"], message["error"]["data"]["outcome"]) == (99, "unknown")


async def test_notices_that_were_missed(servers: Servers) -> None:
    """Notices of the session that came while its client was away are sent when it is back; at another server it is
    notified that anything may have changed."""
    async with servers.up() as link:
        session = await link.open()
        async with link.listening(session) as stream:
            link.tools.notify_changes()
            name, notice = await anext(stream)
        for number in range(2):
            link.tools.ex.add(lambda: 1, f"more:tool{number}")
        async with link.listening(session, name) as stream:
            name, notice = await anext(stream)
            assert notice["method"].startswith("notifications/")
            link.tools.notify_changes()
            await anext(stream)
    async with servers.up() as link, link.listening(session, name) as stream:
        assert (await anext(stream))[1]["method"] == "notifications/tools/list_changed"


async def test_a_call_that_waits_for_a_person(servers: Servers, shop: Shop) -> None:
    """A call that asks a person when its server ends was not made: the next server says so, refuses the person's answer
    that comes there, and makes the call when it is made again, once."""
    shop.may_end.set()
    async with servers.up(asks=True) as link:
        session = await link.open()
        async with link.called(session) as answer:
            last, _ = await anext(answer)
            asked, question = await anext(answer)
            assert question["method"] == "elicitation/create"
        async with link.listening(session, last) as stream:
            assert await anext(stream) == (asked, question)
    async with servers.up(asks=True) as link:
        yes = {"action": "accept", "content": {"answer": "once"}}
        assert await link.answer(session, question["id"], yes) == 400
        _, [(_, message)] = await link.back(session, asked)
        assert message["error"]["data"] == {"reason": "cut_off", "outcome": "not_run", "retryable": True}
        assert shop.runs == 0
        async with link.called(session, 8) as answer:
            await anext(answer)
            _, question = await anext(answer)
            await link.answer(session, question["id"], yes)
            assert text((await anext(answer))[1]) == "paid "
    assert shop.runs == 1


async def test_a_person_answers_after_the_connection_was_lost(servers: Servers, shop: Shop) -> None:
    """A client that lost the connection on which its person was asked gets the question again, and the call is made
    once when it is answered."""
    shop.may_end.set()
    async with servers.up(asks=True) as link:
        session = await link.open()
        async with link.called(session) as answer:
            last, _ = await anext(answer)
            await anext(answer)
        async with link.listening(session, last) as stream:
            _, question = await anext(stream)
            yes = {"action": "accept", "content": {"answer": "once"}}
            await link.answer(session, question["id"], yes)
            assert text((await anext(stream))[1]) == "paid "
    assert shop.runs == 1


async def test_clients_that_get_no_first_event(servers: Servers, shop: Shop) -> None:
    """A client of 2025-06-18, whose streams no event announces, comes back after the first one that it gets."""
    shop.may_end.set()
    async with servers.up(asks=True) as link:
        session = await link.open(version="2025-06-18")
        async with link.called(session) as answer:
            last, question = await anext(answer)
        async with link.listening(session, last) as stream:
            await link.answer(session, question["id"], {"action": "decline"})
            assert "denied" in text((await anext(stream))[1])


async def test_without_streams_there_is_none_to_come_back_to(servers: Servers, shop: Shop) -> None:
    """With `json_response` nothing is kept, and a client that comes back listens to what comes."""
    shop.may_end.set()
    async with servers.up(json_response=True) as link:
        session = await link.open(version="2025-06-18")
        async with link.called(session) as answer:
            assert [event async for event in answer] == []  # one body of JSON
        async with link.listening(session, EventID("0" * 16, 1, 7).text()) as stream:
            link.tools.notify_changes()
            name, notice = await anext(stream)
            assert (name, notice["method"]) == ("", "notifications/tools/list_changed")


def test_numbers_and_their_digits_differ() -> None:
    """The ID of a request keeps its kind, whatever else the request has."""
    assert request_id(b'{"id": 7, "method": "x"}', "7") == 7
    assert request_id(b'{"id": "7", "method": "x"}', "7") == "7"
    assert request_id(b'{"id": 7, "params": {"id": "7"}}', "7") == 7
    assert [request_id(b"{}", name) for name in ("-3", "0", "007", "x")] == [-3, 0, "007", "x"]
    for request in (7, "7", "\u00e9\n", None):
        event = EventID("0" * 16, 5, request)
        assert EventID.read(event.text()) == event
    assert EventID("0" * 16, 5, "x" * 300).text() == ""


def ended(log: SessionLog, kept: Ended, name: str, size: int) -> Stream:
    stream = Stream(log)
    stream.open(name, name)
    stream.add("x" * size, last=True)
    kept.add(stream)
    return stream


def test_what_is_kept_of_a_session_is_bounded() -> None:
    """The last fifty streams of a session are kept, and of a stream its last hundred events; an answer that alone is
    too long is not."""
    kept, log = Ended(), SessionLog("ann", "s")
    for number in range(60):
        ended(log, kept, str(number), 10)
    assert list(log.streams) == [str(number) for number in range(10, 60)]
    assert (len(kept), kept.size) == (50, 500)
    stream = Stream(log)
    for _ in range(150):
        last = stream.add("x", last=False)
    assert (last, len(stream.after(0)), stream.size, stream.is_whole) == (150, 100, 100, True)
    stream.add("x" * 2_000_000, last=True)
    assert (stream.after(0), stream.size, stream.is_whole) == ([], 0, False)
    kept.end(log)
    assert (len(kept), kept.size, list(log.streams)) == (0, 0, [])


def test_who_has_most_makes_room() -> None:
    """Where too much is kept, the caller with most loses its oldest streams, and no other one any."""
    kept, few = Ended(), SessionLog("bob", "b")
    ended(few, kept, "only", 1000)
    for session in range(40):
        log = SessionLog("ann", str(session))
        for number in range(4):
            ended(log, kept, str(number), 1_000_000)
    assert kept.size <= 64 << 20
    assert "only" in few.streams
    assert "3" in log.streams


@pytest.mark.full
async def test_the_sdk_comes_back_by_itself(serve: Serve, tmp_path: Path, shop: Shop) -> None:
    """The SDK's client, in the middle of a call when its server is replaced by another one at the same address, gets
    the error that says how the call stands, and its session goes on."""
    path = tmp_path / "server.db"
    async with AsyncExitStack() as stack:
        port = 0
        for turn in range(2):
            http = HttpSettings(port=port, shutdown_grace=0)
            settings = ServeSettings(state_path=str(path), http=http)
            async with ToolServer(shop.ex(), settings) as tools:
                server = await serve(http, AuthSettings(), tools)
                if turn == 0:
                    port = server.port
                    client = await stack.enter_async_context(server.client("legacy"))
                    calling = asyncio.create_task(client.call_tool("run_tool", {"tool_id": "shop:pay"}))
                    await shop.running.wait()
                else:
                    with pytest.raises(MCPError, match="what it did is unknown, and nothing was run again") as caught:
                        await calling
                    assert caught.value.error.data["outcome"] == "unknown"
                    shop.may_end.set()
                    reply = await client.call_tool("run_tool", {"tool_id": "shop:pay"})
                    assert reply.content[0].text == "paid twice"
                    await stack.aclose()
                await server.end()
    assert shop.runs == 2
