"""Runs that a tool of another run begins: child workflows of that one."""

from __future__ import annotations

from tests.waiting import until

from toolexec import Exec, Step
from toolexec_temporal import TemporalEngine, TemporalSettings


def _exec(settings: TemporalSettings) -> Exec:
    ex = Exec(journal=TemporalEngine(settings))

    async def order(item: str) -> str:
        """Begin a run of its own, and say what came of it: its value, or that it waits."""
        result = await ex.run_chain([Step("c:note", {"item": item}), Step("run:signal", {"name": "go"})], durable=item)
        return result.error.code if result.error is not None else str(result.value)

    ex.add(lambda item: item, "c:note")
    ex.add(order, "c:order")
    return ex


async def test_a_run_of_a_call_is_a_child(settings: TemporalSettings) -> None:
    """The server knows whose child it is; it outlives its parent, and is one however often it is begun. A run that was
    begun by no call has no parent."""
    async with _exec(settings) as ex, ex.worker(isolations=[]):
        steps = [Step("c:order", {"item": "inner"}), Step("c:order", {"item": "inner"})]
        result = (await ex.run_chain(steps, durable="outer")).raise_for_error()
        assert [step.value for step in result.steps] == ["run_waiting", "run_waiting"]
        assert await _parent(ex, "outer") is None
        assert await _parent(ex, "inner") == f"{settings.prefix}outer"
        await ex.runs.signal("inner", "go", 5)
        assert (await ex.runs.follow("inner")).raise_for_error().value == 5


async def test_cancelling_a_run_cancels_its_children(settings: TemporalSettings) -> None:
    """A child that waits is cancelled with its parent."""
    async with _exec(settings) as ex, ex.worker(isolations=[]):
        steps = [Step("c:order", {"item": "waits"}), Step("run:signal", {"name": "never"})]
        await ex.run_chain(steps, durable="outer")
        await ex.runs.cancel("outer")
        for name in ("outer", "waits"):
            await until(lambda name=name: _is_cancelled(ex, name), 0.05)


async def _parent(ex: Exec, name: str) -> str | None:
    engine = ex.options.journal
    assert isinstance(engine, TemporalEngine)
    handle = (await engine.client()).get_workflow_handle(f"{engine.settings.prefix}{name}")
    return (await handle.describe()).parent_id


async def _is_cancelled(ex: Exec, name: str) -> bool:
    return (await ex.runs.get(name)).state == "cancelled"
