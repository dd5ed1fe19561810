"""Chains of the facade: retries, time limits, cancellation and progress."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Progress, Step, Tool, ToolAnnotations
from toolexec.errors import (
    BackendUnavailableError,
    InvalidChainError,
    ToolTimeoutError,
)

ANY = {"type": "object"}
LONG = 60.0


class TestRetries:
    """More attempts, where that is harmless."""

    async def test_until_it_works(self, kitchen: Any) -> None:
        """A retryable failure of an idempotent tool is tried again."""
        kitchen.failures = 2
        result = await kitchen.run(Step(tool_id="flaky", retries=3, retry_pause=0))
        assert (result.value, result.steps[0].attempts) == ("worked", 3)
        assert len(kitchen.calls) == 3

    async def test_until_there_are_no_more(self, kitchen: Any) -> None:
        """The last failure is the step's."""
        kitchen.failures = 9
        result = await kitchen.run(Step(tool_id="flaky", retries=2, retry_pause=0))
        assert isinstance(result.error, ToolTimeoutError)
        assert result.steps[0].attempts == 3

    async def test_only_what_is_retryable(self, kitchen: Any) -> None:
        """A failure that would come again is not tried again."""

        async def broken(args: dict[str, Any]) -> None:
            kitchen.calls.append(args)
            raise ValueError("always")

        kitchen.ex.add(Tool(name="b", input_schema=ANY, annotations=ToolAnnotations(read_only=True)), handler=broken)
        result = await kitchen.run(Step(tool_id="b", retries=5, retry_pause=0))
        assert result.steps[0].attempts == 1
        assert len(kitchen.calls) == 1

    async def test_none_by_default(self, kitchen: Any) -> None:
        """A step is tried once."""
        kitchen.failures = 1
        assert not (await kitchen.run(Step(tool_id="flaky"))).ok

    async def test_a_read_only_tool(self, kitchen: Any) -> None:
        """A read-only tool may be retried as well."""
        kitchen.failures = 1
        assert (await kitchen.run(Step(tool_id="peek", retries=1, retry_pause=0))).ok

    async def test_a_tool_that_nobody_vouches_for(self, kitchen: Any) -> None:
        """A tool that is not known when the chain begins is tried once."""
        result = await kitchen.run(Step("unknown", retries=3, retry_pause=0))
        assert result.steps[0].attempts == 1

    @pytest.mark.parametrize("tool_id", ["echo", "wipe"])
    async def test_never_what_may_do_harm(self, kitchen: Any, tool_id: str) -> None:
        """A tool that is not marked, or destroys something, is refused before anything runs."""
        with pytest.raises(InvalidChainError, match="never retried"):
            await kitchen.run(kitchen.give(1), Step(tool_id=tool_id, retries=1))
        assert kitchen.calls == []

    async def test_what_could_not_be_called(self, kitchen: Any) -> None:
        """A backend that is not there for a moment counts as a retryable failure."""
        attempts: list[int] = []

        async def call(name: str, call: Any) -> Any:
            attempts.append(1)
            if len(attempts) < 2:
                raise BackendUnavailableError("back in a moment")
            return "worked"

        kitchen.ex.local.call = call  # type: ignore[method-assign]
        result = await kitchen.run(Step(tool_id="peek", retries=1, retry_pause=0))
        assert (result.value, result.steps[0].attempts) == ("worked", 2)

    async def test_pauses_double(self, kitchen: Any) -> None:
        """The duration of the step covers all attempts and the pauses between them."""
        kitchen.failures = 2
        result = await kitchen.run(Step(tool_id="flaky", retries=2, retry_pause=0.02))
        assert 0.055 <= result.steps[0].duration <= result.duration

    async def test_cancelled_in_a_pause(self, kitchen: Any) -> None:
        """No attempt follows a cancellation."""
        kitchen.failures = 9
        task = asyncio.create_task(kitchen.run(Step(tool_id="flaky", retries=3, retry_pause=LONG)))
        await until(lambda: kitchen.calls, 0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert len(kitchen.calls) == 1


class TestLimits:
    """Time."""

    async def test_a_steps_own(self, kitchen: Any) -> None:
        """A step that takes too long is stopped, and the chain has what came before."""

        async def stuck() -> None:
            await asyncio.Event().wait()

        kitchen.ex.add(stuck)
        result = await kitchen.run(kitchen.give(1), Step(tool_id="stuck", timeout=0.02), kitchen.give(2))
        assert isinstance(result.error, ToolTimeoutError)
        assert [step.skipped for step in result.steps] == [False, False, True]

    async def test_for_each_attempt(self, kitchen: Any) -> None:
        """A passed limit is retryable, and each attempt has the whole time."""
        attempts: list[int] = []

        async def slow_once(args: dict[str, Any]) -> str:
            attempts.append(1)
            if len(attempts) == 1:
                await asyncio.Event().wait()
            return "worked"

        tool = Tool(name="slow", input_schema=ANY, annotations=ToolAnnotations(read_only=True))
        kitchen.ex.add(tool, handler=slow_once)
        result = await kitchen.run(Step(tool_id="slow", timeout=0.05, retries=1, retry_pause=0))
        assert (result.value, result.steps[0].attempts) == ("worked", 2)

    async def test_cancelled_in_a_step(self, kitchen: Any) -> None:
        """The cancellation comes out; the next step never runs."""
        began = asyncio.Event()

        async def stuck() -> None:
            began.set()
            await asyncio.Event().wait()

        kitchen.ex.add(stuck)
        task = asyncio.create_task(kitchen.run(Step(tool_id="stuck", stop_on_error=False), kitchen.give(1)))
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert kitchen.calls == []

    async def test_cancelled_between_steps(self, kitchen: Any) -> None:
        """A cancellation that is due arrives before the next step begins."""
        task: asyncio.Task[Any]

        async def stop() -> None:
            task.cancel()

        kitchen.ex.add(stop)
        task = asyncio.create_task(kitchen.run(Step(tool_id="stop"), kitchen.give(1)))
        await asyncio.wait([task])
        assert task.cancelled()
        assert kitchen.calls == []


class TestProgress:
    """What the callback hears."""

    async def test_of_a_chain_that_stops(self, kitchen: Any) -> None:
        """The start, each step that ran, and nothing about skipped ones."""
        received: list[Progress] = []
        await kitchen.run(kitchen.give(1), Step(tool_id="fail"), kitchen.give(2), on_progress=received.append)
        assert [(p.done, p.total, p.message) for p in received] == [
            (0, 3, "started"),
            (1, 3, "step_completed"),
            (2, 3, "step_error"),
        ]

    async def test_of_an_empty_chain(self, kitchen: Any) -> None:
        """Nothing."""
        received: list[Progress] = []
        await kitchen.run(on_progress=received.append)
        assert received == []
