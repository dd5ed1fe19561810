"""Chromium without a screen, by the two pipes of its protocol: what opens the pages of the site as a reader does."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Generator, Iterator
from typing import Any, Final

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SWITCHES: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--password-store=basic",
)
_SECONDS: Final = 120.0


class BrowserError(Exception):
    """The browser is not there, has ended, did not answer in time, or refused."""


class Browser:
    """One process of Chromium. Its tabs answer one after the other: nothing here runs beside them."""

    def __init__(self, profile: str) -> None:
        program = next(filter(None, map(shutil.which, _NAMES)), None)
        if program is None:
            raise BrowserError("there is no Chromium: `apt-get install chromium` has it")
        switches = [*_SWITCHES, f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            switches.append("--no-sandbox")  # which it refuses to run without for root
        theirs, self._to = os.pipe()
        self._from, back = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs, back)]
        os.close(theirs)
        os.close(back)
        null = os.open(os.devnull, os.O_RDWR)
        # It reads at 3 and writes at 4; subprocess has no way to say so.
        places = [(os.POSIX_SPAWN_DUP2, null, each) for each in range(3)]
        places += [(os.POSIX_SPAWN_DUP2, end, 3 + each) for each, end in enumerate(ends)]
        self._pid = os.posix_spawn(program, [program, *switches], os.environ, file_actions=places, setsid=True)
        for each in (*ends, null):
            os.close(each)
        self._unread = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command. Raises BrowserError where it is refused, or none comes in two minutes."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        data = json.dumps(command | ({"sessionId": session} if session else {})).encode() + b"\0"
        while data:
            try:
                data = data[os.write(self._to, data) :]
            except OSError as error:
                raise BrowserError(f"the browser has ended: {error}") from None
        ends = time.monotonic() + _SECONDS
        while (answer := self._next(ends, method)).get("id") != self._number:
            self._events.append(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def event(self, method: str, session: str) -> dict[str, Any]:
        """Return the next event of a kind, once; the others stay. Raises BrowserError as above."""
        ends = time.monotonic() + _SECONDS
        while True:
            for place, each in enumerate(self._events):
                if each.get("method") == method and each.get("sessionId") == session:
                    del self._events[place]
                    return each["params"]
            self._events.append(self._next(ends, method))

    def taken(self, session: str) -> list[dict[str, Any]]:
        """Return all events of a session that were not asked for, and forget those."""
        found = [each for each in self._events if each.get("sessionId") == session]
        self._events = [each for each in self._events if each.get("sessionId") != session]
        return found

    def _next(self, ends: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, ends - time.monotonic()))
            if not ready:
                raise BrowserError(f"the browser gave no answer to {what} in {_SECONDS:.0f} s")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise BrowserError("the browser has ended")
            self._unread += data
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        """End it, and all that it has started."""
        with contextlib.suppress(BrowserError):
            self.ask("Browser.close")
        for each in (self._to, self._from):
            os.close(each)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


class Tab:
    """One page of the browser, of a size and a colour scheme; its profile is empty."""

    def __init__(self, browser: Browser, width: int, height: int, scheme: str) -> None:
        self._browser = browser
        self._context = browser.ask("Target.createBrowserContext")["browserContextId"]
        target = browser.ask("Target.createTarget", url="about:blank", browserContextId=self._context)["targetId"]
        self._session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command of this page. Raises BrowserError as that of the browser does."""
        return self._browser.ask(method, self._session, **parameters)

    def open(self, url: str) -> None:
        """Go to an address, and wait until it is loaded. Raises BrowserError as above, and where nothing answers."""
        self._browser.taken(self._session)
        answer = self.ask("Page.navigate", url=url)
        if answer.get("errorText"):
            raise BrowserError(f"{url}: {answer['errorText']}")
        self.loaded()

    def loaded(self) -> None:
        """Wait until the page that it goes to is loaded."""
        self._browser.event("Page.loadEventFired", self._session)

    def value(self, expression: str) -> Any:
        """Return what JavaScript gives, as JSON; a promise is waited for. Raises BrowserError where that throws."""
        answer = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if thrown := answer.get("exceptionDetails"):
            raise BrowserError(thrown.get("exception", {}).get("description") or thrown["text"])
        return answer["result"].get("value")

    def complaints(self) -> Iterator[str]:
        """Yield what has failed since the page was opened: scripts, and files that did not come."""
        self.value("1")  # what comes before its answer has come
        for event in self._browser.taken(self._session):
            given = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                thrown = given["exceptionDetails"]
                yield f"a script failed: {thrown.get('exception', {}).get('description') or thrown['text']}"
            elif event["method"] == "Log.entryAdded" and given["entry"]["level"] == "error":
                yield f"{given['entry']['text']} {given['entry'].get('url', '')}".strip()
            elif event["method"] == "Network.loadingFailed" and not given.get("canceled"):
                yield f"a file did not come: {given['errorText']}"

    def picture(self) -> bytes:
        """Return what is seen, as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """Close it, and forget its profile."""
        self._browser.ask("Target.disposeBrowserContext", browserContextId=self._context)
        self._browser.taken(self._session)


@contextlib.contextmanager
def started() -> Generator[Browser, None, None]:
    """Give a browser with an empty profile. Raises BrowserError where there is none."""
    with tempfile.TemporaryDirectory(prefix="toolexec-browser-", ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            yield browser
        finally:
            browser.close()
