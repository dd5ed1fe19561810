"""The API keys that are accepted now, which may be others a moment later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from toolexec.model.origin import Caller
from toolexec.server.auth.credentials import API_KEY, ApiKeys, Identity
from toolexec.server.auth.settings import ApiKey, AuthSettings

__all__ = ["LiveKeys"]


class LiveKeys:
    """The keys of *auth*, which `replace` exchanges while the server runs; `in` says whether an ID is one of theirs."""

    def __init__(self, auth: AuthSettings) -> None:
        self._auth = auth
        self._keys = ApiKeys(auth.api_keys)
        self.identify: Callable[[str], Identity] = self._keys.identify
        """Returns who has a key; raises BadCredentialError."""
        self._out: set[str] = set()
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
        """Return the caller with what its key gives it now; None where that was taken out or has expired. Others are
        returned as they are, as is one with a key that there was not since the start."""
        if caller.method != API_KEY:
            return caller
        if caller.id not in self._keys:
            return None if caller.id in self._out else caller
        known = self._keys.caller(caller.id)
        if known is not None and caller.endpoint:
            known = replace(known, endpoint=caller.endpoint)
        return caller if known == caller else known

    def on_removed(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Have *listener* receive the IDs of the keys that were taken out or changed."""
        self._listeners.append(listener)

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
        self._out |= gone
        if gone:
            for listener in self._listeners:
                listener(gone)
        return gone
