"""A run that has ended is made again, with every answer from the journal."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolexec.durable.offline import NoLog, Unreachable, find_nothing
from toolexec.durable.recorder import hidden_in
from toolexec.durable.replay import Replay
from toolexec.durable.runner import DurableRunner
from toolexec.errors import RunError, ToolExecError
from toolexec.exec.run_data import origin_from_json, session_of
from toolexec.exec.run_results import NO_HOOKS, RunResult, result_data
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import acting

if TYPE_CHECKING:
    from toolexec.durable.journal import RunRecord
    from toolexec.exec.durable import DurableRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Whether a run that has ended does the same again, with nothing called.

    `error` says at which step it diverged, and at which line where that is known; `result` is what it came to this
    time, and `calls` how many of its calls were repeated.
    """

    run_id: str
    same: bool
    calls: int
    error: RunError | None = None
    result: RunResult | None = None

    def to_dict(self) -> JSONDict:
        """Return the report as JSON-able data."""
        data: JSONDict = {"runId": self.run_id, "same": self.same, "calls": self.calls}
        if self.error is not None:
            data["error"] = self.error.to_dict()
        return data


async def replay_run(durable: DurableRuns, run_id: str) -> ReplayReport:
    """Make a run again that has ended, with no calls; see `Runs.replay`."""
    recording = await durable.recorded(run_id)
    run = recording.run
    if run.state not in ("done", "failed"):
        raise RunError(
            f"the run {run_id} is {run.state}; only one that is done or failed can be replayed",
            code="run_busy",
            op="replay",
            details={"run_id": run_id},
        )
    replay = Replay(run.id, run.kind, recording.calls, recording.groups, verify=True)
    replay.hide = hidden_in(run)
    runner = DurableRunner(Unreachable(), find_nothing, NoLog(run.id), replay)
    replay.sleeper = runner.sleep
    if session_of(run):
        work = durable.offline.work(run, runner, recording.programs_before())
    else:
        work = durable.work(run, runner, NO_HOOKS, approved=True)
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def stop_soon(_: ToolExecError) -> None:
        loop.call_soon_threadsafe(loop.call_later, 1.0, task.cancel)

    replay.on_failure = stop_soon
    await durable.start()
    with acting(origin_from_json(run.settings.get("origin") or {})):
        await asyncio.wait([task])
    result = None if task.cancelled() or task.exception() is not None else task.result()
    if replay.failure is None and result is not None:
        _compare(replay, run, result)
    count = len(replay.asked & replay.records.keys())
    failure = replay.failure
    if failure is None and not task.cancelled() and task.exception() is not None:
        raise task.exception() or AssertionError
    error = failure if isinstance(failure, RunError) else None
    return ReplayReport(run_id=run_id, same=failure is None, calls=count, error=error, result=result)


def _compare(replay: Replay, run: RunRecord, result: RunResult) -> None:
    """Have the replay fail when the result is another one."""
    try:
        replay.check_end()
    except ToolExecError:
        return
    now = result_data(result)
    if replay.hide is not None:
        now = replay.hide(now)
    before = run.result or {}
    for name in ("value", "error", "stdout"):
        one, other = before.get(name), now.get(name)
        if name == "error":
            one, other = (each and (each.get("class"), each.get("message")) for each in (one, other))
        if one != other:
            replay.diverged("", f"its {name} is another one", f"the {name} of then")
            return
