"""Records in a real server: the contract of stores, names and times of keys, and a server that goes away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis import Redis

from toolexec.errors import StateError
from toolexec.testing import check_state
from toolexec_valkey import ValkeyState

if TYPE_CHECKING:
    from packages.valkey.tests.conftest import Server

pytestmark = pytest.mark.full


async def test_it_keeps_the_contract(valkey: Server) -> None:
    """Two stores over one server answer as one dictionary, and of several changes at once one succeeds."""
    await check_state(ValkeyState(valkey.url), ValkeyState(valkey.url))


async def test_keys_have_the_prefix_and_expire(valkey: Server) -> None:
    """Each key begins with the prefix, and the server itself forgets it."""
    store = ValkeyState(f"{valkey.url}?prefix=ours/")
    await store.put("session", "one", "a", 50)
    await store.add("suspended", "two", "b", 70)
    await store.swap("suspended", "two", "b", "c", 90)
    await store.aclose()
    with Redis(port=valkey.port, password="a-pass/word") as client:
        found = {key.decode(): client.pttl(key) for key in client.keys()}  # type: ignore[union-attr]
    assert found.keys() == {"ours/session:one", "ours/suspended:two"}
    assert 0 < found["ours/session:one"] <= 50_000
    assert 70_000 < found["ours/suspended:two"] <= 90_000


async def test_a_server_that_is_away(valkey: Server) -> None:
    """While it is away every method raises a StateError that says so, at once until a pause is over; once it is back
    the records are there as before."""
    now = 100.0
    store = ValkeyState(valkey.url, clock=lambda: now)
    await store.put("key", "k", "kept", 3600)
    valkey.kill()
    for what in (store.get("key", "k"), store.delete("key", "k"), store.swap("key", "k", "kept", "x", 60)):
        with pytest.raises(StateError, match="store of a server's state") as caught:
            await what
        assert caught.value.retryable
        assert str(valkey.port) not in str(caught.value)
    valkey.start()
    with pytest.raises(StateError, match="just now"):
        await store.get("key", "k")
    now += 10
    assert await store.get("key", "k") == "kept"
    assert await store.swap("key", "k", "kept", "new", 60)
    await store.aclose()
    with pytest.raises(StateError, match="closed"):
        await store.get("key", "k")


async def test_a_wrong_password(valkey: Server) -> None:
    """A refused password is a StateError without it."""
    store = ValkeyState(f"valkey://:secret-word@127.0.0.1:{valkey.port}")
    with pytest.raises(StateError) as caught:
        await store.get("key", "k")
    assert "secret-word" not in str(caught.value)
    await store.aclose()
