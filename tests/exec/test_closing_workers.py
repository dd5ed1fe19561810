"""Closing an Exec ends its worker: the runs that it has are given back, and it takes no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Step, tool
from toolexec.durable.queues import Queue
from toolexec.errors import ClosedError, ConfigurationError

PATIENCE = 60


class Scene:
    """An Exec whose queue has runs of two steps, the first of which may wait, or close the Exec."""

    def __init__(self, journal: Path, first: str = "") -> None:
        self.ex = Exec(journal=journal, queues={"q": Queue(concurrency=1)})
        self.done: list[str] = []
        self.began, self.go = asyncio.Event(), asyncio.Event()

        @tool("t:first", idempotent=True)
        async def begin(name: str) -> str:
            if first and name == "a":
                self.began.set()
                await (self.ex.aclose() if first == "closes" else self.go.wait())
            self.done.append(f"first {name}")
            return name

        @tool("t:last")
        def last(name: str) -> str:
            self.done.append(f"last {name}")
            return name

        self.ex.add(begin)
        self.ex.add(last)

    async def enqueue(self, *names: str) -> None:
        """Put runs into the queue."""
        for name in names:
            steps = [Step("t:first", {"name": name}), Step("t:last", {"name": name})]
            await self.ex.runs.enqueue("q", run_id=name, chain=steps)

    async def states(self) -> dict[str, str]:
        """Return the states of all runs."""
        return {run.id: run.state for run in await self.ex.runs.list()}


@pytest.mark.parametrize("first", ["waits", "closes"])
async def test_a_worker_ends_and_the_next_one_does_each_run_once(first: str, tmp_path: Path) -> None:
    """The Exec is closed from outside, or by a tool of a run that the worker has."""
    scene = Scene(tmp_path / "runs.db", first)
    await scene.enqueue("a", "b")
    worker = asyncio.create_task(scene.ex.runs.work(idle=0.01))
    await asyncio.wait_for(scene.began.wait(), PATIENCE)
    if first == "waits":
        await asyncio.wait_for(scene.ex.aclose(), PATIENCE)
    with pytest.raises(ClosedError):
        await asyncio.wait_for(worker, PATIENCE)
    assert scene.done == (["first a"] if first == "closes" else [])
    after = Scene(tmp_path / "runs.db")
    async with after.ex as ex:
        assert await after.states() == {"a": "running", "b": "queued"}
        await asyncio.wait_for(ex.runs.resume_due(), PATIENCE)
        assert await after.states() == {"a": "done", "b": "done"}
    assert sorted(scene.done + after.done) == ["first a", "first b", "last a", "last b"]


async def test_a_closed_exec_does_not_open_its_journal_again(tmp_path: Path) -> None:
    """Whatever asks for runs then is refused, where it worked on by a journal that nothing closes."""
    scene = Scene(tmp_path / "runs.db")
    await scene.enqueue("a")
    await scene.ex.aclose()
    asked: list[Any] = [scene.ex.runs.list(), scene.ex.runs.resume("a"), scene.ex.runs.resume_due(), scene.enqueue("b")]
    for each in asked:
        with pytest.raises(ConfigurationError, match="this Exec is closed"):
            await each
    assert not (tmp_path / "runs.db-wal").exists()
