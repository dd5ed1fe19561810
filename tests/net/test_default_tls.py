"""The one TLS context of clients that httpx2 makes."""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import Any

import httpx2
import pytest

from toolexec.net import default_tls


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which contexts were made, with none made yet."""
    threads: list[threading.Thread] = []
    make = httpx2.create_ssl_context

    def recorded(*parts: Any) -> ssl.SSLContext:
        threads.append(threading.current_thread())
        return make(*parts)

    default_tls._made.cache_clear()
    monkeypatch.setattr(httpx2, "create_ssl_context", recorded)
    return threads


async def test_it_is_made_once_and_in_a_thread(made: list[threading.Thread]) -> None:
    """No caller waits on the event loop for the certificates of the system, and all clients share them."""
    contexts = [await default_tls.default_tls() for _ in range(3)]
    assert [thread is threading.main_thread() for thread in made] == [False]
    assert all(context is contexts[0] for context in contexts)


async def test_it_verifies(made: list[threading.Thread]) -> None:
    """The context trusts what httpx2's own does, and checks names."""
    shared, own = await default_tls.default_tls(), httpx2.create_ssl_context()
    assert shared.verify_mode is ssl.CERT_REQUIRED
    assert shared.check_hostname
    assert shared.cert_store_stats() == own.cert_store_stats()


async def test_many_at_first(made: list[threading.Thread]) -> None:
    """Clients that begin at the same time get a context each at most once, and then the same one."""
    await asyncio.gather(*(default_tls.default_tls() for _ in range(4)))
    before = len(made)
    assert await default_tls.default_tls() is await default_tls.default_tls()
    assert len(made) == before
