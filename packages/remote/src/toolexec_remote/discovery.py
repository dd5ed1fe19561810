"""Which endpoints there are: those that settings name, every address of a name, and every line of a file.

Names and files are looked up again and again while endpoints are used. What cannot be looked up stays as it was.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from toolexec.errors import SandboxUnavailableError, ToolExecError
from toolexec.remote import look_up
from toolexec_remote.sources import FileSource, Member, NameSource

if TYPE_CHECKING:
    from toolexec.remote import RemoteSettings
    from toolexec_remote.sources import LookUp, Source

logger: logging.Logger = logging.getLogger(__name__)
_PATIENCE: Final = 5.0
"""How long one look may take."""
_IDLE_AFTER: Final = 60.0
_IDLE_INTERVAL: Final = 30.0
"""How often it is looked while nothing was run for so many seconds."""


class Discovery:
    """Finds the endpoints of *settings*; *addresses_of* gives the addresses of a name. Belongs to one event loop.

    `on_look` is called after each look that may have changed something. Nothing is looked up before `use`.
    """

    def __init__(self, settings: RemoteSettings, addresses_of: LookUp = look_up) -> None:
        self.on_look: Callable[[], None] = lambda: None
        self._interval = settings.discovery_interval
        self._sources: dict[str, Source] = {}
        self._found: dict[str, tuple[Member, ...]] = {}
        for entry in settings.endpoints:
            if entry.startswith("dns+"):
                self._sources[entry] = NameSource(entry, settings, addresses_of)
            elif entry.startswith("file:"):
                self._sources[entry] = FileSource(entry, settings)
            self._found[entry] = () if entry in self._sources else (Member(entry),)
        self.problems: dict[str, ToolExecError] = {}
        """What is wrong with names and files, by their entries in the settings."""
        self.members: tuple[Member, ...] = self._united()
        """The endpoints that are known, each once."""
        self._unseen = {*self._sources}
        self._looked = asyncio.Event()
        self._hurry = asyncio.Event()
        self._used = 0.0
        self._watching: list[asyncio.Task[None]] = []
        self._closed = False

    async def use(self, seconds: float) -> None:
        """Look from now on; return once there is an endpoint, or each name and file was looked up, or after so many
        seconds."""
        self.touch()
        if not self._watching and not self._closed:
            self._watching = [asyncio.create_task(self._watch(*item)) for item in self._sources.items()]
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                while self._unseen and not self.members and not self._closed:
                    self._looked.clear()
                    await self._looked.wait()

    def touch(self) -> None:
        """Note that the endpoints are used: then they are looked up often."""
        now = asyncio.get_running_loop().time()
        if now - self._used > _IDLE_AFTER:
            self._hurry.set()  # those who wait for it go on
            self._hurry.clear()
        self._used = now

    @property
    def names(self) -> tuple[str, ...]:
        """The URLs of the endpoints."""
        return tuple(member.endpoint for member in self.members)

    def member(self, endpoint: str) -> Member:
        """Return the endpoint with this URL."""
        return next((member for member in self.members if member.endpoint == endpoint), Member(endpoint))

    @property
    def is_hopeless(self) -> bool:
        """Whether names and files will give no further endpoint, however long one waits."""
        problems = [self.problems.get(entry) for entry in self._sources if not self._found[entry]]
        return all(problem is not None and not problem.retryable for problem in problems)

    @property
    def states(self) -> dict[str, str]:
        """What is to be said of names and files that have no endpoints, or have some that are refused."""
        said = {entry: str(problem) for entry, problem in self.problems.items()}
        return {**said, **dict.fromkeys(self._unseen, "it is being looked up")}

    async def aclose(self) -> None:
        """Look no more."""
        self._closed = True
        tasks, self._watching = self._watching, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for source in self._sources.values():
            await source.aclose()
        self._looked.set()

    async def _watch(self, entry: str, source: Source) -> None:
        while True:
            await self._look(entry, source)
            self._unseen.discard(entry)
            self._looked.set()
            self.on_look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._hurry.wait()

    async def _look(self, entry: str, source: Source) -> None:
        """Look once; what fails changes nothing but the problem that is known."""
        try:
            async with asyncio.timeout(_PATIENCE):
                found, problem = await source.look()
        except TimeoutError:
            late = f"it was not looked up within {_PATIENCE:g} s"
            self.problems[entry] = SandboxUnavailableError(late, retryable=True)
        except ToolExecError as error:
            self.problems[entry] = error
        except (OSError, ValueError) as error:
            self.problems[entry] = SandboxUnavailableError(f"it cannot be looked up: {error}", retryable=True)
        except Exception as error:
            logger.exception("%s cannot be looked up", entry)
            self.problems[entry] = SandboxUnavailableError(f"it cannot be looked up: {error}", retryable=True)
        else:
            self.problems.pop(entry, None)
            if problem is not None:
                self.problems[entry] = problem
            if found:
                self._found[entry] = found
                self.members = self._united()

    def _united(self) -> tuple[Member, ...]:
        united: dict[str, Member] = {}
        for found in self._found.values():
            for member in found:
                united.setdefault(member.endpoint, member)
        return tuple(united.values())

    def _pause(self) -> float:
        is_idle = asyncio.get_running_loop().time() - self._used > _IDLE_AFTER
        seconds = max(self._interval, _IDLE_INTERVAL) if is_idle else self._interval
        return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - so that callers do not come at once
