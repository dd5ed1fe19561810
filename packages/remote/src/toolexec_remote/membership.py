"""One connection to each endpoint that there is, and to former ones for as long as they have runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from toolexec_remote.connection import EndpointConnection
from toolexec_remote.discovery import Discovery
from toolexec_remote.sources import Member

_LINGER_SECONDS: Final = 10.0
"""How long an idle connection outlives its place among the endpoints, which may come back."""


class Membership:
    """Follows *discovery*: *connect* makes a connection to an endpoint, and *on_change* is called when the endpoints
    are others. Belongs to one event loop.

    Where there are several processes behind the port of an endpoint, its own connection leads to one of them, and each
    of the others is an endpoint, too.

    An endpoint that is not found any more gets no new runs, and keeps those it has. Its connection is closed once it
    has none; after a while, so that answers that come and go cost nothing.
    """

    def __init__(
        self, discovery: Discovery, connect: Callable[[str], EndpointConnection], on_change: Callable[[], None]
    ) -> None:
        self.discovery = discovery
        self._connect = connect
        self._on_change = on_change
        self._members: dict[str, Member] = {member.endpoint: member for member in discovery.members}
        self._known = self._members
        self._processes: dict[str, tuple[int, int]] = {}
        self._left: dict[str, float] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.connections: tuple[EndpointConnection, ...] = tuple(map(connect, self._members))
        """Those to the endpoints, and those to former ones that still have runs."""
        discovery.on_look = self._follow

    async def use(self, seconds: float) -> None:
        """Have those connect that are found within so many seconds, or when the first one is found."""
        await self.discovery.use(seconds)
        for each in self.current():
            each.start()

    def meet(self, processes: int, each: EndpointConnection) -> None:
        """Note which process an endpoint leads to, of so many behind its port."""
        if not self.member(each.endpoint).process and (each.process, processes) != self._processes.get(each.endpoint):
            self._processes[each.endpoint] = each.process, processes
            self._follow()

    def _wanted(self) -> dict[str, Member]:
        """Return the endpoints that there are now."""
        wanted: dict[str, Member] = {}
        for member in self.discovery.members:
            wanted[member.endpoint] = member
            own, processes = self._processes.get(member.endpoint, (0, 1))
            others = (member.of(number) for number in range(1, processes + 1) if processes > 1 and number != own)
            wanted.update((other.endpoint, other) for other in others)
        return wanted

    def member(self, endpoint: str) -> Member:
        """Return what is known of an endpoint that there is, or was."""
        return self._known.get(endpoint) or Member(endpoint)

    def has(self, each: EndpointConnection) -> bool:
        """Return whether a server process is among the endpoints, if only by another address."""
        if each.endpoint in self._members:
            return True
        return any(other.twin == each.endpoint for other in self.connections if other.endpoint in self._members)

    def current(self) -> list[EndpointConnection]:
        """Return the connections that may get new runs when they are up."""
        return [each for each in self.connections if self.has(each)]

    async def aclose(self) -> None:
        """Close all connections; runs on them are lost."""
        await self.discovery.aclose()
        closing: list[Awaitable[None]] = [each.aclose() for each in self.connections]
        await asyncio.gather(*closing, *self._closing)

    def _follow(self) -> None:
        """Have a connection to each endpoint that there is now, and none that nothing needs any more."""
        now = asyncio.get_running_loop().time()
        there = {each.endpoint: each for each in self.connections}
        before, self._members = self._members, self._wanted()
        self._known = {**self._known, **self._members}
        listed = [there.pop(endpoint, None) or self._connect(endpoint) for endpoint in self._members]
        self._left = {endpoint: self._left.get(endpoint, now) for endpoint in there}
        self.connections = (*listed, *there.values())
        over = [each for each in there.values() if self._is_over(each, now)]
        self.connections = tuple(each for each in self.connections if each not in over)
        self._known = {each.endpoint: self._known[each.endpoint] for each in self.connections}
        for each in over:
            task = asyncio.create_task(each.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        for each in listed:
            each.start()
        if any(each.open_runs for each in self.connections):
            self.discovery.touch()  # one of them may wait for room
        if self._members != before:
            self._on_change()

    def _is_over(self, each: EndpointConnection, now: float) -> bool:
        """Return whether nothing needs the connection to a former endpoint any more."""
        lingers = each.up and now - self._left[each.endpoint] < _LINGER_SECONDS
        return not each.open_runs and not lingers and not self.has(each)
