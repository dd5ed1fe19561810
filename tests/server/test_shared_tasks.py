"""Tasks that servers on many machines share: one record each, which says the same to all, and no caller but its own."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolexec.run.results import ResultStore
from toolexec.server.kept_results import KeptResults
from toolexec.server.shared_tasks import SharedTasks
from toolexec.server.state import FileState
from toolexec.server.tasks import StoredTask, TaskOutcome, new_task_id

KEYS = ("k" * 32,)


def new(owner: str = "ann", session: str = "s", ttl: float = 3600) -> StoredTask:
    now = time.time()
    return StoredTask(id=new_task_id(), tool="t", owner=owner, session=session, created=now, updated=now, ttl=ttl)


@pytest.fixture
async def file(tmp_path: Path) -> AsyncGenerator[FileState]:
    """A store that two servers share."""
    store = FileState(tmp_path / "state.db")
    yield store
    await store.aclose()


def server(file: FileState, keys: tuple[str, ...] = KEYS, room: int = 10**6, **more: Any) -> SharedTasks:
    results = KeptResults(ResultStore(), lambda: file, room, keys)
    return SharedTasks(lambda: file, results, keys, **more)


@pytest.mark.parametrize("seed", range(3))
async def test_as_a_model_says(seed: int, file: FileState) -> None:
    """Whatever is done to tasks, at either of two servers, both say of each what a plain dictionary does, and say
    nothing of it to another caller."""
    chance = random.Random(seed)
    servers = (server(file), server(file))
    model: dict[str, tuple[StoredTask, dict[str, Any], dict[str, Any], bool]] = {}
    for step in range(80):
        at, other = chance.sample(servers, 2)
        what = chance.choice(("begin", "beat", "beat", "stop", "answer", "answer", "finish"))
        if what == "begin" or not model:
            task = new(chance.choice(("ann", "bob")))
            assert await at.begin(task)
            model[task.id] = (task, {}, {}, False)
            continue
        task, asks, answers, stop = model[chance.choice([*model])]
        if what == "beat":
            asks_now: dict[str, Any] = chance.choice(({}, {"a": {"q": 1}}, {"a": {"q": 1}, "b": {"q": 2}}))
            now = replace(task, status="input_required" if asks_now else "working", message=f"step {step}")
            found = await at.beat(now, asks_now)
            assert found is not None
            assert found.stop == stop
            if not task.is_over:
                assert found.answers == answers
                task, asks, answers = now, asks_now, {}
        elif what == "stop":
            await at.stop(task)
            stop = True
        elif what == "answer":
            given = {key: {"by": step} for key in chance.sample(("a", "b", "c"), 2)}
            await at.answer(task, given)
            answers = {**{key: reply for key, reply in given.items() if key in asks}, **answers}
        elif not task.is_over:
            data = {"text": chance.choice(("short", "long" * 50_000))}
            outcome = TaskOutcome(chance.choice(("completed", "failed", "cancelled")), "it ended", data, ["t:one"])
            await at.finish(task, outcome)
            ended = {"status": outcome.status, "message": "it ended", "outcome": data, "tools": ["t:one"]}
            task, asks = replace(task, **ended), {}
        model[task.id] = (task, asks, answers, stop)
        for each in (at, other):
            found = await each.find(task.id, task.owner)
            assert found is not None
            assert replace(found.task, updated=0.0) == replace(task, updated=0.0), f"step {step}: {what}"
            assert (found.asks, found.answers, found.stop) == (asks, answers, stop)
            assert await each.find(task.id, "bob" if task.owner == "ann" else "ann") is None
    for owner in ("ann", "bob"):
        wanted = [task.id for task, *_ in model.values() if task.owner == owner]
        assert await servers[0].list_ids(owner, "") == wanted[::-1]


async def test_a_server_that_is_gone(file: FileState, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose server gives no sign for ten seconds while it is asked about has failed, with what it did unknown;
    where the server has only been away, how it ended counts, and nothing that it said meanwhile."""
    now, today = 100.0, time.time()
    monkeypatch.setattr("toolexec.server.shared_tasks.time.time", lambda: today)
    here, there = server(file), server(file, clock=lambda: now)
    task = new()
    await here.begin(task)
    for _ in range(3):
        assert (await there.find(task.id, "ann")).task.status == "working"  # type: ignore[union-attr]
        now, today = now + 9, today + 9
        assert (await there.find(task.id, "ann")).task.status == "working"  # type: ignore[union-attr]
        await here.beat(task, {})
        now, today = now + 9, today + 9
    assert (await there.find(task.id, "ann")).task.status == "working"  # type: ignore[union-attr]
    now += 11
    lost = await there.find(task.id, "ann")
    assert lost is not None
    assert lost.task.status == "failed"
    assert lost.task.outcome is not None
    assert "what it did until then is unknown" in lost.task.outcome["message"]
    await here.beat(replace(task, message="it goes on"), {})
    assert (await there.find(task.id, "ann")) == lost
    await here.finish(task, TaskOutcome("completed", "", {"is": "done"}))
    found = await there.find(task.id, "ann")
    assert found is not None
    assert (found.task.status, found.task.outcome) == ("completed", {"is": "done"})
    today += 3600
    assert await there.find(task.id, "ann") is None


async def test_a_long_result_that_had_to_go(file: FileState) -> None:
    """A result for which there is no room any more makes a failure that says that it ran."""
    here = server(file, room=1000)
    task = new()
    await here.begin(task)
    text = random.Random(1).randbytes(100_000).hex()
    await here.finish(task, TaskOutcome("completed", "", {"text": text}))
    found = await here.find(task.id, "ann")
    assert found is not None
    assert (found.task.status, found.task.message) == ("failed", "it ran, but its result is not kept any more")


async def test_what_the_store_has_in_clear(file: FileState) -> None:
    """The store has no IDs, owners or results in clear; servers without a key of their own share tasks, too, but no
    lists of them, and read nothing of others."""
    with_key, without = server(file), server(file, ())
    tasks = [new("ann-lee") for _ in range(2)]
    for at, task in zip((with_key, without), tasks, strict=True):
        await at.begin(task)
        await at.finish(task, TaskOutcome("completed", "", {"text": "a word"}))
        assert (await at.find(task.id, "ann-lee")).task.status == "completed"  # type: ignore[union-attr]
    assert await with_key.find(tasks[1].id, "ann-lee") is None
    assert await without.find(tasks[0].id, "ann-lee") is None
    assert await with_key.list_ids("ann-lee", "") == [tasks[0].id]
    assert await without.list_ids("ann-lee", "") == []
    with sqlite3.connect(file.path) as database:
        rows = str(database.execute("SELECT kind, key, value FROM state").fetchall())
    database.close()
    assert not [word for word in ("ann-lee", "a word", tasks[0].id, tasks[1].id) if word in rows]
