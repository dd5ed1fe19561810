"""Calls of tools that are shown in another form than their own: the arguments become the tool's own before any rule."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial

from toolexec.backend.here import Wait
from toolexec.errors import BackendUnavailableError, InputValidationError, ToolExecError
from toolexec.model.arguments import RefusedArgs, without_nulls
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.tool import TRANSFORMED
from toolexec.model.transform import ShownTool, Transforms
from toolexec.model.tree_size import has_many
from toolexec.run.large import walked
from toolexec.run.layer import Layer
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner
from toolexec.run.types import Result


class Transforming(Layer):
    """Stands outside of all rules: they see, decide on and record the arguments that are really sent.

    Arguments are checked as callers know them. Those that do not fit go on as `RefusedArgs`, so that the call is
    recorded and refused.
    """

    def __init__(self, inner: Runner, find: Find, transforms: Transforms) -> None:
        super().__init__(inner)
        self._find = find
        self._transforms = transforms

    def before(self, call: ToolCall) -> ToolCall | None:
        """Return the call with the arguments of the tool itself."""
        shown = self._shown(call)
        if shown is None or type(call.args) is RefusedArgs:
            return None
        given = {} if call.args is None else call.args
        schema = shown.tool.input_schema
        if not schema.accepts(given):
            given = without_nulls(given, schema, schema.violations(given))
        try:
            return replace(call, args=shown.arguments(given))
        except InputValidationError as error:
            return replace(call, args=RefusedArgs.because(error))

    async def run(self, call: ToolCall) -> Result:
        """Make the call; see `Runner.run`."""
        made = await self._made(call)
        if made is None:
            return await self.inner.run(call)
        try:
            return await self.inner.run(made)
        except InputValidationError as error:
            raise self._named(error, made) from error

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `Runner.stream`."""
        made = await self._made(call) or call
        events = self.inner.stream(made)
        try:
            async for event in events:
                yield event
        except InputValidationError as error:
            raise self._named(error, made) from error
        finally:
            await events.aclose()

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread; see `ThreadRunner.run_in_thread`."""
        if self.inner_in_thread is None:
            return None
        made = self.before(call) or call
        try:
            return self.inner_in_thread.run_in_thread(made, wait, within)
        except InputValidationError as error:
            raise self._named(error, made) from error

    async def _made(self, call: ToolCall) -> ToolCall | None:
        """Do what `before` does, off the event loop for many values."""
        return await walked(partial(self.before, call)) if has_many(call.args) else self.before(call)

    def _shown(self, call: ToolCall) -> ShownTool | None:
        try:
            tool = self._find(call.tool_id).tool
        except ToolExecError:
            return None  # what makes the call raises it again
        shown = self._transforms.of(tool)
        if shown is None and tool.has_meta and TRANSFORMED in tool.meta:
            raise BackendUnavailableError(
                f"{tool.id} cannot be called yet: its own definition was not read since the start", tool_id=tool.id
            )
        return shown

    def _named(self, error: InputValidationError, made: ToolCall) -> InputValidationError:
        """Return an error with the names that the caller knows."""
        if type(made.args) is RefusedArgs:
            return error
        shown = self._shown(made)
        return error if shown is None else shown.as_callers_know(error)
