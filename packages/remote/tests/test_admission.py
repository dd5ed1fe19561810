"""Who may run, who waits, and who is turned away."""

from __future__ import annotations

import asyncio

import pytest

from toolexec.errors import SandboxUnavailableError
from toolexec.remote import TenantQuota
from toolexec_remote.server.admission import Admission


def admission(running: int = 1, queued: int = 10, quota: TenantQuota | None = None) -> tuple[Admission, list[float]]:
    now = [0.0]
    return Admission(running, queued, lambda _: quota or TenantQuota(), lambda: now[0]), now


def gives_way(queue: Admission, name: str, cores: int) -> bool:
    """Return whether a run of a tenant leaves so many cores to others."""
    queue.cores = cores
    return queue.gives_way(name)


async def test_places_are_given_in_order() -> None:
    """A run that leaves makes room for the one that has waited longest."""
    queue, _ = admission()
    first, second, third = (queue.enter("a") for _ in range(3))
    assert (first.turn.done(), second.turn.done(), queue.running, queue.queued, queue.free) == (True, False, 1, 2, 0)
    first.leave()
    first.leave()
    assert (second.turn.done(), third.turn.done(), queue.running) == (True, False, 1)


async def test_tenants_take_turns() -> None:
    """One with many runs does not keep out one with few."""
    queue, _ = admission(running=1, queued=100)
    busy = [queue.enter("busy") for _ in range(50)]
    quiet = queue.enter("quiet")
    busy[0].leave()
    assert quiet.turn.done() or busy[1].turn.done()
    (quiet if quiet.turn.done() else busy[1]).leave()
    assert quiet.turn.done()


async def test_a_full_queue_says_when_to_come_again() -> None:
    """The refusal is worth a retry, and nothing was run."""
    queue, _ = admission(queued=1)
    queue.enter("a")
    queue.enter("a")
    with pytest.raises(SandboxUnavailableError) as caught:
        queue.enter("b")
    error = caught.value
    assert (error.code, error.retryable, error.outcome == "not_sent") == ("queue_full", True, True)
    assert error.details["retry_after"] > 0


async def test_a_tenant_has_no_more_than_its_share() -> None:
    """Of those that run, and of those that wait; others are not held up by it."""
    queue, _ = admission(running=10, quota=TenantQuota(running=1, queued=1))
    first, second = queue.enter("a"), queue.enter("a")
    other = queue.enter("b")
    assert (first.turn.done(), second.turn.done(), other.turn.done()) == (True, False, True)
    with pytest.raises(SandboxUnavailableError, match="waiting already") as caught:
        queue.enter("a")
    assert caught.value.code == "quota_exceeded"
    first.leave()
    assert second.turn.done()


async def test_a_tenant_begins_so_many_runs_in_a_second() -> None:
    """The refusal says when the next one may come."""
    queue, now = admission(running=10, quota=TenantQuota(rate=2))
    for _ in range(2):
        queue.enter("a")
    with pytest.raises(SandboxUnavailableError, match="2 runs per second") as caught:
        queue.enter("a")
    assert caught.value.details["retry_after"] == 0.5
    now[0] = 0.5
    queue.enter("a")


async def test_a_place_in_the_queue_can_be_given_up() -> None:
    """A task that is cancelled while it waits leaves no trace."""
    queue, _ = admission()
    first, second, third = (queue.enter("a") for _ in range(3))
    waiting = asyncio.ensure_future(second.turn)
    waiting.cancel()
    second.leave()
    first.leave()
    assert third.turn.done()
    third.leave()
    assert (queue.running, queue.queued, queue.free) == (0, 0, 1)


async def test_beyond_its_part_of_the_cores_a_tenant_gives_way() -> None:
    """A tenant that is alone has all of them; another one counts while it is there, and some seconds longer."""
    queue, now = admission(running=8)
    now[0] = 100.0
    runs = [queue.enter("busy") for _ in range(4)]
    assert not gives_way(queue, "busy", 4)
    other = queue.enter("quiet")
    assert (gives_way(queue, "busy", 4), gives_way(queue, "quiet", 4)) == (True, False)
    runs.pop().leave()
    runs.pop().leave()
    assert not gives_way(queue, "busy", 4)
    assert gives_way(queue, "busy", 2)
    other.leave()
    now[0] = 104.0
    assert gives_way(queue, "busy", 2)
    now[0] = 106.0
    assert not gives_way(queue, "busy", 2)


async def test_who_wastes_places_gives_way_from_the_first_one_on() -> None:
    """A tenant whose runs are stopped again and again has what others leave, where there are others."""
    queue = Admission(8, 10, lambda _: TenantQuota(), lambda: 0.0, wastes=lambda name: name == "busy")
    queue.enter("busy")
    assert not gives_way(queue, "busy", 4)
    queue.enter("quiet")
    assert (gives_way(queue, "busy", 4), gives_way(queue, "quiet", 4)) == (True, False)


async def test_a_weight_is_a_part_of_the_cores() -> None:
    """A tenant with three quarters of the weight has three of four cores before it gives way; each has one, at least."""
    now = [0.0]
    queue = Admission(8, 10, lambda name: TenantQuota(weight=3.0 if name == "large" else 1.0), lambda: now[0])
    for _ in range(3):
        queue.enter("large")
    queue.enter("small")
    assert (gives_way(queue, "large", 4), gives_way(queue, "small", 1)) == (False, False)
    queue.enter("large")
    queue.enter("small")
    assert (gives_way(queue, "large", 4), gives_way(queue, "small", 4)) == (True, True)


async def test_a_place_is_for_those_whose_caller_is_there() -> None:
    """One that is paused keeps its place in the queue, which is the first again when it goes on."""
    queue, _ = admission(running=1)
    runs, first, second = queue.enter("a"), queue.enter("a"), queue.enter("a")
    third, other = queue.enter("a"), queue.enter("b")
    for each in (first, second):
        each.pause()
    first.pause()
    runs.leave()
    other.leave()
    assert (third.turn.done(), first.turn.done(), queue.queued) == (True, False, 2)
    third.leave()
    assert (queue.running, queue.queued, queue.holds_too_much()) == (0, 2, [])
    second.leave()
    fourth = queue.enter("b")
    fourth.leave()
    first.resume()
    first.pause()
    assert (first.turn.done(), queue.running, queue.queued) == (True, 1, 0)


async def test_who_wastes_places_has_its_part_of_the_cores() -> None:
    """Beside others it has fewer places at once, as programs that are stopped take cores for nothing; it has all of them
    soon after these have left."""
    now, wasteful = [100.0], {"busy"}
    queue = Admission(8, 99, lambda _: TenantQuota(), lambda: now[0], wastes=lambda name: name in wasteful, cores=4)
    other = queue.enter("quiet")
    busy = [queue.enter("busy") for _ in range(10)]

    def running() -> int:
        return sum(each.turn.done() for each in busy)

    assert (running(), queue.free_for("busy")) == (2, 0)
    wasteful.clear()
    queue.fill_later()
    assert running() == 6
    wasteful.add("busy")
    busy[0].leave()
    assert running() == 6
    other.leave()
    now[0] = 106.0
    queue.fill_later()
    assert running() == 8
