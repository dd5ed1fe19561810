"""The TLS of clients that httpx2 makes: one context for all of them, as each would read the same certificates."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


async def default_tls() -> ssl.SSLContext:
    """Return the context that an `httpx2.AsyncClient` makes for itself, always the same one.

    To read the certificates of the system takes some 50 ms of CPU: for each new client that held up the event loop, and
    with it all callers of a server. Here it is done once, in a thread. Needs httpx2.
    """
    return _made() if _made.cache_info().currsize else await asyncio.to_thread(_made)


@cache
def _made() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
