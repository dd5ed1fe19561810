"""The recorded catalogue in the place of the backends: whatever a binding names, a cassette answers."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Sequence

from toolexec.backend.attempt import Attempt
from toolexec.backend.base import Backend, BackendStatus
from toolexec.backend.registry import BackendRegistry
from toolexec.cassette.cassette import Cassette
from toolexec.errors import StreamNotSupportedError
from toolexec.model.binding import Binding, BindingKind, LocalBinding, MCPBinding, ProviderBinding
from toolexec.model.events import StreamEvent
from toolexec.model.tool import Tool

__all__ = ["RecordedBackend", "RecordedBackends"]


class RecordedBackend:
    """Answers the calls of one backend from a cassette. *own* gives the definition of a tool that is shown in another
    form."""

    def __init__(self, name: str, kind: BindingKind, cassette: Cassette, own: Callable[[Tool], Tool]) -> None:
        self.name = name
        self.kind: BindingKind = kind
        self.enabled = True
        self._cassette = cassette
        self._own = own

    def status(self) -> BackendStatus:
        """Return that it is there; see `Backend.status`."""
        return BackendStatus(name=self.name, kind=self.kind, info={"cassette": str(self._cassette.path)})

    async def start(self) -> None:
        """Do nothing: there is nothing to start."""

    async def aclose(self) -> None:
        """Do nothing: nothing was started."""

    async def list_tools(self) -> Sequence[Tool]:
        """Return the recorded tools of the backend."""
        found = self._cassette.tools.values()
        return [each.tool for each in found if (each.binding.kind, each.binding.backend) == (self.kind, self.name)]

    def bind(self, tool: Tool) -> Binding:
        """Return the binding of a recorded tool; see `Backend.bind`."""
        known = self._cassette.tools.get(tool.id)
        if known is not None:
            return known.binding
        if self.kind == "local":
            return LocalBinding(tool.id)
        return MCPBinding(self.name, tool.id) if self.kind == "mcp" else ProviderBinding(self.name, tool.id)

    async def call(self, name: str, call: Attempt) -> object:
        """Return what the recorded call came to; raises CassetteMissError, CassetteDriftError, and the recorded
        error."""
        return self._cassette.take(self._own(call.entry.tool), call.args).answer()

    async def stream(self, name: str, call: Attempt) -> AsyncGenerator[StreamEvent, None]:
        """Yield the recorded chunks, then the value; raises as `call` does, and StreamNotSupportedError for a call
        that was recorded in one piece, unless it has a fallback."""
        recorded = self._cassette.take(self._own(call.entry.tool), call.args)
        if recorded.chunks is None and not call.fallback:
            raise StreamNotSupportedError(
                f"{call.tool_id} was recorded in one piece; pass fallback=True for one event", tool_id=call.tool_id
            )
        for chunk in recorded.chunks or ():
            yield StreamEvent(kind="chunk", data=copy.deepcopy(chunk), tool_id=call.tool_id)
        yield StreamEvent(kind="done", data=recorded.answer(), tool_id=call.tool_id)


class RecordedBackends(BackendRegistry):
    """Stands in the place of *others*, none of which it reaches: each binding leads to a `RecordedBackend`.

    Only what *runs_here* says so for, the ID of a local tool, is run by its own handler: skills are programs, which
    make the calls that are recorded.
    """

    def __init__(
        self,
        cassette: Cassette,
        others: BackendRegistry,
        *,
        runs_here: Callable[[str], bool],
        own: Callable[[Tool], Tool],
    ) -> None:
        super().__init__()
        self._cassette = cassette
        self._others = others
        self._runs_here = runs_here
        self._own = own
        self._recorded: dict[tuple[str, str], RecordedBackend] = {}

    def resolve(self, binding: Binding) -> Backend:
        """Return what answers the calls of *binding*."""
        if binding.kind == "local" and self._runs_here(binding.tool):
            return self._others.resolve(binding)
        key = binding.kind, binding.backend
        found = self._recorded.get(key)
        if found is None:
            found = RecordedBackend(binding.backend, binding.kind, self._cassette, self._own)
            self._recorded[key] = found
        return found
