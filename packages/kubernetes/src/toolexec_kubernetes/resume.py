"""The streams of a container whose connections come and go: after a restart of the API server, or of what lies between.

The other end is in the pod (see `link`): it keeps what the program says until we have it, and the program waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Final

from toolexec.sandbox import Exit
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.link import Link
from toolexec_kubernetes.stream import ChannelStream

logger: logging.Logger = logging.getLogger(__name__)
_BEAT: Final = 15.0
_PIECE: Final = 48_000
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_LAST: Final = 0.5
_MOST: Final = 8 << 20
_MOST_KEPT: Final = 256 << 20
"""How much is kept for a pod that has not said to have it: as much as waits for any guest."""


class ResumedStream:
    """The `Stream` of a container, over one connection after the other.

    *channel* is the first, and *reopen* makes another one (raises KubeError); it is tried for *patience* seconds, and
    until the container is *gone*. *ended* is awaited at the end, with why it was lost ("" for an ordinary end): the
    reader learns of the end only after it.
    """

    def __init__(
        self,
        channel: ChannelStream,
        reopen: Callable[[], Awaitable[ChannelStream]],
        ended: Callable[[str], Awaitable[None]],
        gone: asyncio.Future[Exit],
        patience: float,
    ) -> None:
        self._channel = channel
        self._reopen = reopen
        self._ended = ended
        self._gone = gone
        self._patience = patience
        self._link = Link()
        self._turn = asyncio.Lock()
        self._answers = bytearray()
        self._answering: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._broken_since = 0.0
        self._pause = 0.0
        self._over = False
        self._words = ""
        self.resumed = 0
        """How often another connection took over."""

    async def begin(self) -> None:
        """Greet the other end, which is silent before."""
        self._beating = asyncio.create_task(self._beat())
        await self._send(self._link.hello())

    async def read(self) -> bytes:
        """Implement `Stream.read`."""
        while not self._over:
            if self._link.ended is not None:
                await self._finish("")
                break
            channel = self._channel
            data = await channel.read()
            if not data:
                await self._resume(channel)
                continue
            known = self._link.frames
            brought, answer = self._link.take(data)
            if self._link.frames > known:
                self._broken_since = self._pause = 0.0
            if answer:
                self._answer(answer)
            if brought:
                return brought
        return b""

    async def write(self, data: bytes) -> None:
        """Implement `Stream.write`."""
        for start in range(0, len(data), _PIECE):
            if self._link.waiting > _MOST_KEPT and not self._over:
                await self._finish("it does not say that it has what it was sent")
            await self._send(self._link.send(data[start : start + _PIECE]))

    async def close_input(self) -> None:
        """Close stdin of the container: a guest then ends by itself. Does not raise."""
        if not self._over:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_LAST):
                    await self._channel.write(self._link.end())

    async def aclose(self) -> None:
        """Implement `Stream.aclose`."""
        self._over = True
        tasks = {task for task in (self._answering, self._beating) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._channel.aclose()

    def said(self) -> str:
        """Return the end of what came on stderr."""
        return self._channel.said() or self._words

    async def _send(self, frames: bytes) -> None:
        """Send *frames*, over another connection when this one breaks: what was kept then goes again."""
        if self._over:
            raise BrokenPipeError("the container takes no more input")
        channel = self._channel
        try:
            await channel.write(frames)
        except OSError:
            await self._resume(channel)
            if self._over:
                raise

    def _answer(self, frames: bytes) -> None:
        """Send *frames* soon: a reader that waited for that might wait for itself."""
        if len(self._answers) < _MOST:  # who asks for more asks again
            self._answers += frames
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._send_answers())

    async def _send_answers(self) -> None:
        while self._answers:
            frames = bytes(self._answers)
            self._answers.clear()
            with suppress(OSError):  # the reader finds out, too
                for frame in frames.split(b"\n"):  # each whole, as the writer sends others meanwhile
                    await self._channel.write(frame + b"\n")

    async def _beat(self) -> None:
        """Show the pod that we are there, and ask for what may have been lost."""
        while True:
            await asyncio.sleep(_BEAT)
            self._answer(self._link.hello())

    async def _resume(self, broken: ChannelStream) -> None:
        """Have another connection in the place of *broken*, or the end."""
        async with self._turn:
            if self._channel is not broken or self._over:
                return
            self._broken_since = self._broken_since or monotonic()
            why = broken.why or "it was closed"
            self._words = broken.said() or self._words
            await broken.aclose()
            while not self._gone.done() and monotonic() - self._broken_since < self._patience:
                if self._pause:
                    await asyncio.wait({self._gone}, timeout=self._pause)
                self._pause = min(max(2 * self._pause, _PAUSE), _LONGEST_PAUSE)
                fresh = None if self._gone.done() else await self._try()
                if isinstance(fresh, ChannelStream):
                    self._channel = fresh
                    self.resumed += 1
                    return
                why = fresh or why
            await self._finish(why)

    async def _try(self) -> ChannelStream | str:
        """Return another connection, or why there is none; none is wanted once the container is gone."""
        opening = asyncio.ensure_future(self._reopen())
        try:
            await asyncio.wait({opening, self._gone}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return ""
            fresh = opening.result()
            await fresh.write(self._link.hello())
        except (KubeError, OSError, TimeoutError) as error:
            return str(error) or type(error).__name__
        else:
            logger.info("the streams of a pod were connected again")
            return fresh
        finally:
            if not opening.done():
                opening.cancel()
                await asyncio.wait({opening})

    async def _finish(self, why: str) -> None:
        """Be over; the other end ends when it receives that we have it all."""
        self._over = True
        if self._answering is not None:
            await asyncio.wait({self._answering}, timeout=_LAST)
        await self._ended(why)
