"""`toolexec runs`: durable runs: what there is, go on with them, send them what they wait for, make one again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolexec.cli.exit_codes import FAILED, NOT_RUN, OK, WAITING, code_of_run
from toolexec.cli.journal import perform_with_journal as _perform
from toolexec.cli.options import AsJson, Config
from toolexec.cli.queues import add_queue_commands, moment_text
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.durable.journal import CallRecord, RunRecord
    from toolexec.exec.run_results import RunResult
    from toolexec.model.json_value import JSONDict, JSONValue

runs: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Durable runs: chains, workflows and code that resume where they stopped."
)
add_queue_commands(runs)

State = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
RunID = Annotated[str, typer.Argument(metavar="RUN", help="The ID of the run.", show_default=False)]


@runs.command("list")
def list_command(
    context: typer.Context,
    state: Annotated[State | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most runs to show.")] = 50,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List runs, the latest first."""
    _perform(context, lambda s: list_runs(s, state, limit), config, as_json)


@runs.command("show")
def show_command(context: typer.Context, run: RunID, config: Config = None, as_json: AsJson = False) -> None:
    """Show a run: its state, what it waits for, its calls."""
    _perform(context, lambda s: show(s, run), config, as_json)


@runs.command("resume")
def resume_command(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="The ID of the run.", show_default=False)] = None,
    due: Annotated[bool, typer.Option("--due", help="Resume all runs that are due.")] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Resume even if tools that it called have changed.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Resume a run, and print its value."""
    _perform(context, lambda s: resume(s, run or "", due=due, accept_changes=accept_changes), config, as_json)


@runs.command("work")
def work_command(context: typer.Context, config: Config = None, as_json: AsJson = False) -> None:
    """Work off waiting runs, queues and schedules, until stopped."""
    _perform(context, work, config, as_json, lines=True)


@runs.command("signal")
def signal_command(
    context: typer.Context,
    run: RunID,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the run waits for: see runs show.")],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="JSON, or else text.", show_default=False)
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Send a waiting run a signal, an input, an approval (once, no) or a decision (true, false)."""
    _perform(context, lambda s: send(s, run, name, payload), config, as_json)


@runs.command("cancel")
def cancel_command(context: typer.Context, run: RunID, config: Config = None, as_json: AsJson = False) -> None:
    """Cancel a run, also one that another process runs."""
    _perform(context, lambda s: cancel(s, run), config, as_json)


@runs.command("replay")
def replay_command(context: typer.Context, run: RunID, config: Config = None, as_json: AsJson = False) -> None:
    """Replay a finished run without calling tools; exit with 1 if it diverges."""
    _perform(context, lambda s: replay(s, run), config, as_json)


@runs.command("fork")
def fork_command(
    context: typer.Context,
    run: RunID,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Call at which the new run diverges: its number from 1, or its step."),
    ] = None,
    answer: Annotated[
        str | None, typer.Option(metavar="FILE", help="New answer of that call: JSON; - for stdin.")
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="FILE", help="New error of that call: JSON with a message; - for stdin.")
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="FILE", help="A changed program; - for stdin.")] = None,
    new_id: Annotated[str | None, typer.Option("--id", help="The ID of the new run.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Make unrecorded calls on real tools.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Start a new run from a call of another one; offline, unless --live."""
    from toolexec.cli import run_forks

    wanted = run_forks.ForkWanted(run, at, answer, error, source, new_id, live=live)
    _perform(context, lambda s: run_forks.fork(s, wanted), config, as_json)


@runs.command("diff")
def diff_command(
    context: typer.Context,
    run_a: Annotated[str, typer.Argument(metavar="A", help="The ID of a run.")],
    run_b: Annotated[str, typer.Argument(metavar="B", help="The ID of another run.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs call by call; exit with 1 where they differ."""
    from toolexec.cli import run_forks

    _perform(context, lambda s: run_forks.diff(s, run_a, run_b), config, as_json)


@runs.command("delete")
def delete_command(context: typer.Context, run: RunID, config: Config = None, as_json: AsJson = False) -> None:
    """Delete a finished run."""
    _perform(context, lambda s: delete(s, run), config, as_json)


async def list_runs(session: Session, state: State | None, limit: int) -> int:
    """Show the runs in the journal."""
    from toolexec.cli.tables import plain_table

    found = await session.ex.runs.list([state] if state is not None else [], limit=limit)
    if session.screen.as_json:
        session.screen.document({"runs": [_facts(run) for run in found]})
        return OK
    if not found:
        session.screen.note("no runs")
        return OK
    columns = ("Kind", "State", "Calls", "Caller", "Waits for", "Since", "Due")
    table = plain_table(("Run", {"overflow": "fold"}), *((name, {}) for name in columns))
    for run in found:
        since = min((wait.since for wait in run.waits if wait.since), default=None)
        due = min((wait.due for wait in run.waits if wait.due is not None), default=None)
        times = [moment_text(each) for each in (since, due)]
        names = ", ".join(wait.name or wait.kind for wait in run.waits)
        table.add_row(run.id, run.kind, run.state, str(run.calls), run.caller, names, *times)
    session.screen.show(table)
    return OK


async def show(session: Session, run_id: str) -> int:
    """Show one run with its calls."""
    from toolexec.cli.tables import plain_table
    from toolexec.cli.terminal import to_json
    from toolexec.exec.run_data import session_of

    run, calls = await session.ex.runs.get(run_id), await session.ex.runs.calls(run_id)
    signals = [signal for signal in await session.ex.runs.signals(run_id) if not signal.taken_by]
    if session.screen.as_json:
        data = _facts(run) | {"source": run.source, "settings": dict(run.settings.get("given") or {})}
        kept = [{"name": signal.name, "sent": moment_text(signal.sent), "sender": signal.sender} for signal in signals]
        if parent := dict(run.settings.get("parent") or {}):
            data["parent"] = parent
        if place := session_of(run):
            data["session"] = {"number": place["number"], "previous": place["previous"] or None}
        data |= {"result": run.result, "calls": [_call(call) for call in calls], "signals": kept}
        session.screen.document(data)
        return OK
    session.screen.note(f"{run.id}: {run.kind}, {run.state}, begun {moment_text(run.created)}")
    if parent := dict(run.settings.get("parent") or {}):
        session.screen.note(f"forked from {parent['id']} at call {parent['call']}")
    if place := session_of(run):
        after = f", after {place['previous']}" if place["previous"] else ""
        session.screen.note(f"program {place['number']} of a session{after}")
    for wait in run.waits:
        times = f" since {moment_text(wait.since)}" if wait.since else ""
        times += f" until {moment_text(wait.due)}" if wait.due is not None else ""
        session.screen.note(f"waits for {wait.name or wait.kind}{times} {to_json(wait.details or {})}")
    for signal in signals:
        who = f" by {signal.sender}" if signal.sender else ""
        session.screen.note(f"nothing has taken the signal {signal.name}, sent {moment_text(signal.sent)}{who}")
    table = plain_table(("Step", {}), ("Tool", {"overflow": "fold"}), ("State", {}))
    for call in calls:
        table.add_row(call.step, call.tool, call.state)
    session.screen.show(table)
    return OK


async def resume(session: Session, run_id: str, *, due: bool, accept_changes: bool) -> int:
    """Go on with one run, or with all that can; FAILED where one has failed, else WAITING where one waits again."""
    from toolexec.cli.finding import connect
    from toolexec.cli.run_results import show_result

    if bool(run_id) == due:
        raise ConfigurationError("name one run, or say --due for all that can go on")
    await connect(session)
    if due:
        results = await session.ex.runs.resume_due()
    else:
        results = {run_id: await session.ex.runs.resume(run_id, accept_changes=accept_changes)}
    if session.screen.as_json:
        documents = {each: result.to_dict() for each, result in results.items()}
        session.screen.document({"runs": documents} if due else documents[run_id])
    else:
        for each, result in results.items():
            show_result(session, each, result)
    codes = {code_of_run(result.error) for result in results.values()}
    return next((code for code in (FAILED, WAITING) if code in codes), OK)


async def work(session: Session) -> int:
    """Go on with runs until the command is stopped."""
    from toolexec.cli.finding import connect
    from toolexec.cli.run_results import show_result

    await connect(session)

    def show_one(run_id: str, result: RunResult) -> None:
        if session.screen.as_json:
            session.screen.json_line({"run": run_id, **result.to_dict()})
        else:
            show_result(session, run_id, result)

    if not session.screen.as_json:
        session.screen.note("waiting for runs; stop with Ctrl-C")
    await session.ex.runs.work(on_result=show_one)
    return OK


async def send(session: Session, run_id: str, name: str, payload: str | None) -> int:
    """Send a signal; report whether the run waits for it."""
    waited = await session.ex.runs.signal(run_id, name, _payload(payload))
    if session.screen.as_json:
        session.screen.document({"run": run_id, "signal": name, "waited": waited})
    else:
        session.screen.note(
            f"{run_id} {'can resume' if waited else f'is not waiting for {name} yet; the signal is stored'}"
        )
    return OK


async def cancel(session: Session, run_id: str) -> int:
    """Cancel a run; report whether it has ended."""
    ended = await session.ex.runs.cancel(run_id)
    if session.screen.as_json:
        session.screen.document({"run": run_id, "ended": ended})
    else:
        session.screen.note(f"{run_id} {'is cancelled' if ended else 'will be stopped by its process'}")
    return OK


async def replay(session: Session, run_id: str) -> int:
    """Make a run again; FAILED where it diverges."""
    from toolexec.cli.finding import connect

    await connect(session)
    report = await session.ex.runs.replay(run_id)
    if session.screen.as_json:
        session.screen.document(report.to_dict())
    elif report.error is not None:
        session.screen.error(report.error)
    else:
        session.screen.note(f"{run_id} replayed without differences: {report.calls} calls, none of them made")
    return OK if report.same else FAILED


async def delete(session: Session, run_id: str) -> int:
    """Forget a run."""
    deleted = await session.ex.runs.delete(run_id)
    if session.screen.as_json:
        session.screen.document({"run": run_id, "deleted": deleted})
    else:
        session.screen.note(f"{run_id} {'is deleted' if deleted else 'was not found'}")
    return OK if deleted else NOT_RUN


def _payload(text: str | None) -> JSONValue:
    from toolexec.model.json_document import KeyTwiceError, read_document

    if text is None:
        return None
    try:
        return read_document(text)
    except KeyTwiceError as error:
        raise ConfigurationError(f"the payload: {error}") from error
    except (ValueError, RecursionError):
        return text


def _facts(run: RunRecord) -> JSONDict:
    from toolexec.durable.run import wait_to_json

    return {
        "id": run.id,
        "kind": run.kind,
        "state": run.state,
        "caller": run.caller,
        "created": moment_text(run.created),
        "updated": moment_text(run.updated),
        "calls": run.calls,
        "waits": [wait_to_json(wait) for wait in run.waits],
        **({"queue": run.queue, "priority": run.priority} if run.queue else {}),
    }


def _call(call: CallRecord) -> JSONDict:
    return {"step": call.step, "tool": call.tool, "state": call.state, "outcome": call.outcome}
