"""The state of one server that outlives it: where it is kept, and what seals the part of it that clients keep."""

from __future__ import annotations

import logging
import os

from mcp.server.context import CallNext, HandlerResult
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from toolexec.errors import ConfigurationError, StateError
from toolexec.server.callers import RequestContext, Requester
from toolexec.server.kept_results import KeptResults
from toolexec.server.sealed_state import SealedState, read_keys
from toolexec.server.settings import ServeSettings
from toolexec.server.shared_tasks import SharedTasks
from toolexec.server.state import FileState, StateStore, sealing_key
from toolexec.server.state_plugins import open_state

logger: logging.Logger = logging.getLogger(__name__)
_SLACK = 60.0


class ServerState:
    """The state of the server with these *settings*, or of its *endpoint*; the first request that needs it opens it.

    Raises ConfigurationError for a store at an address that cannot be one, and for keys that are too short or there
    twice, SecretError for a reference to a key that cannot be looked up, and MissingExtraError without the package of
    the store.
    """

    def __init__(self, settings: ServeSettings, endpoint: str = "") -> None:
        self._settings = settings
        self.keys: tuple[str, ...] = read_keys(settings.state_keys)
        """The keys of the settings, looked up."""
        self.endpoint = endpoint
        self._store: StateStore | None = self._with_keys(open_state(settings.state_url)) if settings.state_url else None
        self._failed = False
        self._own_key = os.urandom(32)
        self._boundary: RequestStateBoundary | None = None

    def store(self) -> StateStore | None:
        """Return where it is kept; None where the settings name nothing, or the file cannot be used, which is
        logged."""
        if self._store is None and self._settings.state_path and not self._failed:
            try:
                self._store = self._with_keys(FileState(self._settings.state_path))
            except ConfigurationError as error:
                self._failed = True
                logger.error("sessions and waiting calls are kept in memory only: %s", error)
        return self._store

    def _with_keys(self, store: StateStore) -> StateStore:
        """Have the records of any *store* be encrypted where the settings have keys."""
        return SealedState(store, self.keys) if self.keys else store

    @property
    def is_kept(self) -> bool:
        """Whether the settings name a place for it."""
        return bool(self._settings.state_path or self._settings.state_url)

    def tasks(self, results: KeptResults | None) -> SharedTasks | None:
        """Return the tasks that servers on many machines share, with long outcomes in *results*; None where it is kept
        on one machine, whose file of tasks all of its servers have."""
        if results is None or not self._settings.state_url:
            return None
        return SharedTasks(self.store, results, self.keys, self.endpoint)

    async def sealed(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Open the state that a client sends back, and seal what it is sent; it is bound to the caller."""
        boundary = self._boundary if self._boundary is not None else await self._make_boundary()
        return await boundary(ctx, call_next)

    async def _make_boundary(self) -> RequestStateBoundary:
        """Return what seals with the key that is shared, and opens with this process's own, too. While the store cannot
        be reached, it seals with its own, and the next request asks the store again."""
        keys: list[str | bytes] = list(self.keys)
        is_final = True
        if not keys:
            try:
                if (store := self.store()) is not None:
                    keys.append(await sealing_key(store))
            except StateError as error:
                is_final = False
                logger.warning("the key that seals waiting calls is that of this process for now: %s", error)
            except ConfigurationError as error:
                logger.error("the key that seals waiting calls is that of this process: %s", error)
            keys.append(self._own_key)
        settings = self._settings
        security = RequestStateSecurity(
            keys=keys,
            ttl=settings.approval_timeout + _SLACK,
            bind_principal=lambda ctx: Requester.of(ctx).key or None,
        )
        audience = f"{settings.name}/{self.endpoint}" if self.endpoint else settings.name
        boundary = RequestStateBoundary(security, default_audience=audience)
        if is_final:
            self._boundary = boundary
        return boundary

    async def aclose(self) -> None:
        """Release it."""
        store, self._store = self._store, None
        self._failed = True
        if store is not None:
            await store.aclose()
