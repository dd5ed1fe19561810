"""Refuse calls of tools whose definition has not been accepted."""

from __future__ import annotations

from collections.abc import Callable

from toolexec.discovery.index import Registered
from toolexec.model.call import ToolCall
from toolexec.run.layer import Layer
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner

__all__ = ["Pinned"]


class Pinned(Layer):
    """Has *check* look at the tool of each call before *inner* makes it; what it raises is raised."""

    def __init__(self, inner: Runner, find: Find, check: Callable[[Registered], None]) -> None:
        super().__init__(inner)
        self._find = find
        self._check = check

    def before(self, call: ToolCall) -> None:
        """Raise DefinitionChangedError for a tool that is not accepted, and as *find* does; see `Layer.before`."""
        self._check(resolved(call, self._find))
