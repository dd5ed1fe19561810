"""Keep an index in step with what a backend hosts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from toolexec.backend.base import Backend
from toolexec.discovery.index import Index, bulk
from toolexec.discovery.stored import StoredIndex
from toolexec.errors import BackendNotFoundError, ToolExecError, ToolNotFoundError
from toolexec.model.binding import Binding
from toolexec.model.tool import Tool

__all__ = ["Catalog"]


class Catalog:
    """The entries of an index that come from one backend."""

    def __init__(self, index: Index, backend: Backend) -> None:
        self._index = index
        self._backend = backend
        self._published: dict[str, Binding] = {}
        self.refused: dict[str, str] = {}

    def publish(self, tools: Sequence[Tool]) -> None:
        """Make the index show exactly *tools* for this backend: new ones in, changed ones replaced, gone ones out.

        A tool whose ID belongs to another definition is left out; `refused` says why. Gone are also those that a
        `StoredIndex` has from before.
        """
        self._take_stored()
        self.refused = {}
        current: dict[str, Binding] = {}
        for tool in tools:
            try:
                binding = self._backend.bind(tool)
                bulk(self._index).replace(tool, binding)
            except ToolExecError as error:
                self.refused[tool.id] = str(error)
            else:
                current[tool.id] = binding
        for tool_id, binding in self._published.items():
            if current.get(tool_id) != binding:
                self._withdraw(tool_id, binding)
        self._published = current

    def withdraw(self) -> None:
        """Take everything of this backend out of the index."""
        self._take_stored()
        for tool_id, binding in self._published.items():
            self._withdraw(tool_id, binding)
        self._published = {}

    def _take_stored(self) -> None:
        """Count what was stored of this backend as published by it."""
        if not isinstance(self._index, StoredIndex):
            return
        for tool_id in self._index.take_stored(self._backend.name):
            found = self._index.find(tool_id)
            if found is not None and found.tool.id == tool_id:
                for binding in found.bindings:
                    if (binding.kind, binding.backend) == (self._backend.kind, self._backend.name):
                        self._published[tool_id] = binding

    def _withdraw(self, tool_id: str, binding: Binding) -> None:
        found = self._index.find(tool_id)
        if found is not None and found.tool.id == tool_id and binding in found.bindings:
            with suppress(ToolNotFoundError, BackendNotFoundError):  # someone else has just taken it out
                self._index.unregister(tool_id, binding)
