"""Counting the tokens of conversations, and the limits that they have."""

from __future__ import annotations

import threading

import pytest

from toolexec import Exec
from toolexec.errors import ConfigurationError, ContextBudgetError, Outcome
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.context import CAUSES, ContextMeter
from toolexec.run.context_settings import ContextSettings

ANN = Caller(id="ann", method="api_key")
FIRST, SECOND = Origin(caller=ANN, session="1", client="agent"), Origin(caller=ANN, session="2")
TEXT = "word " * 64  # 100 tokens by the estimate of results, 80 by that of prose


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_was_read_and_written_is_kept_by_cause() -> None:
    """Each conversation has its own account; the totals have all of them."""
    meter = ContextMeter()
    assert meter.count(FIRST, "search", TEXT) == 80
    meter.count(FIRST, "results", TEXT, {"a": 1})
    meter.count(FIRST, "results", TEXT)
    meter.count(SECOND, "errors", TEXT)
    cost = meter.cost(FIRST)
    assert cost.read == {"search": 80, "results": 200}
    assert cost.written == {"results": 3}
    assert (cost.total, cost.calls, cost.caller, cost.client, cost.session) == (283, 3, "ann", "agent", "1")
    assert [one.session for one in meter.costs()] == ["1", "2"]
    assert {cause: meter.read[cause] for cause in CAUSES if meter.read[cause]} == {
        "search": 80,
        "results": 200,
        "errors": 80,
    }
    assert sum(meter.written.values()) == 3


def test_a_list_that_is_read_again_takes_the_place_of_the_first() -> None:
    """A model holds one list of tools, however often its client asks for it; the totals count each reading."""
    meter = ContextMeter()
    meter.count(FIRST, "tools", TEXT, again=True)
    meter.count(FIRST, "tools", TEXT)
    assert meter.cost(FIRST).read == {"tools": 144}
    meter.count(FIRST, "tools", TEXT, again=True)
    assert meter.cost(FIRST).read == {"tools": 72}
    assert meter.cost(FIRST).total == 72
    assert meter.read["tools"] == 216


def test_nothing_is_counted_with_off() -> None:
    """Without counting there are no accounts, and no limits."""
    meter = ContextMeter(ContextSettings(count="off", max_session_tokens=1))
    assert meter.count(FIRST, "results", TEXT) == 0
    meter.check(FIRST)
    assert not meter.costs()
    assert not meter.counts


def test_a_conversation_over_its_limit_gets_no_further_call() -> None:
    """The error says which limit it is, what the tokens went into, and what to do; nothing has run."""
    meter = ContextMeter(ContextSettings(max_session_tokens=150))
    meter.count(FIRST, "search", TEXT[:40])
    meter.count(FIRST, "results", TEXT)
    meter.check(FIRST)
    meter.count(FIRST, "results", TEXT)
    with pytest.raises(
        ContextBudgetError, match=r"210 tokens of 150, most of them for results.*new conversation"
    ) as no:
        meter.check(FIRST)
    error = no.value
    assert (error.code, error.used, error.limit, error.outcome) == ("context_budget", 210, 150, Outcome.NOT_SENT)
    assert error.details["scope"] == "session"
    assert error.details["causes"] == {"search": 10, "results": 200}
    meter.check(SECOND)


def test_a_caller_has_one_limit_for_all_conversations() -> None:
    """A new conversation does not get around it; another caller has a limit of its own, and one without a name has none."""
    meter = ContextMeter(ContextSettings(max_caller_tokens=150))
    meter.count(FIRST, "results", TEXT)
    meter.count(SECOND, "results", TEXT)
    third = Origin(caller=ANN, session="3")
    with pytest.raises(ContextBudgetError, match=r"conversations of this caller have used 200 tokens") as no:
        meter.check(third)
    assert no.value.details["scope"] == "caller"
    meter.check(Origin(caller=Caller(id="bob", method="api_key"), session="1"))
    anonymous = Origin(session="1")
    meter.count(anonymous, "results", TEXT * 2)
    meter.check(anonymous)


def test_a_list_that_is_read_again_counts_once_for_its_caller_too() -> None:
    """A client that asks for the list often uses up no more of its caller's limit than one that asks once."""
    meter = ContextMeter(ContextSettings(max_caller_tokens=250))
    ann = Origin(caller=Caller(id="ann"), session="1")
    for _ in range(5):
        meter.count(ann, "tools", "x" * 450, again=True)
    meter.check(ann)
    meter.count(ann, "results", "x" * 640)
    with pytest.raises(ContextBudgetError):
        meter.check(ann)


def test_an_idle_conversation_begins_again() -> None:
    """An idle conversation is not listed, and neither it nor its caller has any tokens."""
    clock = Clock()
    meter = ContextMeter(ContextSettings(idle=60, max_session_tokens=100, max_caller_tokens=100), clock=clock)
    meter.count(FIRST, "results", TEXT)
    clock.now = 60.0
    assert meter.cost(FIRST).idle == 60.0
    clock.now = 60.5
    assert not meter.costs()
    assert meter.cost(FIRST).total == 0
    meter.check(FIRST)
    meter.count(FIRST, "search", TEXT[:40])
    assert meter.cost(FIRST).read == {"search": 10}


def test_accounts_are_bounded() -> None:
    """Of ten thousand conversations, those that were not used for the longest time make room for others."""
    clock = Clock()
    meter = ContextMeter(clock=clock)
    for number in range(10_001):
        clock.now = number / 10_000
        meter.count(Origin(session=str(number)), "results", "ab")
    assert len(meter.costs()) == 9_001
    assert meter.cost(Origin(session="0")).total == 0
    assert meter.cost(Origin(session="10000")).total == 1


def test_threads_lose_nothing() -> None:
    """Calls on several threads at once are all counted."""
    meter = ContextMeter()
    threads = [
        threading.Thread(target=lambda: [meter.count(FIRST, "results", TEXT) for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.cost(FIRST).total == meter.read["results"] == 200_000


async def test_an_exec_knows_the_cost_of_the_current_conversation() -> None:
    """Answers to a provider's calls, and the tools of a request, count for the origin at that moment."""
    ex = Exec()
    ex.add(lambda text: text, "echo")
    async with ex:
        assert ex.context().total == 0
        with acting(FIRST):
            tools = await ex.export_tools("anthropic")
            call = {"type": "tool_use", "id": "1", "name": "echo", "input": {"text": TEXT}}
            await ex.handle_anthropic_tool_use({"role": "assistant", "content": [call]}, tools)
            lost = {"type": "tool_use", "id": "2", "name": "nothing", "input": {}}
            await ex.handle_anthropic_tool_use({"role": "assistant", "content": [lost]}, tools)
            cost = ex.context()
        assert ex.context().total == 0
    assert cost.read["results"] == 100
    assert 100 < cost.written["results"] < 120
    assert cost.read["tools"] > 10
    assert cost.read["errors"] > 10


async def test_a_limit_holds_for_answers_to_providers() -> None:
    """A call over the limit is answered with the error, and not made."""
    made: list[str] = []
    ex = Exec(context=ContextSettings(max_session_tokens=50))
    ex.add(lambda text: made.append(text), "note")
    async with ex:
        call = {"type": "tool_use", "id": "1", "name": "note", "input": {"text": TEXT}}
        message = {"role": "assistant", "content": [call]}
        await ex.handle_anthropic_tool_use(message)
        [answer] = await ex.handle_anthropic_tool_use(message)
    assert answer["is_error"]
    assert "context_budget" in answer["content"]
    assert made == [TEXT]


def test_settings_that_make_no_sense() -> None:
    """A negative limit, and an unknown way to count, are refused."""
    with pytest.raises(ConfigurationError, match="max_session_tokens"):
        ContextSettings(max_session_tokens=-1)
    with pytest.raises(ConfigurationError, match="count"):
        ContextSettings(count="guess")  # type: ignore[arg-type]
