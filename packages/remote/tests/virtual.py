"""An event loop whose clock is a number, and WebSockets between two sides of one process over a network that fails."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

from aiohttp import WSMessage, WSMsgType


class _NoSelector(selectors.BaseSelector):
    """Waits for no file; a wait only moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits, and no timer is set: this would wait forever")
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """Waits no time: when nothing else is to be done, its clock is at the next timer."""

    def __init__(self) -> None:
        self._virtual = _NoSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the time of this loop."""
        return self._virtual.now

    def _write_to_self(self) -> None:
        """Do nothing: all is in one thread."""


class Faults:
    """How often the network does what to a message; each is a probability. `silence` is after how long each side
    notices that the other one is away."""

    def __init__(self, dice: random.Random, worst: float) -> None:
        self.dice = dice
        self.lost = dice.random() * worst
        self.doubled = dice.random() * worst
        self.reordered = dice.random() * worst
        self.delay = dice.choice([0.0, 0.01, 0.2])
        self.silence = 0.5

    def is_up_to(self, share: float) -> bool:
        """Return whether what happens with this probability happens now."""
        return self.dice.random() < share


class End:
    """One side of a connection, with the methods that both libraries' WebSockets have here."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._came: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self.other: End
        self.closed = False
        self.close_code = 1006

    async def send_bytes(self, data: bytes) -> None:
        if self.closed:
            raise ConnectionResetError("the connection is closed")
        self._line.carry(data, self.other)

    async def receive(self) -> WSMessage:
        while not self._came:
            if self.closed:
                return WSMessage(WSMsgType.CLOSED, None, None)
            self._changed.clear()
            await self._changed.wait()
        return WSMessage(WSMsgType.BINARY, self._came.popleft(), None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WSMessage:
        message = await self.receive()
        if message.type is not WSMsgType.BINARY:
            raise StopAsyncIteration
        return message

    async def close(self, *, code: int = 1000, message: bytes = b"") -> None:
        if not self.closed:
            self.end(code)
            self._line.later(lambda: self.other.end(code))

    def take(self, data: bytes) -> None:
        if not self.closed:
            self._came.append(data)
            self._changed.set()

    def end(self, code: int = 1006) -> None:
        """Be cut: nothing comes any more, but what has come can be read."""
        if not self.closed:
            self.closed, self.close_code = True, code
            self._changed.set()

    def exception(self) -> None:
        """Return no failure."""

    def get_extra_info(self, name: str) -> None:
        """Return nothing: there is no socket."""


class Line:
    """A connection: two ends, and what the network does in between."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._free = [0.0, 0.0]
        self.is_silent = False
        self.client, self.server = End(self), End(self)
        self.client.other, self.server.other = self.server, self.client

    def carry(self, data: bytes, to: End) -> None:
        """Bring a message to its end, or do to it what networks do."""
        faults = self._faults
        if self.is_silent or faults.is_up_to(faults.lost):
            self.go_silent()
            return
        for _ in range(2 if faults.is_up_to(faults.doubled) else 1):
            side = 0 if to is self.server else 1
            when = self._loop.time() + faults.delay * faults.dice.random()
            if not faults.is_up_to(faults.reordered):
                when = self._free[side] = max(when, self._free[side] + 1e-6)
            self._loop.call_at(when, to.take, data)

    def go_silent(self) -> None:
        """Lose all from now on; both sides notice that later, each at a time of its own."""
        self.is_silent = True
        for end in (self.client, self.server):
            self._loop.call_later(self._faults.silence * (0.2 + self._faults.dice.random()), end.end)

    def cut(self) -> None:
        """End it at once, with what is on its way."""
        self.is_silent = True
        self.client.end()
        self.server.end()

    def later(self, work: Any) -> None:
        """Do something after a delay of the network."""
        if self.is_silent:
            self.go_silent()
        else:
            self._loop.call_later(self._faults.delay * self._faults.dice.random(), work)
