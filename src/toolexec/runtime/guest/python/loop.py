"""An event loop for a guest without sockets, pipes and threads: it waits in the host."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .channel import Channel


class GuestLoop(asyncio.BaseEventLoop):
    """asyncio's own loop on top of a channel: when nothing is ready it waits for answers of the host, or sleeps."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._selector = _Waiting(channel)

    def _process_events(self, event_list: Any) -> None:
        pass  # the channel's listeners have received the answers already

    def _write_to_self(self) -> None:
        pass  # there is no other thread that could wake this loop

    def may_block(self) -> bool:
        """Return whether nothing is ready to run and nothing is due at some time."""
        return not self._ready and not self._scheduled  # type: ignore[attr-defined]

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Call *func* at once: there are no threads."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def create_task(self, coro: Any, **kwargs: Any) -> Any:
        """Return a task, also of an awaitable that is not a coroutine, such as the result of a tool call."""
        return super().create_task(as_coroutine(coro), **kwargs)


class _Waiting:
    """What asyncio takes for a selector."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout <= 0:
            return ()
        if timeout is None:
            if self._channel.wait(None) < 0:
                raise RuntimeError("the program waits for something that nothing can bring about")
            return ()
        ends = time.monotonic() + timeout
        if self._channel.wait(timeout) <= 0:
            # A clock that the host has fixed did not go on while the host waited; a sleep is what makes it.
            time.sleep(max(ends - time.monotonic(), 0.0))
        return ()

    def close(self) -> None:
        pass


def as_coroutine(awaitable: Any) -> Any:
    """Return *awaitable* if it is a coroutine, else one that awaits it."""
    return awaitable if asyncio.iscoroutine(awaitable) else _await(awaitable)


async def _await(awaitable: Any) -> Any:
    return await awaitable
