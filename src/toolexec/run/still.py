"""Whether a call that the rules have let pass may still be made, when it comes to that."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Any, TypeAlias

from toolexec.backend.attempt import Attempt
from toolexec.discovery.index import Registered
from toolexec.model.call import ToolCall
from toolexec.run.layer import Layer
from toolexec.run.runner import Runner
from toolexec.run.types import Result

StillAllowed: TypeAlias = Callable[[Registered, ToolCall], None]
"""Raises PolicyError where the rules of this moment forbid a call that those of its beginning let pass."""


class Rechecked(Layer):
    """Stands behind the door, and has *still* refuse attempts: each may have waited, for a place at its backend or for
    the end of what has failed the one before it."""

    def __init__(self, inner: Runner, still: StillAllowed) -> None:
        super().__init__(inner)
        self._still = still

    def before(self, call: ToolCall) -> None:
        """Refuse an attempt; see `Layer.before`."""
        assert isinstance(call, Attempt)
        self._still(call.entry, call)

    def run(self, call: ToolCall) -> CoroutineType[Any, Any, Result]:
        """Make the call; see `Runner.run`. It is a plain function, which does not cost each call a coroutine."""
        self.before(call)
        return self.inner.run(call)
