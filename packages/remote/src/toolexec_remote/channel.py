"""One run as the caller sees it: messages in order and without loss, whatever connections come and go."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from toolexec.errors import ConnectionClosedError, ProtocolError, SandboxFailedError, ToolExecError
from toolexec.remote import MAX_FRAME_BYTES, JSONObject
from toolexec_remote.messages import Link, RemoteMessage

__all__ = ["Channel", "NeverStartedError", "began_after_all"]

logger: logging.Logger = logging.getLogger(__name__)
_MAX_KEPT: Final = 8 << 20
"""How many bytes of answers may be unacknowledged before the sender of more has to wait."""
_MAX_WAITING: Final = 64 << 20
"""How many bytes of frames may wait to be read: a server that sends more is not one of ours."""

Kind: TypeAlias = Literal["execute", "open"]


class NeverStartedError(Exception):
    """The program certainly did not start, for the reason that is its `error`; another endpoint may take it.

    `final` is true when no endpoint would take it, and `moves` when another one has room for it.
    """

    def __init__(self, error: ToolExecError, *, final: bool = False, moves: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.final = final
        self.moves = moves


class Channel:
    """The caller's end of a run, or of a session; it is the `Connection` over which calls come.

    *post* sends a message if there is a connection, and does nothing otherwise.
    """

    def __init__(self, run: str, post: Callable[[RemoteMessage], None]) -> None:
        self.run = run
        self.went: bool = False
        """Whether the word to start it has left: from then on it may run."""
        self.was_started: bool = False
        """Whether the server has said that it starts the run: only its sandbox may refuse it then."""
        self.began: bool = False
        """Whether the program has shown that it runs, by a call or by output: it cannot have been refused."""
        self.is_over_there: bool = False
        """Whether the server has said that it is over."""
        self.held: bool = False
        """Whether nothing is sent, as it is not known yet what has arrived over the former connection."""
        self.ready: asyncio.Event = asyncio.Event()
        """Is set when the server has room for it."""
        self.moves: bool = False
        """Whether it should wait no longer here, as another endpoint has room."""
        self.opened: asyncio.Event = asyncio.Event()
        """Is set when a session is there."""
        self.ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """The response. Raises NeverStartedError, and SandboxFailedError for one that was lost."""
        self._link = Link(run)
        self._post_now = post
        self._frames: deque[bytes] = deque()
        self._waiting = 0
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()

    # -- what goes out ------------------------------------------------------------------------------------------

    def begin(self, kind: Kind, fields: JSONObject, body: bytes, *, go: bool) -> None:
        """Ask for the run; with *go* it may start at once."""
        self.went = self.went or go
        self._post(self._link.send(kind, {**fields, "go": go}, body))

    def go(self, seconds: float) -> None:
        """Have it start, with so many seconds left of its time."""
        self.went = True
        self._post(self._link.send("go", {"seconds": seconds}))

    def stop(self, kind: Literal["cancel", "close"] = "cancel") -> None:
        """Have it stopped, whatever it does, or the session closed."""
        self._post(self._link.send(kind))

    async def send(self, frame: bytes) -> None:
        """Send a frame; see `Connection.send`."""
        if len(frame) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {len(frame)} bytes is over the limit of {MAX_FRAME_BYTES}")
        while self._link.kept_bytes > _MAX_KEPT and not self.ended.done():
            self._moved.clear()
            await self._moved.wait()
        if self.ended.done():
            raise ConnectionClosedError("the run is over")
        self._post(self._link.send("frame", None, frame))

    def _post(self, message: RemoteMessage) -> None:
        if not self.held:  # else it is among those that are sent again
            self._post_now(message)

    def again(self) -> list[RemoteMessage]:
        """Return what the other side has not acknowledged, for a new connection."""
        return self._link.again()

    @property
    def resume(self) -> RemoteMessage:
        """The question after a new connection: what is the matter with this run?"""
        return RemoteMessage("resume", self.run, ack=self._link.received)

    @property
    def last_word(self) -> RemoteMessage:
        """The acknowledgement of all that came."""
        return self._link.ack()

    # -- what comes in ------------------------------------------------------------------------------------------

    def take(self, message: RemoteMessage) -> None:
        """Take what the server says of this run. Raises ProtocolError for what cannot be."""
        new = self._link.receive(message)
        self._moved.set()
        if not new:
            return
        if self._link.ack_is_due:
            self._post(self._link.ack())
        match message.type:
            case "started":
                self.was_started = True
            case "frame":
                self.was_started = self.began = True
                self._take_frame(message.body)
            case "ready":
                self.ready.set()
            case "opened":
                self.opened.set()
            case "result" | "refused":
                self._finish(message)
            case _:
                return

    def lose(self, error: Exception) -> None:
        """Give it up: there will be no more messages."""
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # a caller that waits gets it; there may be none any more
        self._wake()

    async def receive(self) -> bytes:
        """Return the next frame; see `Connection.receive`."""
        while not self._frames:
            if self.ended.done():
                raise ConnectionClosedError("the run is over")
            self._changed.clear()
            await self._changed.wait()
        frame = self._frames.popleft()
        self._waiting -= len(frame)
        return frame

    async def aclose(self) -> None:
        """Do nothing: the run ends by itself."""

    def _take_frame(self, frame: bytes) -> None:
        self._waiting += len(frame)
        if self._waiting > _MAX_WAITING:
            raise ProtocolError(f"over {_MAX_WAITING} bytes of frames wait to be read")
        self._frames.append(frame)
        self._changed.set()

    def _finish(self, message: RemoteMessage) -> None:
        self.is_over_there = True
        if self.ended.done():
            return
        if message.type == "refused":
            refusal = _refusal(message.body)
            self.ended.set_exception(began_after_all(refusal.error) if self.began else refusal)
            self.ended.exception()
        else:
            self.ended.set_result(message.body)
        self._wake()

    def _wake(self) -> None:
        self.ready.set()
        self.opened.set()
        self._changed.set()
        self._moved.set()


def began_after_all(error: ToolExecError) -> SandboxFailedError:
    """Return what a failure means that says that a program was not started, when it has shown that it was."""
    return SandboxFailedError(
        f"the remote runtime says that the program was not started, but it was ({error.message}); it is not run again, "
        "as it may have done some of its work",
        details={"began": True},
    )


def _refusal(body: bytes) -> NeverStartedError:
    from toolexec_remote.wire import read_response

    try:
        read_response(body)
    except ToolExecError as error:
        return NeverStartedError(error, final=not error.retryable)
    return NeverStartedError(SandboxFailedError("the remote runtime refused the run and gave no reason"), final=True)
