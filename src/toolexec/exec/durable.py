"""Durable runs of an `Exec`: chains, workflows and code that go on where they stopped, in any process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from toolexec.code.executor import CodeConfig
from toolexec.code.types import CodeResult
from toolexec.durable.engine import RESUMED, RecordedEngine
from toolexec.durable.journal import RETRY, CallRecord, RunRecord, Snapshot
from toolexec.durable.offline import UnansweredRunner, Unreachable, find_nothing, numbered, unanswered
from toolexec.durable.outcomes import error_to_json
from toolexec.durable.recorder import RECORDED, RECORDED_PREFIX
from toolexec.durable.run import Execution, check_tools, new_owner, waiting_error
from toolexec.durable.runner import DurableRunner
from toolexec.durable.waits import RUN_TOOLS, DocsOfRun, IndexOfRun
from toolexec.errors import (
    ClosedError,
    ConfigurationError,
    JournalError,
    RunError,
    RunWaitingError,
    ToolExecError,
)
from toolexec.exec.admitting import Programs
from toolexec.exec.chain import ChainResult, Chains, Step
from toolexec.exec.code import CodeRuns, CodeSettings, WorkflowSettings, progress_of
from toolexec.exec.following import Followers
from toolexec.exec.journal_access import JournalAccess, not_on_engine
from toolexec.exec.program import MAX_ID, Program, check_run_id, check_same
from toolexec.exec.run_data import (
    APPROVED,
    OFFLINE,
    check_parent,
    code_settings,
    origin_from_json,
    session_of,
    steps_from_text,
    trace_of,
    why_stopped,
)
from toolexec.exec.run_results import ENDED, NO_HOOKS, RunHooks, RunResult, ended_result, failed_result, result_data
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import acting
from toolexec.model.settings import check_settings

if TYPE_CHECKING:
    from collections.abc import Generator

    from toolexec.exec.debug import Recording
    from toolexec.exec.fork import Change, Fork
    from toolexec.exec.offline import Offline
    from toolexec.exec.options import Options
    from toolexec.exec.scope import Scope
    from toolexec.exec.sources import Sources
    from toolexec.exec.under_way import OpenRun, UnderWay
    from toolexec.run.runner import Runner
    from toolexec.run.types import OnError

LEASE: Final = 30.0
"""For how many seconds a run stays its owner's whose process has died."""


class DurableRuns(JournalAccess):
    """Begins, resumes and repeats the durable runs of one `Exec`."""

    def __init__(
        self, options: Options, scope: Scope, sources: Sources, runner: Runner, code: Callable[[], CodeRuns]
    ) -> None:
        super().__init__(options)
        self._scope = scope
        self._sources = sources
        self._runner = runner
        self._code = code
        self.programs: Programs = Programs(options, scope.index, runner, code)
        self.followers: Followers = Followers(self)

    @property
    def under_way(self) -> UnderWay:
        """The runs of the Exec that closing stops."""
        return self._sources.under_way

    async def start(self) -> None:
        """Have the sources of tools be there."""
        if self._sources.pending:
            await self._sources.start()

    # -- beginning ----------------------------------------------------------------------------------------------

    async def run_chain(
        self,
        run_id: str,
        steps: Sequence[Step | JSONObject],
        *,
        on_progress: ProgressCallback | None,
        on_error: OnError,
        dry_run: bool,
    ) -> ChainResult:
        """Run a chain as the run *run_id*; see `Exec.run_chain`."""
        program = await self._sources.under_way.run(self.programs.chain(steps, on_error=on_error, dry_run=dry_run))
        hooks = RunHooks(on_progress=on_progress)
        return cast("ChainResult", await self._begin(run_id, program, hooks))

    async def execute_code(self, run_id: str, code: str, settings: CodeSettings) -> CodeResult:
        """Run code as the run *run_id*; see `Exec.execute_code`."""
        admitted = self.programs.code(code, settings, here=self.engine is None)
        program = await self._sources.under_way.run(admitted)
        hooks = RunHooks(on_event=settings.get("on_event"))
        return cast("CodeResult", await self._begin(run_id, program, hooks))

    async def run_workflow(
        self,
        run_id: str,
        source: str,
        inputs: Mapping[str, object] | None,
        settings: WorkflowSettings,
        on_progress: ProgressCallback | None,
    ) -> CodeResult:
        """Run a workflow as the run *run_id*; see `Exec.run_workflow`."""
        check_settings("run_workflow", WorkflowSettings, settings)
        own: Any = {"language": "workflow", "metadata": {"inputs": dict(inputs or {})}, **settings}
        if on_progress is not None:
            own["on_event"] = progress_of(on_progress, own.get("on_event"))
        return await self.execute_code(run_id, source, own)

    async def _begin(self, run_id: str, program: Program, hooks: RunHooks) -> RunResult:
        """Begin a run, or go on with it where it was begun with the same. Raises RunError where it was not."""
        check_run_id(run_id)
        owner = new_owner()  # so that no other process takes it before this one does
        wanted = program.record(run_id, owner=owner, lease=time.time() + LEASE)
        if self.engine is not None:
            return await self._come_to(await self.engine.run(replace(wanted, owner="", lease=0.0)))
        run = await self.do(self.journal.create, wanted)
        check_same(run, wanted)
        return await self._go_on(run, owner, hooks, approved=program.approved, begins=run.owner == owner)

    # -- going on -----------------------------------------------------------------------------------------------

    async def resume(self, run_id: str, *, accept_changes: bool = False, hooks: RunHooks = NO_HOOKS) -> RunResult:
        """Go on with a run; see `Runs.resume`."""
        if self.engine is not None:
            if accept_changes:
                raise not_on_engine("accept_changes", "a call of such a run gets the tool as its worker has it")
            return await self._come_to(await self.engine.resume(run_id))
        run = await self.do(self.journal.get, run_id)
        return await self.go_on(run, new_owner(), hooks, accept_changes=accept_changes)

    async def go_on(
        self, run: RunRecord, owner: str, hooks: RunHooks = NO_HOOKS, *, accept_changes: bool = False
    ) -> RunResult:
        """Go on with a run that *owner* is to have, for the caller that began it."""
        with acting(origin_from_json(run.settings.get("origin") or {})):
            return await self._go_on(run, owner, hooks, accept_changes=accept_changes)

    async def _go_on(
        self,
        run: RunRecord,
        owner: str,
        hooks: RunHooks,
        *,
        accept_changes: bool = False,
        approved: bool = False,
        offline: bool = False,
        begins: bool = False,
    ) -> RunResult:
        async with self._sources.under_way.kept() as kept:  # until the journal has what became of it
            return await self._go_on_with(
                run,
                owner,
                hooks,
                kept,
                accept_changes=accept_changes,
                approved=approved,
                offline=offline,
                begins=begins,
            )

    async def _go_on_with(
        self,
        run: RunRecord,
        owner: str,
        hooks: RunHooks,
        kept: OpenRun,
        *,
        accept_changes: bool,
        approved: bool,
        offline: bool,
        begins: bool,
    ) -> RunResult:
        if not offline:
            await self.start()
        was_there = run.updated > run.created
        if run.state not in ENDED:
            run = await self.do(self.journal.claim, run.id, owner, LEASE)
        if run.state in ENDED:
            return ended_result(run, await self.do(self.journal.calls, run.id))
        execution = None
        try:
            calls = await self.do(self.journal.calls, run.id)
            check_parent(run, calls)
            if was_there:
                await self._take_retries(run.id, owner)
            groups = await self.do(self.journal.deliveries, run.id)
            snapshot = await self.do(self.journal.snapshot, run.id) if run.kind == "workflow" else None
            if not accept_changes:
                check_tools(run.id, calls, self._scope.resolver.resolve)
            execution = self._execution(run, owner, calls, groups, snapshot, offline=offline)
            made = execution.runner
            work = self.offline.work(run, made) if offline else self.work(run, made, hooks, approved=approved)
            result = await execution.run(kept.run(work))
        except RunWaitingError as error:
            return failed_result(run, error)
        except (RunError, JournalError) as error:
            return await self._stopped(run, execution or self._execution(run, owner, (), ()), error)
        except ToolExecError as error:
            left = execution or self._execution(run, owner, (), ())
            is_refused = not isinstance(error, ClosedError)  # by which another process goes on with it
            if begins and is_refused:
                await asyncio.shield(self._forget(run, left, error))
            stays = run.settings.get(OFFLINE) and is_refused  # no worker would try it again
            await asyncio.shield(left.give_up(error) if stays else left.release())
            raise
        except BaseException:
            await asyncio.shield((execution or self._execution(run, owner, (), ())).release())
            raise
        if isinstance(result, CodeResult) and execution.replay.skipped:
            result.tool_calls[:0] = trace_of(execution.replay.skipped)
        return await self._finished(run, execution, result)

    async def _forget(self, run: RunRecord, execution: Execution, why: ToolExecError) -> None:
        """Leave no record of a run that was refused before it called anything: nothing is to go on."""
        with _unless_lost():
            if await self.do(self.journal.calls, run.id):
                return
            await execution.finish("failed", {"raised": error_to_json(why)})
            await self.do(self.journal.delete, run.id)

    async def _take_retries(self, run_id: str, owner: str) -> None:
        """Take the signals which said that a run which could not go on may try it again: now it does. The next time
        that it cannot, it waits for another one."""
        for signal in await self.do(self.journal.signals, run_id):
            if signal.name == RETRY and not signal.taken_by:
                await self.do(self.journal.take, run_id, owner, f"?{RETRY}.{signal.id}", RETRY)

    def _execution(
        self,
        run: RunRecord,
        owner: str,
        calls: Sequence[CallRecord],
        groups: Sequence[Sequence[str]],
        snapshot: Snapshot | None = None,
        *,
        offline: bool = False,
    ) -> Execution:
        return Execution(
            self.journal,
            run,
            owner,
            calls=calls,
            groups=groups,
            inner=Unreachable() if offline else self._runner,
            find=find_nothing if offline else self._scope.resolver.resolve,
            index=self._scope.index,
            linger=self._options.linger,
            timer_linger=self._options.timer_linger,
            lease=LEASE,
            snapshot=snapshot,
            runner=UnansweredRunner if offline else DurableRunner,
        )

    def work(
        self, run: RunRecord, runner: DurableRunner, hooks: RunHooks = NO_HOOKS, *, approved: bool = False
    ) -> Awaitable[RunResult]:
        """Return what makes the calls of the run by *runner*, once the gate has decided on it again. With *approved*
        the run was approved just now; otherwise it may have been when it began."""
        asks = not (approved or run.settings.get(APPROVED))
        settings: JSONDict = dict(run.settings.get("given") or {})
        if run.kind == "chain":
            chains = Chains(self._options, self._scope, self._sources, runner, goes_on=True)
            return chains.run(
                steps_from_text(run.source),
                on_progress=hooks.on_progress,
                on_error=settings["on_error"],
                dry_run=settings["dry_run"],
                asks=asks,
            )
        own: Any
        own, runner.replay.keeps_time = code_settings(run)
        own["on_event"] = hooks.on_event
        code = self._code()

        def change(config: CodeConfig) -> CodeConfig:
            assert config.index is not None
            assert config.docs is not None
            index = IndexOfRun(config.index, {} if run.settings.get(RECORDED) else RUN_TOOLS)
            docs = DocsOfRun(config.docs, index)
            return replace(
                config, run=code.under_way.calls_by(runner), index=index, docs=docs, deliveries=runner.replay
            )

        return code.run_request(code.request(run.source, own), change, asks=asks)

    async def _finished(self, run: RunRecord, execution: Execution, result: RunResult) -> RunResult:
        """Write the result down, unless it only says that this process could not go on."""
        if why_stopped(result) is not None:
            await execution.release()
            return result
        data = result_data(result)
        try:
            await execution.finish("done" if result.error is None else "failed", data)
        except (RunError, JournalError) as error:
            return await self._stopped(run, execution, error)
        return result

    async def _stopped(self, run: RunRecord, execution: Execution, error: ToolExecError) -> RunResult:
        """Return the result of a run that this process cannot go on with."""
        result = failed_result(run, error)
        if error.code == "run_cancelled":
            data = result_data(result)
            with _unless_lost():
                await execution.finish("cancelled", data)
        elif error.code != "run_lost":
            await execution.give_up(error)
        return result

    async def _come_to(self, run: RunRecord) -> RunResult:
        """Return the result of a run of the engine, which has ended or waits."""
        assert self.engine is not None
        if run.state == "waiting":
            held = next((wait for wait in run.waits if wait.name == RESUMED), None)
            if held is None:
                return failed_result(run, waiting_error(run.id, run.waits))
            calls = numbered(await self.engine.calls(run.id))
            number = next((number for number, call in enumerate(calls, 1) if call.step == held.step), len(calls))
            tool, at = str((held.details or {}).get("tool", "")), calls[number - 1].at if calls else None
            return failed_result(run, unanswered(run.id, number, held.step, tool, at))
        return ended_result(run, () if run.kind == "chain" else await self.engine.calls(run.id))

    # -- looking at, and forking --------------------------------------------------------------------------------

    @property
    def offline(self) -> Offline:
        """What makes programs again with nothing that they could reach."""
        from toolexec.exec.offline import Offline

        return Offline(self._scope, self._code)

    async def recording(self, run_id: str) -> Recording:
        """Return all that is recorded of a run that nothing changes now. Raises RunBusyError for one that runs, and
        ConfigurationError for an engine that hands nothing out."""
        from toolexec.exec.debug import check_still

        return check_still(await self.recorded(run_id))

    async def recorded(self, run_id: str) -> Recording:
        """Return what is recorded of a run so far. Raises ConfigurationError for an engine that hands nothing out."""
        from toolexec.exec.debug import Recording

        language = self._options.default_language
        if self.engine is not None:
            return Recording(*await self._recorded_engine.recording(run_id), language)
        run = await self.do(self.journal.get, run_id)
        found = await self._read(run, language)
        before: list[Recording] = []
        while previous := session_of(run).get("previous"):
            number = session_of(run).get("number")
            try:
                run = await self.do(self.journal.get, previous)
            except RunError as error:
                raise _lacks(found.run.id, previous) if error.code == "run_not_found" else error from error
            if not isinstance(number, int) or session_of(run).get("number") != number - 1:
                raise JournalError(f"the journal is damaged: {previous} is not the program before it in its session")
            before.insert(0, await self._read(run, language))
        return replace(found, before=tuple(before))

    async def _read(self, run: RunRecord, language: str) -> Recording:
        from toolexec.exec.debug import Recording

        calls, groups = await self.do(self.journal.calls, run.id), await self.do(self.journal.deliveries, run.id)
        return Recording(run, calls, groups, language)

    async def compared(self, run_id: str) -> tuple[RunRecord, Sequence[CallRecord]]:
        """Return a run and its calls, with as much of them as is known."""
        if self.engine is None or isinstance(self.engine, RecordedEngine):
            recorded = await self.recorded(run_id)
            return recorded.run, recorded.calls
        return await self.engine.get(run_id), await self.engine.calls(run_id)

    @property
    def _recorded_engine(self) -> RecordedEngine:
        if not isinstance(self.engine, RecordedEngine):
            raise not_on_engine("to make a run again, or to fork it", "it hands out nothing of what it has recorded")
        return self.engine

    async def fork(self, run_id: str, change: Change, *, new_id: str | None, live: bool) -> Fork:
        """Begin a run as another one, up to a call; see `Runs.fork`."""
        from toolexec.exec.fork import Fork, fork_record, plan_fork, read_source, write_fork

        change.check()
        recording = await self.recording(run_id)
        if session_of(recording.run):
            raise ConfigurationError(
                f"{run_id} is a program of a session, and cannot be forked: what it goes on with is in a sandbox that "
                "is gone; look at it with `toolexec replay`, or run the programs up to it as one, and fork that"
            )
        change = replace(change, source=read_source(recording, change.source))
        plan = await plan_fork(self.offline, recording, change, self._scope.index)
        if new_id is None:
            new_id = await self._free_id(run_id)
        check_run_id(new_id)
        record = fork_record(recording, change, plan, new_id, live=live)
        approved = False
        if live:
            await self.start()
            if self.engine is None:  # whose workers have the tools
                check_tools(run_id, plan.calls, self._scope.resolver.resolve)
            approved = await self.programs.admit(lambda: self.programs.asked(record))
        record = replace(record, settings={**record.settings, APPROVED: approved})
        if self.engine is not None:
            made = await self._recorded_engine.fork(record, plan.calls, plan.groups, held=not live)
            result = await self._come_to(made)
        else:
            owner = new_owner()
            record = replace(record, owner=owner, lease=time.time() + LEASE)
            made = await self.do(write_fork, self.journal, record, plan)
            result = await self._go_on(made, owner, NO_HOOKS, accept_changes=True, approved=approved, offline=not live)
        return Fork(
            run_id=new_id, parent=run_id, call=plan.number, step=plan.step, reused=len(plan.calls), result=result
        )

    async def _free_id(self, run_id: str) -> str:
        """Return the ID of the next fork of a run."""
        base, number = run_id.removeprefix(RECORDED_PREFIX)[: MAX_ID - 20], 0
        while True:
            number += 1
            found = f"{base}.fork-{number}"
            try:
                await self.store.get(found)
            except RunError as error:
                if error.code != "run_not_found":
                    raise
                return found


def _lacks(run_id: str, previous: str) -> RunError:
    return RunError(
        f"the run {run_id} needs {previous}, the program before it in its session, which was deleted or is kept no "
        "longer: see record.keep",
        code="run_not_found",
        op="replay",
        details={"run_id": run_id, "previous": previous},
    )


@contextmanager
def _unless_lost() -> Generator[None, None, None]:
    try:
        yield
    except (RunError, JournalError):
        return
