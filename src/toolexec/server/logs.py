"""The path from a call to its client while the request lasts: progress, and messages of tools."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, cast, get_args

from mcp_types import (
    LOG_LEVEL_META_KEY,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)

from toolexec.model.call import Progress
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Origin
from toolexec.model.redaction import redactor
from toolexec.model.visible import visible, visible_line
from toolexec.server.callers import RequestContext, connection_of, is_modern

_LEVELS: Final[tuple[LoggingLevel, ...]] = get_args(LoggingLevel)
_LEVEL_KEY = "toolexec.log_level"
_DEFAULT_LEVEL: Final[LoggingLevel] = "info"
_BACKLOG = 200
_MESSAGE = 10_000
_APART_SECONDS = 0.02


def set_log_level(ctx: RequestContext, level: LoggingLevel) -> None:
    """Remember from which level on the client of this connection wants messages; without it, from `info` on."""
    connection_of(ctx).state[_LEVEL_KEY] = level


def _wanted(ctx: RequestContext) -> frozenset[str]:
    """Return the levels that this request's client wants; in the newer era none, unless the request names one."""
    if is_modern(ctx):
        floor = cast("JSONDict", ctx.meta or {}).get(LOG_LEVEL_META_KEY)
        return frozenset(_LEVELS[_LEVELS.index(floor) :]) if floor in _LEVELS else frozenset()
    floor = connection_of(ctx).state.get(_LEVEL_KEY, _DEFAULT_LEVEL)
    return frozenset(_LEVELS[_LEVELS.index(floor) :])


class Line:
    """The way from a call to the client whose request is open just now; what comes while none is open is lost.

    A call that waits for answers goes through several requests, each with a stream of its own. `latest` is the progress
    that was reported last, also while no request was open.
    """

    __slots__ = ("_talk", "latest")

    def __init__(self) -> None:
        self.latest: Progress | None = None
        self._talk: _Talk | None = None

    @asynccontextmanager
    async def open(self, ctx: RequestContext) -> AsyncGenerator[None, None]:
        """Send the messages of the call in the block to the client of *ctx*, all of them by the time it ends well."""
        talk = self._talk = _Talk(ctx)
        try:
            yield
        except BaseException:
            talk.stop()
            raise
        finally:
            self._talk = None
        await talk.finish()

    def listening(self, origin: Origin) -> Origin:
        """Return *origin* with the messages of its calls passed on to this line."""
        return replace(origin, hear=self.log)

    def progress(self, progress: Progress) -> None:
        """Pass progress on, if the client asked for it; must be called on the event loop."""
        self.latest = progress
        if self._talk is not None:
            self._talk.progress(progress)

    def log(self, level: str, message: str) -> None:
        """Pass a message on, if the client wants those of its level; must be called on the event loop."""
        if self._talk is not None:
            self._talk.log(level, message)


class _Talk:
    """Sends what is said during one request, in order, never faster than the client reads."""

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._levels = _wanted(ctx)
        self._wants_progress = (ctx.meta or {}).get("progress_token") is not None
        self._logs: deque[tuple[LoggingLevel, str]] = deque()
        self._lost = 0
        self._latest: Progress | None = None
        self._reported = float("-inf")
        self._sent_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def progress(self, progress: Progress) -> None:
        if self._wants_progress and progress.done > self._reported:
            self._reported = progress.done
            self._latest = progress
            self._wake()

    def log(self, level: str, message: str) -> None:
        if level not in self._levels:
            return
        if len(self._logs) >= _BACKLOG:
            self._lost += 1
        else:
            self._logs.append((cast("LoggingLevel", level), visible(redactor.text(message), _MESSAGE)))
        self._wake()

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._logs or self._lost or self._latest is not None:
            while self._logs:
                await self._send_message(*self._logs.popleft())
            if self._lost:
                lost, self._lost = self._lost, 0
                await self._send_message("warning", f"{lost} messages were lost: they came faster than they were read")
            if self._latest is not None:
                await self._apart()
                latest, self._latest = self._latest, None
                await self._ctx.session.report_progress(
                    latest.done, latest.total, visible_line(redactor.text(latest.message), 1000) or None
                )
                self._sent_at = asyncio.get_running_loop().time()

    async def _apart(self) -> None:
        """Wait until it is time for one more notice of progress; at the end of the request it always is."""
        wait = self._sent_at + _APART_SECONDS - asyncio.get_running_loop().time()
        if wait > 0 and not self._hurry.is_set():
            await asyncio.wait([asyncio.ensure_future(self._hurry.wait())], timeout=wait)

    async def _send_message(self, level: LoggingLevel, text: str) -> None:
        params = LoggingMessageNotificationParams(level=level, data=text, logger="toolexec")
        await self._ctx.session.send_notification(
            LoggingMessageNotification(params=params), related_request_id=self._ctx.request_id
        )

    async def finish(self) -> None:
        """Send what is left."""
        self._hurry.set()
        try:
            while self._task is not None and not self._task.done():
                await self._task
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()
