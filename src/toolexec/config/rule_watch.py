"""Say of a running server which rules of its settings mean no tool, once the tools are known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from toolexec.config.unused_patterns import names_tools, namespaces_of, unused_patterns
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.config.loaded import LoadedConfig
    from toolexec.exec import Exec

logger: logging.Logger = logging.getLogger(__name__)
_EVERY: Final = 1.0
_State: TypeAlias = tuple[int, int, frozenset[str]]


class RuleWatch:
    """Logs a warning for each rule of the settings that means no tool of *ex*, once for each; see `unused_patterns`.

    It looks when the settings, the tools, or the backends that can be reached have changed, and stay the same for a
    moment. *loaded* gives the settings that hold now. A backend that is away, or has no tools yet, is waited for: rules
    about its namespace are judged when its tools are there.
    """

    def __init__(self, ex: Exec, loaded: Callable[[], LoadedConfig]) -> None:
        self._ex = ex
        self._loaded = loaded
        self._said: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Watch until cancelled, or the Exec is closed."""
        with suppress(ConfigurationError):
            await self._watch()

    async def _watch(self) -> None:
        done: _State | None = None
        before: _State | None = None
        while True:
            loaded = self._loaded()
            now = (id(loaded), self._ex.everything.version, self._away()) if names_tools(loaded) else None
            if now is not None and now == before != done:
                await asyncio.to_thread(self._warn, loaded, now[2])
                done = now
            before = now
            await asyncio.sleep(_EVERY)

    def _away(self) -> frozenset[str]:
        """Return the names of the backends whose tools are not known."""
        found = self._ex.backend_statuses()
        return frozenset(
            each.name for each in found if each.enabled and each.kind != "local" and not (each.available and each.tools)
        )

    def _warn(self, loaded: LoadedConfig, away: frozenset[str]) -> None:
        ids = [entry.tool.id for entry in self._ex.everything.tools()]
        found = unused_patterns(loaded, ids, namespaces_of(loaded, away))
        for each in found:
            if each[:2] not in self._said:
                logger.warning("%s", each.problem)
        self._said.update(each[:2] for each in found)
