"""Answers of a client that reach another server, over the same file, than the one whose call asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import JSONRPCNotification, JSONRPCRequest
from tests.server.http.conftest import Serve
from tests.server.http.links import BOB, Link, Servers, Shop, text

from toolexec.model.json_value import JSONDict
from toolexec.server.http.asked import Asked, reply_in
from toolexec.server.http.stream import SessionLog, Stream
from toolexec.server.kept_replies import KeptReplies, QuestionName
from toolexec.server.state import FileState

YES: JSONDict = {"action": "accept", "content": {"answer": "once"}}
NO: JSONDict = {"action": "decline"}
NAME = QuestionName("a session", "a question", "ada")


@pytest.fixture
def shop() -> Shop:
    """A shop that does not wait."""
    shop = Shop()
    shop.may_end.set()
    return shop


@pytest.fixture
def servers(serve: Serve, tmp_path: Path, shop: Shop) -> Servers:
    """Servers over a new file."""
    return Servers(serve, tmp_path / "state" / "server.db", shop)


async def asked(answer: AsyncIterator[Any]) -> Any:
    """Return the question that a call asks first."""
    await anext(answer)
    return (await anext(answer))[1]


async def refused(link: Link, session: dict[str, str], question: Any) -> tuple[int, str]:
    """Answer a question with a yes; return the status, and the message of its refusal."""
    answer = await link.server.post({"jsonrpc": "2.0", "id": question, "result": YES}, session)
    return answer.status_code, answer.json()["error"]["message"]


async def test_an_answer_reaches_the_server_that_asks(servers: Servers, shop: Shop) -> None:
    """Two calls of one session wait, each at another server, and each answer comes to the other one: each call gets its
    own, and is made once or not at all. An answer that comes twice, and that of another caller, is refused."""
    async with servers.up(asks=True) as first, servers.up(asks=True) as second:
        session = await first.open()
        async with first.called(session) as one, second.called(session, 8) as two:
            yes, no = await asked(one), await asked(two)
            assert yes["id"] != no["id"]
            bob = await second.open(BOB)
            assert (await refused(second, bob, yes["id"]))[0] == 400
            statuses = await asyncio.gather(second.answer(session, yes["id"], YES), first.answer(session, no["id"], NO))
            assert statuses == [202, 202]
            assert text((await anext(one))[1]) == "paid "
            assert "denied" in text((await anext(two))[1])
            for link in (first, second):
                status, message = await refused(link, session, yes["id"])
                assert (status, "nothing was done for it" in message) == (400, True)
    assert shop.runs == 1


async def test_the_answer_to_nothing(servers: Servers, shop: Shop) -> None:
    """The answer to a number, as the SDK counts its questions, and to a made-up ID, is for no question."""
    async with servers.up(asks=True) as link:
        session = await link.open()
        async with link.called(session) as answer:
            question = await asked(answer)
            for made_up in (0, 1, 2, "1", "x", None):
                assert (await refused(link, session, made_up))[0] == 400
            assert await link.answer(session, question["id"], NO) == 202
            assert "denied" in text((await anext(answer))[1])
    assert shop.runs == 0


async def test_only_an_open_question_takes_one_answer(tmp_path: Path) -> None:
    """Of two answers one is taken; a question that was closed, or is another caller's, takes none; the file has the
    answer in clear at no time, and a server without the key leaves it to one that has it."""
    file = FileState(tmp_path / "state.db")
    asks, other, stranger = (KeptReplies(lambda: file, keys) for keys in (("k" * 32,), ("k" * 32,), ("other" * 8,)))
    assert await other.give(NAME, b"early") == "gone"
    assert await asks.open(NAME)
    assert await other.give(QuestionName(NAME.session, NAME.question, "bob"), b"bob's") == "gone"
    assert await other.give(NAME, b"x" * (256 << 10) + b"x") == "too_long"
    giving = [asyncio.create_task(other.give(NAME, word)) for word in (b"a secret yes", b"a secret no")]
    await asyncio.sleep(0)
    without = asyncio.create_task(stranger.answer(NAME))
    assert await asks.answer(NAME) == b"a secret yes"
    assert await asyncio.gather(*giving) == ["taken", "gone"]
    assert not without.done()
    without.cancel()
    assert b"secret" not in b"".join(each.read_bytes() for each in tmp_path.iterdir())
    await asks.close(NAME)
    assert await other.give(NAME, b"late") == "gone"
    await file.aclose()


async def test_a_question_that_is_taken_back() -> None:
    """The notice that takes a question back names it as its client knows it; an answer after that is refused."""

    async def never(log: SessionLog, message: JSONDict) -> None:
        raise NotImplementedError

    own, log = Asked(None, never), SessionLog("ada", "s")
    stream = Stream(log)
    question = JSONRPCRequest(jsonrpc="2.0", id=1, method="roots/list")
    await own.sending(log, stream, question)
    params = {"requestId": 1, "reason": "timed out"}
    notice = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)
    await own.sending(log, stream, notice)
    assert notice.params == {"requestId": question.id, "reason": "timed out"}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await own.take(log, {"id": question.id, "result": {}}, None, {}, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 400


def test_what_is_an_answer() -> None:
    """A request whose arguments have a result is none; an error is."""
    assert reply_in(json.dumps({"id": 1, "method": "x", "params": {"result": 1}}).encode()) is None
    assert reply_in(b'{"id": "q", "error": {"code": 1, "message": ""}}') is not None
    assert reply_in(b'"result" {') is None
    assert reply_in(b'["result"]') is None
