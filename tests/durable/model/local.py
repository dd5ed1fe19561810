"""Drives runs of a journal: processes are Execs of this one, which die when their journal and tools stop working."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.durable.model.mortal import PROCESS, Machine
from tests.durable.model.plans import Action, Plan
from tests.durable.model.play import begin
from tests.durable.model.world import Effects, Life, add_tools, gate
from tests.waiting import until

from toolexec import Exec
from toolexec.durable.sql import SQLJournal
from toolexec.errors import RunBusyError, RunError
from toolexec.journal import Signal, Wait
from toolexec.runtime.base import SandboxBackend

_STILL = 0.03
"""For how many seconds nothing moves in a process that only waits for the time."""
_STILL_REMOTE = 0.2
"""The same where each write goes to a server and back."""


class _Process:
    """One process with the run: an Exec, and the task that goes on with it."""

    def __init__(self, life: Life, journal: SQLJournal, ex: Exec, task: asyncio.Task[Any]) -> None:
        self.life = life
        self.journal = journal
        self.ex = ex
        self.task = task

    @property
    def is_live(self) -> bool:
        """Whether it still has the run."""
        return not self.task.done() and not self.life.is_dead

    async def end(self) -> None:
        """Leave nothing of it behind."""
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.ex.aclose()
        self.journal.close()


class LocalDriver:
    """Drives one run of a journal that *open_journal* opens. Implements `Driver`."""

    def __init__(
        self, machine: Machine, open_journal: Callable[[], Any], plan: Plan, sandbox: SandboxBackend, run_id: str
    ) -> None:
        self.effects = Effects()
        self.deaths = 0
        self.moved = 0.0
        self._machine = machine
        self._open_journal = open_journal
        self._plan = plan
        self._sandbox = sandbox
        self._run_id = run_id
        self._chance = random.Random(plan.seed)
        self._processes: list[_Process] = []
        self._count = 0
        self._lowest = machine.time.now
        self._store = self._journal(Life())

    def _journal(self, life: Life) -> Any:
        journal = self._open_journal()
        journal.life, journal.clock = life, self._machine.time.time
        return journal

    async def go(self, action: Action | None = None) -> None:
        """Implement `Driver.go`."""
        live = [each for each in self._processes if each.is_live]
        if not live:
            await self._close()
            live = [await self._start(action)]
        for each in live:
            await self._rest(each)

    async def rival(self) -> None:
        """Implement `Driver.rival`."""
        for each in [each for each in self._processes if not each.is_live]:
            self._processes.remove(each)
            await each.end()
        await self._rest(await self._start(None))

    async def _start(self, action: Action | None, how: str = "") -> _Process:
        life = Life(same_machine=self._plan.same_machine)
        if action is not None:
            life.where, life.number = action.where, action.number
        self._count += 1
        name = f"machine-{self._run_id}-{self._count}"
        self._machine.lives[name] = life
        journal = self._journal(life)
        plan = self._plan
        ex = Exec(
            journal=journal,
            linger=0.02,
            timer_linger=1e7 if plan.lingers else 0.01,
            gate=gate(),
            runtime_backends=[self._sandbox],
            max_tool_calls=500,
            default_timeout=None,
        )
        add_tools(ex, plan, self.effects, life, takes=plan.takes)
        PROCESS.set(name)
        if not how:
            how = self._chance.choice(("begin", "resume", "due")) if await self.state() else "begin"
        task = asyncio.ensure_future(self._run(ex, how))
        made = _Process(life, journal, ex, task)
        self._processes.append(made)
        return made

    async def _run(self, ex: Exec, how: str) -> Any:
        if how == "begin":
            return await begin(ex, self._plan, self._run_id)
        if how == "resume":
            return await ex.runs.resume(self._run_id)
        return (await ex.runs.resume_due()).get(self._run_id)

    async def _rest(self, process: _Process) -> None:
        """Return when the process has ended, is dead, or waits for the time only.

        One that is making a call, or has not got the run yet, or has given it up, goes on however slow the machine is.
        """
        moves, still = -1, 0.0
        loop = asyncio.get_running_loop()
        long = _STILL_REMOTE if process.journal.is_remote else _STILL

        def rests() -> bool:
            nonlocal moves, still
            if process.life.is_dead or process.task.done():
                return True
            life = process.life
            if life.moves != moves or life.in_flight or not life.has_run or self._machine.time.first() is None:
                moves, still = life.moves, loop.time() + long
            return loop.time() > still

        await until(rests)
        if process.life.is_dead:
            self.deaths += 1
            self._processes.remove(process)
            await process.end()
        elif process.task.done():
            self._judge(process)

    def _judge(self, process: _Process) -> None:
        """Require that a process that lives ended as one may."""
        error = process.task.exception()
        if isinstance(error, RunBusyError):
            return
        if error is not None:
            raise AssertionError(f"the run raised {error!r}") from error
        result = process.task.result()
        code = getattr(getattr(result, "error", None), "code", "")
        allowed = ("", "run_waiting", "run_lost")
        if self._plan.kind == "chain" and code in ("none_left", "approval_denied"):
            return
        assert code in allowed, f"the run came to {result.error!r}"

    async def _close(self) -> None:
        while self._processes:
            await self._processes.pop().end()

    async def aclose(self) -> None:
        """Leave nothing behind."""
        await self._close()
        self._store.close()

    # -- what is known of it ------------------------------------------------------------------------------------

    async def state(self) -> str:
        """Implement `Driver.state`."""
        try:
            return (await self._do(self._store.get, self._run_id)).state
        except RunError as error:
            if error.code != "run_not_found":
                raise
            return ""

    async def waits(self) -> Sequence[Wait]:
        """Implement `Driver.waits`."""
        return (await self._do(self._store.get, self._run_id)).waits if await self.state() == "waiting" else ()

    async def signal(self, name: str, payload: Any) -> None:
        """Implement `Driver.signal`."""
        self._count += 1
        await self._do(
            self._store.signal, self._run_id, Signal(id=f"s{self._count}", name=name, payload=payload, sent=self.now())
        )

    async def _do(self, method: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(method, *args) if self._store.is_remote else method(*args)

    def now(self) -> float:
        """Implement `Driver.now`."""
        return self._machine.time.now

    async def sleeps(self) -> float:
        """Implement `Driver.sleeps`: a process sleeps, or is dead, and its lease is not over."""
        lease = (await self._do(self._store.get, self._run_id)).lease if await self.state() else 0.0
        return self._machine.time.first() or lease - self.now()

    async def pass_(self, seconds: float) -> None:
        """Implement `Driver.pass_`."""
        self._machine.time.pass_(seconds)
        await self._moved()

    async def jump(self, seconds: float) -> None:
        """Implement `Driver.jump`."""
        self._machine.time.now += seconds
        await self._moved()

    async def _moved(self) -> None:
        self._lowest = min(self._lowest, self._machine.time.now)
        self.moved = max(self.moved, self._machine.time.now - self._lowest)
        for each in [each for each in self._processes if each.is_live]:
            await self._rest(each)

    async def result(self) -> Any:
        """Implement `Driver.result`."""
        await self._close()
        process = await self._start(None, "resume")
        try:
            return await process.task
        finally:
            await self._close()

    async def replays(self) -> str:
        """Implement `Driver.replays`."""
        process = await self._start(None, "begin")
        await process.task
        report = await process.ex.runs.replay(self._run_id)
        await self._close()
        return "" if report.same else str(report.error)
