"""Retry: what is made again, how often, after which pause, and what is never made again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.run.conftest import Workshop
from tests.run.layers.resilience import (
    Clock,
    Service,
    behind,
    busy,
    counting,
    events_of,
    in_thread,
    raised,
)

from toolexec import Exec, Step, tool
from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConnectionLostError,
    ExecutionError,
    PolicyError,
    ToolTimeoutError,
)
from toolexec.model import ToolCall
from toolexec.run import Runner
from toolexec.run.gate import Gate
from toolexec.run.layers.retry import Retry


def retrying(shop: Workshop, clock: Clock, *, limit: float | None = 30.0, **rules: Any) -> Runner:
    """Return a runner that retries on a clock, with pauses as long as they may be."""
    given: dict[str, Any] = {"draw": lambda: 1.0, "clock": clock, "sleep": clock.sleep, **rules}
    return behind(shop, limit=limit, retry=Retry(**given))


@pytest.mark.parametrize("name", ["read", "put"])
async def test_a_failure_that_passes_is_not_seen(workshop: Workshop, name: str) -> None:
    """A call that fails twice succeeds at the third attempt, and the result counts them."""
    service, clock = Service(workshop), Clock()
    service.fail(busy(), ConnectionLostError("gone"))
    result = await retrying(workshop, clock).run(ToolCall(f"hub:{name}", {"a": 1}))
    assert (result.value, result.attempts) == ({"number": 3}, 3)
    assert service.calls == [(name, {"a": 1})] * 3
    assert clock.slept == [0.1, 0.2]
    assert result.to_dict()["attempts"] == 3


async def test_the_last_failure_is_the_outcome(workshop: Workshop) -> None:
    """After all attempts the result has the last error, as it came."""
    service, last = Service(workshop), busy()
    service.fail(busy(), busy(), last)
    result = await retrying(workshop, Clock()).run(ToolCall("hub:read"))
    assert result.error is last
    assert result.attempts == 3


@pytest.mark.parametrize("name", ["post", "delete"])
async def test_what_must_not_run_twice_is_called_once(workshop: Workshop, name: str) -> None:
    """A tool that is not marked, or that is destructive, is not called again."""
    service = Service(workshop)
    service.fail(busy())
    result = await retrying(workshop, Clock()).run(ToolCall(f"hub:{name}"))
    assert result.error is not None
    assert service.count == result.attempts == 1


async def test_what_never_began_is_called_again(workshop: Workshop) -> None:
    """A call that certainly did nothing is made again whatever the tool is marked as, unless that is destructive."""
    service, clock = Service(workshop), Clock()
    runner = retrying(workshop, clock)
    service.down = BackendUnavailableError("down", details={"since": "noon"})
    error = await raised(runner, ToolCall("hub:post"))
    assert error is service.down
    assert error.details == {"since": "noon"}
    assert len(clock.slept) == 2
    await raised(runner, ToolCall("hub:delete"))
    assert len(clock.slept) == 2


@pytest.mark.parametrize("failure", [ExecutionError("no"), ValueError("no"), PolicyError("no")])
async def test_other_failures_are_final(workshop: Workshop, failure: Exception) -> None:
    """An error that does not say that it is retryable is not met again."""
    service, clock = Service(workshop), Clock()
    service.fail(failure)
    try:
        result = await retrying(workshop, clock).run(ToolCall("hub:read"))
        assert result.error is not None
    except PolicyError:
        pass
    assert (service.count, clock.slept) == (1, [])


async def test_a_backend_that_says_when_is_believed(workshop: Workshop) -> None:
    """`retry_after` is waited for, and the pause on top of it; nonsense there counts as nothing."""
    service, clock = Service(workshop), Clock()
    service.fail(busy(retry_after=5), busy(retry_after="soon"))
    assert (await retrying(workshop, clock).run(ToolCall("hub:read"))).ok
    assert clock.slept == [5.1, 0.2]


async def test_pauses_are_random_and_bounded(workshop: Workshop) -> None:
    """A pause is between nothing and the bound, which doubles up to `max_pause`."""
    service, clock = Service(workshop), Clock()
    service.fail(*(busy() for _ in range(5)))
    draws = iter([0.0, 0.5, 1.0, 1.0, 1.0])
    runner = retrying(workshop, clock, draw=lambda: next(draws), attempts=6, pause=1, max_pause=3)
    assert (await runner.run(ToolCall("hub:read"))).ok
    assert clock.slept == [0.0, 1.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize(("timeout", "attempts"), [(None, 4), (2.5, 3)])
async def test_attempts_end_with_the_calls_time(workshop: Workshop, timeout: float | None, attempts: int) -> None:
    """No pause goes beyond the time of the call, which is its own limit, or `within`."""
    service, clock = Service(workshop), Clock()
    service.fail(*(busy() for _ in range(9)))
    runner = retrying(workshop, clock, attempts=9, pause=1, max_pause=1, within=3.5)
    result = await runner.run(ToolCall("hub:read", timeout=timeout))
    assert (result.error is not None, result.attempts) == (True, attempts)
    assert clock.now - 1000 <= (timeout or 3.5)


async def test_an_attempt_that_hangs_leaves_time_for_another(workshop: Workshop) -> None:
    """Each attempt has its own limit, so that one that hangs is given up and made again."""
    service = Service(workshop)
    service.next = [asyncio.Event().wait]
    runner = behind(workshop, retry=Retry(attempt_timeout=0.02, pause=0))
    result = await runner.run(ToolCall("hub:read", timeout=20))
    assert (result.value, result.attempts) == ({"number": 2}, 2)


async def test_a_call_that_hangs_for_all_its_time_is_late(workshop: Workshop) -> None:
    """Without a limit for attempts, the first one has the call's whole time."""
    service = Service(workshop)
    service.next = [asyncio.Event().wait]
    result = await behind(workshop, retry=Retry()).run(ToolCall("hub:read", timeout=0.02))
    assert isinstance(result.error, ToolTimeoutError)
    assert service.count == 1


async def test_an_invalid_limit_is_refused_as_ever(workshop: Workshop) -> None:
    """A timeout that makes no sense raises what it raises without retries."""
    Service(workshop)
    error = await raised(behind(workshop, retry=Retry(attempt_timeout=1)), ToolCall("hub:read", timeout=-1))
    assert isinstance(error, ConfigurationError)


async def test_retries_have_a_budget(workshop: Workshop) -> None:
    """In the long run there are at most so many more calls, for each backend by itself."""
    down, fine, clock = Service(workshop), Service(workshop, "other"), Clock()
    runner = retrying(workshop, clock, budget=0.25, burst=2, pause=0)
    down.fail(*(busy() for _ in range(500)))
    for _ in range(100):
        await runner.run(ToolCall("hub:read"))
    assert down.count == 100 + 2 + 25
    fine.fail(busy())
    assert (await runner.run(ToolCall("other:read"))).attempts == 2


async def test_cancelling_ends_all_attempts(workshop: Workshop) -> None:
    """A caller that leaves during a pause is not waited for, and nothing is called after that."""
    service = Service(workshop)
    service.fail(busy())
    asleep = asyncio.Event()

    async def sleep(seconds: float) -> None:
        asleep.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(behind(workshop, retry=Retry(sleep=sleep)).run(ToolCall("hub:read")))
    await asyncio.wait_for(asleep.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert service.count == 1


async def test_a_stream_begins_again_before_its_first_chunk(workshop: Workshop) -> None:
    """A stream that fails at once is begun again, and its consumer sees one stream."""
    begun, give = counting(lambda number: [busy()] if number < 3 else [1, 2])
    workshop.add(give, "hub:pages", read_only=True)
    events = await events_of(retrying(workshop, Clock()), ToolCall("hub:pages"))
    assert [(event.kind, event.data) for event in events] == [("chunk", 1), ("chunk", 2), ("done", [1, 2])]
    assert len(begun) == 3


async def test_a_stream_that_has_given_a_chunk_ends_with_its_error(workshop: Workshop) -> None:
    """Chunks cannot be taken back, so the failure is the end."""
    begun, give = counting(lambda number: [1, busy()])
    workshop.add(give, "hub:pages", read_only=True)
    events = await events_of(retrying(workshop, Clock()), ToolCall("hub:pages"))
    assert [event.kind for event in events] == ["chunk", "error"]
    assert len(begun) == 1


async def test_a_call_in_a_thread_is_made_again(workshop: Workshop) -> None:
    """A sync handler that runs in its caller's thread has the same attempts."""
    clock, seen = Clock(), []

    def read(a: int) -> int:
        seen.append(a)
        if len(seen) < 3:
            raise busy()
        return a

    workshop.add(read, "math:read", read_only=True)
    result = await in_thread(retrying(workshop, clock), ToolCall("math:read", {"a": 7}))
    assert result is not None
    assert (result.value, result.attempts, seen) == (7, 3, [7, 7, 7])
    assert clock.slept == [0.1, 0.2]


async def test_a_finished_step_of_a_chain_is_not_made_again() -> None:
    """Only the call that failed is repeated, and never what came before it."""
    seen: list[str] = []

    @tool("job:first")
    def first() -> int:
        seen.append("first")
        return 1

    @tool("job:second", read_only=True)
    def second(previous: int) -> int:
        seen.append("second")
        if len(seen) < 4:
            raise busy()
        return previous + 1

    async with Exec(gate=Gate(retry=Retry(pause=0))) as ex:
        ex.add(first)
        ex.add(second)
        result = await ex.run_chain([Step("job:first"), Step("job:second", {}, use_previous=True)])
    assert (result.value, seen) == (2, ["first", "second", "second", "second"])
    assert [step.attempts for step in result.steps] == [1, 3]


@pytest.mark.parametrize(
    "rules",
    [{"attempts": 0}, {"within": 0}, {"pause": -1}, {"budget": -0.1}, {"attempt_timeout": 0}, {"max_pause": 0}],
    ids=str,
)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, Any]) -> None:
    """Numbers out of range raise at once."""
    with pytest.raises(ConfigurationError):
        Retry(**rules)
