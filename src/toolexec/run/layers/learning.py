"""Learn what tools without an output schema answer."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from toolexec.discovery.learned import LearnedOutputs
from toolexec.errors import ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.settings import checked
from toolexec.run.layer import Layer
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result


@checked("Learning")
class Learning:
    """A part of a `Gate`: takes the results of tools without an output schema into *outputs* (or the file of some).

    Stubs and descriptions then show what such a tool answers, and `toolexec workflow check` warns of fields that no
    answer had. Nothing is ever refused for what was learned.
    """

    def __init__(self, outputs: LearnedOutputs | str | Path | None = None) -> None:
        self.outputs: LearnedOutputs = outputs if isinstance(outputs, LearnedOutputs) else LearnedOutputs(outputs)

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that learns from the results of *inner*."""
        return _Learned(self.outputs, inner, find)


class _Learned(Layer):
    def __init__(self, outputs: LearnedOutputs, inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._outputs = outputs
        self._find = find

    def after(self, call: ToolCall, result: Result) -> None:
        """Take a result in; see `Layer.after`."""
        if result.error is None:
            with suppress(ToolExecError):  # a tool that is gone meanwhile
                self._outputs.add(resolved(call, self._find).tool, result.value)
