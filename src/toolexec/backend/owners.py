"""Which backend a tool belongs to when several offer one of its ID."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from toolexec.discovery.index import Index, OrdersBackends, Registered, bulk
from toolexec.errors import BackendNotFoundError, ToolExecError, ToolNotFoundError
from toolexec.model.binding import Binding
from toolexec.model.tool import Tool


class Claimant(Protocol):
    """The tools that one backend offers, by ID, and why some of them are not in the index."""

    offers: dict[str, tuple[Tool, Binding]]
    refused: dict[str, str]

    @property
    def name(self) -> str:
        """The name of the backend."""
        ...


class Owners:
    """Keeps the tools of several backends in one index: the backend that was added first owns an ID.

    Who connects first does not matter. Others that offer the same definition are further bindings, in the order in
    which the backends were added; those that offer another one are refused, until the owner no longer has the tool.
    What is in the index and comes from none of them is left as it is.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._bulk = bulk(index)
        self._claimants: list[Claimant] = []

    def add(self, claimant: Claimant) -> None:
        """Add a backend, behind those that are there."""
        self._claimants.append(claimant)
        self._order()

    def remove(self, claimant: Claimant) -> None:
        """Remove a backend, whose tools are out of the index; one that is not there is ignored."""
        if claimant in self._claimants:
            self._claimants.remove(claimant)
        self._order()

    def _order(self) -> None:
        if isinstance(self._index, OrdersBackends):
            self._index.order_backends([claimant.name for claimant in self._claimants])

    def settle(self, tool_id: str) -> None:
        """Have the index show what the backends offer under this ID now."""
        offers = [(each, *each.offers[tool_id]) for each in self._claimants if tool_id in each.offers]
        for claimant, _, _ in offers:
            claimant.refused.pop(tool_id, None)
        if len(offers) > 1:
            offers = self._agreeing(tool_id, offers)
        for claimant, tool, binding in offers:
            try:
                self._bulk.replace(tool, binding)
            except ToolExecError as error:
                claimant.refused[tool_id] = str(error)
                self.withdraw(tool_id, binding)

    def withdraw(self, tool_id: str, binding: Binding) -> None:
        """Take a binding out of the index, if it is there."""
        found = self._find(tool_id)
        if found is not None and binding in found.bindings:
            with suppress(ToolNotFoundError, BackendNotFoundError):  # someone else has just taken it out
                self._index.unregister(tool_id, binding)

    def _agreeing(
        self, tool_id: str, offers: list[tuple[Claimant, Tool, Binding]]
    ) -> list[tuple[Claimant, Tool, Binding]]:
        """Return the offers with the owner's definition, with all others refused and out of the index."""
        owner, tool, _ = offers[0]
        agreeing = [offer for offer in offers if offer[1].same_definition(tool)]
        for claimant, _, binding in offers:
            if not any(claimant is each for each, _, _ in agreeing):
                claimant.refused[tool_id] = (
                    f"{tool_id} is a tool of {owner.name}, which was added first, with another definition; give the "
                    "tools of one of the two another namespace"
                )
                self.withdraw(tool_id, binding)
        found = self._find(tool_id)
        if found is not None and not found.tool.same_definition(tool):
            for _, _, binding in agreeing:  # of a former definition of the owner
                self.withdraw(tool_id, binding)
        return agreeing

    def _find(self, tool_id: str) -> Registered | None:
        found = self._index.find(tool_id)
        return found if found is not None and found.tool.id == tool_id else None
