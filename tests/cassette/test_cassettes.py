"""Sessions that are recorded, and made again from the file."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Gate, Policy, Rule, Step, Tool, ToolReply, tool
from toolexec.cassette import Cassette
from toolexec.errors import (
    CassetteDriftError,
    CassetteError,
    CassetteMissError,
    ExecutionError,
    InputValidationError,
    Outcome,
    OutputValidationError,
    PolicyError,
    ToolTimeoutError,
)
from toolexec.model.redaction import Redactor
from toolexec.run.layers.cache import Cache
from toolexec.run.layers.ledger import Ledger
from toolexec.testing import InMemoryBackend

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Shop:
    """Tools that count their calls, around one cassette."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[Any] = []
        self.fails = False

    def open(self, mode: str, **settings: Any) -> Exec:
        """Return an Exec with the tools."""
        ex = Exec(cassette=self.path, cassette_mode=mode, **settings)  # type: ignore[arg-type]
        ex.add(Tool(name="double", namespace="t", input_schema=NUMBER), handler=self.double)
        ex.add(Tool(name="draw", namespace="t", input_schema={"type": "object"}), handler=self.draw)
        ex.add(
            Tool(name="odd", namespace="t", input_schema=NUMBER, output_schema={"type": "string"}), handler=self.double
        )
        ex.add(self.count, "t:count")
        return ex

    def real(self, **settings: Any) -> Exec:
        """Return an Exec with one of the tools, and no cassette."""
        ex = Exec(**settings)
        ex.add(Tool(name="double", namespace="t", input_schema=NUMBER), handler=self.double)
        return ex

    def read(self, n: int) -> int:
        """Return how often it was called."""
        self.calls.append(n)
        return len(self.calls)

    async def double(self, args: dict[str, Any]) -> Any:
        """Return twice the number, and the number of calls."""
        self.calls.append(args["n"])
        if self.fails:
            raise ExecutionError("no such shelf", details={"shelf": 4}, code="shelf", outcome=Outcome.REFUSED)
        return {"double": args["n"] * 2, "calls": len(self.calls)}

    def draw(self, args: dict[str, Any]) -> ToolReply:
        """Return a picture."""
        return ToolReply(content=[{"type": "image", "data": "aGk=", "mimeType": "image/png"}])

    async def count(self, to: int) -> Any:
        """Count."""
        for number in range(to):
            yield number


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "session.yaml")


async def values(ex: Exec, *numbers: int) -> list[Any]:
    """Call the tool with each of the numbers."""
    async with ex:
        return [(await ex.run_tool("t:double", {"n": n})).value for n in numbers]


async def test_a_session_is_made_again_without_its_tools(shop: Shop) -> None:
    """Calls that are equal answer in the order in which they were recorded."""
    recorded = await values(shop.open("record"), 1, 2, 1)
    assert [each["calls"] for each in recorded] == [1, 2, 3]
    assert await values(shop.open("replay"), 2, 1, 1) == [recorded[1], recorded[0], recorded[2]]
    assert shop.calls == [1, 2, 1]


async def test_the_recorded_tools_are_there_without_being_added(shop: Shop) -> None:
    """A replay finds, describes and calls what the session saw, with its schemas."""
    await values(shop.open("record"), 1)
    async with Exec(cassette=shop.path) as ex:
        [found] = await ex.search_tools("double")
        doc = await ex.get_tool_doc("t:double", "schema")
        assert (found.id, doc.tool.input_schema.to_json()) == ("t:double", NUMBER)
        assert (await ex.run_tool("t:double", {"n": 1})).value == {"double": 2, "calls": 1}
        with pytest.raises(InputValidationError):
            await ex.run_tool("t:double", {"n": "one"})


async def test_a_replay_opens_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """No backend is started or called, and no process or socket is opened."""
    remote = InMemoryBackend("far", {"go": "gone"}, tools=[Tool(name="go", input_schema={"type": "object"})])
    async with Exec(cassette=shop.path, cassette_mode="record", gate=None) as ex:
        await ex.add_backends(remote)
        assert (await ex.run_tool("far:go")).value == "gone"

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a replay reached out")

    again = InMemoryBackend("far", {"go": "live"}, tools=[Tool(name="go", input_schema={"type": "object"})])
    for name in ("start", "call", "list_tools"):
        monkeypatch.setattr(again, name, refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse)
    async with Exec(cassette=shop.path, gate=None) as ex:
        await ex.add_backends(again)
        [status] = await ex.add_mcp("other", command="no-such-program")
        assert status.available, "an agent that looks at it goes on as it did then"
        await ex.refresh()
        assert all(status.available for status in ex.backend_statuses())
        assert [each.unavailable for each in await ex.search_tools("go")] == [None]
        result = await ex.run_tool("far:go")
    assert (result.value, result.binding and result.binding.backend) == ("gone", "far")


async def test_another_cassette_leaves_the_first_one_as_it_was(shop: Shop, tmp_path: Path) -> None:
    """Settings may name one to be recorded, and a command that replays take another."""
    await values(shop.open("record"), 1)
    before = shop.path.read_text()
    (tmp_path / "other.yaml").write_text(before)
    ex = Exec(cassette=shop.path, cassette_mode="record")
    ex.reconfigure(cassette=Cassette(tmp_path / "other.yaml"))
    await values(ex, 1)
    assert shop.path.read_text() == before
    Cassette(shop.path, "refresh").leave()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.yaml", shop.path.name]


async def test_failures_come_back_as_they_were(shop: Shop) -> None:
    """An error has its class, code, details and outcome again."""
    shop.fails = True
    async with shop.open("record") as ex:
        was = (await ex.run_tool("t:double", {"n": 1})).error
    async with shop.open("replay") as ex:
        error = (await ex.run_tool("t:double", {"n": 1})).error
    assert was is not None
    assert error is not None
    assert (type(error), error.code, error.details, error.outcome) == (type(was), was.code, was.details, was.outcome)
    assert (error.tool_id, str(error)) == ("t:double", str(was))


async def test_every_kind_of_answer_comes_back(shop: Shop) -> None:
    """Replies in parts, streams, and values that break their schema are answers like any other."""
    for mode in ("record", "replay"):
        async with shop.open(mode) as ex:
            drawn = await ex.run_tool("t:draw")
            assert [part["type"] for part in drawn.content] == ["image"]
            async with aclosing(ex.stream_tool("t:count", {"to": 3})) as events:
                assert [event.data async for event in events] == [0, 1, 2, [0, 1, 2]]
            odd = await ex.run_tool("t:odd", {"n": 4})
            assert isinstance(odd.error, OutputValidationError)
            assert odd.value == {"double": 8, "calls": 1}
    assert len(shop.calls) == 1


async def test_null_in_place_of_a_value_breaks_the_schema_again(shop: Shop) -> None:
    """A breach is the result's error, as it was."""
    for mode in ("record", "replay"):
        async with shop.open(mode) as ex:
            if mode == "record":
                empty = Tool(name="empty", namespace="t", input_schema={}, output_schema={"type": "string"})
                ex.add(empty, handler=lambda _: None)
            assert isinstance((await ex.run_tool("t:empty")).error, OutputValidationError)


async def test_a_stream_that_was_left_is_left_again(shop: Shop) -> None:
    """The chunks until then come back; more would be the error that its caller gave up."""
    for mode in ("record", "replay"):
        async with shop.open(mode) as ex, aclosing(ex.stream_tool("t:count", {"to": 3})) as events:
            assert [(await anext(events)).data, (await anext(events)).data] == [0, 1]


async def test_a_time_limit_that_passed_passes_again_at_once(shop: Shop) -> None:
    """A call that took too long is recorded as that."""
    for mode in ("record", "replay"):
        async with shop.open(mode) as ex:
            if mode == "record":
                ex.add(Tool(name="wait", namespace="t", input_schema={"type": "object"}), handler=lambda _: _forever())
            result = await ex.run_tool("t:wait", timeout=0.01)
            assert isinstance(result.error, ToolTimeoutError), result


async def _forever() -> None:
    await asyncio.Event().wait()


async def test_an_unknown_call_shows_the_nearest_ones(shop: Shop) -> None:
    """The error has the recorded calls of the tool that are most like it, and what differs."""
    await values(shop.open("record"), 1, 2)
    ex = shop.open("replay")
    with pytest.raises(CassetteMissError, match="n is 3, and was 1") as caught:
        await values(ex, 3)
    assert [each["number"] for each in caught.value.nearest] == [1, 2]
    assert caught.value.outcome is Outcome.NOT_SENT
    assert ex.cassette is not None
    assert (ex.cassette.misses, len(ex.cassette.unused)) == ([caught.value], 2)


async def test_a_call_that_is_made_more_often_is_unknown(shop: Shop) -> None:
    """With `repeats`, the last of equal calls answers again instead."""
    await values(shop.open("record"), 1)
    with pytest.raises(CassetteMissError, match=r"recorded once .* made more often"):
        await values(shop.open("replay"), 1, 1)
    lasting = Cassette(shop.path, repeats=True)
    assert len(await values(Exec(cassette=lasting), 1, 1, 1)) == 3


async def test_auto_records_what_is_not_there(shop: Shop) -> None:
    """Known calls are replayed, others are made and written behind them."""
    await values(shop.open("record"), 1)
    assert [each["calls"] for each in await values(shop.open("auto"), 1, 2)] == [1, 2]
    assert shop.calls == [1, 2]
    assert [each["calls"] for each in await values(shop.open("replay"), 2, 1)] == [2, 1]


async def test_a_stream_of_nothing_is_a_stream(shop: Shop) -> None:
    """Nothing is streamed again, also where one event for all of it would not do."""
    for mode in ("record", "replay"):
        async with shop.open(mode) as ex, aclosing(ex.stream_tool("t:count", {"to": 0}, fallback=False)) as events:
            assert [event.data async for event in events] == [[]]


async def test_refresh_keeps_equal_calls(shop: Shop) -> None:
    """Equal calls keep each the time that it took then."""
    async with Exec(cassette=shop.path, cassette_mode="record") as ex:
        ex.add(lambda: 1, "t:one")
        await ex.run_tool("t:one")
        await ex.run_tool("t:one")
    shop.path.write_text(re.sub("seconds: .*\\n\\.", "seconds: 7.5\\n.", shop.path.read_text()))
    before = shop.path.read_text()
    assert "seconds: 7.5" in before
    async with Exec(cassette=shop.path, cassette_mode="refresh") as ex:
        ex.add(lambda: 1, "t:one")
        await ex.run_tool("t:one")
        await ex.run_tool("t:one")
    assert shop.path.read_text() == before


async def test_refresh_keeps_what_did_not_change(shop: Shop) -> None:
    """The file of a session that comes to the same is the same, byte by byte; what was not called goes."""
    await values(shop.open("record"), 1, 2)
    before = shop.path.read_text()
    shop.calls.clear()
    await values(shop.open("refresh"), 1, 2)
    assert (shop.path.read_text(), shop.calls) == (before, [1, 2])
    await values(shop.open("refresh"), 2)
    assert [call.args for call in Cassette(shop.path).calls] == [{"n": 2}]


@pytest.mark.parametrize("mode", ["replay", "auto", "refresh"])
async def test_another_schema_is_a_named_failure(shop: Shop, mode: str) -> None:
    """Drift is found at the first call of the tool, or by a check."""
    await values(shop.open("record"), 1)
    async with Exec(cassette=shop.path, cassette_mode=mode) as ex:  # type: ignore[arg-type]
        other = Tool(name="double", namespace="t", input_schema={**NUMBER, "maxProperties": 4})
        ex.add(other, handler=shop.double)
        with pytest.raises(CassetteDriftError, match="cassette_mode='record'"):
            await ex.run_tool("t:double", {"n": 1})
        assert ex.cassette is not None
        with pytest.raises(CassetteDriftError):
            ex.cassette.check([other])
    assert shop.calls == [1]


async def test_another_version_of_a_tool_is_another_tool(shop: Shop) -> None:
    """The error says of which version there are calls."""
    old = Tool(name="double", namespace="t", version="1.0.0", input_schema=NUMBER)
    async with Exec(cassette=shop.path, cassette_mode="record") as ex:
        ex.add(old, handler=shop.double)
        await ex.run_tool("t:double:1.0.0", {"n": 1})
    async with Exec(cassette=shop.path) as ex:
        ex.add(old.replace(version="2.0.0"), handler=shop.double)
        with pytest.raises(CassetteMissError, match=r"there are calls of t:double:1\.0\.0"):
            await ex.run_tool("t:double:2.0.0", {"n": 1})


async def test_policy_holds_in_a_replay(shop: Shop) -> None:
    """Rules decide before the cassette answers."""
    await values(shop.open("record"), 1)
    gate = Gate(policy=Policy([Rule("deny", tools="t:double", reason="closed")]))
    with pytest.raises(PolicyError, match="closed"):
        await values(shop.open("replay", gate=gate), 1)


async def test_chains_workflows_and_skills_are_replayed(shop: Shop) -> None:
    """Programs run again, and their calls are answered; a skill is a program, not a call."""
    skill = (
        '+++\nname = "twice"\ndescription = "Doubles."\n+++\ninput n: integer\nreturn run("t:double", {n: n}).double\n'
    )
    chain = [Step("t:double", {"n": 1}), Step("t:double", {"n": {"$ref": "steps.0.double"}})]
    found: list[Any] = []
    for mode in ("record", "replay"):
        async with shop.open(mode) as ex:
            ex.add_skill(skill)
            chained = await ex.run_chain(chain)
            flow = await ex.run_workflow('return run("t:double", {n: 7}).double')
            called = await ex.run_tool("skill:twice", {"n": 8})
            found.append((chained.value, flow.value, called.value))
            assert not flow.error
    assert found[0] == found[1]
    assert shop.calls == [1, 2, 7, 8]
    assert [call.tool for call in Cassette(shop.path).calls] == ["t:double"] * 4


async def test_concurrent_calls_are_kept_in_the_order_in_which_they_began(shop: Shop) -> None:
    """The order in which they end does not change the file."""
    gates = {n: asyncio.Event() for n in (1, 2)}

    async def wait(args: dict[str, Any]) -> int:
        await gates[args["n"]].wait()
        return args["n"]

    async with Exec(cassette=shop.path, cassette_mode="record") as ex:
        ex.add(Tool(name="wait", namespace="t", input_schema=NUMBER), handler=wait)
        first = asyncio.ensure_future(ex.run_tool("t:wait", {"n": 1}))
        second = asyncio.ensure_future(ex.run_tool("t:wait", {"n": 2}))
        await asyncio.sleep(0)
        gates[2].set()
        await second
        gates[1].set()
        await first
    assert [call.value for call in Cassette(shop.path).calls] == [1, 2]


async def test_secrets_are_not_in_the_file(shop: Shop) -> None:
    """Known secrets and values under telling names are replaced, and calls with them match all the same."""
    redact = Redactor()
    redact.add("hunter2-hunter2")
    tool = Tool(name="login", namespace="t", input_schema={"type": "object"})
    for mode in ("record", "replay"):
        cassette = Cassette(shop.path, mode, redact=redact)  # type: ignore[arg-type]
        async with Exec(cassette=cassette) as ex:
            ex.add(tool, handler=lambda args: {"session": "hunter2-hunter2", "user": args["user"]})
            args = {"user": "ann", "password": "a b c", "note": "hunter2-hunter2"}
            assert (await ex.run_tool("t:login", args)).ok
        cassette.close()
    text = shop.path.read_text()
    assert "hunter2" not in text
    assert "a b c" not in text
    assert text.count("[REDACTED]") == 3


PIN = {"type": "object", "properties": {"pin": {"type": "string", "x-secret": True}, "note": {"type": "string"}}}


@pytest.mark.parametrize("echo", ["", "base64", "earlier", "error", "reply", "breach", "chunk"])
async def test_a_marked_value_is_hidden_wherever_it_is_repeated(shop: Shop, echo: str) -> None:
    """In results, errors and pieces, of its call and of others; the replay asks the same."""
    pin = "nine-lives-4711"

    def answer(args: dict[str, Any]) -> Any:
        if echo == "error":
            raise ExecutionError(f"{pin} is wrong", details={"seen": [pin]})
        if echo == "reply":
            text = {"type": "text", "text": f"your pin is {pin}"}
            return ToolReply(content=[text], structured={"pin": pin, "note": "ok"})
        if echo == "breach":
            return {"pin": pin, "note": 7}
        return {"said": base64.b64encode(pin.encode()).decode() if echo == "base64" else f"pin={pin}"}

    async def pieces(args: dict[str, Any]) -> Any:
        yield {"note": pin}

    output = PIN if echo in ("reply", "breach") else None
    for mode in ("record", "replay"):
        async with Exec(cassette=shop.path, cassette_mode=mode) as ex:  # type: ignore[arg-type]
            ex.add(Tool(name="who", namespace="t", input_schema={"type": "object"}), handler=lambda _: f"is {pin}")
            ex.add(
                Tool(name="login", namespace="t", input_schema=PIN, output_schema=output),
                handler=pieces if echo == "chunk" else answer,
            )
            if echo == "earlier":
                await ex.run_tool("t:who")
            asked = {"note": f"it is {pin}", "pin": pin}
            if echo in ("chunk", "breach"):
                async with aclosing(ex.stream_tool("t:login", asked)) as events:
                    assert [event async for event in events]
            if echo != "chunk":
                await ex.run_tool("t:login", asked)
            await ex.run_tool("t:who")
    text = shop.path.read_text()
    assert "nine-lives" not in text
    assert base64.b64encode(pin.encode()).decode() not in text


async def test_words_under_telling_names_stay_where_they_say_something(shop: Shop) -> None:
    """A schema in a result may have the password `string`, which is a word like any other."""
    for mode in ("record", "replay"):
        async with Exec(cassette=shop.path, cassette_mode=mode) as ex:  # type: ignore[arg-type]
            ex.add(
                Tool(name="get", namespace="t", input_schema={"type": "object"}),
                handler=lambda args: {"password": "string", "kind": "string"},
            )
            assert (await ex.run_tool("t:get")).value["kind"] == "string"
            assert (await ex.run_tool("t:get", {"kind": "string"})).ok


async def test_a_definition_with_a_secret_is_refused(shop: Shop) -> None:
    """Nothing is written, and the error does not have the secret either."""
    redact = Redactor()
    redact.add("hunter2-hunter2")
    cassette = Cassette(shop.path, "record", redact=redact)
    ex = Exec(cassette=cassette)
    ex.add(
        Tool(name="x", namespace="t", description="use hunter2-hunter2", input_schema={"type": "object"}),
        handler=lambda _: 1,
    )
    await ex.run_tool("t:x")
    with pytest.raises(CassetteError, match=r"definition\.description of t:x") as caught:
        await ex.aclose()
    assert caught.value.code == "cassette_secret"
    assert "hunter2" not in str(caught.value)
    with pytest.raises(CassetteError):
        cassette.close()
    assert not shop.path.exists()


@pytest.mark.parametrize("mode", ["replay", "auto"])
async def test_a_replay_is_not_an_effect(mode: str, shop: Shop, tmp_path: Path) -> None:
    """A ledger keeps what a replay was asked to do once apart: the real call with that key is made."""

    async def pay(mode: str | None, key: str) -> tuple[Any, Any]:
        ledger = Ledger(tmp_path / "effects.db")
        ex = shop.open(mode, gate=Gate(ledger=ledger)) if mode else shop.real(gate=Gate(ledger=ledger))
        try:
            async with ex:
                paid = [await ex.run_tool("t:double", {"n": 1}, idempotency_key=key) for _ in range(2)]
        finally:
            ledger.close()
        assert paid[1].cached  # one key is one call, in a replay, too
        return paid[0].value, paid[1].value

    first = {"double": 2, "calls": 1}
    assert await pay("record", "a") == (first, first)
    assert await pay(mode, "b") == (first, first)
    assert shop.calls == [1]
    second = {"double": 2, "calls": 2}
    assert await pay(None, "b") == (second, second)


READS: dict[str, Callable[[Exec], Awaitable[Any]]] = {
    "call": lambda ex: ex.run_tool("t:read", {"n": 1}),
    "chain": lambda ex: ex.run_chain([{"tool_id": "t:read", "args": {"n": 1}}]),
    "workflow": lambda ex: ex.run_workflow('return run("t:read", {n: 1})'),
    "code": lambda ex: ex.execute_code('return tools.run("t:read", {"n": 1})'),
}


@pytest.mark.parametrize("replay", ["replay", "auto"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_a_replay_and_a_real_session_share_no_cached_answers(
    read: Callable[[Exec], Awaitable[Any]], replay: str, shop: Shop, tmp_path: Path
) -> None:
    """Answers of a cassette are not given in a real session, nor those of a real one in place of the cassette."""

    async def value(mode: str | None) -> Any:
        cache = Cache(path=tmp_path / "answers.db")
        ex = shop.open(mode, gate=Gate(cache=cache)) if mode else shop.real(gate=Gate(cache=cache))
        ex.add(tool("t:read", read_only=True)(shop.read))
        try:
            async with ex:
                result = await read(ex)
                assert (await read(ex)).value == result.value  # the cache holds within one session
                return result.raise_for_error().value if hasattr(result, "raise_for_error") else result.value
        finally:
            cache.close()

    assert await value("record") == 1
    (tmp_path / "answers.db").unlink()
    assert await value(replay) == 1
    assert await value(None) == 2
    assert await value(replay) == 1


async def test_what_auto_makes_is_an_effect(shop: Shop, tmp_path: Path) -> None:
    """A ledger keeps the calls of mode auto that no recording answers, also one with the arguments of a replayed one:
    the next session makes none of them again."""

    async def pay(mode: str | None, *keys: str) -> list[int]:
        ledger = Ledger(tmp_path / "effects.db")
        ex = shop.open(mode, gate=Gate(ledger=ledger)) if mode else shop.real(gate=Gate(ledger=ledger))
        try:
            async with ex:
                paid = [ex.run_tool("t:double", {"n": 1}, idempotency_key=key) for key in keys]
                return [result.value["calls"] for result in await asyncio.gather(*paid)]
        finally:
            ledger.close()

    assert await pay("record", "a") == [1]
    assert sorted(await pay("auto", "b", "c")) == [1, 2]
    made = await pay(None, "b", "c")
    assert sorted(made) == [2, 3]  # the replayed one is made now, the other is not made again
    assert shop.calls == [1, 1, 1]
