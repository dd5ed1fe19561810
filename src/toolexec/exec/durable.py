"""Durable runs of an `Exec`: chains, workflows and code that go on where they stopped, in any process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import toolexec.durable.clock as host_clock
from toolexec.code.executor import CodeConfig
from toolexec.code.types import CodeResult
from toolexec.durable.engine import DurableEngine, QueuedEngine
from toolexec.durable.journal import CallRecord, Journal, RunKind, RunRecord, Snapshot, Wait
from toolexec.durable.journals import is_journal_kind, make_journal
from toolexec.durable.log import OwnedRun
from toolexec.durable.offline import UnansweredRunner, Unreachable, find_nothing
from toolexec.durable.outcomes import error_from_json
from toolexec.durable.queues import Queue, QueueStore
from toolexec.durable.recorder import RECORDED, RECORDED_PREFIX, RecordingStore, hidden_in, recording_store
from toolexec.durable.replay import Replay
from toolexec.durable.run import RETRY, Execution, check_tools, new_owner, waiting_error
from toolexec.durable.runner import DurableRunner
from toolexec.durable.waits import RUN_TOOLS, DocsOfRun, IndexOfRun
from toolexec.errors import (
    ClosedError,
    ConfigurationError,
    JournalError,
    RunBusyError,
    RunError,
    RunWaitingError,
    ToolExecError,
)
from toolexec.exec.chain import ChainResult, Chains, Step, asked_chain, steps_of
from toolexec.exec.code import CodeRuns, CodeSettings, WorkflowSettings, progress_of
from toolexec.exec.program import MAX_ID, Program, check_run_id
from toolexec.exec.run_data import (
    APPROVED,
    OFFLINE,
    chain_from_json,
    chain_to_json,
    check_parent,
    code_from_json,
    code_settings,
    code_to_json,
    origin_from_json,
    settings_from_json,
    settings_to_json,
    steps_from_text,
    steps_to_text,
    trace_of,
    was_resumed,
    why_stopped,
)
from toolexec.exec.stores import JournalQueues, JournalStore
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import acting, current_origin
from toolexec.model.settings import check_settings
from toolexec.run.admission import admit_durable
from toolexec.run.run_request import RunRequest
from toolexec.run.steps import refuse_excess

if TYPE_CHECKING:
    from collections.abc import Generator

    from toolexec.code.types import EventCallback
    from toolexec.exec.debug import Recording
    from toolexec.exec.fork import Change, Fork
    from toolexec.exec.offline import Offline
    from toolexec.exec.options import Options
    from toolexec.exec.scope import Scope
    from toolexec.exec.sources import Sources
    from toolexec.run.runner import Runner
    from toolexec.run.types import OnError

__all__ = [
    "LEASE",
    "NO_HOOKS",
    "DurableRuns",
    "ReplayReport",
    "RunHooks",
    "RunResult",
    "WaitsCallback",
    "check_same",
]

T = TypeVar("T")
RunResult: TypeAlias = ChainResult | CodeResult
"""What a durable run comes to: a chain's result, or that of code, which a workflow is, too."""
WaitsCallback: TypeAlias = Callable[[tuple[Wait, ...]], None]
"""Receives what a run waits for; nothing once it goes on."""

LEASE: Final = 30.0
"""For how many seconds a run stays its owner's whose process has died."""
_ENDED: Final = ("done", "failed", "cancelled")
_LOOK_FIRST: Final = 0.1
_LOOK_AGAIN: Final = 0.5
_LOOK_FAR: Final = 5.0
_DATABASES: Final = ("postgresql://", "postgres://", "secretref:")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHooks:
    """What is reported of a run to its caller, in this process only."""

    on_progress: ProgressCallback | None = None
    on_event: EventCallback | None = None


NO_HOOKS: Final = RunHooks()


class DurableRuns:
    """Begins, resumes and repeats the durable runs of one `Exec`."""

    def __init__(
        self, options: Options, scope: Scope, sources: Sources, runner: Runner, code: Callable[[], CodeRuns]
    ) -> None:
        self._options = options
        self._scope = scope
        self._sources = sources
        self._runner = runner
        self._code = code
        self._journal: Journal | None = None
        self._made: Journal | DurableEngine | None = None
        self._followed: dict[str, asyncio.Event] = {}

    @property
    def _given(self) -> Journal | DurableEngine | str | Path | None:
        """What the options name, made where that is a kind of journal."""
        given = self._options.journal
        if isinstance(given, str) and is_journal_kind(given):
            if self._made is None:
                self._made = make_journal(given)
            return self._made
        return given

    @property
    def journal(self) -> Journal:
        """The journal of the options. Raises ConfigurationError without one, JournalError for a file that cannot be
        used, and MissingExtraError for a kind whose package is absent."""
        if self._journal is None:
            given = self._given
            if given is None:
                raise ConfigurationError(
                    "a durable run needs a journal: Exec(journal='runs.db'), or journal in the block [durable] of "
                    "toolexec.toml",
                    details={"setting": "journal"},
                )
            if isinstance(given, DurableEngine):
                raise ConfigurationError("the runs of this Exec are on an engine of their own; ask that one for this")
            self._journal = _opened(given) if isinstance(given, str | Path) else given
        return self._journal

    @property
    def engine(self) -> DurableEngine | None:
        """What runs the durable runs elsewhere, if the options name one in place of a journal."""
        given = self._given
        return given if isinstance(given, DurableEngine) else None

    async def due(self, limit: int) -> list[str]:
        """Return the IDs of runs that could go on. Raises ConfigurationError where they do so by themselves."""
        if self.engine is not None:
            raise _not_there("to go on with what is due", "its workers do that, whatever wakes a run")
        asked = limit
        while True:  # until there are enough of those that a worker goes on with
            found = await self.do(self.journal.due, host_clock.now(), asked)
            due = [run_id for run_id in found if not await self._stays(await self.do(self.journal.get, run_id))]
            if len(due) >= limit or len(found) < asked:
                return due[:limit]
            asked *= 2

    async def _stays(self, run: RunRecord) -> bool:
        """Return whether a run was forked to be looked at offline, and has called nothing since: only a caller who asks
        for it may have it call real tools. Once it has called one, it is as any other."""
        if not run.settings.get(OFFLINE):
            return False
        return not was_resumed(run, await self.do(self.journal.calls, run.id))

    @property
    def queues(self) -> Mapping[str, Queue]:
        """The queues of the options, by name."""
        return self._options.queues

    @property
    def queue_store(self) -> QueueStore:
        """The journal, where it keeps queues and schedules for the workers of it. Raises ConfigurationError where it
        does not."""
        if self.engine is not None:
            raise _not_there("to take from queues and make the runs of schedules", "its workers do that")
        if not isinstance(self.journal, QueueStore):
            raise ConfigurationError("this journal keeps no queues and schedules; a file or PostgreSQL does")
        return self.journal

    @property
    def queueing(self) -> QueuedEngine | JournalQueues:
        """What can be asked for queues and schedules: the engine, or the journal. Raises ConfigurationError where it
        keeps none."""
        engine = self.engine
        if engine is None:
            return JournalQueues(self.queue_store, self.do)
        if not isinstance(engine, QueuedEngine):
            raise _not_there("a queue or schedule", "it has none; a file or PostgreSQL does")
        return engine

    @property
    def recording_store(self) -> RecordingStore:
        """The journal, where it keeps runs that are recorded while they are made. Raises ConfigurationError where it
        does not."""
        return recording_store(self.engine or self.journal)

    @property
    def store(self) -> DurableEngine | JournalStore:
        """What can be asked for runs: the engine, or the journal. Raises as `journal` does."""
        return self.engine or JournalStore(self.journal, self.do)

    def close(self) -> None:
        """Close the journal, if it was opened here."""
        journal, self._journal = self._journal, None
        if journal is not None and isinstance(self._options.journal, str | Path):
            journal.close()

    async def aclose(self) -> None:
        """Close the journal as `close` does, and the connection of an engine."""
        self.close()
        engine, self._made = self._made or self._options.journal, None
        if isinstance(engine, DurableEngine):
            await engine.aclose()

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
        program = await self.chain_program(steps, on_error=on_error, dry_run=dry_run)
        hooks = RunHooks(on_progress=on_progress)
        return cast("ChainResult", await self._begin(run_id, program, hooks))

    async def chain_program(self, steps: Sequence[Step | JSONObject], *, on_error: OnError, dry_run: bool) -> Program:
        """Return a chain as runs are made of it, once the gate has admitted it."""
        chain = steps_of(steps, self._options.max_timeout)
        settings: JSONDict = {"on_error": on_error, "dry_run": dry_run}
        await refuse_excess(self._runner, chain, current_origin().within("chain", ""))  # of which nothing is written
        approved = await self._admit(lambda: asked_chain(chain, current_origin()))
        return Program.here("chain", steps_to_text(chain), settings, approved=approved)

    async def execute_code(self, run_id: str, code: str, settings: CodeSettings) -> CodeResult:
        """Run code as the run *run_id*; see `Exec.execute_code`."""
        program = await self.code_program(code, settings)
        hooks = RunHooks(on_event=settings.get("on_event"))
        return cast("CodeResult", await self._begin(run_id, program, hooks))

    async def code_program(self, code: str, settings: CodeSettings) -> Program:
        """Return code, or a workflow, as runs are made of it, once the gate has admitted it."""
        language = settings.get("language") or self._options.default_language
        kind: RunKind = "workflow" if language in ("workflow", "dsl") else "code"
        runs = self._code()
        request = runs.request(code, settings)  # raises for what makes no sense, before anything is written
        approved = await self._admit(lambda: runs.asked(request))
        return Program.here(kind, code, settings_to_json(settings), approved=approved)

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

    async def _admit(self, asked: Callable[[], RunRequest]) -> bool:
        """Have the gate decide on a run before it is written down; return whether it was approved. When it goes on
        later, it is decided on again, and that approval counts."""
        gate = self._options.own_gate
        return gate is not None and await admit_durable(gate, asked())

    async def _begin(self, run_id: str, program: Program, hooks: RunHooks) -> RunResult:
        """Begin a run, or go on with it where it was begun with the same. Raises RunError where it was not."""
        check_run_id(run_id)
        owner = new_owner()  # so that no other process takes it before this one does
        wanted = program.record(run_id, owner=owner, lease=time.time() + LEASE)
        if self.engine is not None:
            return await self._come_to(await self.engine.run(replace(wanted, owner="", lease=0.0)))
        run = await self.do(self.journal.create, wanted)
        check_same(run, wanted)
        return await self._go_on(run, owner, hooks, approved=program.approved)

    # -- going on -----------------------------------------------------------------------------------------------

    async def resume(
        self, run_id: str, *, accept_changes: bool = False, hooks: RunHooks = NO_HOOKS, is_due: bool = False
    ) -> RunResult:
        """Go on with a run; see `Runs.resume`. Raises RunBusyError for one that is not for workers, if it *is_due*."""
        if self.engine is not None:
            if accept_changes:
                raise _not_there("accept_changes", "a call of such a run gets the tool as its worker has it")
            return await self._come_to(await self.engine.resume(run_id))
        run = await self.do(self.journal.get, run_id)
        if is_due and await self._stays(run):
            raise RunBusyError(f"the run {run_id} is a fork that was made offline", op="resume")
        return await self.go_on(run, new_owner(), hooks, accept_changes=accept_changes)

    async def go_on(
        self, run: RunRecord, owner: str, hooks: RunHooks = NO_HOOKS, *, accept_changes: bool = False
    ) -> RunResult:
        """Go on with a run that *owner* is to have, for the caller that began it."""
        with acting(origin_from_json(run.settings.get("origin") or {})):
            return await self._go_on(run, owner, hooks, accept_changes=accept_changes)

    async def follow(self, run_id: str, hooks: RunHooks, on_waits: WaitsCallback | None) -> RunResult:
        """Go on with a run until it has ended; see `Runs.follow`."""
        woken = self._followed.setdefault(run_id, asyncio.Event())
        try:
            while True:
                try:
                    if self.engine is None and await self._is_for_workers(run_id):
                        await self._until_woken(run_id, woken, on_waits, by_workers=True)
                    result = await self.resume(run_id, hooks=hooks)
                except RunBusyError:  # another process goes on with it
                    await asyncio.sleep(_LOOK_AGAIN)
                    continue
                if not isinstance(result.error, RunWaitingError):
                    return result
                await self._until_woken(run_id, woken, on_waits)
        finally:
            self._followed.pop(run_id, None)

    async def _is_for_workers(self, run_id: str) -> bool:
        """Return whether workers take the run from a queue, by the limits of that."""
        run = await self.store.get(run_id)
        return bool(run.queue) and run.state not in _ENDED

    async def _until_woken(
        self, run_id: str, woken: asyncio.Event, on_waits: WaitsCallback | None, *, by_workers: bool = False
    ) -> None:
        """Return once a run that waits can go on, or another process goes on with it; *by_workers*: once it ended."""
        known: tuple[Wait, ...] = ()
        pause = _LOOK_FIRST
        while (run := await self.store.get(run_id)).state == "waiting" or (by_workers and run.state not in _ENDED):
            if on_waits is not None and run.waits != known:
                known = run.waits
                on_waits(known)
            if self.engine is None and not by_workers and await self._can_go_on(run):
                break
            try:
                await asyncio.wait_for(woken.wait(), pause)
                pause = _LOOK_FIRST
            except TimeoutError:
                pause = min(pause * 2, _LOOK_AGAIN if self.engine is None else _LOOK_FAR)
            woken.clear()
        if on_waits is not None:
            on_waits(())

    async def _can_go_on(self, run: RunRecord) -> bool:
        """Return whether something is there that a run of the journal waits for."""
        now, names = host_clock.now(), {wait.name for wait in run.waits if wait.name}
        if any(wait.due is not None and wait.due <= now for wait in run.waits):
            return True
        signals = await self.do(self.journal.signals, run.id)
        return any(not signal.taken_by and signal.name in names for signal in signals)

    def wake(self, run_id: str) -> None:
        """Have what follows a run in this process look at it now."""
        if (woken := self._followed.get(run_id)) is not None:
            woken.set()

    async def _go_on(
        self,
        run: RunRecord,
        owner: str,
        hooks: RunHooks,
        *,
        accept_changes: bool = False,
        approved: bool = False,
        offline: bool = False,
    ) -> RunResult:
        if self._sources.pending and not offline:
            await self._sources.start()
        was_there = run.updated > run.created
        if run.state not in _ENDED:
            run = await self.do(self.journal.claim, run.id, owner, LEASE)
        if run.state in _ENDED:
            return self._ended(run, await self.do(self.journal.calls, run.id))
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
            result = await execution.run(work)
        except RunWaitingError as error:
            return self._failed(run, error)
        except (RunError, JournalError) as error:
            return await self._stopped(run, execution or self._execution(run, owner, (), ()), error)
        except ToolExecError as error:
            left = execution or self._execution(run, owner, (), ())
            stays = run.settings.get(OFFLINE) and not isinstance(error, ClosedError)  # no worker would try it again
            await asyncio.shield(left.give_up(error) if stays else left.release())
            raise
        except BaseException:
            await asyncio.shield((execution or self._execution(run, owner, (), ())).release())
            raise
        if isinstance(result, CodeResult) and execution.replay.skipped:
            result.tool_calls[:0] = trace_of(execution.replay.skipped)
        return await self._finished(run, execution, result)

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
            return replace(config, run=runner, index=index, docs=docs, deliveries=runner.replay)

        return code.run_request(code.request(run.source, own), change, asks=asks)

    async def _finished(self, run: RunRecord, execution: Execution, result: RunResult) -> RunResult:
        """Write the result down, unless it only says that this process could not go on."""
        if why_stopped(result) is not None:
            await execution.release()
            return result
        data = chain_to_json(result) if isinstance(result, ChainResult) else code_to_json(result)
        try:
            await execution.finish("done" if result.error is None else "failed", data)
        except (RunError, JournalError) as error:
            return await self._stopped(run, execution, error)
        return result

    async def _stopped(self, run: RunRecord, execution: Execution, error: ToolExecError) -> RunResult:
        """Return the result of a run that this process cannot go on with."""
        result = self._failed(run, error)
        if error.code == "run_cancelled":
            data = chain_to_json(result) if isinstance(result, ChainResult) else code_to_json(result)
            with _unless_lost():
                await execution.finish("cancelled", data)
        elif error.code != "run_lost":
            await execution.give_up(error)
        return result

    def _failed(self, run: RunRecord, error: ToolExecError) -> RunResult:
        if run.kind == "chain":
            return ChainResult(error=error)
        return CodeResult(error=error, language=_language(run))

    async def _come_to(self, run: RunRecord) -> RunResult:
        """Return the result of a run of the engine, which has ended or waits."""
        if run.state == "waiting":
            return self._failed(run, waiting_error(run.id, run.waits))
        assert self.engine is not None
        return self._ended(run, () if run.kind == "chain" else await self.engine.calls(run.id))

    def _ended(self, run: RunRecord, calls: Sequence[CallRecord]) -> RunResult:
        """Return the result of a run that has ended."""
        if run.result is None:
            cancelled = RunError(
                f"the run {run.id} was cancelled", code="run_cancelled", op="resume", details={"run_id": run.id}
            )
            return self._failed(run, cancelled)
        if "raised" in run.result:  # nothing was run
            raise error_from_json(run.result["raised"])
        if run.kind == "chain":
            return chain_from_json(run.result)
        return code_from_json(run.result, calls)

    # -- repeating ----------------------------------------------------------------------------------------------

    async def replay(self, run_id: str) -> ReplayReport:
        """Make a run again that has ended, with no calls; see `Runs.replay`."""
        if self.engine is not None:
            raise _not_there("replay", "such a run is repeated from its history by its workers, whenever they need to")
        journal = self.journal
        run = await self.do(journal.get, run_id)
        if run.state not in ("done", "failed"):
            raise RunError(
                f"the run {run_id} is {run.state}; only one that is done or failed can be replayed",
                code="run_busy",
                op="replay",
                details={"run_id": run_id},
            )
        calls = await self.do(journal.calls, run_id)
        groups = await self.do(journal.deliveries, run_id)
        replay = Replay(run.id, run.kind, calls, groups, verify=True)
        replay.hide = hidden_in(run)
        runner = DurableRunner(Unreachable(), find_nothing, OwnedRun(journal, run.id, ""), replay)
        replay.sleeper = runner.sleep
        task = asyncio.ensure_future(self.work(run, runner, NO_HOOKS, approved=True))
        loop = asyncio.get_running_loop()

        def stop_soon(_: ToolExecError) -> None:
            loop.call_soon_threadsafe(loop.call_later, 1.0, task.cancel)

        replay.on_failure = stop_soon
        if self._sources.pending:
            await self._sources.start()
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

    # -- looking at, and forking --------------------------------------------------------------------------------

    @property
    def offline(self) -> Offline:
        """What makes programs again with nothing that they could reach."""
        from toolexec.exec.offline import Offline

        return Offline(self._scope, self._code)

    async def recording(self, run_id: str) -> Recording:
        """Return all that is recorded of a run that nothing changes now. Raises RunBusyError for one that runs, and
        ConfigurationError for one on an engine."""
        from toolexec.exec.debug import Recording, check_still

        if self.engine is not None:
            raise _not_there("to look at a run step by step, or to fork it", "its history is there, and its workers'")
        run = await self.do(self.journal.get, run_id)
        calls, groups = await self.do(self.journal.calls, run_id), await self.do(self.journal.deliveries, run_id)
        return check_still(Recording(run, calls, groups, self._options.default_language))

    async def fork(self, run_id: str, change: Change, *, new_id: str | None, live: bool) -> Fork:
        """Begin a run as another one, up to a call; see `Runs.fork`."""
        from toolexec.exec.fork import Fork, fork_record, plan_fork, read_source, write_fork

        change.check()
        recording = await self.recording(run_id)
        change = replace(change, source=read_source(recording, change.source))
        plan = await plan_fork(self.offline, recording, change, self._scope.index)
        if new_id is None:
            new_id = await self._free_id(run_id)
        check_run_id(new_id)
        record = fork_record(recording, change, plan, new_id, live=live)
        approved = False
        if live:
            if self._sources.pending:
                await self._sources.start()
            check_tools(run_id, plan.calls, self._scope.resolver.resolve)
            approved = await self._admit(lambda: self._asked(record))
        owner = new_owner()
        kept = {**record.settings, APPROVED: approved}
        record = replace(record, settings=kept, owner=owner, lease=time.time() + LEASE)
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
                await self.do(self.journal.get, found)
            except RunError as error:
                if error.code != "run_not_found":
                    raise
                return found

    def _asked(self, run: RunRecord) -> RunRequest:
        """Return a run as the gate decides on it."""
        if run.kind == "chain":
            return asked_chain(steps_of(steps_from_text(run.source), self._options.max_timeout), current_origin())
        code = self._code()
        settings: Any = settings_from_json(run.settings.get("given") or {})
        return code.asked(code.request(run.source, settings))

    async def do(self, method: Callable[..., T], *args: Any) -> T:
        """Call a method of the journal, and do not hold up the event loop."""
        return await asyncio.to_thread(method, *args) if self.journal.is_remote else method(*args)


def check_same(run: RunRecord, wanted: RunRecord) -> None:
    """Raise RunError unless the run that has the ID is the one that is *wanted*."""
    if run.digest != wanted.digest or run.caller != wanted.caller:
        raise RunError(
            f"there is a run {run.id} already, begun with another source, other inputs or settings, or by another "
            "caller; take another ID, or resume it with those",
            code="run_changed",
            op="begin",
            details={"run_id": run.id},
        )


def _not_there(what: str, why: str) -> ConfigurationError:
    """Return the error of what makes no sense for runs of an engine."""
    return ConfigurationError(f"{what} is for runs in a journal, and those of this Exec are on an engine: {why}")


def _opened(given: str | Path) -> Journal:
    """Return the journal of a file, or of a database in PostgreSQL."""
    if isinstance(given, str) and given.startswith(_DATABASES):
        from toolexec.backend.secrets import SecretResolver
        from toolexec.durable.postgres import PostgresJournal

        return PostgresJournal(SecretResolver().resolve(given, "the journal"))
    from toolexec.durable.sqlite import SQLiteJournal

    return SQLiteJournal(given)


def _compare(replay: Replay, run: RunRecord, result: RunResult) -> None:
    """Have the replay fail when the result is another one."""
    try:
        replay.check_end()
    except ToolExecError:
        return
    now = chain_to_json(result) if isinstance(result, ChainResult) else code_to_json(result)
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


def _language(run: RunRecord) -> str:
    return "workflow" if run.kind == "workflow" else str((run.settings.get("given") or {}).get("language", ""))


@contextmanager
def _unless_lost() -> Generator[None, None, None]:
    try:
        yield
    except (RunError, JournalError):
        return
