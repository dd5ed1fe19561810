"""One run as the caller sees it: messages in order and without loss, whatever connections come and go."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolexec.errors import (
    ConnectionClosedError,
    ProtocolError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.remote import MAX_FRAME_BYTES, JSONObject
from toolexec_remote.incarnation import ENDED, is_stated
from toolexec_remote.messages import Link, RemoteMessage
from toolexec_remote.start import Begun, Released, StartState, Withheld

logger: logging.Logger = logging.getLogger(__name__)
_MAX_KEPT: Final = 8 << 20
"""How many bytes of answers may be unacknowledged before the sender of more has to wait."""
_MAX_WAITING: Final = 64 << 20
"""How many bytes of frames may wait to be read: a server that sends more is not one of ours."""

Clock: TypeAlias = Callable[[], float]
"""A clock that is never set, in seconds."""
Kind: TypeAlias = Literal["execute", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a run is bound to: one server process, which `remembers` it for so many seconds, asked with the key of this
    ID."""

    incarnation: str
    key: str
    remembers: float


class Channel:
    """The caller's end of a run, or of a session; it is the `Connection` over which calls come.

    *post* sends a message if there is a connection, and does nothing otherwise. `state` is what is known of its start.
    A session starts no program, so its own state stays what it was. It is `bound` to one server process.
    """

    def __init__(
        self, run: str, post: Callable[[RemoteMessage], None], bound: Bound, *, kind: Kind = "execute", clock: Clock
    ) -> None:
        self.run = run
        self.bound = bound
        self.state: StartState = Withheld(run)
        self.is_session = kind == "open"
        self._kind: Kind = kind
        self._clock = clock
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

    def begin(self, fields: JSONObject, body: bytes, *, go: bool) -> None:
        """Ask for it; with *go* it may start at once."""
        if go and not self.is_session:
            self._let_go()
        self._post(self._link.send(self._kind, {**fields, "go": go}, body))

    def go(self, seconds: float) -> None:
        """Have it start, with so many seconds left of its time."""
        self._let_go()
        self._post(self._link.send("go", {"seconds": seconds}))

    def _let_go(self) -> None:
        if isinstance(self.state, Withheld):
            to = self.bound
            self.state = self.state.release(to.incarnation, to.key, at=self._clock(), remembers=to.remembers)

    @property
    def went(self) -> bool:
        """Whether the word to start it has left: from then on it may run."""
        return not isinstance(self.state, Withheld)

    @property
    def stays(self) -> bool:
        """Whether it outlives its connection: what certainly has not started need not wait for the next one."""
        return self.went or self.is_session

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
        fields = {"incarnation": self.bound.incarnation}
        return RemoteMessage("resume", self.run, fields, ack=self._link.received)

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
                self._begin()
            case "frame":
                if self._begin():
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

    def _begin(self) -> bool:
        """Note that the program has shown that it runs; return whether it may."""
        state = self.state
        match state:
            case Released():
                self.state = state.begin()
            case Withheld():
                self.lose(SandboxFailedError("the remote runtime runs a program that it had no leave to start"))
                return False
            case Begun():
                pass
        return True

    def gone(self, state: object, proof: object, why: ToolExecError) -> None:
        """Take the word that the server has no such run: it never started, if that is proven, else it is lost."""
        self.is_over_there = True
        self.lose(self._refusal(proof if state == "never_started" else None, why))

    def _refusal(self, proof: object, why: ToolExecError, *, final: bool = False) -> Exception:
        """Return what a server means that says that the run never started."""
        state = self.state
        match state:
            case Withheld():
                return state.never(why, final=final)
            case Released():
                return state.never(proof, why, now=self._clock(), final=final)
            case Begun():
                return began_after_all(why)

    def lost(self, why: str) -> Exception:
        """Return what it means that there will be no more word of the run."""
        if isinstance(self.state, Withheld):
            return self.state.never(SandboxUnavailableError(why, retryable=True))
        return self.state.lost(why)

    def _finish(self, message: RemoteMessage) -> None:
        self.is_over_there = True
        if self.ended.done():
            return
        if message.type == "refused":
            error = _error(message.body)
            self.lose(self._refusal(message.fields.get("proof"), error, final=not error.retryable))
        elif self.is_session or self._begin():
            self.ended.set_result(message.body)
        self._wake()

    def recalled(self, message: RemoteMessage, by: str) -> None:
        """Take the result that *by* has of this run, which another incarnation has run and signed."""
        digest = hashlib.sha256(message.body).hexdigest()
        if isinstance(self.state, Withheld) or not is_stated(
            self.bound.incarnation, message.fields.get("statement"), ENDED, self.run, digest
        ):
            why = f"the server process {by[:12]} has a result that {self.bound.incarnation[:12]} has not signed"
            self.is_over_there = True
            self.lose(self.lost(why))
            return
        self._finish(message)

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


def _error(body: bytes) -> ToolExecError:
    from toolexec_remote.wire import read_response

    try:
        read_response(body)
    except ToolExecError as error:
        return error
    return SandboxFailedError("the remote runtime refused the run and gave no reason")
