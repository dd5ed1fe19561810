"""An index whose tools were in one before: read from a store, and not yet seen again where they live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from toolexec.discovery.changes import ChangeLog
from toolexec.discovery.index import ChangeType, Registered
from toolexec.discovery.memory import InMemoryIndex
from toolexec.discovery.search import Searcher
from toolexec.model.binding import Binding, BindingSelector, prefer_local
from toolexec.model.tool import Tool


class StoredIndex(InMemoryIndex):
    """An `InMemoryIndex` that begins with *entries* by ID, all of them checked when they were stored.

    They are its own from then on; *searcher* must know them already. `by_backend` has the IDs of those that come from
    a backend outside of this process. Until that has listed its tools, they give way to others with their IDs.

    A backend that has listed its tools asks `take_stored` for what there was of it, to withdraw what it no longer has.
    """

    def __init__(
        self,
        entries: dict[str, Registered],
        searcher: Searcher,
        *,
        by_backend: Mapping[str, Sequence[str]] | None = None,
        selector: BindingSelector = prefer_local,
    ) -> None:
        super().__init__(searcher, selector=selector)
        self._entries = entries
        self._stored = dict(by_backend or {})
        self._namespaces.update(Counter([tool_id[: max(tool_id.find(":"), 0)] for tool_id in entries]))
        self._versions.add_all(entries)
        self._changes = ChangeLog(1 if entries else 0)

    def _checked(
        self, tool: Tool, binding: Binding, known: Registered | None
    ) -> tuple[Registered, ChangeType, Binding]:
        # What was stored and not seen again gives way to what is there now, as if it had not come first.
        is_other = known is not None and not known.tool.same_definition(tool)
        if known is not None and is_other and all(self.has_stored(one.backend) for one in known.bindings):
            return Registered(tool, (binding,), binding), "updated", binding
        return super()._checked(tool, binding, known)

    def has_stored(self, backend: str) -> bool:
        """Return whether there are tools of this backend that it has not been asked for yet."""
        return backend in self._stored

    def take_stored(self, backend: str) -> Sequence[str]:
        """Return the IDs of the stored tools of a backend, for the first caller; empty afterwards."""
        return self._stored.pop(backend, ())
