"""The connection to one remote runtime: many runs over one WebSocket, which is opened again when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
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
from toolexec_remote.channel import Bound, Channel, Kind
from toolexec_remote.homes import MAX_PROCESSES
from toolexec_remote.incarnation import WELCOME, is_incarnation, is_stated
from toolexec_remote.messages import SUBPROTOCOL, VERSION, RemoteMessage, decode_remote, encode_remote
from toolexec_remote.start import NeverStartedError, Withheld
from toolexec_remote.wire import read_object, read_response

if TYPE_CHECKING:
    import aiohttp

logger: logging.Logger = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_MAX_REASON: Final = 500
_BYE_SECONDS: Final = 1.0
_MAX_PARTING: Final = 10_000

Dial = Callable[[str], Coroutine[Any, Any, "aiohttp.ClientWebSocketResponse"]]
"""Opens a WebSocket to an endpoint; raises OSError, TimeoutError and ToolExecError."""


Hello = Callable[[str, str, str, str], JSONObject]
"""Makes the fields of `hello`, signed: for an endpoint, an incarnation and its nonce, with a nonce of ours."""


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
    """What a remote runtime says of itself when a connection begins. `incarnation` is the server process, `keeps` for
    how many seconds a run outlives its connection, and `remembers` for how many it is known after its end. `process` is
    its number (from 1 on) among the `processes` behind one port; 0 where it is the only one."""

    incarnation: str = ""
    keeps: float = 0.0
    remembers: float = 0.0
    max_body: int = 0
    process: int = 0
    processes: int = 1
    sandboxes: tuple[RemoteSandbox, ...] = ()

    def sandbox(self, kind: str) -> RemoteSandbox | None:
        """Return the sandbox of this kind."""
        return next((sandbox for sandbox in self.sandboxes if sandbox.kind == kind), None)


class EndpointConnection:
    """Keeps a connection to one endpoint, from the first use to `aclose`, and carries runs over it.

    Belongs to one event loop. After a loss the runs that may have started are kept for *reconnect* seconds; those that
    certainly have not raise NeverStartedError at once. A run is bound to the server process that was asked for it; what
    another one says of it, at the same endpoint, counts only where the first one has signed it. *is_ours* returns
    by which other endpoint a server process is connected already ("": by none). *on_welcome* is called with each
    welcome.
    """

    def __init__(
        self,
        endpoint: str,
        dial: Dial,
        hello: Hello,
        *,
        reconnect: float = 30.0,
        on_change: Callable[[], None] = lambda: None,
        is_ours: Callable[[str], str] = lambda _: "",
        on_welcome: Callable[[EndpointConnection], None] = lambda _: None,
    ) -> None:
        self.endpoint = endpoint
        self.process = 0
        """The number of the process that it is with, of several behind one port: each connection asks for that one."""
        self._on_welcome = on_welcome
        self._hello = hello
        self._is_ours = is_ours
        self.welcome = Welcome()
        self.up: bool = False
        self.problem: ToolExecError | None = None
        """Why the last attempt to connect failed."""
        self.twin = ""
        """The endpoint by which the server process that answers here is connected already."""
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
        """Ask for a run, or a session, with a key that the fields name. Raises NeverStartedError when there is no
        connection."""
        if not self.up:
            raise self._never(Withheld(run), "there is no connection")
        bound = Bound(
            incarnation=self.welcome.incarnation, key=_text(fields.get("key")), remembers=self.welcome.remembers
        )
        channel = Channel(run, self._post, bound, kind=kind, clock=monotonic)
        self._channels[run] = channel
        self._recent.add(run)
        channel.begin(fields, body, go=go)
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

    def _never(self, state: Withheld, why: str) -> NeverStartedError:
        message = f"the remote runtime {self.endpoint} cannot be used: {self.problem or why}"
        return state.never(SandboxUnavailableError(message, retryable=True))

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
                self.twin = ""
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
            self._greet(await self._introduced(socket))
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

    async def _introduced(self, socket: aiohttp.ClientWebSocketResponse) -> JSONObject:
        """Answer the challenge, and return the welcome of the server, which has shown that it is who it says it is."""
        challenge = await self._first(socket)
        spoken = challenge.fields.get("protocol"), challenge.fields.get("version")
        if spoken != (SUBPROTOCOL, VERSION):
            raise ProtocolError(
                f"{self.endpoint} speaks {spoken[0]!r} in version {spoken[1]!r}, and this client {SUBPROTOCOL!r} in "
                f"version {VERSION}; update toolexec-remote on the side that is older"
            )
        incarnation, asked = _text(challenge.fields.get("incarnation")), _text(challenge.fields.get("nonce"))
        if challenge.type != "challenge" or not is_incarnation(incarnation):
            raise ProtocolError(f"{self.endpoint} does not say which server process it is")
        self.twin = other = self._is_ours(incarnation)
        if other:
            raise SandboxUnavailableError(
                f"this is the server process that {other} leads to, too; one connection to it is enough",
                details={"incarnation": incarnation, "endpoint": other},
            )
        ours = token_hex(16)
        hello = RemoteMessage("hello", fields=self._hello(self.endpoint, incarnation, asked, ours))
        await socket.send_bytes(encode_remote(hello))
        welcome = await self._first(socket)
        if welcome.type == "denied":
            raise refusal_of(401, welcome.body)
        fields = welcome.fields
        if welcome.type != "welcome" or fields.get("incarnation") != incarnation:
            raise ProtocolError(f"{self.endpoint} answered with {welcome.type}, not with a welcome of its own")
        if not is_stated(incarnation, fields.get("proof"), WELCOME, asked, ours):
            raise SandboxDeniedError(
                f"{self.endpoint} says that it is the server process {incarnation[:12]}, and does not have its key",
                code="identity_unproven",
                details={"incarnation": incarnation},
            )
        return fields

    def _greet(self, fields: JSONObject) -> None:
        """Take the welcome, and ask what has become of the runs that are open."""
        self.welcome = read_welcome(fields)
        self.process = self.welcome.process
        for run in [run for run, each in self._parting.items() if each.bound.incarnation != self.welcome.incarnation]:
            del self._parting[run]
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
        self._on_welcome(self)
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
            if isinstance(channel.state, Withheld) and not channel.is_session:
                channel.lose(self._never(channel.state, "the connection was lost before the program was started"))

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
            channel.lose(self._lost(channel, why))

    def _lost(self, channel: Channel, why: str) -> Exception:
        error = channel.lost(why)
        if isinstance(error, SandboxFailedError):
            error.details["endpoint"] = self.endpoint
        return error

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
        if channel.bound.incarnation != self.welcome.incarnation:
            if message.type == "result":
                self._parting.pop(message.run, None)
                channel.recalled(message, self.welcome.incarnation)
            return  # of this run, no other process has anything else to say
        channel.take(message)
        if channel.held:
            channel.held = False
            if not channel.is_over_there:
                self._outbox.extend(channel.again())
                self._filled.set()
        if channel.is_over_there and self._parting.pop(message.run, None):
            self._post(channel.last_word)

    def _gone(self, channel: Channel, message: RemoteMessage) -> None:
        """The server has no such run any more. That it never started, only the process can show that has the run."""
        self._parting.pop(channel.run, None)
        same = channel.bound.incarnation == self.welcome.incarnation
        if same and message.fields.get("state") == "never_started":
            why = SandboxUnavailableError(f"{self.endpoint} has no such run", retryable=True)
            channel.gone("never_started", message.fields.get("proof"), why)
            return
        what = "has forgotten the run" if same else "was restarted, or replaced by another one, while the program ran"
        channel.is_over_there = True
        channel.lose(self._lost(channel, f"the server at {self.endpoint} {what}"))


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
    limits = _object(fields.get("limits"))
    listed = fields.get("backends")
    found = (_read_sandbox(_object(item)) for item in (listed if isinstance(listed, list) else ()))
    process, processes = _number(fields, "process"), _number(fields, "processes")
    is_one_of_some = 1 <= process <= processes <= MAX_PROCESSES
    return Welcome(
        process=process if is_one_of_some else 0,
        processes=processes if is_one_of_some else 1,
        incarnation=_text(fields.get("incarnation")),
        keeps=_seconds(fields.get("keeps")),
        remembers=_seconds(fields.get("remembers")),
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
        if isinstance(read_object(body).get("error"), dict):
            error.retryable = error.retryable or status in (429, 502, 503, 504)
            return error
    text = body[:_MAX_REASON].decode("utf-8", "replace").strip()
    message = f"the remote runtime answered with status {status}: {text or 'no reason'}"
    if status in (401, 403):
        return SandboxDeniedError(message)
    return SandboxUnavailableError(message, retryable=status in (429, 502, 503, 504))


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


def _seconds(value: JSONValue) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0.0


def _text(value: JSONValue) -> str:
    return value if isinstance(value, str) else ""
