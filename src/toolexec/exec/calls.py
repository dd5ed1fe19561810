"""How an `Exec` makes single calls: through all rules, and in time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import TYPE_CHECKING

from toolexec.errors import ConfigurationError
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject, shorten
from toolexec.model.origin import current_origin
from toolexec.run.default_gate import DefaultGate
from toolexec.run.layers.timeout import Timeout
from toolexec.run.runner import DefaultRunner, Runner

if TYPE_CHECKING:
    from toolexec.backend.registry import BackendRegistry
    from toolexec.exec.cassettes import UsedCassette
    from toolexec.exec.options import Options
    from toolexec.exec.scope import Scope
    from toolexec.exec.sources import Sources
    from toolexec.model.events import StreamEvent
    from toolexec.model.schema import Schema
    from toolexec.model.tool import Tool
    from toolexec.model.transform import Transforms
    from toolexec.run.door import OwnArguments
    from toolexec.run.resolve import Find
    from toolexec.run.types import Result


class Calls:
    """The one runner of an `Exec`, and the calls that are made by it; starts the backends that a call needs."""

    def __init__(
        self,
        options: Options,
        scope: Scope,
        backends: BackendRegistry,
        sources: Sources,
        transforms: Transforms | None = None,
        cassette: UsedCassette | None = None,
    ) -> None:
        self.sources = sources
        self._outermost: OwnArguments | None = None
        self._transform: Callable[[], Runner] | None = None
        if cassette is not None:
            backends = cassette.backends(backends)
        self._limits = _limited(options, scope, backends, transforms)
        self._made: Runner = self._limits
        if cassette is not None:
            answering = _limited(options, scope, cassette.recorded, transforms)
            self._made = cassette.around(self._limits, scope.resolver.resolve, answering)
        self.runner: Runner = self._ruled(options, scope, transforms)
        """What every call passes: trace, gate, layers, the time limit, and what makes it."""

    def _ruled(self, options: Options, scope: Scope, transforms: Transforms | None) -> Runner:
        runner: Runner = self._made
        if isinstance(options.gate, DefaultGate):
            runner = options.gate.wrap(runner, scope.resolver.resolve, options.layers, index=scope.index)
        elif options.gate is not None:
            runner = options.gate.wrap(runner, scope.resolver.resolve, options.layers)
        elif options.layers:
            from toolexec.run.door import RefusesExcess

            for wrap in reversed(options.layers):
                runner = wrap(runner)
            runner = RefusesExcess(runner)
        if options.trace is not None:
            from toolexec.run.layers.trace import Trace

            runner = Trace(runner, options.trace)
        if transforms is not None:
            self._transform = partial(_transformed, runner, scope.resolver.resolve, transforms)
            if transforms.is_used:
                runner = self._transform()
        elif options.own_gate is None and not options.layers and options.trace is None:
            return runner  # nothing but the runner looks at the arguments, and that knows what it does
        from toolexec.run.door import OwnArguments

        self._outermost = OwnArguments(runner)
        return self._outermost

    def transform(self) -> None:
        """Have the transforms of the Exec hold from the next call on, where there were none at its start."""
        if self._outermost is not None and self._transform is not None:
            self._outermost.stand_around(self._transform())

    async def run(self, tool_id: str, args: JSONObject | None = None) -> Result:
        """Run one tool; see `Exec.run_tool`."""
        return await self._make(ToolCall(tool_id, args, origin=current_origin()))

    async def make(self, call: ToolCall) -> Result:
        """Make one call, with progress if it asks for that; see `Exec.run_tool`."""
        _check(call)
        on_progress = call.on_progress
        if on_progress is None:
            return await self._make(call)
        from toolexec.run.chain import notify

        notify(on_progress, 0, 1, "started")
        try:
            result = await self._make(call)
        except Exception:
            notify(on_progress, 1, 1, "error")
            raise
        notify(on_progress, 1, 1, "completed" if result.ok else "error")
        return result

    async def _make(self, call: ToolCall) -> Result:
        if self.sources.pending and self.sources.is_needed(call.tool_id):
            await self.sources.start()
        return await self.runner.run(call)

    async def stream(
        self,
        tool_id: str,
        args: JSONObject | None = None,
        *,
        timeout: float | None = None,
        fallback: bool = True,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Run one tool piece by piece; see `Exec.stream_tool`."""
        if not isinstance(fallback, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"stream_tool: fallback must be true or false, not {shorten(repr(fallback))}")
        if self.sources.pending and self.sources.is_needed(tool_id):
            await self.sources.start()
        events = self.runner.stream(ToolCall(tool_id, args, timeout, None, fallback, current_origin()))
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def aclose(self, patience: float) -> None:
        """Give handlers that ignored their cancellation so many seconds to end."""
        await self._limits.left.aclose(patience)


def _limited(options: Options, scope: Scope, backends: BackendRegistry, transforms: Transforms | None) -> Timeout:
    """Return what makes calls by these backends, in time."""
    runner = DefaultRunner(
        scope.index,
        backends,
        resolver=scope.resolver,
        validate_input=options.validate_input,
        validate_output=options.output_validation,
        schema_of=_schemas(transforms) if transforms is not None else None,
    )
    return Timeout(runner, options.default_timeout, options.max_timeout)


def _transformed(runner: Runner, find: Find, transforms: Transforms) -> Runner:
    from toolexec.run.layers.transforming import Transforming

    return Transforming(runner, find, transforms)


def _schemas(transforms: Transforms) -> Callable[[Tool], Schema]:
    """Return what gives the schema of the arguments that are sent; without transforms that is the tool's own."""
    return lambda tool: transforms.schema_of(tool) if transforms.is_used else tool.input_schema


def _check(call: ToolCall) -> None:
    """Raise ConfigurationError for a setting of a call that has the wrong type."""
    fits = {
        "on_progress must be a function or None": call.on_progress is None or callable(call.on_progress),
        "idempotency_key must be a string": isinstance(call.idempotency_key, str),
        "fresh must be true or false": isinstance(call.fresh, bool),
    }
    for rule, holds in fits.items():
        if not holds:
            given = getattr(call, rule.partition(" ")[0])
            raise ConfigurationError(f"run_tool: {rule}, not {shorten(repr(given))}")
