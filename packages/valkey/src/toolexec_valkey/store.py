"""Records that servers on many machines share, as keys of a Valkey or Redis server."""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from toolexec.errors import ConfigurationError, StateError
from toolexec.state import StateKind, pauses
from toolexec_valkey.address import ValkeyAddress

T = TypeVar("T")
_SECONDS: Final = 2.0
_CONNECTIONS: Final = 16
_LONGEST: Final = 2**53
_OTHER_NAME: Final = (62, 63, 64)
"""What OpenSSL says of a certificate for another host, mail address or IP address; its text quotes the name."""
_SWAP: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""


class ValkeyState:
    """Records in the server at *address*, which `ValkeyAddress.parse` reads; each is a key that expires by itself.

    A swap is a script, which the server makes in one step. While the server cannot be reached, every method raises
    StateError: after at most some four seconds, and at once until a pause is over, which grows from 0.1 to 5 s. Nothing
    is sent twice: what has failed may have been done. Use it on one event loop. *clock* gives seconds that only grow.

    Raises ConfigurationError for an address that cannot be one, and for files of certificates that cannot be read.
    """

    def __init__(self, address: str | ValkeyAddress, *, clock: Callable[[], float] = time.monotonic) -> None:
        at = address if isinstance(address, ValkeyAddress) else ValkeyAddress.parse(address)
        self.prefix: str = at.prefix
        self._clock = clock
        self._pauses = pauses(0.1, 5.0, spread=True)
        self._not_before = 0.0
        self._is_closed = False
        more: dict[str, Any] = _tls(at) if at.tls else {}
        pool = BlockingConnectionPool(
            max_connections=_CONNECTIONS,
            timeout=_SECONDS,
            connection_class=SSLConnection if at.tls else Connection,
            host=at.host,
            port=at.port,
            db=at.database,
            username=at.username,
            password=at.password,
            decode_responses=True,
            encoding_errors="surrogatepass",
            socket_timeout=_SECONDS,
            socket_connect_timeout=_SECONDS,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=15,
            **more,
        )
        self._client: Any = Redis.from_pool(pool)  # its methods are typed for both of its kinds at once

    async def get(self, kind: StateKind, key: str) -> str | None:
        """Return a record; see `StateStore.get`."""
        return await self._ask(lambda: self._client.get(self._name(kind, key)))

    async def put(self, kind: StateKind, key: str, value: str, ttl: float) -> None:
        """Keep a record; see `StateStore.put`."""
        if (left := _milliseconds(ttl)) is None:
            await self.delete(kind, key)
            return
        await self._ask(lambda: self._client.set(self._name(kind, key), value, px=left))

    async def add(self, kind: StateKind, key: str, value: str, ttl: float) -> bool:
        """Keep a record unless there is one; see `StateStore.add`."""
        if (left := _milliseconds(ttl)) is None:
            return await self.get(kind, key) is None
        return bool(await self._ask(lambda: self._client.set(self._name(kind, key), value, px=left, nx=True)))

    async def swap(self, kind: StateKind, key: str, old: str, new: str, ttl: float) -> bool:
        """Replace a record that is *old*; see `StateStore.swap`."""
        left = _milliseconds(ttl) or 1
        return await self._ask(lambda: self._client.eval(_SWAP, 1, self._name(kind, key), old, new, left)) == 1

    async def delete(self, kind: StateKind, key: str) -> None:
        """Forget a record; see `StateStore.delete`."""
        await self._ask(lambda: self._client.delete(self._name(kind, key)))

    async def aclose(self) -> None:
        """Close the connections; closing twice is fine."""
        self._is_closed = True
        await self._client.aclose(close_connection_pool=True)

    def _name(self, kind: StateKind, key: str) -> str:
        return f"{self.prefix}{kind}:{key}"

    async def _ask(self, do: Callable[[], Awaitable[T]]) -> T:
        if self._is_closed:
            raise StateError("the store of a server's state is closed", retryable=False)
        if self._clock() < self._not_before:
            raise StateError("the store of a server's state could not be reached just now")
        try:
            found = await do()
        except (RedisError, OSError, TimeoutError) as error:
            self._not_before = self._clock() + next(self._pauses)
            raise StateError(f"the store of a server's state cannot be used: {_why(error)}") from None
        if self._not_before:
            self._not_before, self._pauses = 0.0, pauses(0.1, 5.0, spread=True)
        return found


def _milliseconds(ttl: float) -> int | None:
    """Return the time of a record as the server takes it; None for one that is over."""
    return min(max(math.ceil(ttl * 1000), 1), _LONGEST) if ttl > 0 else None


def _tls(at: ValkeyAddress) -> dict[str, Any]:
    """Return what the client takes for TLS. The files are read once here: a wrong one is reported at the start."""
    try:
        context = ssl.create_default_context(cafile=at.ca)
        if at.cert is not None:
            context.load_cert_chain(at.cert, at.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            "state_url cannot be used: the files that ca, cert and key name must be certificates and their key, "
            f"without a password ({type(error).__name__})",
            details={"setting": "server.state_url"},
        ) from None
    return {
        "ssl_ca_certs": at.ca,
        "ssl_certfile": at.cert,
        "ssl_keyfile": at.key,
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,
        "ssl_min_version": ssl.TLSVersion.TLSv1_2,
    }


def _no_password() -> str:
    raise ValueError("the key has a password")  # else the terminal would be asked for it


def _why(error: BaseException) -> str:
    """Return what went wrong, without what the client says: that may have the address, and commands."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            of_name = cause.verify_code in _OTHER_NAME
            return f"its certificate is refused: {'it is for another name' if of_name else cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
