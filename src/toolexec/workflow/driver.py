"""Run a workflow in this process: its tool calls go through `Tools`, as tasks of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter, time
from typing import Any, Final

from toolexec.code.deliveries import Deliveries, probe_of
from toolexec.code.tools import Tools
from toolexec.discovery.index import Index
from toolexec.errors import JournalError, RunError, ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.run.large import ON_LOOP, off_loop
from toolexec.run.large import Budget as WorkBudget
from toolexec.run.repeating import is_repeatable
from toolexec.workflow.machine import Budget, CallRequest, Finished, Machine, Outcome, Paused, Sleep, restore
from toolexec.workflow.program import Program
from toolexec.workflow.values import Value

_SLICE: Final = 0.004
"""How many seconds the machine works before the event loop gets its turn."""

_STEPS: Final = 500
"""How many steps are taken between two looks at the clock: a fraction of a millisecond."""

_SLICES: Final = 200
_PAUSE: Final = 0.001
"""A run that must not look at the clock pauses for so many seconds after so many times `_STEPS`."""

_MAX_WORK: Final = 50_000_000
"""How many steps the work on one large value may take."""

_LOOK: Final = 0.02
"""How often a run that is repeated looks whether the answer that must come next still can."""

_GRACE: Final = 1.0
"""How many seconds calls that were cancelled have to end before the run ends without them."""


async def run_workflow(
    program: Program,
    inputs: Mapping[str, object] | None,
    tools: Tools,
    *,
    now: float | None = None,
    budget: Budget | None = None,
    on_state: Callable[[Machine], None] | None = None,
) -> Value:
    """Run a workflow and return its value; one that is durable from the state that was kept last.

    Its calls are counted, allowed and traced by *tools*, which also takes what it prints. *now* is the Unix time that
    it sees, that of the start by default. *on_state* is called with the machine whenever all branches wait, before the
    requests are made. Cancelling stops all calls.

    Raises InputValidationError for inputs that do not fit, CodeError for a failure that the workflow does not catch
    (its cause is that of the tool), and LimitExceededError.
    """
    deliveries = None if tools.undoes else tools.deliveries  # what is undone must have been done here
    kept = deliveries.kept() if deliveries is not None else None
    if deliveries is not None and kept is not None and kept["machine"]["program"] == program.digest:
        tools.count_earlier(deliveries.accept())
        tools.output.write(kept["stdout"])
        machine = restore(program, kept["machine"])
    else:
        kept, machine = None, Machine(program, inputs, now=time() if now is None else now, budget=budget)
    if tools.deliveries is not None and (probe := probe_of(tools.deliveries)) is not None:
        probe.observe(machine)
    driver = Driver(machine, tools, on_state, is_alone=kept is not None and kept["alone"])
    if deliveries is not None:
        deliveries.watch(driver.state)
    return await driver.run()


def may_repeat(index: Index, tool_id: str) -> bool:
    """Return whether a tool is known, and can be called again without harm; see `is_repeatable`."""
    found = index.find(tool_id)
    return found is not None and is_repeatable(found.tool)


def _raise(error: Exception) -> None:
    raise error


class Driver:
    """Makes the requests of one machine, and gives it the answers as they come. *is_alone* is as `state` had it, of one
    that was restored."""

    def __init__(
        self,
        machine: Machine,
        tools: Tools,
        on_state: Callable[[Machine], None] | None = None,
        *,
        is_alone: bool = False,
    ) -> None:
        self.machine: Machine = machine
        self._tools = tools
        self._on_state = on_state
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[asyncio.Task[None]] = set()
        self._answers: dict[str, Callable[[], None]] = {}
        self._deliveries = tools.deliveries
        self._open: set[str] = set()
        self._wake: asyncio.Future[None] | None = None
        self._is_alone = is_alone

    def state(self) -> JSONDict | None:
        """Return all that is needed to go on with a run whose branches all wait: the machine, what it waits for, and
        what was printed. None where that cannot be repeated, as too much was printed.

        `alone` says that it waits for one call whose answer is certain to come next, and so is not recorded as such.
        """
        output = self._tools.output
        if output.dropped:
            return None
        waits = self.machine.requests()
        steps = [each.key for each in (*waits.calls, *waits.sleeps)]
        return {"machine": self.machine.state(), "open": steps, "stdout": output.text(), "alone": self._is_alone}

    async def run(self) -> Value:
        """Run to the end; see `run_workflow`. A machine that was restored goes on with the requests that it made."""
        try:
            waits = self.machine.requests()
            if self._is_alone:
                await self._call_alone(waits.calls[0])
            else:
                self._begin(waits)
            while True:
                outcome = await self._advance()
                if isinstance(outcome, Finished):
                    if outcome.error is not None:
                        raise outcome.error
                    return outcome.value
                if self._is_alone:
                    await self._call_alone(outcome.calls[0])
                else:
                    self._begin(outcome)
                    await self._deliver()
        except GeneratorExit:  # it is dropped half-way, and closed on any event loop: nothing can be awaited
            self._tasks.clear()
            self._stopped.clear()
            raise
        finally:
            await self._stop()

    async def _advance(self) -> Outcome:
        """Let the machine work until all branches wait, a slice at a time; requests are made as they come."""
        machine = self.machine
        outcome = machine.advance(_STEPS)
        self._note(outcome)
        ends, slices, is_fixed = perf_counter() + _SLICE, 0, ON_LOOP.get()
        while isinstance(outcome, Paused):
            self._begin(outcome)
            if outcome.is_long:
                work = WorkBudget(steps=_MAX_WORK, is_over=self._tools.is_closed)
                outcome = await off_loop(lambda budget: machine.advance(1, budget=budget), work)
            else:
                slices += 1
                if is_fixed and slices % _SLICES == 0:
                    await asyncio.sleep(_PAUSE)
                elif not is_fixed and perf_counter() > ends:
                    await asyncio.sleep(0)
                    ends = perf_counter() + _SLICE
                outcome = machine.advance(_STEPS)
            self._note(outcome)
        if self._on_state is not None:
            self._on_state(machine)
        if not isinstance(outcome, Finished):
            self._is_alone = len(outcome.calls) == 1 and not outcome.sleeps and not self._open
            if self._deliveries is not None:
                self._deliveries.checkpoint()
        return outcome

    def _note(self, outcome: Outcome) -> None:
        """Print what was printed, and stop what is no longer needed."""
        for text in outcome.printed:
            self._tools.output.write(text)
        for key in outcome.cancelled:
            task = self._tasks.pop(key, None)
            self._answers.pop(key, None)
            self._open.discard(key)
            if task is not None:
                task.cancel()
                self._stopped.add(task)
                task.add_done_callback(self._stopped.discard)

    def _begin(self, outcome: Outcome) -> None:
        for call in outcome.calls:
            self._start(call.key, self._call(call))
        for sleep in outcome.sleeps:
            self._start(sleep.key, self._sleep(sleep))

    def _start(self, key: str, work: Any) -> None:
        self._open.add(key)
        if self._deliveries is not None:  # not once its task begins: an answer that is there already may end it before
            self._deliveries.expect(key)
        task = self._tasks[key] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(key, None) if self._tasks.get(key) is task else None)

    async def _call_alone(self, call: CallRequest) -> None:
        """Make a call while nothing else goes on: a task would only cost, and whose answer comes next is certain."""
        self._open.add(call.key)
        if self._deliveries is not None:
            self._deliveries.direct(call.key)
        await self._call(call)
        if self._deliveries is not None:
            self._deliveries.direct("")
        self._open.discard(call.key)
        self._answers.pop(call.key)()

    async def _call(self, call: CallRequest) -> None:
        machine, index = self.machine, self._tools.index
        try:
            result = await self._tools.run_tool(
                call.tool_id, call.args, timeout=call.timeout, at=call.at, step=call.key
            )
            if result.error is not None:
                raise result.error
        except (RunError, JournalError) as error:  # the run itself cannot go on, whatever handles failures of tools
            error.details.setdefault("line", call.at[0])
            self._take(call.key, partial(_raise, error))
        except ToolExecError as error:
            failure = error
            self._take(call.key, lambda: machine.fail(call.key, failure, may_repeat=may_repeat(index, call.tool_id)))
        except Exception as error:  # no failure of a tool, so it ends the run
            self._take(call.key, partial(_raise, error))
        else:
            self._take(
                call.key,
                lambda: machine.answer(call.key, result.value, may_repeat=may_repeat(index, call.tool_id)),
            )

    async def _sleep(self, sleep: Sleep) -> None:
        if self._deliveries is None:
            await asyncio.sleep(sleep.seconds)
        else:
            try:
                await self._deliveries.sleep(sleep.key, sleep.seconds)
            except ToolExecError as error:
                self._take(sleep.key, partial(_raise, error))
                return
        self._take(sleep.key, lambda: self.machine.answer(sleep.key, None))

    def _take(self, key: str, answer: Callable[[], None]) -> None:
        """Keep an answer for when the machine has time: it may be at work in a thread just now."""
        if self._deliveries is not None and key not in self._open:
            return  # it was cancelled, and must not be there in one run and missing in the next
        self._answers[key] = answer
        if self._deliveries is not None:
            self._deliveries.wake()
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _deliver(self) -> None:
        """Give the machine the answers that are there, once there is one; of a run that is repeated, those of then."""
        deliveries = self._deliveries
        group = deliveries.upcoming() if deliveries is not None else None
        if deliveries is not None and group is not None:
            for key in group:
                await self._repeated(deliveries, key)
        else:
            await self._answered()
            group = (*self._answers,)
        if deliveries is not None:
            deliveries.deliver(group)
        self._open.difference_update(group)
        for key in group:
            self._answers.pop(key)()

    async def _repeated(self, deliveries: Deliveries, key: str) -> None:
        """Wait for an answer that came first then. Raises RunError where it cannot come."""
        while key not in self._answers:
            task = self._tasks.get(key)
            if task is None or deliveries.is_held(key):
                calls = self.machine.requests().calls
                came = f"it calls {calls[0].tool_id}" if calls else "it makes no call"
                raise deliveries.diverged(key, came, "an answer to another call", calls[0].at[0] if calls else 0)
            await asyncio.wait([task], timeout=_LOOK)

    async def _answered(self) -> None:
        """Wait for the first answer."""
        while not self._answers:
            if self._deliveries is not None:
                self._deliveries.rest()
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
            self._wake = None

    async def _stop(self) -> None:
        """Cancel what still runs, and give it a moment to end."""
        tasks = [*self._tasks.values(), *self._stopped]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE)
