"""Connections to the hosts that code may reach: names looked up here, certificates verified, one kept for the next
request."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Final

from toolexec.net.address import LookUp, NotAllowedAddressError
from toolexec.process.stream import SocketStream, Stream
from toolexec.runtime.egress.address import connect
from toolexec.runtime.egress.policy import Egress, Origin
from toolexec.runtime.egress.request import RefusedError
from toolexec.runtime.egress.tls import TlsStream
from toolexec.runtime.egress.wire import Wire

_PEEK: Final = socket.MSG_PEEK | socket.MSG_DONTWAIT


class Upstream:
    """The connection of one client to the host of its last request."""

    def __init__(self, policy: Egress, look_up: LookUp, context: ssl.SSLContext) -> None:
        self._policy = policy
        self._look_up = look_up
        self._context = context
        self._wire: Wire | None = None
        self._socket: socket.socket | None = None
        self._origin: Origin | None = None

    async def open(self, origin: Origin) -> Wire:
        """Return a connection to *origin* that is ready for a request: the last one if that is still good.

        Raises RefusedError when there can be none.
        """
        if self._wire is not None and origin == self._origin and self._is_good():
            self._wire.state.start_next_cycle()
            return self._wire
        await self.aclose()
        try:
            self._socket = await connect(self._policy, origin.host, origin.port, self._look_up)
            stream: Stream = SocketStream(self._socket)
            if origin.scheme == "https":
                stream = await self._secured(stream, origin)
        except NotAllowedAddressError as error:
            raise RefusedError(403, f"{origin.host} is not reached: {error}") from error
        except ssl.SSLCertVerificationError as error:
            raise RefusedError(502, f"the certificate of {origin.host} is not valid: {error.verify_message}") from error
        except (OSError, TimeoutError) as error:
            raise RefusedError(502, f"{origin.host} cannot be reached: {reason_of(error)}") from error
        self._wire = Wire(stream, server_side=False, patience=self._policy.idle_seconds)
        self._origin = origin
        return self._wire

    async def aclose(self) -> None:
        """Close what is open."""
        wire, connection = self._wire, self._socket
        self._wire = self._socket = None
        if wire is not None:
            await wire.stream.aclose()
        elif connection is not None:
            connection.close()

    async def _secured(self, stream: Stream, origin: Origin) -> Stream:
        inner = TlsStream(stream, self._context, host=origin.host)
        async with asyncio.timeout(self._policy.connect_seconds):
            await inner.handshake()
        return inner

    def _is_good(self) -> bool:
        """Return whether the last exchange ended well, and the other side has neither hung up nor said more."""
        assert self._wire is not None
        assert self._socket is not None
        state = self._wire.state
        if str(state.our_state) != "DONE" or str(state.their_state) != "DONE" or state.trailing_data[0]:
            return False
        try:
            self._socket.recv(1, _PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


def reason_of(error: BaseException) -> str:
    """Return what went wrong with a connection, in words that have no address of this side's in them."""
    if (
        isinstance(error, OSError)
        and error.errno is not None
        and error.errno > 0
        and not isinstance(error, ssl.SSLError)
    ):
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or "it took too long"


def client_context() -> ssl.SSLContext:
    """Return a context that verifies hosts by the certificates that the system trusts; HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
