"""`toolexec tasks`: what it shows of the file of tasks, and what it asks of the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from tests.command_line import CliRunner, Result

from toolexec.cli.tasks import tasks, tasks_file
from toolexec.server.endpoint_settings import EndpointSettings
from toolexec.server.settings import ServeSettings, TaskSettings
from toolexec.server.tasks import StoredTask, TaskOutcome, TaskStore

Cli = Callable[..., Result]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def run(file: Path) -> Cli:
    """Call the commands in this process."""
    root = typer.Typer()

    @root.callback()
    def shared(context: typer.Context) -> None:
        context.obj = ((), False)

    root.add_typer(tasks, name="tasks")

    def call(*words: object) -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(root, ["tasks", *map(str, words), "--file", str(file)])

    return call


def made(file: Path) -> tuple[TaskStore, StoredTask]:
    store = TaskStore(TaskSettings(path=str(file)))
    return store, store.create("run_tool", owner="key\0\0ann", session="s", source="ann")


def test_list_and_get(run: Cli, file: Path) -> None:
    """All tasks are listed with their callers, and the result of one that is over is shown."""
    store, task = made(file)
    store.note(task.id, "input_required", "asks \x1b[31m")
    done = run("list")
    assert done.exit_code == 0
    for text in (task.id, "ann", "input_required", "run_tool", "asks"):
        assert text in done.stdout
    assert "\x1b[31m" not in done.stdout
    store.finish(task.id, TaskOutcome("completed", "", {"content": [{"type": "text", "text": "hello"}]}))
    assert "hello" in run("get", task.id).stdout
    data = json.loads(run("get", task.id, "--json").stdout)["task"]
    assert (data["status"], data["caller"], data["result"]["content"][0]["text"]) == ("completed", "ann", "hello")
    assert [each["id"] for each in json.loads(run("list", "--json").stdout)["tasks"]] == [task.id]
    store.close()


def test_cancel(run: Cli, file: Path) -> None:
    """Cancelling is a request in the file; a task that is over cannot be cancelled."""
    store, task = made(file)
    assert run("cancel", task.id).exit_code == 0
    assert store.stops() == [task.id]
    store.finish(task.id, TaskOutcome("cancelled"))
    done = run("cancel", task.id)
    assert done.exit_code == 1
    assert "cancelled" in done.stderr
    assert json.loads(run("cancel", task.id, "--json").stdout)["cancelling"] is False
    store.close()


def test_nothing_there(run: Cli, file: Path) -> None:
    """Without a file there are no tasks, and none is made by looking."""
    assert "no tasks" in run("list").stderr
    for command in ("get", "cancel"):
        done = run(command, "none")
        assert done.exit_code == 2
        assert "there is no task" in done.stderr
    assert not file.exists()


def test_which_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the configuration counts, else the one in the state directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert tasks_file(None) == tmp_path / "state/toolexec/tasks.db"
    (tmp_path / "toolexec.toml").write_text('[tasks]\npath = "own.db"\n')
    assert tasks_file(None).name == "own.db"
    assert tasks_file(tmp_path / "x.db") == tmp_path / "x.db"


def test_the_tasks_of_an_endpoint(run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a file beside that of the server, where the server keeps them; an unknown one is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolexec.toml").write_text("[endpoints.team]\n")
    server = ServeSettings(tasks=TaskSettings(path=str(tmp_path / "tasks.db")))
    kept = Path(EndpointSettings(name="team").within(server).tasks.path)
    assert tasks_file(tmp_path / "tasks.db", (), "team") == kept == tmp_path / "tasks.team.db"
    store, task = made(kept)
    assert task.id in run("list", "--endpoint", "team").stdout
    assert run("get", task.id, "--endpoint", "team").exit_code == 0
    assert run("cancel", task.id, "--endpoint", "team").exit_code == 0
    assert store.stops() == [task.id]
    store.close()
    assert "no tasks" in run("list").stderr
    done = run("list", "--endpoint", "tame")
    assert (done.exit_code, "there is no endpoint 'tame'; did you mean team?" in done.stderr) == (2, True)
