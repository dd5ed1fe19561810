"""Drives runs on Temporal: processes are workers of this one, whose tools never answer once they are dead."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from tests.durable.model.plans import HOUR, Action, Plan
from tests.durable.model.play import begin
from tests.durable.model.world import Effects, Silence, add_tools, gate

from toolexec import Exec
from toolexec.errors import JournalError, RunBusyError, RunError, RunWaitingError
from toolexec.journal import Signal, Wait
from toolexec.sandbox import SandboxBackend
from toolexec_temporal import TemporalEngine, TemporalSettings

_SECONDS: Final = {HOUR: 1.5, 5 * HOUR: 2.5, 30 * HOUR: 2.0}
"""What becomes of times, so that a test can wait for them."""
_MARGIN: Final = 3.0
"""By how many seconds two clocks differ at most, and what is sent arrives later."""
_LONGEST_PAUSE: Final = 1.0
_LOOK: Final = 0.05
_PATIENCE: Final = 60.0
_ATTEMPTS: Final = 4
_RESTS: Final = ("waiting", "done", "failed")


def shortened(plan: Plan) -> Plan:
    """Return the plan with times that pass while one waits."""

    def branches_of(statement: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            tuple(replace(op, seconds=_SECONDS.get(op.seconds, op.seconds)) for op in branch) for branch in statement
        )

    return replace(plan, statements=tuple(branches_of(each) for each in plan.statements))


class _Life:
    """A worker's: it dies before or after the so-and-so-manyth effect, and then has none, and answers nothing."""

    def __init__(self, action: Action | None) -> None:
        self.is_dead = False
        self.died = asyncio.Event()
        self.over = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._count = 0
        self._before = action is not None and action.where.startswith("before")
        self._number = 0 if action is None else (action.number - 1) % 4 + 1

    def __call__(self, where: str, effect: Callable[[], None]) -> None:
        with self._lock:
            self._count += not self.is_dead
            last = self._count == self._number
            if not self.is_dead and not (last and self._before):
                effect()
            if last:
                self.is_dead = True
                self._loop.call_soon_threadsafe(self.died.set)
            if self.is_dead:
                raise Silence(self.over)


class _Worker:
    """A worker, in a task of its own: it can end at any moment."""

    def __init__(self, ex: Exec, life: _Life) -> None:
        self.ex = ex
        self.life = life
        self._ready = asyncio.Event()
        self._ends = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        async with self.ex:
            async with self.ex.worker(patience=0):
                self._ready.set()
                await self._ends.wait()
            self.life.over.set()

    async def ready(self) -> None:
        """Return when the server knows it."""
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait([ready, self._task], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            ready.cancel()
            self._task.result()

    async def end(self) -> None:
        """Leave nothing of it behind."""
        self._ends.set()
        await asyncio.wait([self._task])
        self._task.result()


class TemporalDriver:
    """Drives one run of a plan that is `shortened`. Implements `Driver`; its clock is the server's, and is not set."""

    def __init__(self, settings: TemporalSettings, plan: Plan, sandbox: SandboxBackend, run_id: str) -> None:
        name = f"{settings.task_queue}-{run_id}"
        self.effects = Effects()
        self.deaths = 0
        self._settings = replace(
            settings,
            task_queue=name,
            prefix=f"{name}-",
            linger=0.1,
            timer_linger=1e7 if plan.lingers else 0.01,
            key="a key of the model of runs" if plan.encrypted else "",
        )
        self._plan = plan
        self._sandbox = sandbox
        self._run_id = run_id
        self._chance = random.Random(plan.seed)
        self._worker: _Worker | None = None
        self._began = time.time()
        self._count = 0
        self._engine = TemporalEngine(self._settings)

    @property
    def moved(self) -> float:
        """Implement `Driver.moved`: time passes by itself."""
        return time.time() - self._began + _MARGIN

    def _exec(self, life: _Life) -> Exec:
        ex = Exec(
            journal=TemporalEngine(self._settings),
            gate=gate(),
            runtime_backends=[self._sandbox],
            max_tool_calls=500,
            default_timeout=None,
        )
        add_tools(ex, self._plan, self.effects, life)
        return ex

    async def go(self, action: Action | None = None) -> None:
        """Implement `Driver.go`."""
        worker = await self._live(action)
        await self._come(self._begun(worker.ex))

    async def _live(self, action: Action | None = None) -> _Worker:
        """Return the worker, or another one where it is dead."""
        if self._worker is not None and self._worker.life.is_dead:
            await self._bury()
        if self._worker is None:
            life = _Life(action)
            self._worker = _Worker(self._exec(life), life)
            await self._worker.ready()
        return self._worker

    async def _bury(self) -> None:
        await self._end()
        self.deaths += 1

    async def _begun(self, ex: Exec) -> None:
        """Begin the run, or find it, as any caller does; return once it waits or has ended."""
        how = self._chance.choice(("begin", "resume")) if await self.state() else "begin"
        with suppress(RunBusyError):
            result = await (begin(ex, self._plan, self._run_id) if how == "begin" else ex.runs.resume(self._run_id))
            assert not isinstance(result.error, RunError) or isinstance(result.error, RunWaitingError), result.error

    async def _come(self, work: Any) -> None:
        """Return when *work* is done, or the worker is dead and has ended."""
        worker = self._worker
        assert worker is not None
        task = asyncio.ensure_future(work)
        died = asyncio.create_task(worker.life.died.wait())
        try:
            await asyncio.wait([task, died], timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not worker.life.is_dead:
                assert task.done(), f"nothing comes of the run within {_PATIENCE:g} s"
                task.result()
        finally:
            for each in (task, died):
                each.cancel()
            await asyncio.wait([task, died])
        if worker.life.is_dead:
            await self._bury()

    async def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.end()

    async def rival(self) -> None:
        """Implement `Driver.rival`: another caller, as two workers of one queue are processes of their own."""
        await self._live()
        async with self._exec(_Life(None)) as ex:
            await self._come(self._begun(ex))

    async def aclose(self) -> None:
        """Leave nothing behind."""
        await self._end()
        if await self.state() in ("running", "waiting"):
            await self._engine.cancel(self._run_id)
        await self._engine.aclose()

    # -- what is known of it ------------------------------------------------------------------------------------

    async def state(self) -> str:
        """Implement `Driver.state`."""
        try:
            return (await self._engine.get(self._run_id)).state
        except RunError as error:
            if error.code != "run_not_found":
                raise
            return ""

    async def waits(self) -> Sequence[Wait]:
        """Implement `Driver.waits`."""
        await self._live()  # it takes one to say
        record = await self._engine.get(self._run_id)
        return record.waits if record.state == "waiting" else ()

    async def signal(self, name: str, payload: Any) -> None:
        """Implement `Driver.signal`."""
        self._count += 1
        with suppress(RunError):  # it has ended meanwhile
            await self._engine.signal(
                self._run_id, Signal(id=f"s{self._count}", name=name, payload=payload, sent=time.time())
            )

    def now(self) -> float:
        """Implement `Driver.now`: a time that is never behind."""
        return time.time() + _MARGIN

    async def sleeps(self) -> float:
        """Implement `Driver.sleeps`."""
        return 0.0

    async def pass_(self, seconds: float) -> None:
        """Implement `Driver.pass_`: for some time, if the run waits."""
        ends = time.monotonic() + min(seconds, _LONGEST_PAUSE)
        while time.monotonic() < ends and await self.state() == "waiting":
            await asyncio.sleep(_LOOK)

    async def jump(self, seconds: float) -> None:
        """Implement `Driver.jump`: the clock of the server is not set."""

    async def result(self) -> Any:
        """Implement `Driver.result`."""
        return await begin((await self._live()).ex, self._plan, self._run_id)

    async def replays(self) -> str:
        """Implement `Driver.replays`."""
        ex = (await self._live()).ex
        for left in reversed(range(_ATTEMPTS)):
            try:
                report = await ex.runs.replay(self._run_id)
            except JournalError:  # the server asks a worker for a while that is dead
                if not left:
                    raise
            else:
                return "" if report.same else str(report.error)
        raise AssertionError("the last attempt returns or raises")
