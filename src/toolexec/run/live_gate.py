"""A gate whose rules are exchanged while calls are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

from toolexec.backend.here import Wait
from toolexec.discovery.docs import DocStore
from toolexec.discovery.index import Index, Registered
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Caller, Origin
from toolexec.run.admission import check_denied
from toolexec.run.gate import Gate, GroupScope
from toolexec.run.gated import GatedByPolicy
from toolexec.run.refusals import denied_since, out_since
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner, thread_runner
from toolexec.run.types import Result


class LiveGate(Gate):
    """The rules of *gate*, until `exchange` takes others: a call, and a view, goes by those of the moment it begins.
    One that is to be made when there are others already, as after a long wait for an approver, is refused where these
    forbid it to its caller as that is `present` then.

    Its parts are those of the present rules. Nothing of the former ones is kept for later: no plan, no view.
    """

    is_live: ClassVar[bool] = True

    def __init__(self, gate: Gate) -> None:
        # The parts are not copied: an attribute that is missing here is that of the present rules.
        self._era = Era(gate)
        self.present: Callable[[Caller], Caller | None] = gate.present

    def __getattr__(self, name: str) -> Any:
        if name == "_era":  # of one that is only half made
            raise AttributeError(name)
        return getattr(self._era.gate, name)

    @property
    def era(self) -> Era:
        """The time in which the rules of this moment hold."""
        return self._era

    @property
    def current(self) -> Gate:
        """The rules of this moment."""
        return self._era.gate

    def exchange(self, gate: Gate) -> Era:
        """Go by the rules of *gate* from the next call on, in an era of their own, also where they are the same.

        Returns the era that has ended: its calls, and those of the eras before it, go on by the rules that they began
        with. What *gate* raises when it is put around the calls changes nothing.
        """
        before = self._era
        after = Era(gate, [era for era in (before, *before.earlier) if era.is_busy])
        for runner, made in list(before.runners.items()):
            after.runners[runner] = made if gate is before.gate else runner.made_by(gate)
        self._era = after
        return before

    def wrap(self, runner: Runner, find: Find, layers: Sequence[Callable[[Runner], Runner]] = ()) -> Runner:
        """Return *runner* with the rules of the moment around it; see `Gate.wrap`. *layers* are put around it again at
        each exchange."""
        made = _LiveRunner(self, runner, find, layers)
        self._era.runners[made] = made.made_by(self._era.gate)
        return made

    def shows(self, entry: Registered, origin: Origin) -> bool:
        """Return whether *origin* may know of the tool."""
        return self._era.gate.shows(entry, origin)

    def view(self, index: Index, docs: DocStore, origin: Origin) -> tuple[Index, DocStore]:
        """Return what *origin* may know of; see `Gate.view`."""
        return self._era.gate.view(index, docs, origin)

    @contextmanager
    def group(
        self, kind: Literal["chain", "code"], origin: Origin, details: JSONObject, run_id: str = ""
    ) -> Generator[GroupScope, None, None]:
        """Open the scope of a chain or of code; see `Gate.group`. Its calls go by the rules of their own moments."""
        with self._era.gate.group(kind, origin, details, run_id) as scope:
            yield scope


class Era:
    """The time in which one set of rules holds: *gate*, the runners that keep them, and the calls that began in it.
    *earlier* are the eras before it whose calls were not over when it began."""

    def __init__(self, gate: Gate, earlier: Sequence[Era] = ()) -> None:
        self.gate = gate
        self.earlier: tuple[Era, ...] = tuple(earlier)
        self.runners: WeakKeyDictionary[_LiveRunner, Runner] = WeakKeyDictionary()
        self._calls: set[object] = set()
        self._ended: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether calls of this era are running."""
        return bool(self._calls)

    @contextmanager
    def call(self) -> Generator[None, None, None]:
        """Count a call as one of this era in the block."""
        token = object()
        self._calls.add(token)
        try:
            yield
        finally:
            self._calls.discard(token)
            if self._ended is not None and not self._calls:
                loop, event = self._ended
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)

    async def ended(self) -> None:
        """Wait until no call of this era is running, nor of those before it; to be asked once it is over."""
        for era in self.earlier:
            await era.ended()
        if self._ended is None:
            self._ended = asyncio.get_running_loop(), asyncio.Event()
        if self._calls:
            await self._ended[1].wait()


class _LiveRunner:
    """Makes each call by the rules of the moment it begins."""

    def __init__(
        self,
        live: LiveGate,
        runner: Runner,
        find: Find,
        layers: Sequence[Callable[[Runner], Runner]],
    ) -> None:
        self._live = live
        self._runner = runner
        self._find = find
        self._layers = layers

    def made_by(self, gate: Gate) -> Runner:
        """Return what makes calls by the rules of *gate*."""
        return gate.wrap_while(partial(self._check, gate), self._runner, self._find, self._layers)

    def _check(self, gate: Gate, entry: Registered, call: ToolCall) -> None:
        """Raise PolicyError where the call has passed *gate*, and by now its caller is none any more, or the rules
        forbid it what they let pass."""
        now, origin = self._live.current, call.origin
        caller = self._live.present(origin.caller)
        if caller is None:
            raise out_since(entry)
        if caller is not origin.caller and caller != origin.caller:
            origin = replace(origin, caller=caller)
            call = ToolCall(call.tool_id, call.args, call.timeout, origin=origin, run_id=call.run_id)
        elif now is gate:
            return
        check_denied(now, entry, call, refusal=denied_since)

    def _begun(self, era: Era, call: ToolCall) -> Runner:
        """Return what makes the call, as one of its caller by what that is now: its run may have begun long ago."""
        made, origin = era.runners[self], call.origin
        caller = self._live.present(origin.caller)
        if caller is None:  # the rules have it recorded, and refuse it
            return made.rules if isinstance(made, GatedByPolicy) else made
        if caller is not origin.caller:
            call.origin = replace(origin, caller=caller)
        return made

    async def run(self, call: ToolCall) -> Result:
        """Make the call; see `Runner.run`."""
        era = self._live.era
        with era.call():
            return await self._begun(era, call).run(call)

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `Runner.stream`."""
        era = self._live.era
        with era.call():
            events = self._begun(era, call).stream(call)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether `run_in_thread` would make the call; see `ThreadRunner.runs_in_thread`."""
        made = thread_runner(self._live.era.runners[self])
        return made is not None and made.runs_in_thread(call, within)

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread; see `ThreadRunner.run_in_thread`."""
        era = self._live.era
        made = thread_runner(self._begun(era, call))
        if made is None:
            return None
        with era.call():
            return made.run_in_thread(call, wait, within)
