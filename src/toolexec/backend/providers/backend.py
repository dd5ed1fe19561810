"""The backend of every provider that reads its tools from a definition."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from toolexec.backend.base import BackendStatus, ToolsListener
from toolexec.backend.failures import handler_failure
from toolexec.backend.figures import CallFigures
from toolexec.backend.providers.source import Definition, ProvidedTool, Source
from toolexec.errors import (
    BackendDisabledError,
    BackendError,
    BackendNotFoundError,
    BackendUnavailableError,
    ConfigurationError,
    ExecutionError,
    InputValidationError,
    Outcome,
    PolicyError,
    RateLimitedError,
    StreamNotSupportedError,
    ToolExecError,
)
from toolexec.model.binding import BindingKind, ProviderBinding
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.ids import check_segment
from toolexec.model.json_value import JSONDict
from toolexec.model.settings import check_ranges, checked
from toolexec.model.tool import Tool

if TYPE_CHECKING:
    from toolexec.net.oauth.session import LoginStatus, OAuthSession

logger: logging.Logger = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_FIRST_RETRY: Final = 1.0
_RETRIES: Final = 10


@checked("provider")
class SourceBackend:
    """Hosts the tools that *source* reads.

    It never fails to start: what cannot be read leaves the backend unavailable, with the reason in its status, and is
    tried again when a call needs it, at most once in a pause that grows from half a second to 30, and up to 10 times by
    itself after such pauses, unless its settings are what is wrong. *refresh* is the number of seconds after which the
    definition is read again (0: only by `refresh`); one that cannot be read again leaves the tools as they were.
    *timeout* bounds one reading, in seconds. *clock* gives seconds. Raises ConfigurationError for a name that is not
    one, and for times below 0.
    """

    kind: BindingKind = "provider"

    def __init__(
        self,
        name: str,
        source: Source,
        *,
        enabled: bool = True,
        refresh: float = 0.0,
        timeout: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        problem = check_segment(name)
        if problem:
            raise ConfigurationError(f"provider {name!r}: its name {problem}")
        check_ranges(f"provider {name}", above={"load_timeout": timeout}, least={"refresh": refresh})
        self.name = name
        self.enabled = enabled
        self.source = source
        self._every = refresh
        self._timeout = timeout
        self._clock = clock
        self._tools: dict[str, ProvidedTool] = {}
        self._definition: Definition | None = None
        self._reason: str | None = "not started"
        self._listeners: list[ToolsListener] = []
        self._reading = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        self._retrying: asyncio.Task[None] | None = None
        self._retries_left = 0
        self._is_lasting = False  # what keeps it from being read will not pass
        self._readings = self._failed_readings = self._unchanged_readings = 0
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0
        self._figures = CallFigures()
        self._closed = False

    def status(self) -> BackendStatus:
        """Return how the provider is; `info` has the number of calls and of errors, the median latency of the last 100
        in milliseconds, the last error, how often the definition was read, could not be read and was the same
        as before, and how often it will yet be tried, beside what the source says."""
        readings = {"readings": self._readings, "failed_readings": self._failed_readings}
        readings["unchanged_readings"] = self._unchanged_readings
        readings["retries_left"] = self._retries_left
        info: JSONDict = {"provider": self.source.kind, **self.source.info(), **self._figures.info()}
        info |= {name: count for name, count in readings.items() if count}
        return BackendStatus(
            name=self.name,
            kind="provider",
            enabled=self.enabled,
            available=self.enabled and self._definition is not None and not self._closed,
            reason=self._reason if self.enabled else "switched off",
            tools=len(self._tools),
            skipped=dict(self._definition.skipped) if self._definition is not None else {},
            info=info,
        )

    async def start(self) -> None:
        """Read the definition; returns after the first attempt, also when it failed (see `status`)."""
        if not self.enabled or self._closed:
            return
        if self._definition is None:
            await self._read()
        if self._every and self._refreshing is None:
            self._refreshing = self._begin(self._refresh_regularly(), "refresh")
        if self._definition is None and not self._is_lasting and self._retrying is None:
            self._retries_left = _RETRIES
            self._retrying = self._begin(self._retry(), "retry")

    async def refresh(self) -> BackendStatus:
        """Read the definition again and return the status after it; the tools stay as they are if that fails."""
        if self.enabled and not self._closed:
            await self._read()
        return self.status()

    async def log_in(
        self,
        show: Callable[[str, str], Awaitable[object]],
        *,
        device: bool = False,
        scopes: Sequence[str] = (),
        caller: str = "",
    ) -> LoginStatus:
        """Log in to the API, for all calls after that; see `LoginBackend.log_in`."""
        from toolexec.net.oauth.login import log_in

        return await log_in(await self.login_of(caller), show, device=device, scopes=scopes)

    async def log_out(self, *, caller: str = "") -> bool:
        """Forget the login to the API; see `LoginBackend.log_out`."""
        return await (await self.login_of(caller)).logout()

    async def login_of(self, caller: str) -> OAuthSession:
        """Return the login of *caller*, empty for that of all; see `LoginBackend.login_of`."""
        from toolexec.backend.providers.logins import LoginSource

        found = await self.source.find_logins() if isinstance(self.source, LoginSource) else None
        if found is None:
            raise ConfigurationError(f"provider {self.name} takes no login: nothing in its auth is of kind oauth")
        if bool(caller) == found.is_shared:
            what = 'has one login for all callers; set per = "caller" in its auth' if caller else "has one per caller"
            raise ConfigurationError(
                f"provider {self.name} {what}{'' if caller else ': say whose it is (--caller ID)'}"
            )
        return found.of(caller)

    async def aclose(self) -> None:
        """Stop refreshing and close the source."""
        self._closed, self._reason = True, "closed"
        tasks = [task for task in (self._refreshing, self._retrying) if task is not None]
        self._refreshing = self._retrying = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.source.aclose()

    async def list_tools(self) -> Sequence[Tool]:
        """Return the tools as last read; reads them first if that has not happened yet.

        Raises BackendUnavailableError when they cannot be read.
        """
        if self.enabled:
            await self._ready()
        return [each.tool for each in self._tools.values()]

    def bind(self, tool: Tool) -> ProviderBinding:
        """Return the binding of one of these tools."""
        found = self._tools.get(tool.name)
        return ProviderBinding(self.name, tool.name, found.destination if found is not None else "")

    def on_tools(self, listener: ToolsListener) -> Callable[[], None]:
        """Have *listener* called with all tools after each reading, and now if there was one; see `LiveBackend`."""
        self._listeners.append(listener)
        if self._definition is not None:
            self._notify(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    async def call(self, name: str, call: ToolCall) -> Any:
        """Make the call; see `Backend.call`."""
        found = await self._find(name, call)
        begun = time.perf_counter()
        try:
            answer = await found.call(call)
        except BaseException as error:
            raise self._failure(name, error, generating=False)  # noqa: B904 - it has its cause
        self._figures.answered(begun)
        return answer

    async def stream(self, name: str, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `StreamingBackend.stream`."""
        found = await self._find(name, call)
        if found.stream is None:
            if not call.fallback:
                raise StreamNotSupportedError(f"{self.name}:{name} answers in one piece", backend=self.name)
            yield StreamEvent(kind="done", data=await self.call(name, call))
            return
        begun = time.perf_counter()
        try:
            async with aclosing(found.stream(call)) as events:
                async for event in events:
                    yield event
        except BaseException as error:
            raise self._failure(name, error, generating=True)  # noqa: B904 - it has its cause
        self._figures.answered(begun)

    async def _find(self, name: str, call: ToolCall) -> ProvidedTool:
        if not self.enabled:
            raise BackendDisabledError(f"provider {self.name} is switched off", backend=self.name)
        if self._definition is None or self._closed:
            call.waiting = f"the definition of provider {self.name}"
            await self._ready()
            call.waiting = ""
        found = self._tools.get(name)
        if found is None:
            raise BackendNotFoundError(f"provider {self.name} has no tool {name} any more", backend=self.name)
        return found

    def _failure(self, name: str, error: BaseException, *, generating: bool) -> ToolExecError:
        """Return what a call that ended with *error* reports; raises a cancellation that was asked for."""
        if isinstance(error, BackendError | InputValidationError | ExecutionError | PolicyError | RateLimitedError):
            failure: ToolExecError = error
        else:  # the source does not say what became of the call
            failure = handler_failure(f"{self.name}:{name}", error, generating=generating)
            failure.outcome = error.outcome if isinstance(error, ToolExecError) else Outcome.UNKNOWN
        self._figures.failed(failure.message)
        return failure

    async def _ready(self) -> None:
        """Wait until the definition was read. Raises BackendUnavailableError with the reason when it cannot be."""
        if self._definition is None and not self._closed:
            await self._read(first=True)
        if self._definition is None or self._closed:
            raise BackendUnavailableError(f"provider {self.name} is not available: {self._reason}", backend=self.name)

    async def _read(self, *, first: bool = False) -> None:
        """Read the definition and publish its tools; a failure becomes the reason. *first* keeps to the pauses."""
        async with self._reading:
            if self._closed or (first and (self._definition is not None or self._clock() < self._not_before)):
                return
            self._readings += 1
            self._is_lasting = False
            try:
                async with asyncio.timeout(self._timeout):
                    definition = await self.source.load()
            except TimeoutError:
                self._failed(f"its definition was not there within {self._timeout:g} s")
            except Exception as error:
                self._is_lasting = isinstance(error, ConfigurationError)
                self._failed(error.message if isinstance(error, ToolExecError) else f"{type(error).__name__}: {error}")
                if not isinstance(error, ToolExecError | OSError):
                    logger.exception("provider %s cannot be read", self.name)
            else:
                self._publish(definition)

    def _failed(self, reason: str) -> None:
        self._failed_readings += 1
        self._figures.last_error = reason
        if self._definition is None:
            self._reason = reason
        self._not_before = self._clock() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        logger.warning("provider %s: %s", self.name, reason)

    def _publish(self, definition: Definition) -> None:
        is_known = definition is self._definition
        self._definition, self._reason, self._pause = definition, None, _FIRST_PAUSE
        if is_known:  # the source has found nothing new
            self._unchanged_readings += 1
            return
        self._tools = {each.tool.name: each for each in definition.tools}
        for listener in list(self._listeners):
            self._notify(listener)

    def _notify(self, listener: ToolsListener) -> None:
        try:
            listener([each.tool for each in self._tools.values()])
        except Exception:
            logger.exception("a tools listener of provider %s failed", self.name)

    def _begin(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Begin what outlives the call that the backend is started for: that call's trace and caller are not its."""
        return asyncio.create_task(work, name=f"toolexec-{what}-{self.name}", context=contextvars.Context())

    async def _retry(self) -> None:
        """Read the definition as soon as that can be done, with pauses, and not too often."""
        while self._retries_left and self._definition is None and not self._is_lasting:
            await asyncio.sleep(max(self._pause, _FIRST_RETRY))
            self._retries_left -= 1
            await self._read(first=True)
        self._retries_left = 0

    async def _refresh_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self._read()
