"""Patience with backends that are still starting."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from toolexec.discovery.preparing import prepared
from toolexec.exec.facade import Exec

_PATIENCE: Final = 2.0
_STARTING: Final = ("connecting", "not started")


async def settle(ex: Exec) -> None:
    """Wait until all backends have started or failed to, for 2 seconds at most: one that hangs must not keep what the
    others have from being found. What the caller can see of many tools is computed off the event loop. Raises
    ConfigurationError for an Exec that is closed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            await ex.start()
    await prepared(ex.visible()[0])


def still_starting(ex: Exec) -> bool:
    """Return whether some backend may yet come up by itself."""
    return any(
        status.enabled and not status.available and status.reason in _STARTING for status in ex.backend_statuses()
    )
