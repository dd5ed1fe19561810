"""One connection: how long it may dawdle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolexec.server.http.lingering import Lingering
from toolexec.server.http.replies import Refuse
from toolexec.server.http.seats import STATE, Seat
from toolexec.server.http.settings import HttpSettings
from toolexec.server.http.writing import Together

_BODIES: Final = 2
"""How many of the longest bodies are discarded before a client that goes on sending is cut off."""
_LEAVE: Final = 2.0
"""Seconds that a client has to take what was sent, and to end TLS, once its connection has no seat, or no server."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 5\r\n\r\n"


class Connection(H11Protocol):
    """Drops clients that hold a connection without using it.

    A request's head must be there `header_timeout` seconds after its first byte, or after the connection was made. A
    client that reads nothing of an answer for `read_timeout` seconds is cut off, and so is one that goes on sending a
    body after its request was answered, once it has had time to read the answer. One that has no seat, in its state,
    is asked to come back.
    """

    limits: HttpSettings
    tell: Refuse

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._leave_timer: asyncio.TimerHandle | None = None
        self._seat: Seat | None = self.app_state.get(STATE)
        self._context: Context = copy_context()

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Note that a client is there."""
        self._socket = transport
        super().connection_made(cast("asyncio.Transport", Together(transport, self.loop, self._close)))
        if self._seat is None:
            self.tell("connections")
            transport.write(_FULL)
            self._leave()
            return
        self._seat.occupant = self
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the client is gone."""
        for timer in (self._head_timer, self._read_timer, self._leave_timer):
            if timer is not None:
                timer.cancel()
        if self._seat is not None:
            self._seat.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of several."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE:
            self._await_head()
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if self.has_answered and self.conn.their_state is h11.SEND_BODY:
            self.transport.close()

    def handle_events(self) -> None:
        """Begin the requests that are there, each in the context of the connection. This is called in that of another
        request where reading goes on after that, or its answer comes after the next request."""
        self._context.run(super().handle_events)

    @property
    def is_answering(self) -> bool:
        """Whether a request is under way; see `Occupant`."""
        cycle: Any = self.cycle  # None until the first request
        return cycle is not None and not cycle.response_complete

    @property
    def has_answered(self) -> bool:
        """Whether there was a request, and none is under way; see `Occupant`."""
        cycle: Any = self.cycle
        return cycle is not None and bool(cycle.response_complete)

    def give_way(self) -> None:
        """End the connection for that of another caller; see `Occupant`."""
        if self.has_answered:
            self._leave()
        else:
            self.transport.abort()

    def shutdown(self) -> None:
        """End the connection with its server: soon where nothing is under way, else with the answer."""
        super().shutdown()
        if self.transport.is_closing():
            self._limit_leaving()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as it is written to."""
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        """Note that the client has read."""
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        super().resume_writing()

    def _leave(self) -> None:
        self.transport.close()
        self._limit_leaving()

    def _limit_leaving(self) -> None:
        """Have a connection that is closed be gone soon: TLS waits half a minute for a client that does not end it."""
        self._leave_timer = self.loop.call_later(_LEAVE, self.transport.abort)

    def _close(self) -> None:
        """End the connection, of which everything is sent."""
        if self.conn.their_state is h11.SEND_BODY and not self._socket.is_closing():
            Lingering(self._socket, self, _BODIES * self.limits.max_body_bytes)
        else:
            self._socket.close()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.header_timeout, self._cut_off, "header_timeout")

    def _await_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
        waiting = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(self.limits.read_timeout, self._check_reading, waiting)

    def _check_reading(self, before: int) -> None:
        """Slow is fine, as long as there is less to read than there was."""
        if self.transport.get_write_buffer_size() < before:
            self._await_reading()
        else:
            self._cut_off("reading")

    def _cut_off(self, reason: str) -> None:
        self.tell(reason)
        self.transport.abort()


def connections(http: HttpSettings, on_refusal: Callable[[str], None]) -> type[Connection]:
    """Return the class of connections with these limits; *on_refusal* receives the reason for each that is dropped."""
    return type("LimitedConnection", (Connection,), {"limits": http, "tell": staticmethod(on_refusal)})
