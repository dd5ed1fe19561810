"""The public keys of an issuer of tokens."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONObject
from toolexec.net.default_tls import default_tls
from toolexec.server.auth.credentials import BadCredentialError, UncheckableError
from toolexec.server.auth.settings import JwtSettings

logger: logging.Logger = logging.getLogger(__name__)

_HOUR = 3600.0
_MINUTE = 60.0
_FETCH_SECONDS = 5.0
_MOST_BYTES = 2**20
_PRIVATE = ("d", "k")
_TYPES = {"R": "RSA", "P": "RSA", "E": "EC"}


class IssuerKeys:
    """Finds the key that a token says it was signed with.

    Keys from an address are kept for an hour. A key that is not among them has them read again, but not twice within
    a minute, whatever the number of requests. When they cannot be read, those from before stay. *clock* gives seconds,
    from any start.

    Raises ConfigurationError for a file that cannot be read or has no keys.
    """

    def __init__(self, settings: JwtSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._keys: list[JSONObject] = []
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()
        if settings.jwks_file:
            try:
                self._keys = _usable(Path(settings.jwks_file).read_bytes())
            except (OSError, ValueError) as error:
                raise ConfigurationError(f"jwks_file {settings.jwks_file} cannot be used: {error}") from error

    async def find(self, kid: str | None, algorithm: str) -> JSONObject:
        """Return the key with this ID; without an ID, the only one that fits the algorithm.

        Raises BadCredentialError when there is none, UncheckableError when no keys could be read so far.
        """
        if self._settings.jwks_url and (self._read_at is None or self._read_at + _HOUR <= self._clock()):
            await self._refresh()
        found = self._match(kid, algorithm)
        if found is None and self._settings.jwks_url:
            await self._refresh()
            found = self._match(kid, algorithm)
        if found is not None:
            return found
        if not self._keys:
            raise UncheckableError("the issuer's keys cannot be read just now")
        raise BadCredentialError("the token is signed with a key that its issuer does not have")

    def _match(self, kid: str | None, algorithm: str) -> JSONObject | None:
        fitting = [key for key in self._keys if _fits(key, algorithm)]
        if kid is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.get("kid") == kid), None)

    async def _refresh(self) -> None:
        async with self._lock:
            now = self._clock()
            if self._tried_at is not None and self._tried_at + _MINUTE > now:
                return
            self._tried_at = now
            try:
                self._keys = _usable(await _fetch(self._settings.jwks_url))
            except Exception as error:
                kept = "those from before are kept" if self._keys else "no token can be checked"
                logger.warning("the keys at jwks_url cannot be read (%s); %s", type(error).__name__, kept)
            else:
                self._read_at = now


async def _fetch(address: str) -> bytes:
    import httpx2

    tls = await default_tls()
    async with asyncio.timeout(_FETCH_SECONDS), httpx2.AsyncClient(follow_redirects=False, verify=tls) as client:  # noqa: SIM117
        async with client.stream("GET", address, headers={"accept": "application/json"}) as response:
            if response.status_code != 200:
                raise ValueError(f"HTTP status {response.status_code}")
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _MOST_BYTES:
                    raise ValueError("the answer is longer than 1 MiB")
            return bytes(body)


def _usable(document: bytes) -> list[JSONObject]:
    """Return the public keys for signatures of a JWKS document; raises ValueError when it has none."""
    try:
        data: Any = json.loads(document)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    entries: Any = data.get("keys") if isinstance(data, dict) else None
    keys: list[JSONObject] = [
        entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
        and entry.get("kty") in ("RSA", "EC", "OKP")
        and entry.get("use", "sig") == "sig"
        and not any(part in entry for part in _PRIVATE)
    ]
    if not keys:
        raise ValueError("it has no public keys for signatures (a JWKS document has them in `keys`)")
    return keys


def _fits(key: JSONObject, algorithm: str) -> bool:
    kind = "OKP" if algorithm == "EdDSA" else _TYPES.get(algorithm[:1])
    return key.get("kty") == kind and key.get("alg", algorithm) == algorithm
