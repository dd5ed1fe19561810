"""The recorded catalogue in the place of the backends: whatever a binding names, a cassette answers."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import ClassVar

from toolexec.backend.attempt import Attempt
from toolexec.backend.base import Backend, BackendStatus
from toolexec.backend.registry import BackendRegistry
from toolexec.cassette.cassette import Cassette
from toolexec.errors import StreamNotSupportedError
from toolexec.model.binding import Binding, BindingKind, LocalBinding, MCPBinding, ProviderBinding
from toolexec.model.events import StreamEvent
from toolexec.model.tool import Tool
from toolexec.run.layer import Layer


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
        tools = len(self._tools())
        return BackendStatus(name=self.name, kind=self.kind, tools=tools, info={"cassette": str(self._cassette.path)})

    async def start(self) -> None:
        """Do nothing: there is nothing to start."""

    async def aclose(self) -> None:
        """Do nothing: nothing was started."""

    async def list_tools(self) -> Sequence[Tool]:
        """Return the recorded tools of the backend."""
        return self._tools()

    def _tools(self) -> list[Tool]:
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


class Replayed(Layer):
    """Makes calls by recorded backends alone: nothing is done by them, and rules keep nothing of what they come to."""

    replays: ClassVar[bool] = True


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
        return self._of(binding.kind, binding.backend)

    def get(self, name: str) -> Backend | None:
        """Return what answers for the backend of this name, or None."""
        return next((backend for backend in self.list() if backend.name == name), None)

    def list(self, *, kind: str | None = None, enabled: bool | None = None) -> Sequence[Backend]:
        """Return what answers for the backends that there are, and for those that were recorded."""
        kinds: dict[str, BindingKind] = {backend.name: backend.kind for backend in self._others.list()}
        kinds |= {each.binding.backend: each.binding.kind for each in self._cassette.tools.values()}
        found = [self._of(kind, name) for name, kind in kinds.items()]
        return [backend for backend in found if kind in (None, backend.kind) and enabled in (None, backend.enabled)]

    def _of(self, kind: BindingKind, name: str) -> RecordedBackend:
        found = self._recorded.get((kind, name))
        if found is None:
            found = self._recorded[kind, name] = RecordedBackend(name, kind, self._cassette, self._own)
        return found
