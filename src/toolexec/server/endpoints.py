"""The endpoints of a server beside its main one: servers over the same tools, each for callers of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from toolexec.discovery.index import Index
from toolexec.discovery.view import IndexView
from toolexec.exec.facade import Exec
from toolexec.model.origin import Caller
from toolexec.run.results import ResultStore
from toolexec.server.app import ToolServer
from toolexec.server.auth import LiveKeys
from toolexec.server.endpoint_settings import EndpointSettings
from toolexec.server.http.app import HttpApp
from toolexec.server.http.endpoint import Endpoint
from toolexec.server.settings import ServeSettings

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """An endpoint; *place* is where it is served, once that is known."""

    settings: EndpointSettings
    server: ToolServer
    keys: LiveKeys
    place: Endpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEndpoints:
    """What `Endpoints.exchange` takes: endpoints to close, to open, and to go on with, with these settings."""

    closed: Collection[str]
    opened: Mapping[str, _Served]
    kept: Mapping[str, EndpointSettings]


class Endpoints:
    """The endpoints of a server over *ex*, with the *settings* of its main one; *index* gives the tools of each, and
    *results* keeps what is too long for a reply. They are served once `serve_at` has said where.

    `prepare` and `exchange` take others while it runs. An endpoint of which only API keys have changed goes on, with
    all its sessions; one that is changed in another way is closed and opened again.
    """

    def __init__(
        self,
        ex: Exec,
        settings: ServeSettings,
        index: Callable[[str], Index | None],
        results: ResultStore | None = None,
    ) -> None:
        self._ex = ex
        self._settings = settings
        self._index = index
        self._results = results
        self._served: dict[str, _Served] = {}
        self._app: HttpApp | None = None
        self._work: set[asyncio.Task[None]] = set()

    def serve_at(self, app: HttpApp) -> None:
        """Serve all endpoints at their places of *app*, on its event loop. Raises ConfigurationError."""
        self._app = app
        self._served = {name: self._placed(served, app) for name, served in self._served.items()}
        for served in self._served.values():
            self._open(served)

    def prepare(self, wanted: Mapping[str, EndpointSettings]) -> PreparedEndpoints:
        """Return what has to be done so that there are these endpoints by name; changes nothing. Raises
        ConfigurationError for one that cannot be."""
        opened: dict[str, _Served] = {}
        kept: dict[str, EndpointSettings] = {}
        for name, settings in wanted.items():
            before = self._served.get(name)
            if before is not None and before.settings.differs_by_keys(settings):
                before.keys.gone(settings.auth.api_keys)
                kept[name] = settings
            else:
                opened[name] = self._make(settings)
        return PreparedEndpoints(closed=[name for name in self._served if name not in kept], opened=opened, kept=kept)

    def exchange(self, prepared: PreparedEndpoints) -> None:
        """Have these endpoints from now on: at once, on the event loop of the server."""
        for name in prepared.closed:
            served = self._served.pop(name)
            self._begin(_close(served, self._app.close_endpoint(name) if self._app is not None else None))
        for name, settings in prepared.kept.items():
            served = self._served[name]
            if gone := served.keys.replace(settings.auth.api_keys):
                logger.warning("API keys of the endpoint %s that are out or changed: %s", name, ", ".join(sorted(gone)))
            self._served[name] = replace(served, settings=settings)
        for name, served in prepared.opened.items():
            self._served[name] = served
            self._open(served)

    def present(self, caller: Caller) -> Caller | None:
        """Do what `LiveKeys.present` does for a caller of one of the endpoints; None for one of another endpoint, as of
        one that was closed."""
        served = self._served.get(caller.endpoint)
        return None if served is None else served.keys.present(caller)

    def notify_changes(self) -> None:
        """Notify the clients of all endpoints that they may see other tools than before."""
        for served in self._served.values():
            served.server.notify_changes()

    async def aclose(self) -> None:
        """Stop all calls of all endpoints, and close those; the tools stay open."""
        await asyncio.gather(*self._work, return_exceptions=True)
        for served in self._served.values():
            await served.server.aclose()

    # -- the rest -----------------------------------------------------------------------------------------------

    def _make(self, settings: EndpointSettings) -> _Served:
        own, name = settings.within(self._settings), settings.name
        keys = LiveKeys(settings.auth)
        server = ToolServer(self._ex, own, results=self._results, endpoint=name, index=self._index_of(name))
        server.keys = keys
        served = _Served(settings=settings, server=server, keys=keys)
        return self._placed(served, self._app) if self._app is not None else served

    def _index_of(self, name: str) -> Callable[[], Index]:
        none = IndexView(self._ex.index, lambda _: False)
        return lambda: index if (index := self._index(name)) is not None else none

    def _placed(self, served: _Served, app: HttpApp) -> _Served:
        http = served.server.settings.http
        served.server.logins = app.logins
        return replace(served, place=app.make_endpoint(served.settings.name, served.server.lowlevel, http, served.keys))

    def _open(self, served: _Served) -> None:
        if self._app is not None and served.place is not None:
            self._app.open_endpoint(served.place)
            self._begin(served.server.start())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


async def _close(served: _Served, closing: asyncio.Task[None] | None) -> None:
    """Close the server of an endpoint that is *closing*."""
    if closing is not None:
        await asyncio.wait([closing])
    await served.server.aclose()
