"""A tool that closes the Exec it is called by: its call ends as it would have, and then its run is stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.exec.test_closing import PATIENCE

from toolexec import Exec, tool
from toolexec.errors import ClosedError, ConfigurationError
from toolexec.run.undo import UNDO

STEPS = [{"tool_id": "t:first"}, {"tool_id": "t:close"}, {"tool_id": "t:last"}]
PYTHON = 'await tools.t.first()\nawait tools.run("t:close")\nreturn await tools.t.last()'
THREADED = 'tools.t.first()\ntools.run("t:close")\nreturn tools.t.last()'
JAVASCRIPT = 'await tools.run("t:first", {}); await tools.run("t:close", {}); return await tools.run("t:last", {})'
WORKFLOW = 'run("t:first")\nrun("t:close")\nreturn run("t:last")'
CATCHING = 'run("t:first")\nrun("t:close")\ntry {\n  run("t:last")\n} catch error {\n  return 0\n}\nreturn 1'
SKILL = '+++\nname = "part"\ndescription = "Closes"\n+++\nrun("t:close")\nreturn run("t:last")'

Run = Callable[..., Awaitable[Any]]
RUNS: dict[str, Run] = {
    "chain": lambda ex, **more: ex.run_chain(STEPS, **more),
    "chain that goes on": lambda ex, **more: ex.run_chain([{**step, "stop_on_error": False} for step in STEPS], **more),
    "workflow": lambda ex, **more: ex.run_workflow(WORKFLOW, **more),
    "workflow that catches": lambda ex, **more: ex.run_workflow(CATCHING, **more),
    "python": lambda ex, **more: ex.execute_code(PYTHON, **more),
    "threaded python": lambda ex, **more: ex.execute_code(THREADED, **more),
    "javascript": lambda ex, **more: ex.execute_code(JAVASCRIPT, language="javascript", **more),
}
ALL = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)


class Scene:
    """An Exec with tools that have effects, in *done* as they happen; the first call of one of them closes it."""

    def __init__(self, journal: Path, *, closes: bool = True, in_thread: bool = False) -> None:
        self.ex = Exec(journal=journal)
        self.done: list[str] = []
        self.closes = closes

        @tool("t:first", meta={UNDO: "t:back"})
        def first() -> str:
            self.done.append("first")
            return "first"

        @tool("t:back")
        async def back() -> None:
            self.done.append("back")

        async def close() -> str:
            self.done.append("close")
            if self.closes:
                await self.ex.aclose()
                await asyncio.sleep(0)  # the call is not cancelled by what it has closed
                assert (await self.ex.run_tool("t:first")).ok  # what it needs is still there
            self.done.append("closed")
            return "closed"

        def close_in_thread() -> str:
            self.done.append("close")
            asyncio.run_coroutine_threadsafe(self.ex.aclose(), loop).result(PATIENCE)
            self.done.append("closed")
            return "closed"

        @tool("t:last")
        def last() -> int:
            self.done.append("last")
            return 3

        loop = asyncio.get_running_loop()
        for each in (first, back, tool("t:close")(close_in_thread if in_thread else close), last):
            self.ex.add(each)


@ALL
async def test_a_run_is_stopped_after_the_call_that_closed_it(run: Run, tmp_path: Path) -> None:
    """The call ends as it would have, no other follows, and the run ends with a ClosedError."""
    scene = Scene(tmp_path / "runs.db")
    result = await asyncio.wait_for(run(scene.ex), PATIENCE)
    assert isinstance(result.error, ClosedError), result
    assert scene.done == ["first", "close", "first", "closed"]
    calls = getattr(result, "tool_calls", None) or [step for step in result.steps if not step.skipped]
    assert [(call.tool_id, call.error is None) for call in calls][:2] == [("t:first", True), ("t:close", True)]
    await asyncio.wait_for(scene.ex.aclose(), PATIENCE)


@ALL
async def test_a_durable_run_goes_on_after_that_call(run: Run, tmp_path: Path) -> None:
    """Another Exec of this process resumes it at once, and no call is lost or made twice."""
    scene = Scene(tmp_path / "runs.db")
    result = await asyncio.wait_for(run(scene.ex, durable="r"), PATIENCE)
    assert isinstance(result.error, ClosedError), result
    assert scene.done == ["first", "close", "first", "closed"]
    after = Scene(tmp_path / "runs.db", closes=False)
    async with after.ex as ex:
        assert [call.state for call in await ex.runs.calls("r")] == ["done", "done"]
        resumed: Any = await asyncio.wait_for(ex.runs.resume("r"), PATIENCE)
        assert (await ex.runs.get("r")).state == "done"
    assert (resumed.error, resumed.value) in [(None, 3), (None, 1)]
    assert after.done == ["last"]


@pytest.mark.parametrize("more", [{}, {"durable": "r"}], ids=["plain", "durable"])
@ALL
async def test_a_blocking_tool_closes_as_well(run: Run, more: dict[str, Any], tmp_path: Path) -> None:
    """A handler in a thread that waits for the closing gets its end, and its run is stopped after it."""
    scene = Scene(tmp_path / "runs.db", in_thread=True)
    result = await asyncio.wait_for(run(scene.ex, **more), PATIENCE)
    assert isinstance(result.error, ClosedError), result
    assert scene.done == ["first", "close", "closed"]


@pytest.mark.parametrize("more", [{}, {"durable": "r"}], ids=["plain", "durable"])
@pytest.mark.parametrize("run", ["chain", "workflow", "python", "javascript"])
async def test_a_run_whose_last_call_closes(run: str, more: dict[str, Any], tmp_path: Path) -> None:
    """The run ends with a ClosedError all the same, and a durable one is resumed with what it has done."""
    runs: dict[str, Run] = {
        "chain": lambda ex: ex.run_chain([{"tool_id": "t:close"}], **more),
        "workflow": lambda ex: ex.run_workflow('return run("t:close")', **more),
        "python": lambda ex: ex.execute_code('return tools.run("t:close")', **more),
        "javascript": lambda ex: ex.execute_code(
            'return await tools.run("t:close", {})', language="javascript", **more
        ),
    }
    scene = Scene(tmp_path / "runs.db")
    result = await asyncio.wait_for(runs[run](scene.ex), PATIENCE)
    assert isinstance(result.error, ClosedError), result
    assert scene.done == ["close", "first", "closed"]
    if more:
        after = Scene(tmp_path / "runs.db", closes=False)
        async with after.ex as ex:
            assert (await ex.runs.resume("r")).value == "closed"
        assert after.done == []


async def test_a_single_call_ends_by_itself() -> None:
    """A call alone is not a run: its closing ends within it, and it makes no other call after that."""
    ex = Exec()

    async def close() -> str:
        await ex.aclose()
        with pytest.raises(ConfigurationError, match="this Exec is closed"):
            await ex.run_tool("t:close")
        return "closed"

    ex.add(tool("t:close")(close))
    assert (await asyncio.wait_for(ex.run_tool("t:close"), PATIENCE)).value == "closed"


@pytest.mark.parametrize("run", [RUNS["chain"], RUNS["workflow"]], ids=["chain", "workflow"])
async def test_a_run_is_undone_all_the_same(run: Run, tmp_path: Path) -> None:
    """With `on_error="undo"` the calls that undo it are made before anything is closed."""
    scene = Scene(tmp_path / "runs.db")
    result = await asyncio.wait_for(run(scene.ex, on_error="undo"), PATIENCE)
    assert isinstance(result.error, ClosedError), result
    assert scene.done == ["first", "close", "first", "closed", "back"]


@pytest.mark.parametrize("run", ["chain", "workflow", "code"])
async def test_a_part_of_a_run_stops_all_of_it(run: str, tmp_path: Path) -> None:
    """A skill whose tool closes the Exec does not fail for the run around it, which makes it again elsewhere."""
    scene, after = Scene(tmp_path / "runs.db"), Scene(tmp_path / "runs.db", closes=False)
    for each in (scene, after):
        each.ex.add_skill(SKILL)
    runs: dict[str, Run] = {
        "chain": lambda ex, **more: ex.run_chain([{"tool_id": "skill:part"}, {"tool_id": "t:last"}], **more),
        "workflow": lambda ex, **more: ex.run_workflow('run("skill:part")\nreturn run("t:last")', **more),
        "code": lambda ex, **more: ex.execute_code('tools.run("skill:part")\nreturn tools.t.last()', **more),
    }
    result = await asyncio.wait_for(runs[run](scene.ex, durable="r"), PATIENCE)
    assert isinstance(result.error, ClosedError), result
    async with after.ex as ex:
        assert [call.state for call in await ex.runs.calls("r")] == ["begun"]


async def test_other_runs_are_stopped_first(tmp_path: Path) -> None:
    """Closing from a tool waits for all runs but its own."""
    scene, waiting = Scene(tmp_path / "runs.db"), asyncio.Event()

    @tool("t:wait")
    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    scene.ex.add(wait)
    other = asyncio.create_task(scene.ex.run_chain([{"tool_id": "t:wait"}], durable="other"))
    await asyncio.wait_for(waiting.wait(), PATIENCE)
    own = await asyncio.wait_for(scene.ex.run_chain(STEPS, durable="own"), PATIENCE)
    assert other.done()
    assert [type(each.error) for each in (own, other.result())] == [ClosedError, ClosedError]
    after = Scene(tmp_path / "runs.db", closes=False)
    after.ex.add(tool("t:wait", read_only=True)(lambda: None))
    async with after.ex as ex:
        assert (await ex.runs.resume("own")).error is None
        assert (await ex.runs.resume("other", accept_changes=True)).error is None


async def test_a_run_that_begins_meanwhile_is_stopped_too(tmp_path: Path) -> None:
    """Runs that begin while the one that has closed goes on are stopped with it."""
    scene, closed, go, waiting = Scene(tmp_path / "runs.db"), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool("t:hold")
    async def hold() -> None:
        await scene.ex.aclose()
        closed.set()
        await go.wait()

    @tool("t:wait")
    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    scene.ex.add(hold)
    scene.ex.add(wait)
    own = asyncio.create_task(scene.ex.run_chain([{"tool_id": "t:hold"}, {"tool_id": "t:last"}], durable="own"))
    await asyncio.wait_for(closed.wait(), PATIENCE)
    late = asyncio.create_task(scene.ex.run_chain([{"tool_id": "t:wait"}], durable="late"))
    await asyncio.wait_for(waiting.wait(), PATIENCE)
    go.set()
    results = await asyncio.wait_for(asyncio.gather(own, late), PATIENCE)
    assert [type(each.error) for each in results] == [ClosedError, ClosedError]


def test_the_blocking_twin_closes_from_a_tool() -> None:
    """`close` of `Exec.sync` returns in the tool, the run ends with a ClosedError, and so does the thread."""
    ex, done = Exec().sync, []

    def close() -> str:
        ex.close()
        done.append("closed")
        return "closed"

    ex.add(tool("t:close")(close))
    ex.add(tool("t:last")(lambda: done.append("last")))
    result = ex.run_chain([{"tool_id": "t:close"}, {"tool_id": "t:last"}])
    assert isinstance(result.error, ClosedError), result
    assert done == ["closed"]
    for thread in threading.enumerate():
        if thread.name == "toolexec-loop":
            thread.join(PATIENCE)
            assert not thread.is_alive()
