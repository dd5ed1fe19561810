"""One connection to an MCP server, kept up: connect, watch, connect again within a budget."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Literal, TypeAlias

import anyio
from mcp import Client
from mcp_types import (
    Implementation,
    SamplingCapability,
    SamplingToolsCapability,
    ServerCapabilities,
)

from toolexec.backend.mcp.changes import ChangeFeed
from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.failures import describe_failure, is_lasting
from toolexec.backend.mcp.login import KnownSecrets
from toolexec.backend.mcp.logs import discreet_logs
from toolexec.backend.mcp.relay import Relay
from toolexec.backend.mcp.sandbox import MakeServerSandbox, ServerSandbox
from toolexec.backend.mcp.stdio import StdioTransport
from toolexec.backend.mcp.transport import WatchedTransport, Wire, open_http, open_sse
from toolexec.backend.offers import OfferEvent
from toolexec.errors import BackendUnavailableError, ConfigurationError, LoginRequiredError, MissingExtraError
from toolexec.model.json_value import JSONDict
from toolexec.model.redaction import redactor
from toolexec.net.oauth.metadata import canonical
from toolexec.net.oauth.session import OAuthSession
from toolexec.net.oauth.settings import OAuthSettings
from toolexec.process.poll import pauses
from toolexec.process.threads import WorkerThreads
from toolexec.version import __version__

logger: logging.Logger = logging.getLogger(__name__)
State: TypeAlias = Literal["idle", "connecting", "ready", "unavailable", "closed"]
_KILL_PATIENCE = 10.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_LOGIN_PAUSE = 2.0
_PROBE_PATIENCE = 3.0
_DIAGNOSIS_PATIENCE = 1.0
_NO_SSE_HINT = frozenset([400, 404, 405, 406, 415, 501])
_threads = WorkerThreads()  # a keyring may wait for its owner for ever, and must not keep the process from ending


class MCPConnection:
    """A task of its own owns the SDK's client, because its scopes must be left by the task that entered them.

    *read_tools* is awaited after each connect, within the time limit for connecting, and when the server says that its
    tools have changed; *on_event* is called when its resources or prompts have. *relay* answers what the server asks.
    *caller* is whose login it is made with, where each has one (empty: the one that lists the tools). Where
    the server has a sandbox, *sandboxes* makes one for each connection.
    Every other method is for the event loop of the first use. `target` is the server as it was last connected to: with
    its references filled in.
    """

    def __init__(
        self,
        server: MCPServer,
        read_tools: Callable[[Client], Awaitable[None]],
        on_event: Callable[[OfferEvent], None] = lambda _: None,
        relay: Relay | None = None,
        *,
        caller: str = "",
        sandboxes: MakeServerSandbox | None = None,
    ) -> None:
        self._sandboxes = sandboxes
        self._relay = relay if relay is not None else Relay(server.name, server.questions)
        self.server = server
        self._caller = caller
        self.capabilities: ServerCapabilities | None = None
        """What the server last said that it has."""
        self.target: MCPServer = server
        self.restarts: int = 0
        self._asked_before = False
        self.login: OAuthSession | None = None
        self._read_tools = read_tools
        self._changes = ChangeFeed(server, read_tools, on_event, self._describe)
        self._failures: deque[float] = deque()
        self._handshake_only = False
        self._last_end = ""
        self._reset("idle", "not started")

    def _reset(self, state: State, reason: str) -> None:
        self.state: State = state
        self.reason: str | None = reason
        self._client: Client | None = None
        self._stdio: StdioTransport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._wire = Wire()
        self._settled = asyncio.Event()  # there is nothing to wait for: a client, or a reason why not
        self._stop = asyncio.Event()
        self._retry = asyncio.Event()
        self._changes.reset()

    async def start(self) -> None:
        """Begin connecting and wait for the first attempt to end, well or badly."""
        self._check_loop()
        if self._task is None and self.state != "closed":
            self._loop = asyncio.get_running_loop()
            self.state, self.reason = "connecting", "connecting"
            self._task = asyncio.create_task(
                self._supervise(),
                name=f"toolexec-mcp-{self.server.name}",
                # The connection outlives the call that it is first made for: that call's trace and caller are not its.
                context=contextvars.Context(),
            )
        await self._settled.wait()

    async def aclose(self) -> None:
        """End the connection and the server's process."""
        loop, task = self._loop, self._task
        if task is not None and loop is not None and loop is not asyncio.get_running_loop() and loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.aclose(), loop))
            return
        connecting = self.state == "connecting"
        self.state, self.reason, self._client = "closed", "closed", None
        self._stop.set()
        self._settled.set()
        if task is None or task.done() or loop is not asyncio.get_running_loop():
            return
        if connecting:
            task.cancel()
        patience = self.server.stop_timeout + (_KILL_PATIENCE if self.server.command else 0)
        done, _ = await asyncio.wait([task], timeout=patience)
        if not done:
            task.cancel()
            await asyncio.wait([task], timeout=_KILL_PATIENCE)

    async def client(self) -> Client:
        """Return the connected client; starts, waits for, or (when the budget allows) renews the connection.

        Raises BackendUnavailableError with the reason.
        """
        if self._client is not None and self._loop is asyncio.get_running_loop():
            return self._client
        self._check_loop()
        if self._task is None:
            await self.start()
        elif self.state == "unavailable" and (self._has_budget() or self._needs_login is not None):
            self._settled.clear()
            self._retry.set()
        await self._settled.wait()
        if self._client is None:
            raise self._unavailable(self.reason or "not connected")
        return self._client

    @property
    def wire(self) -> Wire:
        """What is known about the transport of the present client."""
        return self._wire

    async def report_lost(self, client: Client, wire: Wire) -> str:
        """Record that a call found its connection dead; returns why it died, if that is known soon."""
        if client is self._client:
            self._client = None
            self.state, self.reason = "unavailable", "the connection was lost"
            self._settled.clear()
            wire.too_long = self._stdio.too_long if self._stdio is not None else 0  # before it has come to its end
            wire.lost.set()
        with anyio.move_on_after(_DIAGNOSIS_PATIENCE):
            await wire.ended.wait()
        return wire.reason or "the connection was lost"

    async def subscribe(self, uri: str) -> None:
        """Have the server report changes of the resource, also after a new connection; raises what `client` does, and
        what the SDK does."""
        await self._changes.subscribe(await self.client(), uri)

    async def unsubscribe(self, uri: str) -> None:
        """Have the server report no more changes of the resource, if it is connected."""
        await self._changes.unsubscribe(self._client, uri)

    def take_faults(self) -> dict[str, str]:
        """Return what is wrong with invalid listed tools, by name, since the last call of this method."""
        faults, self._wire.faults = self._wire.faults, {}
        return faults

    def info(self) -> JSONDict:
        """Facts worth showing."""
        data: JSONDict = {"restarts": self.restarts} if self.restarts else {}
        if self._needs_login is not None and self.state == "unavailable":
            data["login_command"] = self._needs_login.command
        if self.restarts or self.state == "unavailable":
            self._has_budget()  # forgets those that are over
            data["restarts_left"] = max(0, self.server.max_restarts - len(self._failures))
            data |= {"last_error": self._last_end} if self._last_end else {}
        if self._stdio is not None:
            tail = self._stdio.stderr_tail()
            data |= {"stderr": tail} if tail and tail not in (self.reason or "") else {}
            lack = self._stdio.sandbox_says() if self._client is not None else ""
            data |= {"lacks": lack} if lack else {}
        if self._client is not None:
            if self._stdio is not None and self._stdio.pid is not None:
                data["pid"] = self._stdio.pid
            data["protocol"] = self._client.protocol_version
            if self.login is not None and self.login.in_short():
                data["login"] = self.login.in_short()
            if self._client.server_info is not None:
                data["server"] = f"{self._client.server_info.name} {self._client.server_info.version}".strip()
        return data

    def _check_loop(self) -> None:
        if self._loop is None or self._loop is asyncio.get_running_loop():
            return
        if not self._loop.is_closed():
            raise self._unavailable("it belongs to another event loop; use it from the loop that started it")
        if self.state != "closed":  # that loop took the connection down with it, as it does with all its tasks
            self._reset("idle", "not started")

    def _unavailable(self, reason: str) -> BackendUnavailableError:
        name = self.server.name
        if self._needs_login is not None and self.state == "unavailable":
            return copy.copy(self._needs_login)
        tries = self.server.max_restarts
        if self.state == "unavailable" and tries and not self._has_budget():
            reason += f"; it was tried again {tries} times within {self.server.restart_window:g} s, the most allowed"
        return BackendUnavailableError(f"MCP server {name} is unavailable: {reason}", backend=name, op="execute")

    async def _wait_for_login(self) -> None:
        """Wait until a login is stored, by any process, or there is a call to try with."""
        login = self.login
        assert login is not None
        mark = login.store.mark(login.name, login.server)
        while not (self._retry.is_set() or self._stop.is_set()):
            await _first(self._retry, self._stop, timeout=_LOGIN_PAUSE)
            if login.store.mark(login.name, login.server) != mark:
                return

    @property
    def _needs_login(self) -> LoginRequiredError | None:
        return self.login.needed if self.login is not None else None

    # -- the task -----------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        try:
            while not self._stop.is_set():
                began, last_end = time.monotonic(), self._last_end
                was_ready, lasting = await self._run_session()
                if self._stop.is_set():
                    return
                if not was_ready and self._wire.probing and not self._handshake_only:
                    # Some servers of the older protocol end, or fail, on a first message that is not "initialize".
                    self._handshake_only, self._last_end = True, last_end
                    continue
                if time.monotonic() - began > self.server.restart_window:
                    waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
                self.state = "unavailable"
                may_retry = self._has_budget()
                needs_login = self._needs_login is not None and not was_ready
                if not (was_ready and may_retry):
                    self._settled.set()
                automatic = may_retry and not lasting and not needs_login
                pause = next(waits)
                if needs_login:
                    await self._wait_for_login()
                else:
                    await _first(self._retry, self._stop, timeout=pause if automatic else None)
                if not needs_login:  # a person logs in when they like: until then, a call may look whether they have
                    self._failures.append(time.monotonic())
                    self.restarts += 1
        except asyncio.CancelledError:
            if self.state != "closed":
                self.state, self.reason = "unavailable", "its event loop has ended"
            raise
        finally:
            self._client = None
            self._settled.set()

    async def _run_session(self) -> tuple[bool, bool]:
        """Connect and stay until asked to stop or the connection is lost.

        Says whether there was a connection, and whether trying again is useless; the reason is kept.
        """
        self._retry.clear()
        self._settled.clear()
        self._wire, self._stdio = Wire(), None
        self.state, self.reason = "connecting", "connecting"
        if self._last_end:  # so that one can still see why it is down
            self.reason = f"connecting again, after: {self._last_end}"
        ready = lasting = False
        failure: BaseException = ConnectionError("the connection was lost")
        try:
            async with AsyncExitStack() as stack:
                await self._find_target()
                if self.target.url:
                    stack.enter_context(discreet_logs(self._cleaner()))
                client = await self._connect_in_time(stack)
                if self._stop.is_set():
                    return False, False
                ready = True
                self._client, self.state, self.reason = client, "ready", None
                self.capabilities = client.server_capabilities
                self._settled.set()
                if self.restarts:  # its lists may be others now
                    self._changes.report_offers()
                await self._stay(client)
        except Exception as error:
            failure, lasting = error, is_lasting(error)
        finally:
            self._client = None
            if ready:
                self._settled.clear()
            self._wire.reason = self._describe_end(failure, was_ready=ready)
            self._wire.too_long = self._stdio.too_long if self._stdio is not None else 0
            self._wire.ended.set()
        if not self._stop.is_set():
            self.reason = self._last_end = self._wire.reason
            logger.info("MCP server %s: %s", self.server.name, self.reason)
        return ready, lasting

    def _describe_end(self, failure: BaseException, *, was_ready: bool) -> str:
        diagnosis = self._stdio.diagnosis() if self._stdio is not None else ""
        if not was_ready and self._needs_login is not None:
            return self._needs_login.message
        if not was_ready:
            return describe_failure(self.target, failure, status=self._wire.status, diagnosis=diagnosis)
        if not diagnosis and not isinstance(failure, ConnectionError):
            diagnosis = self._describe(failure)
        return self.target.redact(f"the connection was lost{f': {diagnosis}' if diagnosis else ''}")

    def _describe(self, failure: BaseException) -> str:
        return describe_failure(self.target, failure)

    async def _find_target(self) -> None:
        """Fill in what the configuration refers to; secrets that were in use before are asked for again."""
        if self.server.secrets is not None:
            try:
                async with asyncio.timeout(self.server.connect_timeout):
                    self.target = await _threads.run(partial(self.server.resolved, fresh=self._asked_before))
            except TimeoutError:
                raise TimeoutError(f"its secrets were not there within {self.server.connect_timeout:g} s") from None
            self._asked_before = True
        self._find_login()

    def _find_login(self) -> None:
        """Have the login of the server as it is now: at another place, or with other settings, it is another one."""
        target, settings, login = self.target, self.target.oauth, self.login
        if settings is None:
            self.login = None
        elif login is None or (login.server, login.settings) != (canonical(target.url), settings):
            self.login = self._login_of(self._caller, settings)
        else:
            login.needed = None

    def _login_of(self, caller: str, settings: OAuthSettings) -> OAuthSession:
        target = self.target
        return OAuthSession(target.name, target.url, settings, lazy=target.auth is None, caller=caller)

    async def find_login_of(self, caller: str) -> OAuthSession | None:
        """Return the login of another caller; see `find_login`."""
        found = await self.find_login()
        return self._login_of(caller, found.settings) if found is not None else None

    async def find_login(self) -> OAuthSession | None:
        """Return the login of the server, without connecting; None where it takes none. Raises what
        `MCPServer.resolved` does."""
        if self.login is None:
            await self._find_target()
        return self.login

    def _cleaner(self) -> Callable[[str], str]:
        """Takes this server's secrets out of a text, and those of other servers, which a call may have as arguments."""
        own, login = self.target.scrubber(), KnownSecrets(frozenset(), self.login)
        known = self.server.secrets.redact if self.server.secrets is not None else redactor
        return lambda text: known.text(login.text(own.text(text)))

    async def _connect_in_time(self, stack: AsyncExitStack) -> Client:
        step = "initialize"
        try:
            async with asyncio.timeout(self.server.connect_timeout):
                client = await self._connect(stack)
                step = "subscriptions/listen"
                await stack.enter_async_context(self._changes.listening(client))
                step = "tools/list"
                await self._read_tools(client)
                return client
        except TimeoutError:
            raise TimeoutError(f"no answer to {step} within {self.server.connect_timeout:g} s") from None

    async def _stay(self, client: Client) -> None:
        """Follow changes until asked to stop or the connection is lost."""
        following = asyncio.create_task(self._changes.follow_tools(client))
        try:
            await _first(self._wire.lost, self._stop)
        finally:
            self._client = None
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _connect(self, stack: AsyncExitStack) -> Client:
        server = self.target
        if server.command:
            sandbox = None
            if server.boxed is not None:
                sandbox = sandbox_of(server, self._sandboxes)
                stack.push_async_callback(sandbox.aclose)
            self._stdio = StdioTransport(server, sandbox)
            return await self._enter(stack, self._stdio)
        login = self.login
        if server.transport == "sse":
            return await self._enter(stack, open_sse(server, self._wire, login))
        try:
            async with AsyncExitStack() as attempt:
                client = await self._enter(attempt, open_http(server, self._wire, login))
                stack.push_async_exit(attempt.pop_all())
                return client
        except Exception:
            # A server of the older kind refuses a POST to this address; only then is SSE worth a try.
            refused = self._wire
            if server.transport == "http" or refused.status not in _NO_SSE_HINT or self._needs_login is not None:
                raise
            self._wire = Wire()
            try:
                return await self._enter(stack, open_sse(server, self._wire, login))
            except Exception:
                if self._wire.status is not None:  # no SSE here either: the answer to the POST is the better reason
                    self._wire = refused
                raise

    async def _enter(self, stack: AsyncExitStack, transport: Any) -> Client:
        patience = min(_PROBE_PATIENCE, self.server.connect_timeout / 3)
        scrubber, relay = KnownSecrets(self.target.hidden, self.login), self._relay
        watched = WatchedTransport(transport, self._wire, None if self._handshake_only else patience, scrubber)
        samples = relay.takes("sampling")
        client = Client(
            watched,  # pyright: ignore[reportArgumentType]
            mode="legacy" if self._handshake_only else "auto",
            message_handler=self._changes.take,
            client_info=Implementation(name="toolexec", version=__version__),
            cache=None,
            logging_callback=relay.log,
            log_level="info" if relay.active else None,
            sampling_callback=relay.sampling if samples else None,
            sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability()) if samples else None,
            elicitation_callback=relay.elicitation if relay.takes("elicitation") else None,
            list_roots_callback=relay.roots if relay.takes("roots") else None,
        )
        await stack.enter_async_context(client)
        # The SDK would turn a reply that breaks the tool's output schema into an exception and lose the reply. Here the
        # runner checks it, and what a breach means is the caller's choice.
        client.session.validate_tool_result = _accept_reply
        self._handshake_only = self._handshake_only or self._wire.ignores_probe
        return client

    def _has_budget(self) -> bool:
        oldest = time.monotonic() - self.server.restart_window
        while self._failures and self._failures[0] < oldest:
            self._failures.popleft()
        return len(self._failures) < self.server.max_restarts


def sandbox_of(server: MCPServer, make: MakeServerSandbox | None) -> ServerSandbox:
    """Return the sandbox of a server that has one; nothing is started. Raises ConfigurationError where nothing makes
    sandboxes, and as that does."""
    assert server.boxed is not None
    if make is None:
        raise ConfigurationError(
            f"MCP server {server.name}: there are no sandboxes for servers here; add it with Exec.add_mcp or a file of "
            "settings, or give MCPBackend what makes them as sandboxes"
        )
    try:
        return make(server.boxed)
    except MissingExtraError:
        raise
    except ConfigurationError as error:
        raise ConfigurationError(f"MCP server {server.name}: {error.message}", details=error.details) from error


async def _accept_reply(name: str, result: Any) -> None:
    """Takes the place of the SDK's check of a reply."""


async def _first(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Wait until one of the events is set, or the time is over."""
    waiters = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiters, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
