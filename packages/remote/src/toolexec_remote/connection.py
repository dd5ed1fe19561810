"""The connection to one remote runtime: many runs over one WebSocket, which is opened again when it is lost."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from socket import SHUT_RDWR
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from toolexec.errors import (
    ProtocolError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.remote import JSONObject, JSONValue, pauses, to_the_end, uncut
from toolexec.sandbox import LimitsEnforced
from toolexec_remote.channel import Channel, Kind, NeverStartedError
from toolexec_remote.messages import SUBPROTOCOL, VERSION, RemoteMessage, decode_remote, encode_remote
from toolexec_remote.wire import read_response

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Dial", "EndpointConnection", "RemoteSandbox", "Welcome", "read_welcome", "refusal_of"]

logger: logging.Logger = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_MAX_REASON: Final = 500
_BYE_SECONDS: Final = 1.0
_MAX_PARTING: Final = 10_000

Dial = Callable[[str], Coroutine[Any, Any, "aiohttp.ClientWebSocketResponse"]]
"""Opens a WebSocket to an endpoint; raises OSError, TimeoutError and ToolExecError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSandbox:
    """A sandbox that a remote runtime says it has, with the limits that it enforces in each language; see
    `claims_interrupt` for `interrupts`."""

    kind: str
    isolation: str
    languages: frozenset[str] = frozenset()
    enforces: Mapping[str, LimitsEnforced] = field(default_factory=dict[str, LimitsEnforced])
    interrupts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """What a remote runtime says of itself when a connection begins. `journal` names the record of its runs, and
    `keeps` is for how many seconds a run outlives its connection."""

    server: str = ""
    journal: str = ""
    keeps: float = 0.0
    max_body: int = 0
    sandboxes: tuple[RemoteSandbox, ...] = ()

    def sandbox(self, kind: str) -> RemoteSandbox | None:
        """Return the sandbox of this kind."""
        return next((sandbox for sandbox in self.sandboxes if sandbox.kind == kind), None)


class EndpointConnection:
    """Keeps a connection to one endpoint, from the first use to `aclose`, and carries runs over it.

    Belongs to one event loop. After a loss the runs that may have started are kept for *reconnect* seconds; those that
    certainly have not raise NeverStartedError at once.
    """

    def __init__(
        self, endpoint: str, dial: Dial, *, reconnect: float = 30.0, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.endpoint = endpoint
        self.welcome = Welcome()
        self.up: bool = False
        self.problem: ToolExecError | None = None
        """Why the last attempt to connect failed."""
        self.capacity: JSONObject = {}
        self._dial = dial
        self._reconnect = reconnect
        self._on_change = on_change
        self._channels: dict[str, Channel] = {}
        self._recent: set[str] = set()
        self._parting: dict[str, Channel] = {}
        self.waiting: dict[str, Channel] = {}
        """The runs that wait for room on the other side, in the order in which they came."""
        self._outbox: deque[RemoteMessage] = deque()
        self._filled = asyncio.Event()
        self._known = asyncio.Event()
        self._giving_up: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._closed = False

    # -- what is known of it --------------------------------------------------------------------------------------

    @property
    def open_runs(self) -> int:
        """How many runs and sessions of this side are on it."""
        return len(self._channels)

    @property
    def free(self) -> int:
        """How many more programs it could start at once, by its last report."""
        return _number(self.capacity, "free") - len(self._recent) if self.up else 0

    @property
    def load(self) -> float:
        """How busy it is: below 1 there is room; each run that waits adds to it."""
        most = max(1, _number(self.capacity, "max_running"))
        there = _number(self.capacity, "running") + _number(self.capacity, "queued") + len(self._recent)
        return max(there, self.open_runs) / most

    @property
    def is_draining(self) -> bool:
        """Whether it takes no more programs."""
        return self.capacity.get("draining") is True

    async def known(self, seconds: float) -> bool:
        """Return whether it is up, once that is known, or when so many seconds have passed."""
        self.start()
        if not self.up:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, seconds)):
                    await self._known.wait()
        return self.up

    # -- runs -----------------------------------------------------------------------------------------------------

    def open(self, run: str, kind: Kind, fields: JSONObject, body: bytes, *, go: bool) -> Channel:
        """Ask for a run, or a session. Raises NeverStartedError when there is no connection."""
        if not self.up:
            raise self._never("there is no connection")
        channel = Channel(run, self._post)
        self._channels[run] = channel
        self._recent.add(run)
        channel.begin(kind, fields, body, go=go)
        return channel

    def leave(self, channel: Channel, how: Literal["cancel", "close"] = "cancel") -> None:
        """Forget a run that is over, or was given up: then it is stopped. Twice is fine."""
        if self._channels.pop(channel.run, None) is None:
            return
        self._recent.discard(channel.run)
        if channel.is_over_there:
            self._post(channel.last_word)
            return
        channel.stop(how)
        self._parting[channel.run] = channel  # until the server has said that it is over
        while len(self._parting) > _MAX_PARTING:
            del self._parting[next(iter(self._parting))]

    async def aclose(self) -> None:
        """Close the connection; runs that are still on it are lost."""
        self._closed = True
        self._call_off()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        self._drop("the connection to the remote runtime was closed")

    def _never(self, why: str) -> NeverStartedError:
        message = f"the remote runtime {self.endpoint} cannot be used: {self.problem or why}"
        return NeverStartedError(SandboxUnavailableError(message, retryable=True))

    # -- the connection ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect, unless it has begun."""
        if self._keeping is None and not self._closed:
            self._keeping = asyncio.create_task(self._stay_connected())

    async def _stay_connected(self) -> None:
        """Connect, and connect again after each loss."""
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE, spread=True)
        while True:
            began = monotonic()
            try:
                await self._connect_once()
            except ToolExecError as error:
                self.problem = error
            except (OSError, TimeoutError) as error:
                self.problem = SandboxUnavailableError(_reason(error), retryable=True)
            except Exception as error:
                logger.exception("the connection to %s failed", self.endpoint)
                self.problem = SandboxUnavailableError(_reason(error), retryable=True)
            self._lose()
            self._on_change()
            if monotonic() - began > _LONGEST_PAUSE:
                waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE, spread=True)
            self._known.set()
            await asyncio.sleep(next(waits))

    async def _connect_once(self) -> None:
        """Connect and talk until the connection is lost; raises why."""
        socket = await uncut(self._dial(self.endpoint), undo=_part, seconds=_BYE_SECONDS)
        raw = socket.get_extra_info("socket")  # later it may not say
        sender: asyncio.Task[None] | None = None
        try:
            self._greet(await self._first(socket))
            sender = asyncio.create_task(self._send(socket))
            while True:
                message = await socket.receive()
                if not isinstance(message.data, bytes):
                    raise SandboxUnavailableError(_ending(socket, message), retryable=True)
                self._take(decode_remote(message.data))
        finally:
            self.up = False
            if sender is not None:
                sender.cancel()
            # to the end: a cancellation that comes now, too, must not leave the connection open
            await to_the_end(asyncio.create_task(_part(socket, raw, sender)))

    async def _first(self, socket: aiohttp.ClientWebSocketResponse) -> RemoteMessage:
        message = await socket.receive()
        if not isinstance(message.data, bytes):
            raise SandboxUnavailableError(_ending(socket, message), retryable=True)
        return decode_remote(message.data)

    def _greet(self, message: RemoteMessage) -> None:
        """Take the welcome, and ask what has become of the runs that are open."""
        fields = message.fields
        spoken = fields.get("protocol"), fields.get("version")
        if message.type != "welcome" or spoken != (SUBPROTOCOL, VERSION):
            raise ProtocolError(f"{self.endpoint} speaks {spoken!r}, not {SUBPROTOCOL} {VERSION}")
        found = read_welcome(fields)
        if self.welcome.journal and found.journal != self.welcome.journal:
            self._drop(f"another server answers at {self.endpoint}, which has no record of the run")
        self.welcome = found
        self.capacity = _object(fields.get("capacity"))
        self._recent.clear()
        self._call_off()
        self.up, self.problem = True, None
        self._outbox.clear()
        for channel in (*self._channels.values(), *self._parting.values()):
            channel.held = True
            self._outbox.append(channel.resume)
        self._filled.set()
        self._known.set()
        self._on_change()

    async def _send(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Send what is put into the outbox, in order."""
        while True:
            while self._outbox:
                try:
                    await socket.send_bytes(encode_remote(self._outbox.popleft()))
                except (OSError, RuntimeError):  # the reader notices, too
                    return
            self._filled.clear()
            await self._filled.wait()

    def _post(self, message: RemoteMessage) -> None:
        if self.up:
            self._outbox.append(message)
            self._filled.set()

    def _lose(self) -> None:
        """Take note that there is no connection: what certainly has not started need not wait for another one."""
        self.up = False
        self._outbox.clear()
        self._known.clear()
        if self._giving_up is None and not self._closed:
            self._giving_up = asyncio.get_running_loop().call_later(self._reconnect, self._give_up)
        for channel in [*self._channels.values()]:
            if not channel.went:
                channel.lose(self._never("the connection was lost before the program was started"))

    def _give_up(self) -> None:
        self._giving_up = None
        self._drop(f"the connection to {self.endpoint} was lost for {self._reconnect:g} s ({self.problem})")

    def _call_off(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _drop(self, why: str) -> None:
        """Give up all that is open."""
        self._parting.clear()
        for channel in [*self._channels.values()]:
            channel.lose(self._lost(why) if channel.went else self._never(why))

    def _lost(self, why: str) -> SandboxFailedError:
        return SandboxFailedError(
            f"{why}; the program is not run again, as it may have done some of its work",
            details={"began": True, "endpoint": self.endpoint},
        )

    # -- what comes in ------------------------------------------------------------------------------------------------

    def _take(self, message: RemoteMessage) -> None:
        if not message.run:
            if message.type == "capacity":
                self.capacity = message.fields
                self._recent.clear()
                self._on_change()
            return
        channel = self._channels.get(message.run) or self._parting.get(message.run)
        if channel is None:
            if message.seq and message.type in ("result", "refused", "opened"):  # it was given up meanwhile
                self._post(RemoteMessage("ack", message.run, ack=message.seq))
            return
        if message.type == "gone":
            self._gone(channel, message)
            return
        channel.take(message)
        if channel.held:
            channel.held = False
            if not channel.is_over_there:
                self._outbox.extend(channel.again())
                self._filled.set()
        if channel.is_over_there and self._parting.pop(message.run, None):
            self._post(channel.last_word)

    def _gone(self, channel: Channel, message: RemoteMessage) -> None:
        """The server has no such run any more; its journal says what became of it."""
        self._parting.pop(channel.run, None)
        channel.is_over_there = True
        if message.fields.get("state") == "never_started" and not channel.was_started:
            channel.lose(self._never("the server was restarted before the program had started"))
            return
        channel.lose(self._lost(f"the server at {self.endpoint} was restarted while the program ran"))


async def _part(
    socket: aiohttp.ClientWebSocketResponse, raw: Any = None, sender: asyncio.Task[None] | None = None
) -> None:
    """Close a connection, once its *sender* has ended; *raw* is its socket."""
    if sender is not None:
        await asyncio.wait({sender})
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_BYE_SECONDS):
            await socket.close()
    if raw is not None:  # TLS would wait half a minute for a machine that has vanished to say goodbye
        with suppress(OSError):
            raw.shutdown(SHUT_RDWR)


def read_welcome(fields: JSONObject) -> Welcome:
    """Return what a server says of itself; what makes no sense counts as absent."""
    limits, keeps = _object(fields.get("limits")), fields.get("keeps")
    listed = fields.get("backends")
    found = (_read_sandbox(_object(item)) for item in (listed if isinstance(listed, list) else ()))
    return Welcome(
        server=_text(fields.get("server")),
        journal=_text(fields.get("journal")),
        keeps=float(keeps) if isinstance(keeps, int | float) else 0.0,
        max_body=_number(limits, "body_bytes"),
        sandboxes=tuple(sandbox for sandbox in found if sandbox.kind),
    )


def _read_sandbox(data: JSONObject) -> RemoteSandbox:
    languages, enforces = data.get("languages"), _object(data.get("enforces"))
    names = [name for name in (languages if isinstance(languages, list) else ()) if isinstance(name, str)]
    return RemoteSandbox(
        kind=_text(data.get("kind")),
        isolation=_text(data.get("isolation")),
        languages=frozenset(names[:100]),
        enforces={language: _read_enforced(_object(held)) for language, held in enforces.items()},
        interrupts=data.get("interrupts") is True,
    )


def _read_enforced(data: JSONObject) -> LimitsEnforced:
    names = LimitsEnforced().to_dict()
    return LimitsEnforced(**{name: data.get(name) is True for name in names})


def refusal_of(status: int, body: bytes) -> ToolExecError:
    """Return why a server did not let us in, from its HTTP response."""
    try:
        read_response(body)
    except ToolExecError as error:
        if isinstance(_object(_decoded(body)).get("error"), dict):
            error.retryable = error.retryable or status in (429, 502, 503, 504)
            return error
    text = body[:_MAX_REASON].decode("utf-8", "replace").strip()
    message = f"the remote runtime answered with status {status}: {text or 'no reason'}"
    if status in (401, 403):
        return SandboxDeniedError(message)
    return SandboxUnavailableError(message, retryable=status in (429, 502, 503, 504))


def _decoded(body: bytes) -> JSONValue:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _ending(socket: aiohttp.ClientWebSocketResponse, message: aiohttp.WSMessage) -> str:
    failure = socket.exception()
    if failure is not None:
        return f"the connection was lost: {_reason(failure)}"
    said = str(message.extra or "")[:_MAX_REASON]
    return f"the server closed the connection (code {socket.close_code}){f': {said}' if said else ''}"


def _reason(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:_MAX_REASON]


def _object(value: JSONValue) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}


def _number(data: JSONObject, name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _text(value: JSONValue) -> str:
    return value if isinstance(value, str) else ""
