"""Keep an index in step with what a backend hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolexec.backend.base import Backend
from toolexec.backend.owners import Owners
from toolexec.discovery.index import Index
from toolexec.discovery.stored import StoredIndex
from toolexec.errors import ToolExecError
from toolexec.model.binding import Binding
from toolexec.model.tool import Tool

if TYPE_CHECKING:
    from toolexec.model.transform import Transforms

__all__ = ["Catalog"]


class Catalog:
    """The entries of an index that come from one backend.

    *owners* decides between the catalogs of several backends; they stand there in the order in which they are made.
    `offers` are the tools that the backend has, also those that are left out of the index; `refused` says why.
    """

    def __init__(
        self, index: Index, backend: Backend, owners: Owners | None = None, transforms: Transforms | None = None
    ) -> None:
        self._index = index
        self._backend = backend
        self._transforms = transforms
        self._owners = owners if owners is not None else Owners(index)
        self.offers: dict[str, tuple[Tool, Binding]] = {}
        self.refused: dict[str, str] = {}
        self._owners.add(self)

    @property
    def name(self) -> str:
        """The name of the backend."""
        return self._backend.name

    def publish(self, tools: Sequence[Tool]) -> None:
        """Make the index show exactly *tools* for this backend: new ones in, changed ones replaced, gone ones out.

        A tool whose ID belongs to another definition is left out; `refused` says why. Gone are also those that a
        `StoredIndex` has from before.
        """
        self._offer(tools)

    def withdraw(self) -> None:
        """Take everything of this backend out of the index; what it offers later is not taken."""
        self._offer(())
        self._owners.remove(self)

    def _offer(self, tools: Sequence[Tool]) -> None:
        before = self._stored() | {tool_id: binding for tool_id, (_, binding) in self.offers.items()}
        self.offers, self.refused = {}, {}
        for tool in tools:
            try:
                shown = tool if self._transforms is None else self._transforms.apply(tool)
                self.offers[shown.id] = (shown, self._backend.bind(tool))
            except ToolExecError as error:
                self.refused[tool.id] = str(error)
        for tool_id, binding in before.items():
            offer = self.offers.get(tool_id)
            if offer is None or offer[1] != binding:
                self._owners.withdraw(tool_id, binding)
        for tool_id in [*self.offers, *(before.keys() - self.offers.keys())]:
            self._owners.settle(tool_id)

    def _stored(self) -> dict[str, Binding]:
        """Return the bindings that were stored of this backend, the first time that it is asked for them."""
        index, own = self._index, (self._backend.kind, self._backend.name)
        ids = index.take_stored(self._backend.name) if isinstance(index, StoredIndex) else ()
        found = [entry for tool_id in ids if (entry := index.find(tool_id)) is not None and entry.tool.id == tool_id]
        return {
            entry.tool.id: binding
            for entry in found
            for binding in entry.bindings
            if (binding.kind, binding.backend) == own
        }
