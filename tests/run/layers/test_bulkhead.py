"""Bulkhead: so many calls of a backend at a time, who waits, and for how long."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from tests.run.conftest import Workshop
from tests.run.layers.resilience import Service, behind, in_thread, raised
from tests.waiting import until

from toolexec.errors import BackendBusyError, ConfigurationError
from toolexec.model import ToolCall
from toolexec.model.origin import Caller, Origin
from toolexec.process.slots import Slots
from toolexec.run import Result, Runner
from toolexec.run.layers.bulkhead import Bulkhead


class Counter:
    """A service whose calls wait to be released, one by one."""

    def __init__(self, shop: Workshop, **rules: Any) -> None:
        self.service = Service(shop)
        self.running = 0
        self.most = 0
        self.doors: list[asyncio.Event] = []
        self.runner: Runner = behind(shop, bulkhead=Bulkhead(**{"limit": 2, "wait": 20.0, **rules}))

    async def work(self) -> int:
        """Wait for the door of this call."""
        self.running += 1
        self.most = max(self.most, self.running)
        door = asyncio.Event()
        self.doors.append(door)
        try:
            await door.wait()
        finally:
            self.running -= 1
        return len(self.doors)

    def begin(self, number: int, **call: Any) -> list[asyncio.Task[Result]]:
        """Begin calls."""
        self.service.next += [self.work] * number
        return [asyncio.create_task(self.runner.run(ToolCall("hub:post", **call))) for _ in range(number)]

    async def reached(self, number: int) -> None:
        """Wait until so many calls have reached the service, and those that cannot had time to try."""
        await until(lambda: len(self.doors) >= number, 0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(self.doors) == number


async def test_so_many_run_at_a_time(workshop: Workshop) -> None:
    """The others wait, first come, first served, and all of them are made."""
    counter = Counter(workshop)
    tasks = counter.begin(6)
    for number in range(6):
        await counter.reached(min(number + 2, 6))
        counter.doors[number].set()
        await tasks[number]
    assert counter.most == 2


async def test_the_queue_has_an_end(workshop: Workshop) -> None:
    """A call that finds the queue full is refused at once, with nothing done."""
    counter = Counter(workshop, queue=1)
    tasks = counter.begin(3)
    await counter.reached(2)
    error = await raised(counter.runner, ToolCall("hub:read"))
    assert isinstance(error, BackendBusyError)
    assert (error.retryable, error.outcome == "not_sent", error.backend, error.op) == (True, True, "hub", "bulkhead")
    for number in range(3):
        await counter.reached(min(number + 2, 3))
        counter.doors[number].set()
    assert all(result.ok for result in await asyncio.gather(*tasks))


@pytest.mark.parametrize(("wait", "timeout"), [(0.01, None), (20.0, 0.01), (0.0, None)])
async def test_waiting_has_an_end(workshop: Workshop, wait: float, timeout: float | None) -> None:
    """A call waits for its turn no longer than `wait`, or its own limit; its place is free after that."""
    counter = Counter(workshop, limit=1, wait=wait)
    [first] = counter.begin(1)
    await counter.reached(1)
    assert isinstance(await raised(counter.runner, ToolCall("hub:read", timeout=timeout)), BackendBusyError)
    counter.doors[0].set()
    await first
    assert (await counter.runner.run(ToolCall("hub:read"))).ok


async def test_a_call_that_waited_has_what_is_left_of_its_time(workshop: Workshop) -> None:
    """The time in the queue counts towards the call's own limit."""
    times = iter([0.0, 3.0])
    seen: list[float | None] = []
    bulkhead = Bulkhead(1, wait=20.0, clock=lambda: next(times))
    Service(workshop)
    find = workshop.runner()._resolve

    class Inner:
        """Notes the limits of calls."""

        async def run(self, call: ToolCall) -> Result:
            seen.append(call.timeout)
            await door.wait()
            return Result(call.tool_id)

    door = asyncio.Event()
    runner = bulkhead.wrap(Inner(), find)  # type: ignore[arg-type]
    tasks = [asyncio.create_task(runner.run(ToolCall("hub:read", timeout=10))) for _ in range(2)]
    await until(lambda: seen, 0)
    door.set()
    await asyncio.gather(*tasks)
    assert seen == [10, 7.0]


async def test_a_caller_that_leaves_the_queue_holds_up_no_other(workshop: Workshop) -> None:
    """A cancelled call that waits, or has its turn already, leaves its place to the next one."""
    counter = Counter(workshop, limit=1)
    tasks = counter.begin(4)
    await counter.reached(1)
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    counter.doors[0].set()
    await tasks[0]  # the slot is on its way to the third call
    tasks[2].cancel()
    await asyncio.wait([tasks[2]])
    await until(lambda: len(counter.doors) >= 2, 0)
    counter.doors[-1].set()
    assert (await tasks[3]).ok
    assert counter.most == 1


async def test_failures_and_cancelled_calls_give_their_slot_back(workshop: Workshop) -> None:
    """However a call ends, the next one finds its slot free."""
    counter = Counter(workshop, limit=1, wait=0.0)
    counter.service.fail(ValueError("no"))
    assert not (await counter.runner.run(ToolCall("hub:read"))).ok
    [task] = counter.begin(1)
    await counter.reached(1)
    task.cancel()
    await asyncio.wait([task])
    assert (await counter.runner.run(ToolCall("hub:read"))).ok


async def test_backends_have_limits_of_their_own(workshop: Workshop) -> None:
    """A backend that is full does not keep another one's calls, and a limit by name takes the place of the general."""
    counter = Counter(workshop, limit=1, wait=0.0, limits={"free": 0})
    Service(workshop, "other")
    free = Service(workshop, "free")
    [first] = counter.begin(1)
    await counter.reached(1)
    assert (await counter.runner.run(ToolCall("other:read"))).ok
    both = asyncio.Barrier(2)
    free.next = [both.wait, both.wait]
    results = await asyncio.gather(*(counter.runner.run(ToolCall("free:read")) for _ in range(2)))
    assert all(result.ok for result in results)
    counter.doors[0].set()
    await first


async def test_streams_hold_a_slot_until_they_end(workshop: Workshop) -> None:
    """A stream counts from its first event on; one that is left early gives its slot back."""

    async def pages() -> Any:
        for number in range(3):
            yield number

    workshop.add(pages, "doc:pages")
    runner = behind(workshop, bulkhead=Bulkhead(limits={"local": 1}, wait=0.0))
    async with aclosing(runner.stream(ToolCall("doc:pages"))) as stream:
        await anext(stream)
        assert isinstance(await raised(runner, ToolCall("doc:pages")), BackendBusyError)
    assert (await runner.run(ToolCall("doc:pages"))).value == [0, 1, 2]


async def test_local_tools_may_call_each_other(workshop: Workshop) -> None:
    """Local tools have no limit unless one is given for them, and then a call in a thread counts, too."""
    workshop.add(lambda: 1, "math:one")
    slots = {limit: Bulkhead(1, limits={"local": limit}, wait=0.0) for limit in (0, 1)}
    entry = workshop.index.find("math:one")
    assert entry is not None
    assert Bulkhead(1).slots(entry) is slots[0].slots(entry) is None
    runner = behind(workshop, bulkhead=slots[1])
    assert (await in_thread(runner, ToolCall("math:one"))) is not None
    taken = slots[1].slots(entry)
    assert isinstance(taken, Slots)
    assert taken.take()
    assert await in_thread(runner, ToolCall("math:one")) is None
    taken.leave()
    assert taken.free == 1


@pytest.mark.parametrize("rules", [{"limit": 0}, {"queue": -1}, {"wait": -1}, {"limits": {"hub": -1}}], ids=str)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, Any]) -> None:
    """Numbers out of range raise at once."""
    with pytest.raises(ConfigurationError):
        Bulkhead(**rules)


async def test_one_caller_has_so_many_at_a_time(workshop: Workshop) -> None:
    """A call above its share is refused at once with nothing done, and leaves the places of others alone."""
    counter = Counter(workshop, limit=5, per_caller=2)
    ann, bob = (Origin(caller=Caller(id=name)) for name in ("ann", "bob"))
    tasks = counter.begin(2, origin=ann)
    await counter.reached(2)
    error = await raised(counter.runner, ToolCall("hub:post", origin=ann))
    assert isinstance(error, BackendBusyError)
    assert "2 calls of the backend hub by this caller" in error.message
    tasks += counter.begin(2, origin=bob)
    await counter.reached(4)
    for door in counter.doors:
        door.set()
    await asyncio.gather(*tasks)
    tasks = counter.begin(1, origin=ann)
    await counter.reached(5)
    counter.doors[-1].set()
    await asyncio.gather(*tasks)
    await until(lambda: counter.running == 0)
