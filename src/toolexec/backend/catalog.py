"""Keep an index in step with what a backend hosts."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from toolexec.backend.base import Backend
from toolexec.backend.owners import Owners
from toolexec.discovery.index import Index
from toolexec.discovery.stored import StoredIndex
from toolexec.errors import ToolExecError
from toolexec.model.binding import Binding
from toolexec.model.tool import Tool

if TYPE_CHECKING:
    from toolexec.model.transform import Transforms

logger: logging.Logger = logging.getLogger(__name__)
AT_ONCE: Final = 200
"""How many tools are published in one turn of the event loop, in some 10 ms."""
_FIRST: Final = 3 * AT_ONCE + 1  # steps: a tool is looked at when it is offered, registered and, if stored, found


class Catalog:
    """The entries of an index that come from one backend.

    *owners* decides between the catalogs of several backends; they stand there in the order in which they are made.
    *namespace* is that of tools without one. `offers` are the tools that the backend has, also those that are left out
    of the index; `refused` says why.
    """

    def __init__(
        self,
        index: Index,
        backend: Backend,
        owners: Owners | None = None,
        transforms: Transforms | None = None,
        *,
        namespace: str = "",
    ) -> None:
        self._index = index
        self._backend = backend
        self._transforms = transforms
        self._namespace = namespace
        self._owners = owners if owners is not None else Owners(index)
        self._due: Sequence[Tool] | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._is_withdrawn = False
        self._published: Sequence[Tool] | None = None
        self.offers: dict[str, tuple[Tool, Binding]] = {}
        self.refused: dict[str, str] = {}
        self._owners.add(self)

    @property
    def name(self) -> str:
        """The name of the backend."""
        return self._backend.name

    def publish(self, tools: Sequence[Tool]) -> None:
        """Make the index show exactly *tools* for this backend: new ones in, changed ones replaced, then gone ones out.

        Up to `AT_ONCE` tools are published when this returns. More of them are, on an event loop, published in slices
        between which the loop does other work; `published` waits for them. Until then each ID has its old tool or its
        new one, and what is gone stays to the last. What is published meanwhile comes after that; of several such lists
        only the last one counts. Without a running loop all are published at once.

        A tool whose ID belongs to another definition is left out; `refused` says why. Gone are also those that a
        `StoredIndex` has from before.
        """
        if not self._is_withdrawn:
            self._published = list(tools)
            self._publish(self._published)

    def republish(self) -> None:
        """Make the index show the tools that were published last as the transforms of now have them, as `publish`
        does."""
        if not self._is_withdrawn and self._published is not None:
            self._publish(self._published)

    def withdraw(self) -> None:
        """Take everything of this backend out of the index, as `publish` does; what it offers later is not taken."""
        if not self._is_withdrawn:
            self._is_withdrawn = True
            self._publish([])

    async def published(self) -> None:
        """Wait until the index shows what was published, or withdrawn, so far."""
        while (task := self._publishing) is not None and not task.done():
            await asyncio.wait([task])

    async def aclose(self) -> None:
        """Leave the index as it is from now on, also in the middle of a list."""
        self._due = None
        if self._publishing is not None:
            self._publishing.cancel()
        await self.published()

    def _publish(self, tools: Sequence[Tool]) -> None:
        self._due = tools
        if self._publishing is not None and not self._publishing.done():
            return  # it comes to them
        steps = self._steps()
        if not _take(steps, _FIRST):
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            _take(steps, None)
            return
        self._publishing = loop.create_task(
            self._go_on(steps), name=f"toolexec-catalog-{self.name}", context=contextvars.Context()
        )

    async def _go_on(self, steps: Iterator[None]) -> None:
        try:
            more = True
            while more:
                await asyncio.sleep(0)
                more = _take(steps, AT_ONCE)
        except Exception:
            logger.exception("the tools of backend %s could not all be published", self.name)
        finally:
            self._publishing = None
        if self._due is not None:  # published meanwhile, and not what has failed
            self._publish(self._due)

    def _steps(self) -> Generator[None]:
        """Publish what is due, one step for each look at a tool."""
        while self._due is not None:
            tools, self._due = self._due, None
            yield from self._offer(tools)
        if self._is_withdrawn:
            self._owners.remove(self)

    def _offer(self, tools: Sequence[Tool]) -> Generator[None]:
        before = yield from self._stored()
        before |= {tool_id: binding for tool_id, (_, binding) in self.offers.items()}
        offers: dict[str, tuple[Tool, Binding]] = {}
        refused: dict[str, str] = {}
        for tool in tools:
            try:
                if (shown := self._shown(tool)) is not None:
                    offers[shown[0].id] = shown
            except ToolExecError as error:
                refused[tool.id] = str(error)
            yield
        self.refused = {tool_id: why for tool_id, why in self.refused.items() if tool_id in offers} | refused
        for tool_id, offer in offers.items():
            former = before.get(tool_id)
            if former is not None and former != offer[1]:
                self._owners.withdraw(tool_id, former)
            self.offers[tool_id] = offer
            self._owners.settle(tool_id)
            yield
        for tool_id in before.keys() - offers.keys():
            self.offers.pop(tool_id, None)
            self._owners.withdraw(tool_id, before[tool_id])
            self._owners.settle(tool_id)
            yield

    def _shown(self, tool: Tool) -> tuple[Tool, Binding] | None:
        """Return a tool as it is shown, and where it is; None for one that is hidden."""
        own = tool if tool.namespace or not self._namespace else tool.replace(namespace=self._namespace)
        if self._transforms is None:
            return own, self._backend.bind(own)
        if self._transforms.hides(own):
            return None
        return self._transforms.apply(own), self._backend.bind(own)

    def _stored(self) -> Generator[None, None, dict[str, Binding]]:
        """Return the bindings that were stored of this backend, the first time that it is asked for them."""
        index, own = self._index, (self._backend.kind, self._backend.name)
        found: dict[str, Binding] = {}
        for tool_id in index.take_stored(self._backend.name) if isinstance(index, StoredIndex) else ():
            entry = index.find(tool_id)
            if entry is not None and entry.tool.id == tool_id:
                found.update((tool_id, each) for each in entry.bindings if (each.kind, each.backend) == own)
            yield
        return found


def _take(steps: Iterator[None], limit: int | None) -> bool:
    """Take that many steps, or all; returns whether there may be more."""
    taken = sum(1 for _ in islice(steps, limit))
    return taken == limit
