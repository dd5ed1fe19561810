"""Closing an Exec ends all that it runs in one way, whatever kind of run it is."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.exec.test_closing import PATIENCE

from toolexec import Exec, tool
from toolexec.errors import ClosedError
from toolexec.run.undo import UNDO

PYTHON = "await tools.t.first()\nreturn await tools.t.wait()"
JAVASCRIPT = 'await tools.run("t:first", {}); return await tools.run("t:wait", {})'
WORKFLOW = 'run("t:first")\nreturn run("t:wait")'
STEPS = [{"tool_id": "t:first"}, {"tool_id": "t:wait"}, {"tool_id": "t:last"}]


class Scene:
    """An Exec with tools that have effects, and one that waits until it is let go, in *done* as it happens."""

    def __init__(self, journal: Path) -> None:
        self.ex = Exec(journal=journal)
        self.done: list[str] = []
        self.waiting, self.go = asyncio.Event(), asyncio.Event()

        @tool("t:first", meta={UNDO: "t:back"})
        def first() -> str:
            self.done.append("first")
            return "first"

        @tool("t:back")
        async def back() -> None:
            await asyncio.sleep(0)
            self.done.append("back")

        @tool("t:wait", read_only=True)
        async def wait() -> str:
            self.waiting.set()
            await self.go.wait()
            return "waited"

        @tool("t:last", read_only=True)
        def last() -> str:
            return "waited"

        for each in (first, back, wait, last):
            self.ex.add(each)

    async def close_during(self, run: Awaitable[Any]) -> Any:
        """Have a task of the user's await a run, and close the Exec while it waits; what came of the run."""

        async def users() -> Any:
            outcome = await run
            await asyncio.sleep(0)  # which a task that is being cancelled does not survive
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            return outcome

        task = asyncio.create_task(users())
        await asyncio.wait_for(self.waiting.wait(), PATIENCE)
        await asyncio.wait_for(self.ex.aclose(), 60)
        assert len(self.ex._parts.sources.under_way) == 0  # all has ended before the backends have
        return await asyncio.wait_for(task, 60)


Run = Callable[..., Awaitable[Any]]
RUNS: dict[str, Run] = {
    "chain": lambda ex, **more: ex.run_chain(STEPS, **more),
    "workflow": lambda ex, **more: ex.run_workflow(WORKFLOW, **more),
    "python": lambda ex, **more: ex.execute_code(PYTHON, **more),
    "javascript": lambda ex, **more: ex.execute_code(JAVASCRIPT, language="javascript", **more),
}
ALL = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
UNDOABLE = pytest.mark.parametrize("run", [RUNS["chain"], RUNS["workflow"]], ids=["chain", "workflow"])


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged as more than information."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@ALL
async def test_a_run_ends_with_a_closed_error(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets a result with that error and the calls until then, and its task goes on."""
    scene = Scene(tmp_path / "runs.db")
    result = await scene.close_during(run(scene.ex))
    assert isinstance(result.error, ClosedError), result
    assert scene.done == ["first"]
    calls = getattr(result, "tool_calls", None) or [step for step in result.steps if not step.skipped]
    assert [call.tool_id for call in calls] == ["t:first", "t:wait"]
    assert warnings_of(caplog) == []


@ALL
async def test_a_durable_run_is_released(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another Exec resumes it at once, and each effect is there once."""
    scene = Scene(tmp_path / "runs.db")
    result = await scene.close_during(run(scene.ex, durable="r"))
    assert isinstance(result.error, ClosedError), result
    after = Scene(tmp_path / "runs.db")
    after.go.set()
    async with after.ex as ex:
        resumed = await ex.runs.resume("r")
        assert (await ex.runs.get("r")).state == "done"
    assert (resumed.error, resumed.value) == (None, "waited")
    assert scene.done + after.done == ["first"]
    assert warnings_of(caplog) == []


@UNDOABLE
async def test_a_run_is_undone_before_its_tools_are_gone(run: Run, tmp_path: Path) -> None:
    """With `on_error="undo"` what a run has done is undone within the closing, and its result says so."""
    scene = Scene(tmp_path / "runs.db")
    result = await scene.close_during(run(scene.ex, on_error="undo"))
    assert isinstance(result.error, ClosedError), result
    assert scene.done == ["first", "back"]
    assert [(each.tool_id, each.undo_id, each.ok) for each in result.undone] == [("t:first", "t:back", True)]


@UNDOABLE
async def test_a_durable_run_is_not_undone(run: Run, tmp_path: Path) -> None:
    """Durable runs go on elsewhere, from what they have done."""
    scene = Scene(tmp_path / "runs.db")
    result = await scene.close_during(run(scene.ex, durable="r", on_error="undo"))
    assert isinstance(result.error, ClosedError), result
    after = Scene(tmp_path / "runs.db")
    after.go.set()
    async with after.ex as ex:
        assert (await ex.runs.resume("r")).value == "waited"
    assert scene.done + after.done == ["first"]


async def test_a_single_call_ends_by_itself(tmp_path: Path) -> None:
    """A call of a Python function is not a run, and is not stopped."""
    scene = Scene(tmp_path / "runs.db")
    task = asyncio.create_task(scene.ex.run_tool("t:wait"))
    await asyncio.wait_for(scene.waiting.wait(), PATIENCE)
    await scene.ex.aclose()
    scene.go.set()
    assert (await task).value == "waited"


async def test_a_durable_chain_is_released_while_a_thread_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A blocking handler goes on in its thread, and writes nothing any more: the run is another Exec's by then."""
    scene, go = Scene(tmp_path / "runs.db"), threading.Event()

    def block() -> str:
        loop.call_soon_threadsafe(scene.waiting.set)
        go.wait(PATIENCE)
        return "waited"

    loop, blocks = asyncio.get_running_loop(), tool("t:block", read_only=True)(block)
    scene.ex.add(blocks)
    steps = [{"tool_id": "t:first"}, {"tool_id": "t:block"}]
    try:
        result = await scene.close_during(scene.ex.run_chain(steps, durable="r"))
        assert isinstance(result.error, ClosedError), result
        after = Scene(tmp_path / "runs.db")
        after.ex.add(tool("t:block", read_only=True)(lambda: "again"))
        async with after.ex as ex:
            assert (await ex.runs.resume("r", accept_changes=True)).value == "again"
    finally:
        go.set()
    assert scene.done + after.done == ["first"]
    assert warnings_of(caplog) == []


async def test_a_run_that_ignores_its_cancellation_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Closing does not wait for ever for a handler that does not end, and says so."""
    scene = Scene(tmp_path / "runs.db")
    scene.ex._parts.close_patience = 0.1

    @tool("t:stubborn")
    async def stubborn() -> str:
        while not scene.go.is_set():
            scene.waiting.set()
            try:
                await scene.go.wait()
            except asyncio.CancelledError:
                continue
        return "ended"

    scene.ex.add(stubborn)
    task = asyncio.create_task(scene.ex.run_chain([{"tool_id": "t:stubborn"}]))
    await asyncio.wait_for(scene.waiting.wait(), PATIENCE)
    await asyncio.wait_for(scene.ex.aclose(), 60)
    assert "a run did not end" in "".join(warnings_of(caplog))
    scene.go.set()
    await asyncio.wait_for(task, 60)


def runs_a_chain(ex: Exec) -> Callable[[], Awaitable[str]]:
    """Return a tool that runs a chain, and waits for it."""

    async def part() -> str:
        result = await ex.run_chain([{"tool_id": "t:wait"}])
        return str(result.raise_for_error())

    return part


@pytest.mark.parametrize("part", ["skill", "run of a tool"])
@pytest.mark.parametrize("run", ["chain", "workflow", "python"])
async def test_a_part_of_a_durable_run_has_not_failed(run: str, part: str, tmp_path: Path) -> None:
    """A call that is stopped with its run is not recorded as a failure: the next Exec makes it again."""
    scene, after = Scene(tmp_path / "runs.db"), Scene(tmp_path / "runs.db")
    for each in (scene, after):
        if part == "skill":
            each.ex.add_skill('+++\nname = "part"\ndescription = "Waits"\n+++\nreturn run("t:wait")')
        else:
            each.ex.add(tool("skill:part", read_only=True)(runs_a_chain(each.ex)))
    whole: dict[str, Run] = {
        "chain": lambda ex: ex.run_chain([{"tool_id": "skill:part"}], durable="r"),
        "workflow": lambda ex: ex.run_workflow('return run("skill:part")', durable="r"),
        "python": lambda ex: ex.execute_code('return tools.run("skill:part")', durable="r"),
    }
    result = await scene.close_during(whole[run](scene.ex))
    assert isinstance(result.error, ClosedError), result
    after.go.set()
    async with after.ex as ex:
        assert [call.state for call in await ex.runs.calls("r")] == ["begun"]
        resumed = await ex.runs.resume("r")
        assert resumed.error is None, resumed
