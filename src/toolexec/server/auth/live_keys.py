"""The API keys that are accepted now, which may be others a moment later, and what callers may do by then."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from toolexec.model.origin import Caller
from toolexec.server.auth.credentials import API_KEY, JWT, ApiKeys, Identity
from toolexec.server.auth.live_tokens import LiveTokens
from toolexec.server.auth.settings import ApiKey, AuthSettings

_LOOK: Final = 60.0  # seconds


class LiveKeys:
    """The keys of *auth*, which `replace` exchanges while the server runs; `in` says whether an ID is one of theirs."""

    def __init__(self, auth: AuthSettings) -> None:
        self._auth = auth
        self._keys = ApiKeys(auth.api_keys)
        self.identify: Callable[[str], Identity] = self._keys.identify
        """Returns who has a key; raises BadCredentialError."""
        self.tokens: LiveTokens = LiveTokens(auth.jwt)
        """The tokens of callers who have no key."""
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[frozenset[str]], None]] = []

    @property
    def auth(self) -> AuthSettings:
        """Who may use the server now."""
        return self._auth

    def __len__(self) -> int:
        return len(self._auth.api_keys)

    def __contains__(self, caller_id: object) -> bool:
        return caller_id in self._keys

    def present(self, caller: Caller) -> Caller | None:
        """Return the caller of a call under way with what its key, or its newest token, gives it now; None where there
        is no such key, as after it was taken out while the server was down, where it has expired, and where no token of
        the caller is good any more. One who has proven nothing is returned as it is."""
        if caller.method == JWT:
            return self.tokens.present(caller)
        if caller.method != API_KEY:
            return caller
        known = self._keys.caller(caller.id) if caller.id in self._keys else None
        if known is not None and caller.endpoint:
            known = replace(known, endpoint=caller.endpoint)
        return caller if known == caller else known

    def is_gone(self, caller: Caller) -> bool:
        """Return whether the caller had a key that was taken out or has expired: it does not come back. One whose token
        has expired does, with another one."""
        return caller.method == API_KEY and self.present(caller) is None

    def on_removed(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Have *listener* receive the IDs of the keys that were taken out or changed, and where `watch` is awaited of
        those that have expired."""
        self._listeners.append(listener)

    async def watch(self) -> None:
        """Notify the listeners of each key that expires, until this is cancelled."""
        over: frozenset[str] = frozenset()
        while True:
            self._changed.clear()
            expired = frozenset(key.id for key in self._auth.api_keys if self._keys.caller(key.id) is None)
            if expired - over:
                self._notify(expired - over)
            over = expired
            moments = (key.expires_at() for key in self._auth.api_keys if key.id not in over)
            left = min(moments, default=math.inf) - time.time()
            with suppress(TimeoutError):  # the clock of the machine may be set meanwhile
                async with asyncio.timeout(min(left, _LOOK) if left < math.inf else None):
                    await self._changed.wait()

    def _notify(self, gone: frozenset[str]) -> None:
        for listener in self._listeners:
            listener(gone)

    def gone(self, keys: Sequence[ApiKey]) -> frozenset[str]:
        """Return, and raise, what `replace` would for these keys; changes nothing."""
        ApiKeys(keys)
        return frozenset(key.id for key in self._auth.api_keys if key not in keys)

    def replace(self, keys: Sequence[ApiKey]) -> frozenset[str]:
        """Accept these keys, and no others, from the next request on; return the IDs of those that are out or changed.

        Raises ConfigurationError for two with one ID or one hash, and then nothing has changed.
        """
        gone, auth = self.gone(keys), replace(self._auth, api_keys=tuple(keys))
        self._auth, self._keys = auth, ApiKeys(auth.api_keys)
        self.identify = self._keys.identify
        self._changed.set()
        if gone:
            self._notify(gone)
        return gone
