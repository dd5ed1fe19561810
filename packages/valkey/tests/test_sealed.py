"""The records of a server with `state_keys`, as those who read the whole store see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packages.valkey.tests.test_two_workers import LIST, worker
from redis import Redis
from tests.server.sealed import sealed
from tests.server.test_restart import Shop, caller, opened, outcome, post, suspended

from toolexec.testing import check_state
from toolexec_valkey import ValkeyState

if TYPE_CHECKING:
    from packages.valkey.tests.conftest import Server

pytestmark = pytest.mark.full
KEYS = ("old-key-of-at-least-32-characters", "new-key-of-at-least-32-characters")


def dumped(valkey: Server) -> dict[bytes, bytes]:
    """Return everything that is in the store."""
    with Redis(port=valkey.port, password="a-pass/word") as client:
        found: Any = client.keys()
        return {key: client.get(key) for key in found}  # type: ignore[misc]


async def test_it_keeps_the_contract(valkey: Server) -> None:
    """With keys, too, two stores over one server answer as one dictionary, and of several changes at once one
    succeeds."""
    await check_state(sealed(ValkeyState(valkey.url), KEYS[:1]), sealed(ValkeyState(valkey.url), KEYS[:1]))


async def test_the_whole_store_says_nothing(tmp_path: Path, valkey: Server) -> None:
    """Sessions and waiting calls of two workers go on at each other, and nothing of callers, clients, questions and
    keys can be read in the store or in its log of changes."""
    shop = Shop(tmp_path)
    settings = tmp_path / "toolexec.toml"
    lines = f'[server]\nstate_url = "{valkey.url}"\nstate_keys = {json.dumps(KEYS)}'
    settings.write_text(settings.read_text().replace("[server]", lines))
    with worker(shop, "b") as second:
        with worker(shop, "a") as first:
            session_id = await opened(first, "ann's")
            async with caller(first, "ann's") as ann:
                state = await suspended(ann, 7)
            records = dumped(valkey)
        assert {name.split(b":")[1] for name in records} == {b"session", b"suspended"}
        async with caller(second, "ann's") as ann:
            assert await outcome(ann, 7, state) == "paid"
        assert (await post(second, "ann's", LIST, session_id)).status_code == 200
        assert (await post(second, "bob's", LIST, session_id)).status_code == 404
    records |= dumped(valkey)
    written = b"".join(each.read_bytes() for each in (tmp_path / "valkey").rglob("*") if each.is_file())
    everything = b"\n".join([*records, *records.values(), written])
    assert all(value in everything for value in records.values())
    for word in (b"ann", b"owner", b"clientInfo", b"2025-11-25", b"digest", b"asked", b"shop:pay", session_id.encode()):
        assert word not in b"\n".join([*records, *records.values()]), word
    for word in (b"owner", b"clientInfo", b"2025-11-25", b"digest", b"shop:pay", b"old-key", session_id.encode()):
        assert word not in written, word
