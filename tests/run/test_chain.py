"""The plain chain: each step is given the value before it, and the first failure ends it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from toolexec.errors import HandlerError, ToolNotFoundError
from toolexec.model import LocalBinding, Tool
from toolexec.run import ChainStep, Progress, StepResult, run_chain

ANY = {"type": "object"}


@pytest.fixture
def calls(workshop: Any) -> list[Any]:
    """Three tools that note their arguments: `echo` gives them back, `double` doubles `n`, `fail` raises."""
    calls: list[Any] = []

    def echo(args: dict[str, Any]) -> Any:
        calls.append(args)
        return args

    def double(args: dict[str, Any]) -> int:
        calls.append(args)
        return 2 * args.get("n", args.get("previous", 0))

    def fail(args: dict[str, Any]) -> None:
        calls.append(args)
        raise ValueError("no")

    for handler in (echo, double, fail):
        workshop.add_tool(Tool(name=handler.__name__, input_schema=ANY), handler)
    return calls


async def test_one_step(workshop: Any, calls: list[Any]) -> None:
    """The chain's result is the step's."""
    result, steps = await run_chain(workshop.runner(), [ChainStep(tool_id="double", args={"n": 4})])
    assert result is not None
    assert result.value == 8
    assert steps[0].result is result
    assert (steps[0].index, steps[0].tool_id, steps[0].ok, steps[0].attempts) == (0, "double", True, 1)


async def test_three_steps_in_order(workshop: Any, calls: list[Any]) -> None:
    """Each value travels to the next step as `previous`."""
    steps = [
        ChainStep(tool_id="double", args={"n": 1}),
        ChainStep(tool_id="double", use_previous=True),
        ChainStep(tool_id="echo", use_previous=True),
    ]
    result, done = await run_chain(workshop.runner(), steps)
    assert calls == [{"n": 1}, {"previous": 2}, {"previous": 4}]
    assert result is not None
    assert result.value == {"previous": 4}
    assert [step.value for step in done] == [2, 4, {"previous": 4}]
    assert [step.args for step in done] == calls
    assert all(step.duration > 0 for step in done)


async def test_previous_is_overwritten(workshop: Any, calls: list[Any]) -> None:
    """An argument `previous` that is there already gives way; the caller's mapping stays as it is."""
    args = {"previous": "mine", "other": 1}
    await run_chain(workshop.runner(), [ChainStep(tool_id="echo", args=args, use_previous=True)])
    assert calls == [{"previous": None, "other": 1}]
    assert args == {"previous": "mine", "other": 1}


async def test_without_use_previous(workshop: Any, calls: list[Any]) -> None:
    """The value before does not come in."""
    await run_chain(workshop.runner(), [ChainStep(tool_id="double"), ChainStep(tool_id="echo")])
    assert calls == [{}, {}]


async def test_the_first_failure_stops_it(workshop: Any, calls: list[Any]) -> None:
    """The failing step is the last; the ones after it never run."""
    steps = [ChainStep(tool_id="double"), ChainStep(tool_id="fail"), ChainStep(tool_id="echo")]
    result, done = await run_chain(workshop.runner(), steps)
    assert result is None
    assert [step.ok for step in done] == [True, False]
    assert isinstance(done[1].error, HandlerError)
    assert len(calls) == 2


async def test_a_step_that_cannot_be_called(workshop: Any, calls: list[Any]) -> None:
    """An exception of a single call is the step's error."""
    result, done = await run_chain(workshop.runner(), [ChainStep(tool_id="nope", args={"a": 1})])
    assert result is None
    assert isinstance(done[0].error, ToolNotFoundError)
    assert done[0].args == {"a": 1}


async def test_an_empty_chain(workshop: Any) -> None:
    """An empty chain gives no results and no progress."""
    received: list[Progress] = []
    assert await run_chain(workshop.runner(), [], on_progress=received.append) == (None, [])
    assert received == []


async def test_progress(workshop: Any, calls: list[Any]) -> None:
    """The start and each step are told, and a failure ends the telling."""
    received: list[Progress] = []
    steps = [ChainStep(tool_id=name) for name in ("double", "fail", "echo")]
    await run_chain(workshop.runner(), steps, on_progress=received.append)
    assert [(p.done, p.total, p.message) for p in received] == [
        (0, 3, "started"),
        (1, 3, "step_completed"),
        (2, 3, "step_error"),
    ]


async def test_a_progress_callback_that_raises(workshop: Any, calls: list[Any], caplog: Any) -> None:
    """The exception is logged and disturbs nothing."""

    def broken(progress: Progress) -> None:
        raise RuntimeError("no")

    result, _ = await run_chain(workshop.runner(), [ChainStep(tool_id="double")], on_progress=broken)
    assert result is not None
    assert "a progress callback failed" in caplog.text


async def test_cancelled_in_its_first_step(workshop: Any, calls: list[Any]) -> None:
    """The cancellation comes out and the second step never runs."""
    began = asyncio.Event()

    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    workshop.add(wait, "wait")
    steps = [ChainStep(tool_id="wait"), ChainStep(tool_id="echo")]
    task = asyncio.create_task(run_chain(workshop.runner(), steps))
    await began.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert calls == []


async def test_cancelled_between_steps(workshop: Any, calls: list[Any]) -> None:
    """A cancellation that is due arrives before the next step begins, even if no step ever waits."""
    task: asyncio.Task[Any]

    async def stop() -> None:
        task.cancel()

    workshop.add(stop, "stop")
    steps = [ChainStep(tool_id="stop"), ChainStep(tool_id="echo")]
    task = asyncio.create_task(run_chain(workshop.runner(), steps))
    await asyncio.wait([task])
    assert task.cancelled()
    assert calls == []


async def test_the_binding_is_known(workshop: Any, calls: list[Any]) -> None:
    """A step that ran says where, whether it failed or not."""
    _, done = await run_chain(workshop.runner(), [ChainStep(tool_id="double"), ChainStep(tool_id="fail")])
    assert [step.result.binding for step in done if step.result] == [LocalBinding("double"), LocalBinding("fail")]


async def test_steps_as_json(workshop: Any, calls: list[Any]) -> None:
    """Steps are JSON, with a failure's data in place of the exception."""
    _, done = await run_chain(workshop.runner(), [ChainStep(tool_id="double"), ChainStep(tool_id="fail")])
    good, bad = json.loads(json.dumps([step.to_dict() for step in done]))
    assert (good["ok"], good["value"], good["args"]) == (True, 0, {})
    assert bad["error"]["code"] == "handler_failed"


def test_when_a_step_is_ok() -> None:
    """Only a step that ran without error is ok; a skipped one is not, value or no value."""
    error = HandlerError("no")
    assert StepResult(index=0, tool_id="t", value=1).ok
    assert not StepResult(index=0, tool_id="t", error=error).ok
    assert not StepResult(index=0, tool_id="t", skipped=True).ok
    assert not StepResult(index=0, tool_id="t", value=1, skipped=True).ok


def test_steps_as_json_say_what_is_special() -> None:
    """A name, more than one attempt, and being skipped are told."""
    assert StepResult(index=1, tool_id="t", name="n", skipped=True).to_dict() == {
        "index": 1,
        "toolId": "t",
        "ok": False,
        "name": "n",
        "skipped": True,
    }
    assert StepResult(index=0, tool_id="t", attempts=3).to_dict()["attempts"] == 3
