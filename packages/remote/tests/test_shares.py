"""How tenants share a server: who gets how much, who comes next, and whose unused place is taken back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from packages.remote.tests.servers import KEY, OTHER

from toolexec.errors import ConfigurationError, SandboxFailedError, SandboxUnavailableError, ToolExecError
from toolexec.remote import RuntimeServerSettings, TenantQuota
from toolexec_remote.server.admission import Admission
from toolexec_remote.server.idle import idle_places
from toolexec_remote.server.shares import Pace, Pool, Shares


def taken(pool: Pool, account: str) -> int:
    """Take one after the other for a tenant; return how many it gets."""
    return next(number for number in range(pool.most + 1) if not pool.take(account))


def test_one_tenant_leaves_some_to_the_next_ones() -> None:
    """However many it wants; and each of those that come later leaves some, too."""
    pool = Pool(1000)
    found = [taken(pool, account) for account in "abc"]
    assert found == [800, 160, 32]
    assert pool.free > 0


def test_shares_become_equal() -> None:
    """As the first one gives back, the second one may have as much."""
    pool = Pool(90)
    taken(pool, "a")
    for _ in range(200):
        pool.give("a")
        if not pool.take("a"):
            pool.take("b")
        pool.take("b")
    assert abs(pool.taken_by("a") - pool.taken_by("b")) <= 3


def test_weights_and_caps_hold() -> None:
    """A larger weight is a larger share, and a cap is one whatever is free."""
    pool = Pool(100, lambda name: 3 if name == "capped" else 0, lambda name: 4.0 if name == "large" else 1.0)
    assert taken(pool, "capped") == 3
    assert taken(pool, "large") > 90


def test_a_single_tenant_gets_all() -> None:
    """There is no other one to leave it to."""
    pool = Pool(10, is_shared=lambda: False)
    assert [pool.take("a") for _ in range(11)] == [True] * 10 + [False]


async def test_who_waits_gets_it_when_it_is_given_back() -> None:
    """A tenant that has something waits for more; one that has nothing gets what is larger than all there is."""
    pool = Pool(10)
    await pool.wait("a", 25)
    pool.give("a", 25)
    await pool.wait("a", 10)
    waiting = asyncio.create_task(pool.wait("a", 5))
    await asyncio.sleep(0)
    assert not waiting.done()
    pool.give("a", 10)
    await waiting
    assert (pool.used, pool.taken_by("a")) == (5, 5)


def test_a_pace_is_kept() -> None:
    """One second's worth at once, then one after the other."""
    pace = Pace(2.0, 0.0)
    assert [pace.pause(0.0), pace.pause(0.0), pace.pause(0.0), pace.pause(0.5)] == [0.0, 0.0, 0.5, 0.0]
    assert Pace(0.0, 0.0).pause(0.0) == 0.0


def test_bytes_of_which_there_are_too_many_are_refused() -> None:
    """The refusal says that it is worth a retry, and that nothing was run."""
    shares = Shares(RuntimeServerSettings(keys=[KEY, OTHER], max_held=1000, max_body_bytes=1000))
    shares.hold("ann", 700, "a request")
    with pytest.raises(SandboxUnavailableError) as caught:
        shares.hold("ann", 300, "a request")
    assert (caught.value.code, caught.value.retryable, caught.value.outcome == "not_sent") == (
        "quota_exceeded",
        True,
        True,
    )
    shares.hold("bob", 200, "a request")


def test_a_server_must_be_able_to_hold_a_request() -> None:
    """Settings that would refuse each large one forever are refused."""
    with pytest.raises(ConfigurationError, match="max_held"):
        RuntimeServerSettings(keys=[KEY], max_held=10, max_body_bytes=11)


def waits(now: list[float], running: int = 1, **quotas: TenantQuota) -> Admission:
    return Admission(running, 100, lambda name: quotas.get(name) or TenantQuota(), lambda: now[0])


async def test_places_go_by_the_time_that_they_took() -> None:
    """A tenant whose runs are long gets fewer of them than one whose runs are short."""
    now = [0.0]
    queue = waits(now)
    mine = {name: [queue.enter(name) for _ in range(40)] for name in ("long", "short")}
    done = {"long": 0, "short": 0}
    for _ in range(33):
        name = next(name for name in mine if mine[name][done[name]].turn.done())
        now[0] += 1.0 if name == "long" else 0.1
        mine[name][done[name]].leave()
        done[name] += 1
    assert done["short"] == pytest.approx(10 * done["long"], abs=10)


async def test_places_go_by_weight() -> None:
    """Twice the weight is twice the time."""
    now = [0.0]
    queue = waits(now, heavy=TenantQuota(weight=2.0))
    mine = {name: [queue.enter(name) for _ in range(40)] for name in ("light", "heavy")}
    done = {"light": 0, "heavy": 0}
    for _ in range(30):
        name = next(name for name in mine if mine[name][done[name]].turn.done())
        now[0] += 1.0
        mine[name][done[name]].leave()
        done[name] += 1
    assert done == {"light": 10, "heavy": 20}


async def test_what_was_not_used_is_not_saved() -> None:
    """A tenant that comes after a long time does not keep out those that were there."""
    now = [0.0]
    queue = waits(now)
    for _ in range(100):
        ticket = queue.enter("old")
        now[0] += 1.0
        ticket.leave()
    old, new = [queue.enter("old") for _ in range(10)], [queue.enter("new") for _ in range(10)]
    for _ in range(10):
        now[0] += 1.0
        next(each for each in [*old, *new] if each.turn.done() and each._admission is not None).leave()
    assert sum(each._admission is None for each in old) == pytest.approx(5, abs=1)


async def test_some_places_are_free_for_those_who_have_none() -> None:
    """One tenant does not take the last place, so the next one runs at once."""
    queue = waits([0.0], running=8)
    many = [queue.enter("many") for _ in range(20)]
    assert (sum(each.turn.done() for each in many), queue.free_for("many")) == (7, 0)
    assert queue.enter("few").turn.done()


async def test_a_tenant_holds_too_much_only_where_another_one_waits() -> None:
    """The one that has most beyond its part comes first."""
    queue = waits([0.0], running=2)
    first = [queue.enter("many") for _ in range(3)]
    assert queue.holds_too_much() == []
    queue.enter("few")
    assert queue.holds_too_much() == ["many"]
    first[0].leave()
    assert queue.holds_too_much() == []


class Held:
    """A run that has a place."""

    account = "many"

    def __init__(self, unconfirmed: float = 0.0, waits: float = 0.0) -> None:
        self.unconfirmed_since = unconfirmed
        self.waits_since = waits
        self.stopped: list[ToolExecError] = []

    def stop(self, why: ToolExecError) -> None:
        self.stopped.append(why)


def test_unused_places_are_those_that_wait_for_their_caller() -> None:
    """Unconfirmed ones are given back as never started, others as what may have done something."""
    unconfirmed, waiting, busy = Held(unconfirmed=1.0), Held(waits=2.0), Held()
    found = [*idle_places("many", [unconfirmed, waiting, busy], [])]
    assert [(place.kind, place.since) for place in found] == [("unconfirmed", 1.0), ("waiting", 2.0)]
    assert not [*idle_places("few", [unconfirmed, waiting, busy], [])]
    for place in found:
        place.take_back()
    errors: list[Any] = [*unconfirmed.stopped, *waiting.stopped]
    assert [type(error) for error in errors] == [SandboxUnavailableError, SandboxFailedError]
    assert [error.retryable for error in errors] == [True, False]


def test_a_tenant_that_sends_too_much_is_left_for_a_while() -> None:
    """Its messages are read some at a time, and not one by one as its rate allows each."""
    shares = Shares(RuntimeServerSettings(keys=[KEY, OTHER]))
    pauses = [shares.pause("a") for _ in range(20_000)]
    assert {pause for pause in pauses if pause} == {0.01}
    assert shares.pause("b") == 0.0
