"""Programs of a recorded session that are made again offline, one after the other, in one sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolexec.code.executor import CodeConfig, Executor
from toolexec.durable.offline import OfflineReplay, OfflineRunner
from toolexec.errors import RunError, ToolExecError
from toolexec.exec.run_data import code_settings, session_of, settings_from_json

if TYPE_CHECKING:
    from toolexec.code.types import CodeResult
    from toolexec.durable.journal import CallRecord, RunRecord
    from toolexec.durable.replay import Replay
    from toolexec.durable.runner import DurableRunner
    from toolexec.exec.code import CodeRuns
    from toolexec.model.origin import Origin

_GRACE: Final = 1.0
"""How many seconds a program that diverged has to fail at the line where it does."""


def runner_before(run: RunRecord, calls: Sequence[CallRecord], groups: Sequence[Sequence[str]]) -> OfflineRunner:
    """Return what answers the calls of a program that another one of its session needs."""
    return OfflineRunner(OfflineReplay(run, calls, groups))


async def run_in_session(
    code: CodeRuns,
    programs: Sequence[tuple[RunRecord, DurableRunner]],
    configure: Callable[[RunRecord, DurableRunner], CodeConfig],
    origin: Origin,
) -> CodeResult:
    """Make the programs of a session again, and return the result of the last one.

    Raises RunError for one before it that does not do what is recorded, and what opening the session raises.
    """
    asked: list[tuple[RunRecord, DurableRunner, Any, bool]]
    asked = [(run, runner, *code_settings(run)) for run, runner in programs]
    for _, runner, _, keeps_time in asked:
        runner.replay.keeps_time = keeps_time
    opened = session_of(programs[-1][0])["opened"]
    given: Any = {"seed": opened["seed"], "now": opened["now"], **settings_from_json(opened["given"])}
    request = code.request("", given).given(origin=origin)
    tools, request = Executor(configure(*programs[0])).prepare(request)
    handles = tools.handles
    session = await code.runtime.open_session(request.given(gateway=tools, output=tools.output))
    try:
        for number, (run, runner, settings, _) in enumerate(asked, 1):
            executor = Executor(configure(run, runner))
            request = code.request(run.source, settings).given(origin=origin)
            tools, request = executor.prepare(request, is_session=True)
            tools.handles = handles
            request = request.given(gateway=tools, output=tools.output)
            work = executor.run(request, tools, session.execute(request))
            if number == len(asked):
                return await work
            await _as_before(work, runner.replay)
    finally:
        await session.aclose()
    raise AssertionError("a session has a program")


async def _as_before(work: Awaitable[CodeResult], replay: Replay) -> None:
    """Make a program again of which only what it leaves behind counts. Raises RunError where it does something else."""
    _, raised = await run_offline(work, replay, asyncio.get_running_loop().create_future())
    if replay.failure is None and raised is None:
        replay.check_end()
        return
    error = replay.failure or raised
    assert error is not None
    raise RunError(
        f"the program of its session before it, {replay.run_id}, cannot be made again: {error}",
        code="run_diverged",
        op="replay",
        details={**error.details, "run_id": replay.run_id},
    ) from error


async def run_offline(
    work: Awaitable[Any], replay: Replay, stopped: asyncio.Future[None]
) -> tuple[Any, ToolExecError | None]:
    """Await *work*, which repeats *replay*, until it ends or *stopped* is done; return its result, or None and the
    error that it raised."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)

    def stop_soon(_: ToolExecError) -> None:
        loop.call_soon_threadsafe(loop.call_later, _GRACE, task.cancel)

    replay.on_failure = stop_soon
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        await asyncio.wait([task])
    if task.cancelled() or stopped.done():
        return None, None
    error = task.exception()
    if error is not None and not isinstance(error, ToolExecError):
        raise error
    return (None, error) if error is not None else (task.result(), None)
