"""Several remote runtimes seen as one: which of them are there, and which one takes the next program."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection
from contextlib import suppress
from math import inf
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Final

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.remote import JSONDict, JSONObject, RemoteSettings, SigningKey
from toolexec.sandbox import Availability
from toolexec_remote.choice import common, less_busy
from toolexec_remote.connection import EndpointConnection, RemoteSandbox, refusal_of
from toolexec_remote.discovery import Discovery
from toolexec_remote.homes import PROCESS_HEADER
from toolexec_remote.membership import Membership
from toolexec_remote.messages import HELLO_METHOD, SUBPROTOCOL
from toolexec_remote.signature import KEY_HEADER, Target, sign, timestamp

if TYPE_CHECKING:
    import aiohttp

CLIENT_HEADER: Final = "X-Toolruntime-Client"
"""Names the caller, so that its runs are found again over a new connection."""
ERROR_HEADER: Final = "X-Toolruntime-Error"
"""Has the reason why a connection is refused: clients of WebSockets cannot read the body of such a response."""
_OTHERS_SECONDS: Final = 0.3
"""How long a check waits for the other endpoints, once one is up."""
_LONGEST_WAIT: Final = 10.0
_MAX_MESSAGE: Final = 512 << 20


class Endpoints:
    """The connections to all endpoints, made at the first use. Belongs to one event loop.

    Which they are, `discovery` says, and when: see `Membership`.
    """

    def __init__(self, settings: RemoteSettings, discovery: Discovery | None = None) -> None:
        self.settings = settings
        self._client = token_hex(16)
        self._session: aiohttp.ClientSession | None = None
        self._key: SigningKey | None = None
        self._tls: ssl.SSLContext | None = None
        self._starting = asyncio.Lock()
        self._changed = asyncio.Event()
        self._membership = Membership(discovery or Discovery(settings), self._connection, self._on_change)

    @property
    def key(self) -> SigningKey:
        """The key for signatures; there is one as soon as an endpoint was up."""
        assert self._key is not None
        return self._key

    @property
    def connections(self) -> tuple[EndpointConnection, ...]:
        """Those to the endpoints, and those to former ones that still have runs."""
        return self._membership.connections

    @property
    def discovery(self) -> Discovery:
        """What finds the endpoints."""
        return self._membership.discovery

    # -- what is there ------------------------------------------------------------------------------------------

    @property
    def sandbox(self) -> RemoteSandbox | None:
        """The sandbox that the settings want, as the endpoints that are up have it: what all of them do."""
        return common([found for each in self.connections if (found := self._wanted(each)) is not None])

    async def check(self) -> Availability:
        """Return whether one of them can run something now; waits for those whose state is not known yet, unless one
        is up."""
        await self._first_up()
        await asyncio.gather(*(each.known(_OTHERS_SECONDS) for each in self._membership.current()))
        usable = self._usable()
        states = self._states()
        if usable:
            return Availability(ok=True, version=f"{len(usable)} of {len(self.connections)} endpoints ({states})")
        return Availability(
            ok=False,
            reason=states,
            remedy="start it with toolexec runtime serve, and see that keys and clocks agree",
            error=self.unavailable(retryable=not self._is_hopeless()),
        )

    async def _first_up(self, ends: float = inf) -> None:
        """Have all of them connect; wait until one is up, or all have tried, those that come meanwhile, too. Names are
        looked up until *ends* at most."""
        seconds = self.settings.connect_timeout
        await self._membership.use(min(seconds, ends - monotonic()))
        trying: dict[EndpointConnection, asyncio.Task[bool]] = {}
        changed: asyncio.Task[bool] | None = None
        try:
            while True:
                self._changed.clear()
                current = self._membership.current()
                for each in current:
                    if each not in trying:
                        trying[each] = asyncio.create_task(each.known(seconds))
                waits = [task for task in trying.values() if not task.done()]
                if not waits or any(each.up for each in current):
                    return
                if changed is None or changed.done():
                    changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait([*waits, changed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = [*trying.values(), *([changed] if changed is not None else [])]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def _states(self) -> str:
        states = [f"{each.endpoint}: {self._state(each)}" for each in self.connections]
        return "; ".join([*states, *(f"{entry}: {state}" for entry, state in self.discovery.states.items())])

    def _state(self, endpoint: EndpointConnection) -> str:
        why = self._why_not(endpoint)
        if why:
            return why
        capacity = endpoint.capacity
        return (
            f"{capacity.get('running', 0)} of {capacity.get('max_running', '?')} run, {capacity.get('queued', 0)} wait"
        )

    def _why_not(self, endpoint: EndpointConnection) -> str:
        """Why an endpoint cannot take a program now; "" when it can."""
        if not self._membership.has(endpoint):
            return "it is not among the endpoints any more"
        if not endpoint.up:
            return str(endpoint.problem or too_late(self.settings))
        if endpoint.is_draining:
            return "it takes no more programs, as it is about to stop"
        if self._wanted(endpoint) is None:
            there = ", ".join(f"{each.kind} ({each.isolation})" for each in endpoint.welcome.sandboxes) or "nothing"
            return f"it runs code in {there}, not in {self.settings.sandbox} ({self.settings.expected_isolation})"
        return ""

    def _wanted(self, endpoint: EndpointConnection) -> RemoteSandbox | None:
        sandbox = endpoint.welcome.sandbox(self.settings.sandbox) if endpoint.up else None
        return sandbox if sandbox is not None and sandbox.isolation == self.settings.expected_isolation else None

    # -- which one ----------------------------------------------------------------------------------------------

    async def choose(self, ends: float, avoid: Collection[str] = ()) -> EndpointConnection:
        """Return the less busy of two endpoints; one of those to *avoid* only where there is no other. Waits until
        *ends* (of `monotonic()`) while none is up.

        Raises SandboxUnavailableError when there is none by then, or none that could ever be used.
        """
        while True:
            self._changed.clear()
            await self._first_up(ends)
            usable = self._usable()
            if usable:
                return less_busy([each for each in usable if each.endpoint not in avoid] or usable)
            hopeless = self._is_hopeless()
            if hopeless or monotonic() >= ends:
                raise self.unavailable(retryable=not hopeless)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(ends - monotonic(), _LONGEST_WAIT)):
                    await self._changed.wait()

    def _is_hopeless(self) -> bool:
        """Return whether no endpoint will take a program, however long one waits."""
        return self.discovery.is_hopeless and all(
            self._wanted(each) is None if each.up else each.problem is not None and not each.problem.retryable
            for each in self._membership.current()
        )

    def _usable(self) -> list[EndpointConnection]:
        return [each for each in self.connections if self._why_not(each) == ""]

    def _on_change(self) -> None:
        """Have runs that wait for one endpoint move to another one that has room, and no run that waits for it."""
        self._changed.set()
        for idle in self.connections:
            room = idle.free if not idle.waiting and not self._why_not(idle) else 0
            for _ in range(room):
                busiest = max(self.connections, key=lambda each: len(each.waiting))
                if not busiest.waiting:
                    return
                channel = busiest.waiting.pop(next(iter(busiest.waiting)))
                channel.moves = True
                channel.ready.set()

    async def changed(self, seconds: float) -> None:
        """Wait until something is different with one of them, but no longer than so many seconds."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def unavailable(self, *, retryable: bool = True) -> SandboxUnavailableError:
        """Return why none of them takes a program; one failure stays what it is."""
        problems = [*(each.problem for each in self.connections), *self.discovery.problems.values()]
        states: JSONDict = {each.endpoint: self._why_not(each) or "it has no room" for each in self.connections}
        states.update(self.discovery.states)
        error = SandboxUnavailableError(
            f"no remote runtime can take this: {self._states()}", retryable=retryable, details={"endpoints": states}
        )
        if len(problems) == 1:
            error.__cause__ = problems[0]
        return error

    # -- connections --------------------------------------------------------------------------------------------

    async def _dial(self, endpoint: str) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket; raises OSError, TimeoutError, and the error that the server refuses it with."""
        import aiohttp

        session = await self._opened()
        assert self._key is not None
        token, name = self._key.token, self._key.id
        member = self._membership.member(endpoint)
        headers = {"Authorization": f"Bearer {token}", KEY_HEADER: name, CLIENT_HEADER: self._client, **member.headers}
        if process := member.process or self._process_at(endpoint):
            headers[PROCESS_HEADER] = str(process)
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                return await session.ws_connect(
                    f"{member.url}/connect",
                    protocols=(SUBPROTOCOL,),
                    headers=headers,
                    heartbeat=self.settings.silence / 1.5,  # an answer is waited for half as long again
                    max_msg_size=_MAX_MESSAGE,
                    ssl=self._tls if self._tls is not None else True,
                    server_hostname=self.settings.server_name or member.tls_name or None,
                )
        except aiohttp.WSServerHandshakeError as error:
            reason = (error.headers or {}).get(ERROR_HEADER, "")
            raise refusal_of(error.status, reason.encode()) from error
        except TimeoutError as error:
            raise TimeoutError(too_late(self.settings)) from error
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error

    def _hello(self, endpoint: str, incarnation: str, asked: str, nonce: str) -> JSONObject:
        """Return what shows a server process that we have the secret of the key, here and now."""
        path = path_of(f"{self._membership.member(endpoint).url}/connect")
        target, stamp = Target(incarnation, HELLO_METHOD, path, asked), timestamp()
        signature = sign(self.key.signing_secret, stamp, target, nonce.encode())
        return {"nonce": nonce, "timestamp": stamp, "signature": signature, "key": self.key.id}

    def _connection(self, endpoint: str) -> EndpointConnection:
        return EndpointConnection(
            endpoint,
            self._dial,
            self._hello,
            reconnect=self.settings.reconnect,
            on_change=self._on_change,
            is_ours=self._leads_to,
            on_welcome=lambda each: self._membership.meet(each.welcome.processes, each),
        )

    def _process_at(self, endpoint: str) -> int:
        """Return the process that the connection to an endpoint is with, so that the next one leads there, too."""
        return next((each.process for each in self.connections if each.endpoint == endpoint), 0)

    def _leads_to(self, incarnation: str) -> str:
        """Return by which endpoint a server process is connected; "" for none."""
        return next(
            (each.endpoint for each in self.connections if each.up and each.welcome.incarnation == incarnation), ""
        )

    async def _opened(self) -> aiohttp.ClientSession:
        async with self._starting:
            if self._session is None:
                import aiohttp

                self._key = await asyncio.to_thread(self.settings.key)
                self._tls = await asyncio.to_thread(tls_context, self.settings)
                timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.settings.connect_timeout)
                self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
            return self._session

    async def aclose(self) -> None:
        """Close all connections; runs on them are lost."""
        await self._membership.aclose()
        if self._session is not None:
            await self._session.close()


def path_of(url: str) -> str:
    """Return the path of a URL as a request has it, which is what is signed."""
    from yarl import URL

    return URL(url).raw_path_qs


def too_late(settings: RemoteSettings) -> str:
    """Return what is said of an endpoint that has not answered in time."""
    return (
        f"it has not answered within {settings.connect_timeout:g} s; where machines are that busy, raise "
        "connect_timeout of [sandboxes.remote]"
    )


def tls_context(settings: RemoteSettings) -> ssl.SSLContext | None:
    """Return how certificates are checked and shown; None for the usual way. Blocks.

    Raises ConfigurationError for files that cannot be read.
    """
    if not settings.ca_file and not settings.client_cert:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.client_cert:
            context.load_cert_chain(settings.client_cert, settings.client_key or None)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConfigurationError(f"the certificates of the remote runtime cannot be read: {error}") from error
    return context
