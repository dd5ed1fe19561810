"""What the launchers share whose containers a daemon runs: one connection, the names of its images, containers that it
is asked about, and what could not be removed yet.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Generic, Protocol, TypeVar

from toolexec.errors import MissingExtraError
from toolexec.model.settings import checked
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.engine import Exit, Image
from toolexec.runtime.containers.launcher import BaseContainer, Launcher
from toolexec.runtime.images.resolver import PullPolicy, parse_reference

logger: logging.Logger = logging.getLogger(__name__)


class ImageNames(Protocol):
    """Resolves names of images for one daemon."""

    async def resolve(self, name: str) -> Image:
        """Return the image *name*. Raises SandboxUnavailableError."""
        ...


ClientT = TypeVar("ClientT")
ImagesT = TypeVar("ImagesT", bound=ImageNames)


@dataclass(frozen=True, slots=True)
class Daemon(Generic[ClientT, ImagesT]):
    """A daemon that answers: the client of its API, and what is known of its images."""

    client: ClientT
    images: ImagesT


@checked("DaemonConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig(ContainerConfig):
    """How a container sandbox is set up whose daemon has images of its own.

    `pull` says when an image is fetched: `missing` (when the daemon has none), `always` or `never`.

    Raises ConfigurationError, too, for an image with an invalid name, and for another policy.
    """

    pull: PullPolicy = "missing"

    def __post_init__(self) -> None:
        ContainerConfig.__post_init__(self)
        parse_reference(self.image)


class DaemonLauncher(Launcher, Generic[ClientT, ImagesT]):
    """A launcher with one connection to a daemon, made when it is first needed.

    Beside what each launcher has, an engine adds `_open` and `_hang_up` for the connection, and `_remove`.
    """

    extra: ClassVar[str]
    """The extra that installs what talks to the daemon; also what the sandbox is called."""
    modules: ClassVar[tuple[str, ...]]
    """The modules that import it."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()
        self._connection: Daemon[ClientT, ImagesT] | None = None
        self._left: set[str] = set()

    @property
    def left(self) -> frozenset[str]:
        """See `ContainerEngine.left`."""
        return frozenset(self._left)

    async def sweep(self) -> None:
        """Implement `ContainerEngine.sweep`. What this engine itself could not remove, its daemon being gone, goes
        too.
        """
        try:
            await self._sweep()
        except Exception as error:
            logger.warning("what dead hosts have left in %s cannot be removed: %s", self.extra, error)

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`."""
        async with self._turn:
            connection, self._connection = self._connection, None
        if connection is not None:
            await self._remove_all(connection.client, self._left)
            await self._hang_up(connection.client)

    async def resolve(self, image: str) -> Image:
        """Implement `ContainerEngine.resolve`."""
        return await (await self._connect()).images.resolve(image)

    async def _connect(self) -> Daemon[ClientT, ImagesT]:
        """Return the connection. Raises MissingExtraError, and what `_open` raises."""
        async with self._turn:
            if self._connection is None:
                try:
                    await asyncio.to_thread(_import_client, self.modules)
                except ImportError as error:
                    raise MissingExtraError(self.extra, needed_for=f"the {self.extra} sandbox") from error
                self._connection = await self._open()
            return self._connection

    async def _remove_all(self, client: ClientT, ids: Collection[str]) -> None:
        """Remove containers; those that cannot be removed, and that this engine has made, stay in `left`."""

        async def one(id: str) -> None:
            if await self._remove(client, id):
                self._left.discard(id)

        await asyncio.gather(*map(one, [*ids]))

    @abstractmethod
    async def _open(self) -> Daemon[ClientT, ImagesT]:
        """Make the connection; the modules are imported."""

    @abstractmethod
    async def _hang_up(self, client: ClientT) -> None:
        """Close the connection."""

    @abstractmethod
    async def _remove(self, client: ClientT, id: str) -> bool:
        """Kill a container and remove it; False if that cannot be done. Does not raise."""


class DaemonContainer(BaseContainer):
    """A container of a daemon, which is asked how it ended by the task `_watching`.

    Its ID is in *left* while it should be gone and cannot be removed.
    """

    def __init__(self, id: str, left: set[str]) -> None:
        super().__init__(id)
        self._left = left
        self._gone: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._watching: asyncio.Task[None] | None = None

    async def wait(self) -> Exit:
        """Implement `Container.wait`."""
        return await asyncio.shield(self._gone)

    def _end(self, exit: Exit) -> None:
        """Note how it ended; only the first word counts."""
        if not self._gone.done():
            self._gone.set_result(exit)

    async def _stop_watching(self, exit: Exit, patience: float = 0.0) -> None:
        """Ask no more, after some seconds of *patience*; *exit* is what counts then if the daemon has said nothing."""
        if self._watching is not None:
            await asyncio.wait({self._watching}, timeout=patience)
            self._watching.cancel()
            await asyncio.wait({self._watching})
        self._end(exit)


def _import_client(modules: Collection[str]) -> None:
    """In a thread: it takes a while."""
    for name in modules:
        import_module(name)
