"""The state of one server that outlives it: where it is kept, and what seals the part of it that clients keep."""

from __future__ import annotations

import logging
import os
from functools import cached_property

from mcp.server.context import CallNext, HandlerResult
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from toolexec.errors import ConfigurationError
from toolexec.server.callers import RequestContext, Requester
from toolexec.server.settings import ServeSettings
from toolexec.server.state import FileState, StateStore, sealing_key

__all__ = ["ServerState"]

logger: logging.Logger = logging.getLogger(__name__)
_SLACK = 60.0


class ServerState:
    """The state of the server with these *settings*, or of its *endpoint*; the first request that needs it opens it."""

    def __init__(self, settings: ServeSettings, endpoint: str = "") -> None:
        self._settings = settings
        self.endpoint = endpoint
        self._store: StateStore | None = None
        self._failed = False

    def store(self) -> StateStore | None:
        """Return where it is kept; None where the settings name no file, or that cannot be used, which is logged."""
        if self._store is None and self._settings.state_path and not self._failed:
            try:
                self._store = FileState(self._settings.state_path)
            except ConfigurationError as error:
                self._failed = True
                logger.error("sessions and waiting calls are kept in memory only: %s", error)
        return self._store

    async def sealed(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Open the state that a client sends back, and seal what it is sent; it is bound to the caller."""
        return await self._boundary(ctx, call_next)

    @cached_property
    def _boundary(self) -> RequestStateBoundary:
        settings = self._settings
        security = RequestStateSecurity(
            keys=list(settings.state_keys) or [self._key()],
            ttl=settings.approval_timeout + _SLACK,
            bind_principal=lambda ctx: Requester.of(ctx).key or None,
        )
        audience = f"{settings.name}/{self.endpoint}" if self.endpoint else settings.name
        return RequestStateBoundary(security, default_audience=audience)

    def _key(self) -> bytes:
        try:
            if (store := self.store()) is not None:
                return sealing_key(store)
        except ConfigurationError as error:
            logger.error("the key that seals waiting calls is that of this process: %s", error)
        return os.urandom(32)

    def close(self) -> None:
        """Release it."""
        store, self._store = self._store, None
        self._failed = True
        if store is not None:
            store.close()
