"""One durable run in one process: from the moment it has it until the run has ended, waits, or is lost."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import toolexec.durable.clock as host_clock
from toolexec.code.deliveries import is_timer
from toolexec.discovery.index import Index
from toolexec.durable.journal import CallRecord, Journal, RunRecord, RunState, Snapshot, Wait, decision
from toolexec.durable.log import OwnedRun
from toolexec.durable.recorder import hidden_in
from toolexec.durable.replay import Replay
from toolexec.durable.runner import DurableRunner, definition_of
from toolexec.durable.waits import RUN_TOOLS, Waits, whole_length
from toolexec.errors import CodeError, JournalError, RunError, RunWaitingError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.process.owner import this_owner
from toolexec.process.settling import settle
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)

_BEAT: Final = 1.0
"""How often a run's owner looks whether it is cancelled, where that costs nothing."""

_GRACE: Final = 5.0
"""How long a program that diverged has to fail at the line where it is: a second was too short on a busy machine."""


_PATIENCE: Final = 5.0
"""How long a tool that ignores its cancellation is waited for."""


def new_owner() -> str:
    """Return the owner ID of this process for one run."""
    return f"{this_owner()}/{secrets.token_hex(4)}"


class Execution:
    """Runs what *run* is, which *owner* has claimed, and keeps it meanwhile.

    The calls that are not recorded are made by *inner*, whose tools *find* finds and *index* lists. A run that waits,
    and does nothing else for *linger* seconds, is suspended, unless that is soon over: within *timer_linger* seconds
    for a timer of its program, else within *linger*. *lease* is for how many seconds it stays the owner's when
    the process dies. *snapshot* is the last state of a workflow that was kept, *runner* what makes the calls.
    """

    def __init__(
        self,
        journal: Journal,
        run: RunRecord,
        owner: str,
        *,
        calls: Sequence[CallRecord],
        groups: Sequence[Sequence[str]],
        inner: Runner,
        find: Find,
        index: Index,
        linger: float,
        timer_linger: float,
        lease: float,
        snapshot: Snapshot | None = None,
        runner: type[DurableRunner] = DurableRunner,
    ) -> None:
        self._journal = journal
        self._run = run
        self._owner = owner
        self._linger = linger
        self._timer_linger = max(linger, timer_linger)
        self._lease = lease
        log = OwnedRun(journal, run.id, owner)
        self.replay: Replay = Replay(run.id, run.kind, calls, groups, snapshot=snapshot)
        self.replay.hide = hidden_in(run)
        self.replay.saver = partial(journal.save, run.id, owner)
        self.waits: Waits = Waits(log, index)
        self.runner: DurableRunner = runner(inner, find, log, self.replay, self.waits)
        self.replay.sleeper = self.runner.sleep
        self._suspended: tuple[Wait, ...] | None = None
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # done when waiting is in vain

    async def run(self, work: Awaitable[T]) -> T:
        """Return what *work* gives, which makes its calls by the `runner`.

        Raises RunWaitingError when the run was suspended, RunError when it diverged, is lost, or was cancelled,
        JournalError when it cannot be recorded, and what *work* raises. Cancelling leaves the run to the one who
        resumes it.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        self.replay.on_failure = lambda error: _call_soon(loop, self._stop, task, error)
        watching = [loop.create_task(self._watch(task)), loop.create_task(self._beat())]
        try:
            await asyncio.wait([task, self._left], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (*watching, *([] if task.done() else [task])):
                each.cancel()
            await asyncio.wait([*watching, task], timeout=_PATIENCE)
        if self._suspended is not None:
            raise waiting_error(self._run.id, self._suspended)
        if self.replay.failure is not None:
            raise _located(self.replay.failure, task)
        result = task.result()
        if getattr(result, "error", None) is None or isinstance(getattr(result, "error", None), CodeError):
            self.replay.check_end()
        return result

    async def finish(self, state: RunState, result: JSONObject) -> None:
        """Write down how the run ended, after what is written of calls that the program did not wait for. Raises
        RunError and JournalError."""

        def finish() -> None:
            with self.replay.writing:  # calls in threads write, too
                delivered = self.replay.take_delivered()
                self._journal.finish(self._run.id, self._owner, state, result, delivered)

        await self.runner.written()
        await self._do(finish)

    async def release(self) -> None:
        """Leave the run to the one who resumes it."""
        with suppress(RunError, JournalError):
            await self._do(self._journal.renew, self._run.id, self._owner, 0.0)

    async def give_up(self, why: ToolExecError) -> None:
        """Leave a run that cannot go on as it is: nothing resumes it by itself."""
        wait = decision(why, time.time())
        with suppress(RunError, JournalError):
            await self._do(self._journal.suspend, self._run.id, self._owner, [wait])

    # -- meanwhile ----------------------------------------------------------------------------------------------

    async def _watch(self, task: asyncio.Future[Any]) -> None:
        """Suspend the run once it does nothing but wait."""
        while not task.done():
            await asyncio.sleep(min(max(self._linger / 4, 0.01), 0.25))
            waits = self._idle()
            if not waits:
                continue
            try:
                suspended = await self._suspend(waits)
            except (RunError, JournalError) as error:
                self.replay.fail(error)
                return
            if suspended:
                self._suspended = waits
                self._cancel(task)
                return

    def _idle(self) -> tuple[Wait, ...]:
        """Return what the run waits for, if there is nothing else that it does, and nothing of that is soon over."""
        runner, now = self.runner, host_clock.now()
        if runner.in_flight or not self.waits.open or time.monotonic() - runner.active < self._linger:
            return ()
        if not self.replay.is_at_rest:  # it computes, and may not need what it has asked for
            return ()
        waits = tuple(self.waits.open.values())
        return () if any(self._is_soon(wait, now) for wait in waits) else waits

    def _is_soon(self, wait: Wait, now: float) -> bool:
        within = self._timer_linger if is_timer(wait.step) else self._linger
        return wait.due is not None and min(wait.due - now, whole_length(wait)) < within

    async def _suspend(self, waits: Sequence[Wait]) -> bool:
        replay = self.replay
        state = replay.state_at_rest()

        def suspend() -> bool:
            with replay.writing:
                if state is not None:
                    self._journal.save(self._run.id, self._owner, state)
                delivered = replay.take_delivered()
                suspended = self._journal.suspend(self._run.id, self._owner, waits, delivered)
                if not suspended:
                    replay.put_back(delivered)
                return suspended

        return await self._do(suspend)

    async def _beat(self) -> None:
        """Keep the run, and notice its cancellation."""
        pause = self._lease / 3 if self._journal.is_remote else min(self._lease / 3, _BEAT)
        while True:
            await asyncio.sleep(pause)
            try:
                await self._do(self._journal.renew, self._run.id, self._owner, self._lease)
            except RunError as error:
                if self._suspended is None:
                    self.replay.fail(error)
                return
            except JournalError as error:  # the next call will fail, if it lasts
                logger.warning("the run %s cannot be renewed: %s", self._run.id, error)

    def _stop(self, task: asyncio.Future[Any], error: ToolExecError) -> None:
        if error.code in ("run_lost", "run_cancelled"):
            self._cancel(task)
        else:
            asyncio.get_running_loop().call_later(_GRACE, self._cancel, task)

    def _cancel(self, task: asyncio.Future[Any]) -> None:
        """Cancel the program, and leave it behind if a tool of it ignores that."""
        task.cancel()
        asyncio.get_running_loop().call_later(_PATIENCE, settle, self._left, None)

    async def _do(self, method: Callable[..., T], *args: Any) -> T:
        return await asyncio.to_thread(method, *args) if self._journal.is_remote else method(*args)


def check_tools(run_id: str, calls: Sequence[CallRecord], find: Find) -> None:
    """Raise RunError when a tool that the run has called is gone, or has another version or other schemas by now."""
    used = {call.tool: call.definition for call in calls if call.definition and call.tool not in RUN_TOOLS}
    for tool_id, definition in used.items():
        try:
            changed = definition_of(find(tool_id).tool) != definition
        except ToolExecError as error:
            raise _changed(run_id, f"the tool {tool_id} is not there any more: {error}") from error
        if changed:
            raise _changed(run_id, f"the tool {tool_id} has another version or other schemas than when it was called")


def wait_to_json(wait: Wait) -> JSONDict:
    """Return a wait as JSON-able data, without what is empty."""
    data: JSONDict = {"step": wait.step, "kind": wait.kind, "name": wait.name, "details": wait.details, "due": wait.due}
    data["since"] = wait.since or None
    return {key: value for key, value in data.items() if value not in ("", None)}


def waiting_error(run_id: str, waits: Sequence[Wait]) -> RunWaitingError:
    """Return the error of a run that is suspended."""
    what = ", ".join(wait.name or wait.kind for wait in waits)
    return RunWaitingError(
        f"the run {run_id} is suspended until something happens: {what}; it goes on by resume, in any process",
        op="wait",
        details={"run_id": run_id, "waits": [wait_to_json(wait) for wait in waits]},
    )


def _changed(run_id: str, what: str) -> RunError:
    return RunError(
        f"the run {run_id} cannot go on: {what}; resume it with accept_changes to go on all the same",
        code="run_changed",
        op="resume",
        details={"run_id": run_id},
    )


def _located(failure: ToolExecError, task: asyncio.Future[Any]) -> ToolExecError:
    """Return the failure with the line at which the program has met it."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return failure
    error = getattr(task.result(), "error", None)
    if isinstance(error, CodeError) and error.line and "line" not in failure.details:
        failure.details |= {"line": error.line, "source": error.source}
        failure.message = f"line {error.line}: {failure.message}"
    return failure


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(function, *args)
