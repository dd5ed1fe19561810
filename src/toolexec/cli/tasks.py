"""`toolexec tasks`: look at the calls that a server has made tasks, read their results, and stop them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolexec.cli.exit_codes import FAILED, OK
from toolexec.cli.options import AsJson, Config, perform_command
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.table import Table

    from toolexec.cli.session import Session
    from toolexec.model.json_value import JSONDict
    from toolexec.server.tasks import StoredTask, TaskStore

_STYLES: Final = {
    "working": "cyan",
    "input_required": "yellow",
    "completed": "green",
    "failed": "bold red",
    "cancelled": "dim",
}

tasks: typer.Typer = typer.Typer(
    no_args_is_help=True, help="List and stop the background tasks of a server, and read their results."
)

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The file of tasks. Default: that of the configuration, else toolexec/tasks.db in the user's state "
        "directory.",
        show_default=False,
    ),
]
AtEndpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        metavar="NAME",
        help="The endpoint of the configuration whose tasks are meant. Default: the main one.",
        show_default=False,
    ),
]
TaskID = Annotated[str, typer.Argument(metavar="ID", help="The task's ID; tasks list shows it.")]


def tasks_file(given: Path | None, config: Sequence[Path] = (), endpoint: str = "") -> Path:
    """Return the file of tasks: the one that is *given*, else that of the configuration in *config* or in the current
    directory, else the usual one; for an *endpoint* the one beside it. Raises ConfigurationError for a wrong
    configuration, and for one without that endpoint."""
    from toolexec.cli.sources import find_sources
    from toolexec.config.build import TASKS_FILE, state_directory
    from toolexec.config.declared import read
    from toolexec.config.load import load_settings
    from toolexec.errors.hints import did_you_mean
    from toolexec.server.settings import TaskSettings

    if given is not None and not endpoint:
        return given
    try:
        files = find_sources(config).files
    except ConfigurationError:  # there is none
        files = ()
    loaded = load_settings(files, environment=os.environ)
    named = read(TaskSettings, loaded.settings.tasks).path
    file = given or (Path(named) if named else state_directory() / TASKS_FILE)
    if not endpoint:
        return file
    if endpoint not in loaded.endpoints:
        hint = did_you_mean(endpoint, loaded.endpoints, otherwise="the configuration has none of its own")
        raise ConfigurationError(f"there is no endpoint {endpoint!r}; {hint}")
    return loaded.endpoints[endpoint].settings.tasks_beside(file)


@tasks.command("list")
def tasks_list(
    context: typer.Context,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Number of tasks to show.")] = 20,
    file: File = None,
    endpoint: AtEndpoint = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the last tasks of all callers, the newest first."""
    _perform(context, lambda session, store: show(session, store, number), (file, endpoint), config, as_json)


@tasks.command("get")
def tasks_get(
    context: typer.Context,
    task_id: TaskID,
    file: File = None,
    endpoint: AtEndpoint = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the status of a task, and its result once it has ended."""
    _perform(context, lambda session, store: get(session, store, task_id), (file, endpoint), config, as_json)


@tasks.command("cancel")
def tasks_cancel(
    context: typer.Context,
    task_id: TaskID,
    file: File = None,
    endpoint: AtEndpoint = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Have the server that runs a task stop it; the server notices within a second.

    Exit code 1 if the task has already ended.
    """
    _perform(context, lambda session, store: cancel(session, store, task_id), (file, endpoint), config, as_json)


def _perform(
    context: typer.Context,
    command: Callable[[Session, TaskStore | None], int],
    where: tuple[Path | None, str],
    config: list[Path] | None,
    as_json: bool,
) -> None:
    from toolexec.exec import Exec

    async def with_store(session: Session) -> int:
        from toolexec.server.settings import TaskSettings
        from toolexec.server.tasks import TaskStore

        shared, _ = context.obj
        file, endpoint = where
        path = tasks_file(file, (*shared, *(config or ())), endpoint)
        if not path.exists():
            return command(session, None)
        with closing(TaskStore(TaskSettings(path=str(path)))) as store:
            return command(session, store)

    perform_command(context, with_store, None, as_json, make=Exec)


def show(session: Session, store: TaskStore | None, number: int) -> int:
    """Show the last *number* tasks; without a store there are none."""
    found = store.list_tasks(limit=number) if store is not None else []
    screen = session.screen
    if screen.as_json:
        screen.document({"tasks": [_to_dict(task) for task in found]})
    elif found:
        screen.show(_table(found))
    else:
        screen.note("no tasks")
    return OK


def get(session: Session, store: TaskStore | None, task_id: str) -> int:
    """Show one task. Raises ConfigurationError when there is none of that ID."""
    from toolexec.cli.terminal import to_json

    task = _find(store, task_id)
    screen = session.screen
    if screen.as_json:
        screen.document({"task": _to_dict(task)})
        return OK
    screen.show(_table([task]))
    if task.outcome is not None:
        screen.exact(to_json(task.outcome) + "\n")
    return OK


def cancel(session: Session, store: TaskStore | None, task_id: str) -> int:
    """Ask for the end of one task. Raises ConfigurationError when there is none of that ID."""
    task = _find(store, task_id)
    asked = store is not None and store.cancel_task(task.id)
    screen = session.screen
    if screen.as_json:
        screen.document({"task": _to_dict(task), "cancelling": asked})
    else:
        screen.note("its server will stop it" if asked else f"it has already ended: {task.status}")
    return OK if asked else FAILED


def _find(store: TaskStore | None, task_id: str) -> StoredTask:
    found = store.get_task(task_id) if store is not None else None
    if found is None:
        raise ConfigurationError(f"there is no task {task_id!r}, or it has expired; toolexec tasks list shows them")
    return found


def _to_dict(task: StoredTask) -> JSONDict:
    data: JSONDict = {
        "id": task.id,
        "tool": task.tool,
        "caller": task.caller,
        "status": task.status,
        "message": task.message,
        "created": _when(task.created),
        "updated": _when(task.updated),
        "ttl": task.ttl,
    }
    if task.outcome is not None:
        data["result" if task.status == "completed" else "error"] = task.outcome
    return data


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _table(found: list[StoredTask]) -> Table:
    from rich.text import Text

    from toolexec.cli.tables import plain_table
    from toolexec.model.visible import visible_line

    columns: list[tuple[str, dict[str, Any]]] = [
        ("ID", {"no_wrap": True}),
        ("Tool", {"overflow": "fold"}),
        ("Caller", {"overflow": "fold", "max_width": 20}),
        ("Status", {"no_wrap": True}),
        ("Made", {"no_wrap": True}),
        ("Message", {"overflow": "fold", "ratio": 1}),
    ]
    table = plain_table(*columns)
    for task in found:
        table.add_row(
            Text(task.id, style="cyan"),
            Text(visible_line(task.tool)),
            Text(visible_line(task.caller)),
            Text(task.status, style=_STYLES[task.status]),
            Text(_when(task.created), style="dim"),
            Text(visible_line(task.message, 300)),
        )
    return table
