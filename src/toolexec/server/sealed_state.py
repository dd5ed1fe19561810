"""A store of a server's state whose records only those who have its keys can read."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Sequence
from typing import Any, Final

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from toolexec.errors import ConfigurationError, StateError
from toolexec.server.state import StateKind, StateStore

logger: logging.Logger = logging.getLogger(__name__)
_PURPOSE: Final = b"toolexec/state-records/v1"
_TRIES: Final = 20
_LEAST: Final = 32


class SealedState:
    """The records of *store*, encrypted there with the first of *keys* (32 bytes or more each); all of them open.

    The cipher is that of the states which clients keep, with keys derived for this purpose: what was sealed for one
    cannot be passed off as the other. A record is bound to its kind and key. One that no key opens (written without
    keys or with one that is gone, changed, or moved) counts as not there, and a warning says so.

    A swap reads first; when others keep rewriting the same record, it raises StateError after some tries.
    """

    def __init__(self, store: StateStore, keys: Sequence[str]) -> None:
        self._store = store
        self._codec = AESGCMRequestStateCodec([_derived(key) for key in keys])

    async def get(self, kind: StateKind, key: str) -> str | None:
        """Return a record; see `StateStore.get`."""
        return self._opened(kind, key, await self._store.get(kind, key))

    async def put(self, kind: StateKind, key: str, value: str, ttl: float) -> None:
        """Keep a record; see `StateStore.put`."""
        await self._store.put(kind, key, self._sealed(kind, key, value), ttl)

    async def add(self, kind: StateKind, key: str, value: str, ttl: float) -> bool:
        """Keep a record unless there is one; see `StateStore.add`."""
        return await self._store.add(kind, key, self._sealed(kind, key, value), ttl)

    async def swap(self, kind: StateKind, key: str, old: str, new: str, ttl: float) -> bool:
        """Replace a record that is *old*; see `StateStore.swap`."""
        sealed = self._sealed(kind, key, new)
        for _ in range(_TRIES):  # the same text, sealed again, is another record
            found = await self._store.get(kind, key)
            if found is None or self._opened(kind, key, found) != old:
                return False
            if await self._store.swap(kind, key, found, sealed, ttl):
                return True
        raise StateError("others keep changing this record of a server's state")

    async def delete(self, kind: StateKind, key: str) -> None:
        """Forget a record; see `StateStore.delete`."""
        await self._store.delete(kind, key)

    async def aclose(self) -> None:
        """Close the store; closing twice is fine."""
        await self._store.aclose()

    def _sealed(self, kind: StateKind, key: str, value: str) -> str:
        return self._codec.seal(json.dumps([kind, key, value]).encode())

    def _opened(self, kind: StateKind, key: str, sealed: str | None) -> str | None:
        if sealed is None:
            return None
        try:
            found: Any = json.loads(self._codec.unseal(sealed))
        except InvalidRequestState:
            found = None
        if found is None or found[:2] != [kind, key]:
            logger.warning("a record (%s) of the server's state is not used: none of state_keys opens it", kind)
            return None
        return found[2]


def read_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Return what `state_keys` has, with references to secrets looked up.

    Raises SecretError for one that cannot be found, and ConfigurationError, which quotes none of them, for a key of
    fewer than 32 bytes and for one that is there twice.
    """
    from toolexec.backend.secrets import SecretResolver

    resolver, found = SecretResolver(), list[str]()
    for number, key in enumerate(keys):
        where = f"server.state_keys[{number}]"
        value = resolver.resolve(key, where) if key.startswith("secretref:") else key
        if len(value.encode()) < _LEAST:
            raise ConfigurationError(f"{where} must be 32 bytes or longer; make one at random")
        if value in found:
            raise ConfigurationError(f"{where} is there twice")
        found.append(value)
    return tuple(found)


def _derived(key: str) -> bytes:
    return hmac.digest(key.encode(), _PURPOSE, hashlib.sha256)
