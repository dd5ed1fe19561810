"""One run, or one session, that came by the duplex route, and all of those that its server keeps."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from toolexec.errors import ProtocolError, SandboxFailedError, SandboxUnavailableError, ToolExecError
from toolexec.remote import JSONObject, SigningKey, Stream
from toolexec_remote.messages import Link, RemoteMessage
from toolexec_remote.server.relay import FrameRoute
from toolexec_remote.server.remote_run import Outcome, RemoteRun
from toolexec_remote.server.runs import RunService

_MAX_PRINTS: Final = 1 << 20
_MAX_UNACKNOWLEDGED: Final = 20_000
"""How many runs of a tenant are kept that it has not acknowledged the end of."""


class Connection(Protocol):
    """The way to the client of a run."""

    @property
    def key(self) -> SigningKey:
        """The key of the client."""
        ...

    def put(self, message: RemoteMessage) -> None:
        """Send a message soon."""
        ...


class DuplexRuns:
    """The runs that came by the connections of a server, and whose ends have not arrived."""

    def __init__(self, service: RunService) -> None:
        self.service = service
        self.left = asyncio.Event()
        """Set when a run has left, or its client has."""
        self._runs: defaultdict[str, dict[str, DuplexRun]] = defaultdict(dict)
        self._waiting: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __iter__(self) -> Iterator[DuplexRun]:
        return iter([run for runs in self._runs.values() for run in runs.values()])

    def find(self, account: str, run: str) -> DuplexRun | None:
        """Return a run that came by some connection of this tenant."""
        return self._runs[account].get(run) if account in self._runs else None

    def add(self, run: DuplexRun) -> None:
        """Keep a run; raises ProtocolError for a client that never acknowledges the ends of its runs."""
        runs = self._runs[run.account]
        if len(runs) >= _MAX_UNACKNOWLEDGED:
            raise ProtocolError(f"{_MAX_UNACKNOWLEDGED} runs are not over, or their ends not acknowledged")
        runs[run.link.run] = run

    def drop(self, run: DuplexRun) -> None:
        """Forget a run whose end has arrived, or whose client did not come back."""
        if self.find(run.account, run.link.run) is run:
            del self._runs[run.account][run.link.run]
            if not self._runs[run.account]:
                del self._runs[run.account]
            self.left.set()

    def leave(self, connection: Connection) -> None:
        """Have the runs of a connection that is over wait for the next one, and give up those that it does not take up
        in time."""
        account = connection.key.account
        away = [run for run in [*self._runs.get(account, {}).values()] if run.leave(connection)]
        if away and not self._is_closed:
            waiting = asyncio.create_task(self._give_up(account, away, connection))
            self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)

    async def _give_up(self, account: str, away: Sequence[DuplexRun], connection: Connection) -> None:
        """Give up what has no caller any more, in turns of its tenant: who leaves many runs behind holds up no one.
        Those that have places go first, which others can have then."""
        await asyncio.sleep(self.service.settings.reconnect)
        for run in sorted(away, key=lambda each: each.is_paused):
            if run.is_away_since(connection):
                await self.service.shares.reading.turn(account)
                self.service.shares.reading.waste(account)
                run.give_up(connection)

    async def aclose(self) -> None:
        """Wait for no client any more."""
        self._is_closed = True
        waiting = [*self._waiting]
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)


class DuplexRun:
    """A run, or a session, of a client that comes by connections: the watcher of the run."""

    def __init__(self, runs: DuplexRuns, account: str, run_id: str, connection: Connection) -> None:
        self.account = account
        self._key = connection.key.id
        self._has_begun = False
        self.link = Link(run_id)
        self.route = FrameRoute(self._send_frame)
        self.run: RemoteRun | None = None
        self._runs = runs
        self._connection: Connection | None = connection
        self._loop = asyncio.get_running_loop()
        self._held = 0  # bytes of what is not acknowledged, that its tenant has of those that are shared
        self._unread = 0  # bytes of its result, until it is acknowledged
        self._printed: deque[tuple[Stream, str]] = deque()
        self._flush_is_due = False
        self._is_over = False
        self._is_session = False
        self._is_forgotten = False
        self._left: Connection | None = None  # the connection that it waits for the successor of
        self._closing: asyncio.Task[None] | None = None
        self.opening: asyncio.Task[None] | None = None

    @property
    def is_paused(self) -> bool:
        """Whether it waits for a place, and gets none while its client is away."""
        return self.run is not None and self.run.ticket is not None and self.run.ticket.is_paused

    @property
    def is_listened_to(self) -> bool:
        """Whether its end is on the way to a client that is there."""
        return self._is_over and self._connection is not None

    # -- the connection -----------------------------------------------------------------------------------------------

    def take(self, message: RemoteMessage, connection: Connection) -> None:
        """Act on a message of the client; raises ProtocolError. What an older connection still brings is left out."""
        if connection is not self._connection:
            return
        is_new = self.link.receive(message)
        self._give_back()
        if self._is_over and not self.link.kept_count:
            self._forget()
            return
        if not is_new:
            return
        match message.type:
            case "frame":
                self.route.deliver(message.body)
            case "go":
                self._confirm(message.fields)
            case "cancel" | "close":
                self._stop(SandboxFailedError("the program was stopped by its caller"))
                self.end_session()
            case _:
                raise ProtocolError(f"a message of type {message.type} does not go to a server")
        if self.link.ack_is_due:
            connection.put(self.link.ack())

    def resume(self, message: RemoteMessage, connection: Connection) -> None:
        """Go on over a new connection, with what the client does not have."""
        self.link.receive(message)
        self._give_back()
        self._left = None
        self._connection = connection
        if self.run is not None and self.run.ticket is not None:
            self.run.ticket.resume()
        if self._is_over and not self.link.kept_count:
            self._forget()
        connection.put(self.link.ack())
        for kept in self.link.again():
            connection.put(kept)

    def leave(self, connection: Connection) -> bool:
        """Wait for the client to come back, if this was its connection; return whether it was. What has not started
        does not start meanwhile."""
        if connection is not self._connection:
            return False
        self._connection, self._left = None, connection
        if self.run is not None and self.run.ticket is not None:
            self.run.ticket.pause()
        return True

    def is_away_since(self, connection: Connection) -> bool:
        """Return whether the client has not come back since that connection."""
        return self._left is connection and not self._is_forgotten

    def give_up(self, connection: Connection) -> None:
        """Stop what has had no caller since that connection."""
        if self.is_away_since(connection):
            self._stop(SandboxFailedError("the connection to the caller was lost, and it did not come back in time"))
            self.end_session()
            self._forget()

    def _give_back(self, kept: int | None = None) -> None:
        """Give back the bytes that were acknowledged, or all but *kept*."""
        kept = min(self._held, self.link.kept_bytes if kept is None else kept)
        self._runs.service.shares.held.give(self.account, self._held - kept)
        self._held = kept

    def _forget(self) -> None:
        self._give_back(0)
        self._runs.service.note_read(self.account, self._unread)
        self._unread = 0
        self._runs.drop(self)
        self._is_forgotten = True
        self._connection = self._left = None
        self._forget_run()

    def _forget_run(self) -> None:
        if self.run is not None and self.run.outcome is not None:
            self._runs.service.forget(self.run)
            self.run = None

    def _stop(self, why: ToolExecError) -> None:
        self.route.lose(why.message)
        if self.run is not None:
            self.run.stop(why)
        if self.opening is not None and not self._is_session:
            self.opening.cancel()

    def _confirm(self, fields: JSONObject) -> None:
        seconds = fields.get("seconds")
        if self.run is not None:
            if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
                self.run.seconds = float(seconds)
            self.run.confirmed.set()

    def end_session(self) -> None:
        """Close the session, if this is one; its last message says so."""
        if self._is_session:
            self._is_session, self._is_over = False, True
            self._closing = self._runs.service.close_session(self.account, self.link.run)
            self.route.lose("the session is closed")
            self._send("result")

    # -- what becomes of the run --------------------------------------------------------------------------------------

    def ready(self, seconds: float) -> None:
        """Implement `Watcher.ready`."""
        self._send("ready", {"seconds": seconds})

    def started(self) -> None:
        """Implement `Watcher.started`: its sandbox may refuse it still, so there is nothing to say yet."""

    def note_given_up(self, opening: asyncio.Task[None]) -> None:
        """Say that there is no session when its opening was cancelled, be it before its first step."""
        if opening.cancelled():
            self.done(Outcome.refused(SandboxUnavailableError("the session was given up before it was open")))

    def opened(self) -> None:
        """Note that the session is open."""
        self._is_session = True
        self._send("opened")

    def printed(self, stream: Stream, text: str) -> None:
        """Implement `Watcher.printed`. From any thread."""
        self._printed.append((stream, text))
        if not self._flush_is_due:
            self._flush_is_due = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: there is no listener left
                self._loop.call_soon_threadsafe(self._flush)

    def done(self, outcome: Outcome) -> None:
        """Implement `Watcher.done`."""
        self._flush()
        self._is_over = True
        self.route.lose("the run is over")
        if self._is_forgotten:
            self._forget_run()
            return
        fields: JSONObject = {}
        if outcome.kind == "refused" and not self._has_begun:
            fields = {"proof": self._runs.service.prove_never(self.account, self.link.run, self._key)}
        self._send(outcome.kind, fields, outcome.body)

    def _flush(self) -> None:
        """Send what was printed; but not to a client that is far behind, as the result has all of it."""
        self._flush_is_due = False
        said: list[tuple[Stream, list[str]]] = []
        while self._printed:
            stream, text = self._printed.popleft()
            if said and said[-1][0] == stream:
                said[-1][1].append(text)
            else:
                said.append((stream, [text]))
        if not said or self._is_over or self.link.kept_bytes > _MAX_PRINTS:
            return
        if not self._runs.service.shares.held.may_take(
            self.account, sum(len(part) for _, parts in said for part in parts)
        ):
            return
        prints = [{"type": "print", "id": "0", "payload": {"text": "".join(parts), "stream": at}} for at, parts in said]
        self._show(json.dumps(prints).encode())

    def _send_frame(self, frame: bytes) -> None:
        self._flush()
        self._show(frame)

    def _show(self, frame: bytes) -> None:
        """Send what the program does; before the first of it, that it has begun."""
        if not self._has_begun:
            self._has_begun = True
            self._send("started")
        self._send("frame", body=frame)

    def _send(self, kind: str, fields: JSONObject | None = None, body: bytes = b"") -> None:
        if self._is_forgotten:  # no one would give back what it holds
            return
        service = self._runs.service
        is_held = not body or service.shares.held.take(self.account, len(body))
        if not is_held and kind == "frame":
            raise ProtocolError(f"too many bytes for {self.account} are held here; the other side is away, or too slow")
        is_spilled = not is_held and kind == "result" and self.run is not None and self._is_on_disk()
        message = self.link.send(kind, fields, body, keeps_body=not is_spilled)
        self._held += len(body) if is_held else 0
        if kind == "result":
            self._unread = len(body)
            service.shares.unread.add(self.account, self._unread)
        if is_spilled:
            self._forget_run()
        if self._connection is not None:
            self._connection.put(message)

    def _is_on_disk(self) -> bool:
        return self._runs.service.journal.has_ended(self.account, self.link.run)
