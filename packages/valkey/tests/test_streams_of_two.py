"""Streams of events over one Valkey: a client that has lost one worker gets its answer from the other one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.server.test_streams_restart import Depot, answers_at, at, outcome

if TYPE_CHECKING:
    from packages.valkey.tests.conftest import Server

pytestmark = pytest.mark.full


async def test_the_other_worker_has_the_answer(tmp_path: Path, valkey: Server) -> None:
    """The other worker waits for the answer of a call that the first one makes, and gives it; nothing is made twice."""
    depot = Depot(tmp_path, f'\nstate_url = "{valkey.url}"')
    with depot.serve("b") as second, depot.serve("a") as first:
        link, other = at(first), at(second)
        session = await link.open()
        last = await depot.lost(link, session, "ship", 11)
        waiting = asyncio.create_task(outcome(other, session, last))
        depot.go(11)
        assert await waiting == "11"
    assert depot.did("shipped") == [11]


async def test_the_other_worker_takes_an_answer(tmp_path: Path, valkey: Server) -> None:
    """A person's answer that reaches the other worker makes the call at the first one, once."""
    keys = f'state_keys = ["{"k" * 32}"]'
    depot = Depot(tmp_path, f'\nstate_url = "{valkey.url}"\n{keys}')
    with depot.serve("b") as second, depot.serve("a") as first:
        await answers_at(depot, first, second)
    assert depot.did("paid") == [11]
