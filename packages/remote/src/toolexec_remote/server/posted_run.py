"""One run that came by POST: what it printed, and the events that those who wait for it read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from aiohttp import web

from toolexec.errors import SandboxFailedError, SandboxUnavailableError
from toolexec.remote import Stream
from toolexec_remote.server.remote_run import Outcome, RemoteRun

EVENTS: Final = "text/event-stream"
_COMMENT_SECONDS: Final = 15.0


class PostWatcher:
    """Keeps what a run by POST printed, for those who read it as events, once or again."""

    def __init__(self) -> None:
        self.run: RemoteRun | None = None
        self.events: list[tuple[Stream, str]] = []
        self.is_started = False
        self._loop = asyncio.get_running_loop()
        self._changed: set[asyncio.Event] = set()
        self._away: asyncio.TimerHandle | None = None

    def ready(self, seconds: float) -> None:
        """Implement `Watcher.ready`: the request itself is the confirmation."""

    def started(self) -> None:
        """Implement `Watcher.started`."""
        self.is_started = True
        self._notify()

    def printed(self, stream: Stream, text: str) -> None:
        """Implement `Watcher.printed`. From any thread."""
        self.events.append((stream, text))
        try:
            self._loop.call_soon_threadsafe(self._notify)
        except RuntimeError:  # the loop is closed: there is no listener left
            return

    def done(self, outcome: Outcome) -> None:
        """Implement `Watcher.done`."""
        self.run = None  # which knows this
        self._notify()

    def _notify(self) -> None:
        for event in self._changed:
            event.set()

    @contextmanager
    def watched(self, patience: float) -> Generator[asyncio.Event]:
        """Give what is set at every change. When the last block of this ends before the run does, it is given up: what
        has started after *patience* seconds, unless a block begins meanwhile, and what has not at once."""
        changed = asyncio.Event()
        self._changed.add(changed)
        if self._away is not None:
            self._away.cancel()
            self._away = None
        try:
            yield changed
        finally:
            self._changed.discard(changed)
            if not self._changed and self.run is not None:
                if self.is_started:
                    self._away = self._loop.call_later(patience, self._give_up)
                else:
                    self.run.stop(SandboxUnavailableError("the caller hung up before this run started", retryable=True))

    def _give_up(self) -> None:
        if self.run is not None:
            self.run.stop(SandboxFailedError("the caller hung up, and did not come back in time"))

    async def begun(self, run: RemoteRun, changed: asyncio.Event) -> bool:
        """Wait until *run* has started, or is over; return whether it was not refused."""
        while not self.is_started and run.outcome is None:
            changed.clear()
            await changed.wait()
        return run.outcome is None or run.outcome.kind != "refused"


async def send_events(
    response: web.StreamResponse,
    run: RemoteRun,
    watcher: PostWatcher,
    changed: asyncio.Event,
    after: int,
    prove: Callable[[], str],
    unread: Callable[[str, int], AbstractContextManager[None]],
) -> None:
    """Send what happens as events: each has the ID `<run>:<number>`, and those up to *after* are left out."""
    sent = after
    while True:
        changed.clear()
        while sent < len(watcher.events):
            kind, text = watcher.events[sent]
            sent += 1
            await response.write(_event(kind, text, f"{run.id}:{sent}"))
        if run.outcome is not None and sent >= len(watcher.events):
            with unread(run.account, len(run.outcome.body)):
                await response.write(ending(run.outcome, f"{run.id}:{sent + 1}", prove))
            return
        try:
            async with asyncio.timeout(_COMMENT_SECONDS):
                await changed.wait()
        except TimeoutError:
            await response.write(b":\n\n")  # a proxy in between takes a silent connection for dead


def _event(kind: str, text: str, name: str) -> bytes:
    """Return an event. Its lines end where those of the stream end, at a carriage return, too; the result has the text
    as it was."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"event: {kind}\nid: {name}\n{lines}\n".encode("utf-8", "replace")


def ending(outcome: Outcome, name: str, prove: Callable[[], str] = str) -> bytes:
    """Return the last event: `result` with the result, or `error` with the whole response."""
    whole = json.loads(outcome.body)
    if outcome.kind == "refused":
        return _event("error", json.dumps({**whole, "proof": prove()}, separators=(",", ":")), name)
    if "error" in whole:
        return _event("error", outcome.body.decode(), name)
    return _event("result", json.dumps(whole["result"], separators=(",", ":")), name)
