"""The store of tasks: what it keeps, for whom, for how long, and how much of it."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from toolexec import ConfigurationError
from toolexec.server.settings import TaskSettings
from toolexec.server.tasks import StoredTask, TaskOutcome, TaskStore, TooManyTasksError


def create(store: TaskStore, owner: str = "key\0\0ann", **more: Any) -> StoredTask:
    return store.create("run_tool", **{"owner": owner, "session": "s", "source": owner, **more})


def done(value: Any = "ok") -> TaskOutcome:
    return TaskOutcome("completed", "", {"content": value})


def test_the_life_of_a_task(tmp_path: Path) -> None:
    """A task works, says how far it has come, and ends once; another store of the file reads the same."""
    path = tmp_path / "made" / "tasks.db"
    store = TaskStore(TaskSettings(path=str(path)))
    task = create(store)
    store.note(task.id, "input_required", "asks")
    found = store.get_task(task.id)
    assert found is not None
    assert (found.status, found.message, found.is_over, found.caller) == ("input_required", "asks", False, "ann")
    store.finish(task.id, done())
    store.finish(task.id, TaskOutcome("cancelled", "too late"))
    store.note(task.id, "working", "too late")
    store.close()
    store.close()
    again = TaskStore(TaskSettings(path=str(path)))
    found = again.get_task(task.id)
    assert found is not None
    assert (found.status, found.outcome, found.is_over) == ("completed", {"content": "ok"}, True)
    again.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_owners() -> None:
    """A task is there for its owner only; without an owner, for the user of the file, all are."""
    store = TaskStore()
    task = create(store)
    assert store.get_task(task.id, owner="key\0\0ann") is not None
    for other in ("key\0\0bob", "", "key\0acme\0ann"):
        assert store.get_task(task.id, owner=other) is None
        assert not store.cancel_task(task.id, owner=other)
        assert store.list_tasks(owner=other) == []
    assert [each.id for each in store.list_tasks()] == [task.id]
    assert store.stops() == []
    assert store.cancel_task(task.id)
    assert store.stops() == [task.id]
    store.finish(task.id, TaskOutcome("cancelled"))
    assert not store.cancel_task(task.id)
    store.close()


def test_time_to_live() -> None:
    """A task is gone once its time is over, and deleted when the next one is made."""
    now = 1000.0
    store = TaskStore(TaskSettings(ttl=60), clock=lambda: now)
    task, short = create(store), create(store, ttl=10)
    assert (task.ttl, short.ttl, create(store, ttl=1000).ttl) == (60, 10, 60)
    now += 10
    assert store.get_task(short.id) is None
    assert store.get_task(task.id) is not None
    now += 50
    assert store.list_tasks() == []
    create(store)
    assert len(store.list_tasks()) == 1
    assert store._rows("SELECT count(*) FROM tasks", ()) == [(1,)]
    store.close()


def test_number_of_tasks() -> None:
    """The oldest task that is over makes room, first the caller's own; one that works is never dropped."""
    store = TaskStore(TaskSettings(max_tasks=3, max_per_caller=2))
    first, second = create(store), create(store)
    with pytest.raises(TooManyTasksError):
        create(store)
    store.finish(second.id, done())
    third = create(store)
    assert {task.id for task in store.list_tasks()} == {first.id, third.id}
    store.finish(first.id, done())
    other = create(store, "bob")
    last = create(store, "bob")
    assert {task.id for task in store.list_tasks()} == {third.id, other.id, last.id}
    with pytest.raises(TooManyTasksError):
        create(store, "eve")
    store.close()


def test_bytes_of_results() -> None:
    """Results are dropped, the oldest first, when they are too many bytes, of one caller or in all; a task whose
    result alone is too large has failed."""
    store = TaskStore(TaskSettings(max_bytes_per_caller=1000, max_bytes=1500))
    ids = [create(store).id for _ in range(3)]
    for task_id in ids:
        store.finish(task_id, done("x" * 400))
    assert [task.id for task in store.list_tasks()] == [ids[2], ids[1]]
    other = create(store, "bob")
    store.finish(other.id, done("x" * 900))
    assert [task.id for task in store.list_tasks()] == [other.id, ids[2]]
    large = create(store)
    found = store.finish(large.id, done("x" * 2000))
    assert found is not None
    assert found.status == "failed"
    assert "too large" in found.message
    store.close()


def test_a_silent_server(tmp_path: Path) -> None:
    """A task of a server that is silent for long has failed for all others, and its own server cannot change that."""
    now = 1000.0
    settings = TaskSettings(path=str(tmp_path / "tasks.db"))
    store, other = TaskStore(settings, clock=lambda: now), TaskStore(settings, clock=lambda: now)
    task = create(store)
    now += 100
    store.stops()
    now += 100
    found = other.get_task(task.id)
    assert found is not None
    assert found.status == "working"
    now += 100
    found = other.get_task(task.id)
    assert found is not None
    assert (found.status, found.message[:11]) == ("failed", "interrupted")
    store.finish(task.id, done())
    found = store.get_task(task.id)
    assert found is not None
    assert found.status == "failed"
    store.close()
    other.close()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """A file that is not a database is refused, and left as it is; so is use after the end."""
    path = tmp_path / "tasks.db"
    path.write_text("something else " * 100)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        TaskStore(TaskSettings(path=str(path)))
    assert path.read_text().startswith("something else")
    store = TaskStore()
    store.close()
    with pytest.raises(ConfigurationError, match="closed"):
        create(store)


def test_a_full_disk(tmp_path: Path) -> None:
    """A write that fails raises, and what was there stays."""
    store = TaskStore(TaskSettings(path=str(tmp_path / "tasks.db")))
    task = create(store)
    assert store._database is not None
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(ConfigurationError, match="full"):
        store.finish(task.id, done("x" * 100_000))
    found = store.get_task(task.id)
    assert found is not None
    assert found.status == "working"
    store._database.execute("PRAGMA max_page_count = 100000")
    store.finish(task.id, done("x" * 100_000))
    found = store.get_task(task.id)
    assert found is not None
    assert found.status == "completed"
    store.close()
    with sqlite3.connect(tmp_path / "tasks.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


@pytest.mark.parametrize(
    "wrong",
    [{"mode": "sometimes"}, {"after": -1.0}, {"ttl": 0.0}, {"max_tasks": 0}, {"max_bytes": 0}, {"max_per_caller": 0}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_settings(wrong: dict[str, Any]) -> None:
    """Settings that make no sense are refused by name."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        TaskSettings(**wrong)


def test_durable_runs_are_left_to_the_next_server(tmp_path: Path) -> None:
    """A task that is a durable run is not interrupted by the death of its server: another one takes it, once."""
    now = 1000.0
    settings = TaskSettings(path=str(tmp_path / "tasks.db"))
    stores = [TaskStore(settings, clock=lambda: now) for _ in range(3)]
    one, other, third = stores
    released = create(one, run_id="released", run={"args": {"max_bytes": 5}})
    silent = create(one, run_id="silent", run={})
    assert other.claim_lost() == []
    one.release(released.id)
    assert other.claim_lost() == [released]
    now += 300
    other.stops()
    assert [task.id for task in third.claim_lost()] == [silent.id]
    assert third.claim_lost() == other.claim_lost() == []
    found = one.get_task(silent.id)
    assert found is not None
    assert found.status == "working"
    now += settings.ttl
    create(one)
    third.finish(silent.id, TaskOutcome("cancelled", "its time was over"))
    assert one.get_task(silent.id) is None
    for store in stores:
        store.close()
