"""The connections to one gRPC server: one for each event loop that calls it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc

from toolexec.errors import BackendUnavailableError
from toolexec.provider import ToolCall
from toolexec_grpc.config import GRPCProvider

_State = grpc.ChannelConnectivity
_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a connection that was closed holds nothing
)


class Connection:
    """A channel of one event loop, with the methods that were called on it."""

    def __init__(self, provider: GRPCProvider) -> None:
        self._provider = provider
        self._target = provider.address
        self._connecting: asyncio.Task[None] | None = None
        self.channel: Any = _channel(provider)
        self.methods: dict[str, Any] = {}

    def is_ready(self) -> bool:
        """Return whether there is a connection just now."""
        return self.channel.get_state() is _State.READY

    async def ready(self, call: ToolCall | None = None) -> None:
        """Return when there is a connection; at once if there is one.

        So what fails before has never been sent. Raises BackendUnavailableError after an attempt that failed, which all
        who wait share.
        """
        if self.is_ready():
            return
        if call is not None:
            call.waiting = f"a connection to {self._target}"
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name=f"toolexec-connect-{self._target}")
            self._connecting.add_done_callback(self._connected)
        await asyncio.shield(self._connecting)
        if call is not None:
            call.waiting = ""

    async def aclose(self) -> None:
        """Close the channel; calls under way end."""
        if self._connecting is not None:
            self._connecting.cancel()
        await self.channel.close()

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # those who wait for it raise it; there may be none left

    async def _connect(self) -> None:
        state = self.channel.get_state(try_to_connect=True)
        if state is _State.TRANSIENT_FAILURE:  # it says so until it has a connection, and makes long pauses
            await self.channel.close()
            self.channel, self.methods = _channel(self._provider), {}
            state = self.channel.get_state(try_to_connect=True)
        seconds = self._provider.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                while state is not _State.READY:
                    if state in (_State.TRANSIENT_FAILURE, _State.SHUTDOWN):
                        raise BackendUnavailableError(f"cannot connect to {self._target}")
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
        except TimeoutError:
            raise BackendUnavailableError(f"no connection to {self._target} within {seconds:g} s") from None


def _channel(provider: GRPCProvider) -> Any:
    """Return a new channel, which has no connection yet."""
    options: list[tuple[str, Any]] = [
        *_OPTIONS,
        ("grpc.max_receive_message_length", provider.max_message_bytes),
        ("grpc.max_send_message_length", provider.max_message_bytes),
        ("grpc.min_reconnect_backoff_ms", max(100, int(provider.connect_timeout * 1000))),
    ]
    if provider.authority:
        options += [
            ("grpc.default_authority", provider.authority),
            ("grpc.ssl_target_name_override", provider.authority),
        ]
    if not provider.encrypted:
        return grpc.aio.insecure_channel(provider.address, options=options)
    credentials = grpc.ssl_channel_credentials(
        provider.pem(provider.ca), provider.pem(provider.key), provider.pem(provider.certificate)
    )
    return grpc.aio.secure_channel(provider.address, credentials, options=options)


class Connections:
    """A connection for each event loop that asks for one."""

    def __init__(self) -> None:
        self._provider: GRPCProvider | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, Connection] = {}

    async def use(self, provider: GRPCProvider) -> None:
        """Connect as *provider* says from now on; connections go on if that is where they lead already."""
        if self._provider is not None and _same(self._provider, provider):
            return
        await self.aclose()
        self._provider = provider

    def get(self) -> Connection:
        """Return the connection of this event loop."""
        loop = asyncio.get_running_loop()
        found = self._by_loop.get(loop)
        if found is None:
            for closed in [known for known in self._by_loop if known.is_closed()]:
                del self._by_loop[closed]
            if self._provider is None:
                raise BackendUnavailableError("the connection is closed")
            found = self._by_loop[loop] = Connection(self._provider)
        return found

    async def aclose(self) -> None:
        """Close the connection of this event loop and forget the others, which end with their loops."""
        self._provider = None
        found = self._by_loop.pop(asyncio.get_running_loop(), None)
        self._by_loop.clear()
        if found is not None:
            await found.aclose()


def _same(one: GRPCProvider, other: GRPCProvider) -> bool:
    """Return whether both connect in the same way."""
    parts = ("target", "tls", "ca", "certificate", "key", "authority", "connect_timeout", "max_message_bytes")
    return all(getattr(one, part) == getattr(other, part) for part in parts)
