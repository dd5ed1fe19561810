"""Where an `Exec`'s tools come from: its backends, started together, their tools kept in the index."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolexec.backend.base import Backend, BackendStatus, LiveBackend, RefreshableBackend
from toolexec.backend.catalog import Catalog
from toolexec.backend.offering import OffersMore
from toolexec.backend.owners import Owners
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.index import Index
from toolexec.discovery.stored import StoredIndex
from toolexec.errors import BackendError, BackendNotFoundError, ConfigurationError, InvalidSchemaError
from toolexec.errors.hints import did_you_mean
from toolexec.exec.home import Home, closed_error
from toolexec.exec.under_way import UnderWay
from toolexec.model.json_value import JSONObject

if TYPE_CHECKING:
    from toolexec.backend.mcp import MCPServer, MCPSettings
    from toolexec.model.transform import Transforms

logger: logging.Logger = logging.getLogger(__name__)


class Added(Sequence[Backend]):
    """The backends that were just registered. Await it to have them connected now, and get their statuses; otherwise
    that happens when the Exec starts, or at the first call that needs it."""

    def __init__(
        self,
        backends: Sequence[Backend],
        start: Callable[[], Coroutine[Any, Any, None]],
        status: Callable[[Backend], BackendStatus],
    ) -> None:
        self._backends = tuple(backends)
        self._start = start
        self._status = status

    def __getitem__(self, index: Any) -> Any:
        return self._backends[index]

    def __len__(self) -> int:
        return len(self._backends)

    def __await__(self) -> Generator[Any, Any, list[BackendStatus]]:
        yield from self._start().__await__()
        return [self._status(backend) for backend in self._backends]


class Sources:
    """The backends of an Exec, other than the one for its own Python functions."""

    def __init__(
        self,
        index: Index,
        backends: BackendRegistry,
        start_timeout: float,
        home: Home,
        transforms: Transforms | None = None,
    ) -> None:
        self._index = index
        self._backends = backends
        self.start_timeout = start_timeout
        self.runtime_backends: object = None
        """Those of the options, which may say where the engines of sandboxes are."""
        self._home = home
        self._transforms = transforms
        self._catalogs: dict[str, Catalog] = {}
        self._owners = Owners(index)
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._failed: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self.closed: bool = False
        """Whether the Exec was closed: then all backends are `pending`, and no start is possible."""
        self.under_way: UnderWay = UnderWay()
        """The runs that use them, which end before they do."""
        self.pending: list[Backend] = []
        """Backends that are not started yet."""
        self._recorded: BackendRegistry | None = None

    def add(self, backends: Sequence[Backend]) -> Added:
        """Register and adopt *backends*; raises BackendError for a name in use, with none of them added, and
        ConfigurationError after `aclose`."""
        self.check_open()
        for backend in backends:
            if not hasattr(backend, "list_tools") or not hasattr(backend, "call"):
                raise ConfigurationError(f"add_backends: a backend has list_tools, call and more, unlike {backend!r}")
        names = [backend.name for backend in backends]
        for name in names:
            if self._backends.get(name) is not None or names.count(name) > 1:
                raise BackendError(
                    f"a backend named {name} is there already; remove it first, or choose another name",
                    backend=name,
                    code="backend_exists",
                )
        for backend in backends:
            self._backends.register(backend)
            self.adopt(backend)
        return Added(backends, self.start, self._status)

    def add_mcp(
        self, name: str, command: str | Sequence[str], args: Sequence[str], url: str, settings: MCPSettings
    ) -> Added:
        """Add an MCP server; see `Exec.add_mcp`."""
        from toolexec.exec.servers import mcp_server

        return self._add_servers([mcp_server(name, command, args, url, settings)])

    def add_config(self, path: str | Path) -> Added:
        """Add the servers of a file; see `Exec.add_config`."""
        from toolexec.backend.mcp import read_mcp_servers

        return self._add_servers(read_mcp_servers(path))

    def add_provider(self, kind: str, name: str, settings: JSONObject) -> Added:
        """Add a provider of a *kind* that `PROVIDER_KINDS` has; see `Exec.add_openapi` and its siblings."""
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"the name of a provider must be a string, not {name!r}")
        from toolexec.backend.providers.kinds import provider_backend
        from toolexec.runtime.programs import program_sandbox

        return self.add([provider_backend(kind, name, settings, sandboxes=program_sandbox)])

    def _add_servers(self, servers: Sequence[MCPServer]) -> Added:
        from toolexec.exec.servers import server_backend

        return self.add([server_backend(server, self.runtime_backends) for server in servers])

    def adopt(self, backend: Backend) -> None:
        """Take care of a backend that is registered already."""
        is_live = isinstance(backend, LiveBackend)  # the tools of such a backend have the namespaces that they shall
        catalog = self._catalogs[backend.name] = Catalog(
            self._index, backend, self._owners, self._transforms, namespace="" if is_live else backend.name
        )
        if self._transforms is not None and isinstance(backend, OffersMore):
            backend.show_offers(self._transforms)
        if isinstance(backend, LiveBackend):
            backend.on_tools(catalog.publish)
        if self._recorded is None:
            self.pending.append(backend)

    def republish(self) -> None:
        """Have the index show the tools of all backends as the transforms of now have them; what else they offer, once
        it is read again."""
        for catalog in list(self._catalogs.values()):
            catalog.republish()
        for backend in self._backends.list():
            if isinstance(backend, OffersMore) and backend.name in self._catalogs and self._transforms is not None:
                backend.show_offers(self._transforms)

    def stay_offline(self, recorded: BackendRegistry) -> None:
        """Start no backend from now on, for *recorded* has what answers for all; to be called before the first
        start."""
        self._recorded = recorded
        self.pending = []

    async def remove(self, name: str) -> None:
        """Close a backend and take its tools out of the index; unknown names are ignored."""
        catalog = self._catalogs.pop(name, None)
        self.pending = [backend for backend in self.pending if backend.name != name]
        self._failed.pop(name, None)
        starting = self._starting.pop(name, None)
        try:
            await self._backends.unregister(name)
        finally:
            if starting is not None:
                starting.cancel()
            if catalog is not None:
                catalog.withdraw()
                await catalog.published()

    def retire(self, name: str) -> Backend | None:
        """Take a backend and its tools out without closing it; see `Exec.retire`."""
        catalog = self._catalogs.pop(name, None)
        self.pending = [backend for backend in self.pending if backend.name != name]
        self._failed.pop(name, None)
        if (starting := self._starting.pop(name, None)) is not None:  # it ends once the backend is closed
            self._leaving.add(starting)
            starting.add_done_callback(self._leaving.discard)
        backend = self._backends.retire(name)
        if catalog is not None:
            catalog.withdraw()
        return backend

    @property
    def missing(self) -> list[Backend]:
        """Backends that are not started yet, and of whose tools nothing is stored."""
        index = self._index
        if self.closed or not isinstance(index, StoredIndex):
            return self.pending
        return [backend for backend in self.pending if not index.has_stored(backend.name)]

    def is_needed(self, tool_id: str) -> bool:
        """Return whether the tool can be called only after a start: it is unknown, or stored, and its backend does not
        start at its first call. Once the Exec is closed, all are.
        """
        found = self._index.find(tool_id)
        if found is None or self.closed:
            return True
        backend = next((backend for backend in self.pending if backend.name == found.binding.backend), None)
        return backend is not None and not isinstance(backend, LiveBackend)

    def close(self) -> None:
        """Have everything that needs a backend refused from now on."""
        self.closed = True
        self.pending = [*self._backends.list()]

    def check_open(self) -> None:
        """Raise ConfigurationError once the Exec is closed."""
        if self.closed:
            raise closed_error()

    async def start(self, backends: Sequence[Backend] | None = None) -> None:
        """Start what is pending (of *backends*, if given), all at the same time, and wait at most the start timeout.

        One that is slow goes on starting, one that fails is unavailable with its reason; neither raises. Raises
        ConfigurationError after `aclose`, on another event loop, and in a child of the process that started some.
        """
        self.check_open()
        if not self.pending:
            self._home.check_process()
            return
        self._home.enter()
        async with self._lock:
            pending = [backend for backend in self.pending if backends is None or backend in backends]
            for backend in pending:
                if backend.name not in self._starting:
                    self._starting[backend.name] = asyncio.create_task(self._start(backend))
            tasks = [self._starting[backend.name] for backend in pending]
            if tasks:
                await asyncio.wait(tasks, timeout=self.start_timeout)
            self.pending = [backend for backend in self.pending if backend not in pending]

    async def _start(self, backend: Backend) -> None:
        catalog = self._catalogs[backend.name]
        try:
            await backend.start()
            if not isinstance(backend, LiveBackend) and backend.enabled:
                catalog.publish(await backend.list_tools())
            await catalog.published()
        except Exception as error:
            if self._catalogs.get(backend.name) is not catalog:
                return  # it was retired meanwhile
            logger.exception("backend %s did not start", backend.name)
            self._failed[backend.name] = f"it did not start: {type(error).__name__}: {error}"

    async def refresh(self, name: str | None = None) -> list[BackendStatus]:
        """Read the tools of a backend, or of all, again; see `Exec.refresh`."""
        known = [backend for backend in self._backends.list() if isinstance(backend, RefreshableBackend)]
        chosen = [backend for backend in known if name in (None, backend.name)]
        if name is not None and not chosen:
            names = [backend.name for backend in known]
            raise BackendNotFoundError(f"no backend {name!r} can be refreshed; {did_you_mean(name, names)}")
        if self._recorded is not None:
            return [self._status(backend) for backend in chosen]
        unread = [backend for backend in self.pending if backend in chosen]
        await self.start([backend for backend in self.pending if backend in chosen])
        await asyncio.gather(*(backend.refresh() for backend in chosen if backend.enabled and backend not in unread))
        await self._published(chosen)
        return [self._status(backend) for backend in chosen]

    async def _published(self, backends: Sequence[Backend]) -> None:
        """Wait until the index shows the tools that these backends have."""
        for backend in backends:
            catalog = self._catalogs.get(backend.name)
            if catalog is not None:
                await catalog.published()

    async def aclose(self) -> None:
        """Stop every backend, end every process; then raise an ExceptionGroup of what failed to stop, if anything."""
        self.close()
        starting, self._starting = self._starting, {}
        stopping = asyncio.ensure_future(self._backends.stop_all())
        await asyncio.wait([stopping])
        # What is done may be of an event loop that is closed, as after an `asyncio.run`; waiting for it would use that.
        tasks = [task for task in (*starting.values(), *self._leaving) if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for catalog in self._catalogs.values():
            await catalog.aclose()
        stopping.result()

    def statuses(self) -> list[BackendStatus]:
        """Return how every backend is, in order of registration. Raises ConfigurationError after `aclose`."""
        self.check_open()
        return [self._status(backend) for backend in (self._recorded or self._backends).list()]

    def unavailable(self, tool_id: str) -> str | None:
        """Return why a tool cannot be called just now, or None."""
        if not self._catalogs or self._recorded is not None:
            return None
        found = self._index.find(tool_id)
        backend = self._backends.get(found.binding.backend) if found is not None else None
        status = self._status(backend) if backend is not None else None
        if status is None or found is None:
            return None
        if not status.available:
            return status.reason or "unavailable"
        try:
            found.tool.input_schema.check()  # a server may send anything; its other tools are not harmed
        except InvalidSchemaError as error:
            return f"its input schema cannot be used: {error.message}"
        return None

    def _status(self, backend: Backend) -> BackendStatus:
        if self._recorded is not None:
            return (self._recorded.get(backend.name) or backend).status()
        status = backend.status()
        catalog = self._catalogs.get(backend.name)
        if catalog is not None and catalog.refused:
            status = replace(status, skipped={**status.skipped, **catalog.refused})
        if backend.name in self._failed:
            status = replace(status, available=False, reason=self._failed[backend.name])
        return status
