"""Ledger: what is recorded, and that an effect of unknown outcome is never repeated silently."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import Workshop
from tests.run.layers.resilience import READING, UNMARKED, Clock, Service, behind, busy, by, events_of, raised
from tests.waiting import until

from toolexec import Exec
from toolexec.errors import (
    AuditError,
    BackendUnavailableError,
    ConfigurationError,
    ConnectionLostError,
    ExecutionError,
    PolicyError,
    ToolTimeoutError,
)
from toolexec.model import ToolAnnotations, ToolCall
from toolexec.model.origin import ApprovalRequest
from toolexec.run import Runner
from toolexec.run.effects import Effect, EffectLedger
from toolexec.run.gate import Gate
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.retry import Retry
from toolexec.run.policy import Policy, Rule
from toolexec.run.reconcile import CHECK


class Book:
    """A service behind a ledger."""

    def __init__(self, shop: Workshop, path: Path, **parts: Any) -> None:
        self.path = path / "effects.db"
        self.clock = Clock()
        self.effects = EffectLedger(self.path, clock=self.clock)
        self.service = Service(shop)
        self.keys: list[str] = shop.backends.get("hub").keys  # type: ignore[union-attr]
        self.runner: Runner = behind(shop, ledger=Ledger(self.effects), **parts)

    async def lose(self, **call: Any) -> Effect:
        """Make a call whose outcome is unknown."""
        self.service.fail(ConnectionLostError("gone"))
        assert not (await self.runner.run(ToolCall("hub:post", **call))).ok
        return self.effects.unsettled()[-1]

    def states(self) -> list[str]:
        """The states of all effects, in order."""
        with closing(sqlite3.connect(self.path)) as database:
            return [row[0] for row in database.execute("SELECT state FROM effects ORDER BY rowid")]


@pytest.fixture
def book(workshop: Workshop, tmp_path: Path) -> Iterator[Book]:
    """A book that is closed afterwards."""
    made = Book(workshop, tmp_path)
    yield made
    made.effects.close()


async def test_calls_are_recorded_before_and_after(book: Book) -> None:
    """While a call is under way its record is there already, and its end is added."""
    seen: list[str] = []

    async def look() -> int:
        seen.extend(book.states())
        return 1

    book.service.next = [look]
    assert (await book.runner.run(ToolCall("hub:post", {"a": 1}))).value == 1
    assert (seen, book.states()) == (["begun"], ["done"])
    assert book.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["read", "put"])
async def test_what_may_run_twice_is_not_recorded(book: Book, name: str) -> None:
    """Read-only and idempotent tools need no ledger."""
    await book.runner.run(ToolCall(f"hub:{name}"))
    assert book.states() == []


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (ConnectionLostError("gone"), "unknown"),
        (ToolTimeoutError("late"), "unknown"),
        (busy(), "unknown"),
        (ConnectionResetError("gone"), "unknown"),
        (ExecutionError("no such account"), "failed"),
        (ValueError("a bug"), "failed"),
        (BackendUnavailableError("down"), "not_done"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
async def test_what_a_failure_says(book: Book, failure: Exception, state: str) -> None:
    """A tool that says no has said so; what was lost on the way is unknown."""
    book.service.fail(failure)
    try:
        await book.runner.run(ToolCall("hub:post"))
    except BackendUnavailableError:
        pass
    assert book.states() == [state]


async def test_an_unknown_outcome_is_not_repeated(book: Book) -> None:
    """The next equal call is refused without reaching the tool, and says what to do; others are made."""
    effect = await book.lose(args={"a": 1})
    error = await raised(book.runner, ToolCall("hub:post", {"a": 1}))
    assert isinstance(error, PolicyError)
    assert (error.code, error.retryable, error.outcome == "not_sent") == ("outcome_unknown", False, True)
    assert (error.details["effect"], error.details["since"]) == (effect.id, "1970-01-01T00:16:40+00:00")
    assert effect.id in error.message
    assert book.service.count == 1
    for call in (ToolCall("hub:post", {"a": 2}), ToolCall("hub:post", {"a": 1}, origin=by("ann"))):
        assert (await book.runner.run(call)).ok


async def test_equal_calls_that_ended_well_may_be_made_again(book: Book) -> None:
    """Without a key two equal calls are two effects."""
    for _ in range(2):
        assert (await book.runner.run(ToolCall("hub:post", {"a": 1}))).ok
    assert book.states() == ["done", "done"]


@pytest.mark.parametrize("done", [True, False])
async def test_a_person_may_settle_it(book: Book, done: bool) -> None:
    """Once it is known how it was, equal calls are made again."""
    effect = await book.lose()
    assert book.effects.settle(effect.id, done=done)
    assert not book.effects.settle(effect.id, done=done)
    assert not book.effects.settle("e-unknown", done=done)
    assert book.effects.unsettled() == []
    assert (await book.runner.run(ToolCall("hub:post"))).ok
    assert book.service.count == 2


async def test_a_key_is_one_effect(book: Book) -> None:
    """A second call with the same key gets the first one's answer, and reaches nothing."""
    first = await book.runner.run(ToolCall("hub:post", {"a": 1}, idempotency_key="k1"))
    second = await book.runner.run(ToolCall("hub:post", {"a": 1}, idempotency_key="k1"))
    assert (second.value, second.cached, book.service.count) == (first.value, True, 1)
    third = await book.runner.run(ToolCall("hub:post", {"a": 1}, idempotency_key="k2"))
    assert (third.cached, book.service.count) == (False, 2)
    error = await raised(book.runner, ToolCall("hub:post", {"a": 2}, idempotency_key="k1"))
    assert isinstance(error, ConfigurationError)
    [event] = await events_of(book.runner, ToolCall("hub:post", {"a": 1}, idempotency_key="k1", fallback=True))
    assert event.data == first.value
    assert book.keys == ["k1", "k2"]


async def test_another_run_does_not_repeat_what_may_have_been_done(book: Book) -> None:
    """A step of a durable run has a key for its own place only: an equal call of unknown outcome holds it back, whether
    that had no key or was a step of another run; one that is done holds back the same step alone."""
    step = ToolCall("hub:post", {"a": 1}, idempotency_key="run-1/0", step="0")
    other = ToolCall("hub:post", {"a": 1}, idempotency_key="run-2/0", step="0")
    plain = ToolCall("hub:post", {"a": 1})
    for lost in ({}, {"idempotency_key": "run-0/0", "step": "0"}):
        effect = await book.lose(args={"a": 1}, **lost)
        for call in (step, other, plain):
            with pytest.raises(PolicyError) as caught:
                await book.runner.run(call)
            assert caught.value.code == "outcome_unknown"
        book.effects.settle(effect.id, done=False)
    book.service.next = [1, 2]
    assert [(await book.runner.run(call)).value for call in (step, other)] == [1, 2]
    again = await book.runner.run(step)
    assert (again.value, again.cached) == (1, True)
    assert book.keys[-2:] == ["run-1/0", "run-2/0"]
    elsewhere = ToolCall("hub:post", {"a": 2}, idempotency_key="run-1/0", step="0")
    book.service.next = [3]
    assert (await book.runner.run(elsewhere)).value == 3


async def test_a_key_whose_call_failed_may_be_used_again(book: Book) -> None:
    """A tool that said no has done nothing that the key stands for."""
    book.service.fail(ExecutionError("no"))
    for ok in (False, True):
        assert (await book.runner.run(ToolCall("hub:post", idempotency_key="k"))).ok is ok


async def test_a_key_under_way_is_refused(book: Book) -> None:
    """The same key at the same time waits for nothing: its caller may try again."""
    release = asyncio.Event()
    book.service.next = [release.wait, release.wait]
    first = asyncio.create_task(book.runner.run(ToolCall("hub:post", idempotency_key="k")))
    await until(lambda: book.service.count, 0)
    error = await raised(book.runner, ToolCall("hub:post", idempotency_key="k"))
    assert (error.code, error.retryable) == ("effect_in_progress", True)
    plain = asyncio.create_task(book.runner.run(ToolCall("hub:post")))
    await until(lambda: book.service.count >= 2, 0)
    release.set()
    assert (await first).ok
    assert (await plain).ok


async def test_an_answer_that_is_not_kept_is_not_made_up(book: Book) -> None:
    """A done effect without its answer is neither repeated nor answered."""
    book.service.next = ["x" * (2 << 20)]
    assert (await book.runner.run(ToolCall("hub:post", idempotency_key="k"))).ok
    error = await raised(book.runner, ToolCall("hub:post", idempotency_key="k"))
    assert "its answer is not kept" in error.message


async def test_each_attempt_has_the_same_key(book: Book, workshop: Workshop) -> None:
    """The backend gets one key for all attempts at one effect, and another one for the next effect."""
    clock = Clock()
    runner = behind(workshop, ledger=Ledger(book.effects), retry=Retry(pause=0, sleep=clock.sleep))
    book.service.fail(BackendUnavailableError("down"), BackendUnavailableError("down"))
    for _ in range(2):
        assert (await runner.run(ToolCall("hub:post"))).ok
    first, *_, last = book.keys
    assert book.keys == [first, first, first, last]
    assert first != last
    assert book.states() == ["done", "done"]


async def test_a_cancelled_call_is_unknown(book: Book) -> None:
    """A caller that leaves cannot know what the tool did."""
    book.service.next = [asyncio.Event().wait]
    task = asyncio.create_task(book.runner.run(ToolCall("hub:post")))
    await until(lambda: book.service.count, 0)
    task.cancel()
    await asyncio.wait([task])
    assert book.states() == ["unknown"]


async def test_streams_are_recorded(book: Book, workshop: Workshop) -> None:
    """A stream ends as its last event says; one that is left early is unknown."""

    async def pages(fails: bool = False) -> Any:
        yield 1
        if fails:
            raise ValueError("no")

    workshop.add(pages, "doc:pages")
    await events_of(book.runner, ToolCall("doc:pages"))
    await events_of(book.runner, ToolCall("doc:pages", {"fails": True}))
    async with aclosing(book.runner.stream(ToolCall("doc:pages", {"fails": False}))) as stream:
        await anext(stream)
    assert book.states() == ["done", "failed", "unknown"]
    with pytest.raises(PolicyError, match="it may have done its work"):
        await events_of(book.runner, ToolCall("doc:pages", {"fails": False}))


# -- finding out ------------------------------------------------------------------------------------------------


def _checkable(book: Book, answer: list[Any], hints: ToolAnnotations = READING) -> None:
    """Add a tool whose next call is lost, and another one that is asked about it and answers so."""
    schema = {"type": "object", "properties": {"a": {}, "idempotency_key": {}}}
    book.service.add("pay", meta={CHECK: "hub:paid"})
    book.service.add("paid", hints, input_schema=schema)
    book.service.fail(ConnectionLostError("gone"), then=answer)


@pytest.mark.parametrize(
    ("answer", "value", "called"),
    [
        ([True], None, ["pay", "paid"]),
        ([{"done": True, "value": 7}], 7, ["pay", "paid"]),
        ([False, 8], 8, ["pay", "paid", "pay"]),
        ([{"done": False}, 9], 9, ["pay", "paid", "pay"]),
    ],
    ids=str,
)
async def test_the_tool_itself_may_know(book: Book, answer: list[Any], value: Any, called: list[str]) -> None:
    """A tool that names another one to ask is asked, with the arguments that that one takes and the key it was sent."""
    _checkable(book, answer)
    await book.runner.run(ToolCall("hub:pay", {"a": 1, "b": 2}))
    result = await book.runner.run(ToolCall("hub:pay", {"a": 1, "b": 2}))
    assert (result.value, [name for name, _ in book.service.calls]) == (value, called)
    assert result.cached is (len(called) == 2)
    assert book.service.calls[1][1] == {"a": 1, "idempotency_key": book.keys[0]}


@pytest.mark.parametrize("answer", [[None], ["yes"], [{"done": "yes"}], [ExecutionError("no idea")]], ids=str)
async def test_an_unclear_answer_settles_nothing(book: Book, answer: list[Any]) -> None:
    """Anything but a plain yes or no leaves the outcome unknown."""
    _checkable(book, answer)
    await book.runner.run(ToolCall("hub:pay"))
    assert (await raised(book.runner, ToolCall("hub:pay"))).code == "outcome_unknown"
    assert book.states() == ["unknown"]


async def test_a_check_must_not_change_anything(book: Book) -> None:
    """A tool that is not marked read-only is not called to find out."""
    _checkable(book, [True], hints=UNMARKED)
    await book.runner.run(ToolCall("hub:pay"))
    await raised(book.runner, ToolCall("hub:pay"))
    assert book.service.count == 1


async def test_a_policy_decides_on_the_check(workshop: Workshop, tmp_path: Path) -> None:
    """A tool that the caller may not call is not called for it."""
    book = Book(workshop, tmp_path, policy=Policy([Rule("deny", tools="hub:paid")], remote_destructive="allow"))
    _checkable(book, [True])
    await book.runner.run(ToolCall("hub:pay"))
    assert (await raised(book.runner, ToolCall("hub:pay"))).code == "outcome_unknown"
    assert book.service.count == 1
    book.effects.close()


@pytest.mark.parametrize(
    ("answer", "made"), [("once", True), ("no", False), ("maybe", False), (OSError(), False)], ids=str
)
async def test_the_caller_may_be_asked(book: Book, answer: Any, made: bool) -> None:
    """A caller that can be asked decides whether to make the call again; its backend then gets the key that it got before."""
    asked: list[ApprovalRequest] = []

    async def ask(request: ApprovalRequest) -> Any:
        asked.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    origin = by("ann", ask=ask)
    await book.lose(args={"a": 1, "password": "s3cret"}, origin=origin)
    call = ToolCall("hub:post", {"a": 1, "password": "s3cret"}, origin=origin)
    if made:
        assert (await book.runner.run(call)).ok
        assert book.states() == ["repeated", "done"]
        assert book.keys[0] == book.keys[1] != ""
    else:
        assert (await raised(book.runner, call)).code == "outcome_unknown"
    assert (asked[0].tool_id, asked[0].args["a"], asked[0].longest) == ("hub:post", 1, "once")
    assert "s3cret" not in str(asked[0])
    assert "may have done its work" in asked[0].reason


async def test_an_approver_that_does_not_answer_says_no(workshop: Workshop, tmp_path: Path) -> None:
    """Silence does not permit anything."""
    Service(workshop).fail(ConnectionLostError("gone"))
    ledger = Ledger(tmp_path / "effects.db", ask_timeout=0.01)
    runner = behind(workshop, ledger=ledger)

    async def ask(request: ApprovalRequest) -> Any:
        await asyncio.Event().wait()

    await runner.run(ToolCall("hub:post", origin=by(ask=ask)))
    assert (await raised(runner, ToolCall("hub:post", origin=by(ask=ask)))).code == "outcome_unknown"
    ledger.close()


async def test_a_call_that_is_given_up_with_the_answer_is_not_made(book: Book) -> None:
    """Nothing goes on for a caller that is cancelled in the moment in which it permits that."""
    asked, answer = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def ask(request: ApprovalRequest) -> Any:
        asked.set()
        return await answer

    origin = by("ann", ask=ask)
    await book.lose(args={"a": 1}, origin=origin)
    call = asyncio.create_task(book.runner.run(ToolCall("hub:post", {"a": 1}, origin=origin)))
    await asked.wait()
    answer.set_result("once")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert book.service.count == 1


# -- the file ---------------------------------------------------------------------------------------------------

_CRASH = """
import asyncio, os, sys
from toolexec import Exec
from toolexec.run.gate import Gate
from toolexec.run.layers.ledger import Ledger

def pay(amount: int) -> None:
    os._exit(9)

with Exec(gate=Gate(ledger=Ledger(sys.argv[1]))).sync as ex:
    ex.add(pay, "bank:pay")
    ex.run_tool("bank:pay", {"amount": 5})
"""


async def test_a_process_that_dies_leaves_an_unknown_outcome(tmp_path: Path) -> None:
    """The next process does not repeat what the dead one had begun."""
    path = tmp_path / "effects.db"
    done = subprocess.run([sys.executable, "-c", _CRASH, str(path)], check=False, timeout=60, env={**os.environ})
    assert done.returncode == 9
    paid: list[int] = []
    ledger = Ledger(path)
    async with Exec(gate=Gate(ledger=ledger)) as ex:
        ex.add(lambda amount: paid.append(amount), "bank:pay")
        with pytest.raises(PolicyError, match="it may have done its work"):
            await ex.run_tool("bank:pay", {"amount": 5})
        assert (await ex.run_tool("bank:pay", {"amount": 6})).ok
        [effect] = ledger.effects.unsettled()
        assert (effect.state, effect.is_live, effect.tool) == ("begun", False, "bank:pay")
        ledger.effects.settle(effect.id, done=False)
        assert (await ex.run_tool("bank:pay", {"amount": 5})).ok
    assert paid == [6, 5]
    ledger.close()


async def test_a_ledger_that_cannot_be_written_makes_no_call(book: Book) -> None:
    """Without a record there is no call; an end that cannot be written loses no result."""

    async def close() -> int:
        book.effects.close()
        return 1

    book.service.next = [close]
    assert (await book.runner.run(ToolCall("hub:post"))).value == 1
    error = await raised(book.runner, ToolCall("hub:post"))
    assert isinstance(error, AuditError)
    assert (error.code, error.outcome == "not_sent") == ("ledger", True)
    assert book.service.count == 1
    with pytest.raises(AuditError):
        EffectLedger(book.path.parent)


async def test_old_effects_go(tmp_path: Path) -> None:
    """Those whose outcome is known are forgotten after some time, the others stay."""
    clock = Clock()
    with closing(EffectLedger(tmp_path / "effects.db", keep=100, clock=clock)) as effects:
        for number, state in enumerate(("done", "unknown")):
            effects.begin(Effect(id=str(number), key="k", args="", tool="t", began=clock.now), lambda _: True)
            effects.end(str(number), state)  # type: ignore[arg-type]
    clock.now += 101
    with closing(EffectLedger(tmp_path / "effects.db", keep=100, clock=clock)) as effects:
        effects.begin(Effect(id="2", key="k", args="", tool="t", began=clock.now), lambda _: True)
        assert [each is not None for each in map(effects.get, "012")] == [False, True, True]


async def test_only_some_tools(workshop: Workshop, tmp_path: Path) -> None:
    """Patterns say which tools the ledger is for."""
    Service(workshop)
    ledger = Ledger(tmp_path / "effects.db", tools=["bank:*"])
    await behind(workshop, ledger=ledger).run(ToolCall("hub:post"))
    with closing(sqlite3.connect(tmp_path / "effects.db")) as database:
        assert database.execute("SELECT count(*) FROM effects").fetchone() == (0,)
    ledger.close()


async def test_arguments_are_not_kept(book: Book) -> None:
    """The file has digests of arguments only, and no answers without a key."""
    book.service.next = [{"token": "t0psecret"}]
    await book.runner.run(ToolCall("hub:post", {"password": "s3cret"}))
    book.effects.close()
    text = b"".join(path.read_bytes() for path in book.path.parent.iterdir())
    assert b"s3cret" not in text
    assert b"t0psecret" not in text
