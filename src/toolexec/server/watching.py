"""Subscriptions of clients to resources of the servers behind this one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolexec.backend.offering import OffersMore
from toolexec.errors import ToolExecError
from toolexec.exec.resources import Resources
from toolexec.model.origin import Origin, acting, current_origin

logger: logging.Logger = logging.getLogger(__name__)
_MOST: Final = 1000
_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class _Watch:
    """One subscription: the resource by its URI at the server, who has asked for it, and where it is watched; None
    where that has failed."""

    own_uri: str
    origin: Origin
    backend: OffersMore | None


class Watching:
    """Which clients watch which of *resources*, each client by an *owner*: its connection, or a stream of its own.

    A client is notified of what it may read, and of nothing else, whatever the rules were when it subscribed. A server
    that takes the place of another one is watched in its place. Used on one event loop.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._watches: dict[object, dict[str, _Watch]] = {}
        self._following: set[asyncio.Task[None]] = set()

    async def watch(self, owner: object, stack: AsyncExitStack, uri: str) -> None:
        """Watch a resource for the current origin until *stack* is closed.

        Raises what `Resources.to_watch` and `OffersMore.watch` do, and MCPError for more than 1,000 of one owner.
        """
        backend, own_uri = await self._resources.to_watch(uri)
        watches = self._watches.get(owner)
        if watches is None:
            watches = self._watches[owner] = {}
            stack.push_async_callback(self._unwatch_all, owner)
        if uri in watches:
            return
        if len(watches) >= _MOST:
            raise MCPError(code=INVALID_PARAMS, message=f"there are {_MOST} subscriptions already")
        watches[uri] = _Watch(own_uri, current_origin(), backend)
        try:
            await backend.watch(own_uri)
        except BaseException:
            watches.pop(uri, None)
            raise

    async def watch_all(self, owner: object, stack: AsyncExitStack, uris: Sequence[str]) -> list[str]:
        """Watch resources as `watch` does, and return which; those that cannot be watched are left out."""
        found: list[str] = []
        for uri in uris[:_MOST]:
            try:
                await self.watch(owner, stack, uri)
            except ToolExecError as error:
                logger.info("a resource cannot be watched: %s", type(error).__name__)
            else:
                found.append(uri)
        return found

    async def unwatch(self, owner: object, uri: str) -> None:
        """End what `watch` began, if it did."""
        watch = self._watches.get(owner, {}).pop(uri, None)
        if watch is not None and watch.backend is not None:
            await watch.backend.unwatch(watch.own_uri)

    async def _unwatch_all(self, owner: object) -> None:
        with anyio.move_on_after(_SECONDS, shield=True):
            for uri in list(self._watches.get(owner, ())):
                await self.unwatch(owner, uri)
        self._watches.pop(owner, None)

    async def watchers(self, uri: str) -> set[object]:
        """Return the owners that are to be notified of a change of the resource now."""
        found: set[object] = set()
        for owner, watches in list(self._watches.items()):
            watch = watches.get(uri)
            if watch is not None and await self._may_read(uri, watch.origin):
                found.add(owner)
        return found

    async def _may_read(self, uri: str, origin: Origin) -> bool:
        with acting(origin):
            try:
                await self._resources.watchable(uri)
            except ToolExecError:
                return False
        return True

    def follow(self, backend: OffersMore, changed: Callable[[str], None]) -> None:
        """Watch at *backend* what is watched at another one of its name, or at none; *changed* is called with the URIs,
        as what happened meanwhile was not reported."""
        if any(self._elsewhere(backend)):
            task = asyncio.get_running_loop().create_task(self._follow(backend, changed))
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    def _elsewhere(self, backend: OffersMore) -> list[tuple[dict[str, _Watch], str, _Watch]]:
        return [
            (watches, uri, watch)
            for watches in self._watches.values()
            for uri, watch in watches.items()
            if watch.backend is not backend and self._resources.backend_of(uri) is backend
        ]

    async def _follow(self, backend: OffersMore, changed: Callable[[str], None]) -> None:
        for watches, uri, watch in self._elsewhere(backend):
            if watches.get(uri) is not watch or watch.backend is backend:
                continue  # ended meanwhile, or followed by another task
            watch.backend = backend
            try:
                await backend.watch(watch.own_uri)
            except Exception as error:
                watch.backend = None
                logger.warning("a subscription at %s was lost: %s", backend.name, type(error).__name__)
            else:
                changed(uri)

    async def aclose(self) -> None:
        """Follow no server any more."""
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
