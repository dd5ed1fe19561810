"""`toolexec serve` as processes: what their clients have missed when one is killed, they get from the next one."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.config.commands import COMMAND
from tests.server.http.conftest import Running
from tests.server.http.links import Link, settled, text
from tests.server.processes import served
from tests.server.test_restart import SETTINGS
from tests.waiting import until

pytestmark = pytest.mark.full
APP = '''
import asyncio
from pathlib import Path
from toolexec import tool

HERE = Path(__file__)


@tool("shop:ship")
async def ship(order: int) -> int:
    """Ship an order, when it may be."""
    with HERE.with_name("shipped").open("a") as out:
        out.write(f"{order}\\n")
    while not HERE.with_name(f"go-{order}").exists():
        await asyncio.sleep(0.01)
    return order


@tool("shop:pay")
def pay(order: int) -> int:
    """Pay an order."""
    with HERE.with_name("paid").open("a") as out:
        out.write(f"{order}\\n")
    return order
'''


class Depot:
    """Servers over one state, and what their tools did."""

    def __init__(self, directory: Path, more: str = "") -> None:
        self.directory = directory
        (directory / "app.py").write_text(APP)
        (directory / "toolexec.toml").write_text(SETTINGS.replace("[server]", f"[server]{more}"))
        for name in ("paid", "shipped"):
            (directory / name).touch()

    def serve(self, name: str = "one") -> AbstractContextManager[str]:
        return served([*COMMAND, "serve", "-c", str(self.directory / "toolexec.toml")], self.directory / name)

    def did(self, name: str) -> list[int]:
        return [int(line) for line in (self.directory / name).read_text().split()]

    def go(self, order: int) -> None:
        (self.directory / f"go-{order}").touch()

    async def lost(self, link: Link, session: dict[str, str], tool: str, order: int) -> str:
        """Call a tool, and lose the connection while it runs, or asks; return the ID of the first event."""
        params = {"name": "run_tool", "arguments": {"tool_id": f"shop:{tool}", "args": {"order": order}}}
        async with link.called(session, order, params) as answer:
            last, _ = await anext(answer)
            if tool == "pay":
                await anext(answer)
            else:
                await until(lambda: order in self.did("shipped"))
        return last


YES = {"action": "accept", "content": {"answer": "once"}}


def paying(order: int) -> dict[str, Any]:
    """Return the call that pays an order, which asks a person."""
    return {"name": "run_tool", "arguments": {"tool_id": "shop:pay", "args": {"order": order}}}


def at(url: str) -> Link:
    return Link(Running(url, asyncio.Event(), asyncio.get_running_loop().create_future()), None)  # type: ignore[arg-type]


async def outcome(link: Link, session: dict[str, str], last: str) -> Any:
    """Come back for a call; return its answer, or how it stands, after what it may have asked until then."""
    _, [*_, (_, message)] = await link.back(session, last)
    return message["error"]["data"]["outcome"] if "error" in message else text(message)


async def answers_at(depot: Depot, first: str, second: str) -> None:
    """Pay an order at one server, with the person's answer at another one."""
    link, other = at(first), at(second)
    session = await link.open()
    async with link.called(session, 11, paying(11)) as answer:
        await anext(answer)
        _, question = await anext(answer)
        assert depot.did("paid") == []
        assert await other.answer(session, question["id"], YES) == 202
        assert text((await anext(answer))[1]) == "11"


async def test_answers_survive_a_kill(tmp_path: Path) -> None:
    """Of calls whose client was away when their server was killed, the next one gives the answer of one that was over,
    says of one that ran that its outcome is unknown, and of one that asked a person that it was not made; it makes
    none, and another caller gets nothing."""
    depot = Depot(tmp_path)
    with depot.serve() as url:
        link = at(url)
        session = await link.open()
        missed, runs = [await depot.lost(link, session, "ship", order) for order in (11, 12)]
        depot.go(11)
        [database] = tmp_path.rglob("server.db")
        await settled(database, "result")
        asks = await depot.lost(link, session, "pay", 13)
    with depot.serve() as url:
        link = at(url)
        waiting = [asyncio.create_task(outcome(link, session, last)) for last in (missed, runs, asks)]
        assert await asyncio.gather(*waiting) == ["11", "unknown", "not_run"]
        assert (await link.back({**session, "authorization": "Bearer bob's"}, runs))[0] == 404
    assert (depot.did("shipped"), depot.did("paid")) == ([11, 12], [])


async def test_an_answer_at_another_process(tmp_path: Path) -> None:
    """A person's answer that reaches another process makes the call where it waits, once. Once the process that asked
    was killed, the answer is refused, and the call is `not_run`: nothing makes it."""
    depot = Depot(tmp_path)
    with depot.serve() as second:
        with depot.serve() as first:
            await answers_at(depot, first, second)
            session, last, question = await left_asking(first, 12)
        assert await at(second).answer(session, question, YES) == 400
        assert await outcome(at(second), session, last) == "not_run"
    assert depot.did("paid") == [11]


async def left_asking(url: str, order: int) -> tuple[dict[str, str], str, str]:
    """Lose the connection of a call that asks a person; return its session, its first event, and its question."""
    link = at(url)
    session = await link.open()
    async with link.called(session, order, paying(order)) as answer:
        last, _ = await anext(answer)
        _, question = await anext(answer)
    return session, last, question["id"]


async def test_a_question_at_another_process(tmp_path: Path) -> None:
    """A client that lost its connection before it saw a question gets it at another process, where its answer makes the
    call that waits, once; the answer of the call comes there, too. No other caller gets either, and the store does not
    have the question in clear."""
    depot = Depot(tmp_path)
    with depot.serve() as first, depot.serve() as second:
        link, other = at(first), at(second)
        session = await link.open()
        async with link.called(session, 11, paying(11)) as answer:
            last, _ = await anext(answer)
            _, question = await anext(answer)
        assert (await other.back({**session, "authorization": "Bearer bob's"}, last))[0] == 404
        assert_unreadable(tmp_path, question["params"]["message"])
        async with other.listening(session, last) as stream:
            asked, again = await anext(stream)
            assert again == question
        async with other.listening(session, asked) as stream:  # it has seen that now
            assert await other.answer(session, question["id"], YES) == 202
            assert text((await anext(stream))[1]) == "11"
        assert depot.did("paid") == [11]


def assert_unreadable(directory: Path, words: str) -> None:
    for database in directory.rglob("server.db*"):
        assert words.encode() not in database.read_bytes()


DENY = '\n[[policy.rules]]\neffect = "deny"\ntools = ["shop:ship"]\n'
PROGRAM = "return tools.shop.ship(order=12)"


async def test_an_answer_of_a_tool_that_is_denied(tmp_path: Path) -> None:
    """A client that comes back gets no answer that came of a tool which has been denied to it since, called by itself or
    by a program, at the same process or at the next one; it does once the tool is allowed again."""
    depot = Depot(tmp_path)
    settings = tmp_path / "toolexec.toml"
    before = settings.read_text()
    with depot.serve() as url:
        link = at(url)
        session = await link.open()
        lasts = [await depot.lost(link, session, "ship", 11)]
        program = {"name": "execute_code", "arguments": {"language": "python", "code": PROGRAM}}
        async with link.called(session, 12, program) as answer:
            lasts.append((await anext(answer))[0])
            await until(lambda: 12 in depot.did("shipped"))
        settings.write_text(before + DENY)
        await until(lambda: is_denied(link, session), pause=0.1)
        waiting = [asyncio.create_task(outcome(link, session, last)) for last in lasts]
        for order in (11, 12):
            depot.go(order)
        assert await asyncio.gather(*waiting) == ["denied", "denied"]
        with depot.serve() as other:  # where the answers come from what the first has kept, which may take it a moment
            assert [await outcome(at(other), session, last) for last in lasts] == ["denied", "denied"]
    settings.write_text(before)
    with depot.serve() as url:
        alone, by_program = [await outcome(at(url), session, last) for last in lasts]
        assert (alone, json.loads(by_program)["value"]) == ("11", 12)
    assert depot.did("shipped") == [11, 12]


async def is_denied(link: Link, session: dict[str, str]) -> bool:
    params = {"name": "run_tool", "arguments": {"tool_id": "shop:ship", "args": {}}}
    async with link.called(session, 99, params) as answer:
        *_, (_, message) = [event async for event in answer]
    return "policy_denied" in str(message) or "tool_not_found" in str(message)
