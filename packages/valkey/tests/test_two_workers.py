"""`toolexec serve` as two processes over one Valkey: what one has begun the other goes on with, once."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.server.processes import served
from tests.server.test_restart import LIST, Shop, caller, listed, opened, outcome, post, price, suspended

if TYPE_CHECKING:
    from packages.valkey.tests.conftest import Server

pytestmark = pytest.mark.full


@pytest.fixture
def shop(tmp_path: Path, valkey: Server) -> Shop:
    """A shop whose servers share nothing but the server of their state."""
    shop = Shop(tmp_path)
    settings = tmp_path / "toolexec.toml"
    settings.write_text(settings.read_text().replace("[server]", f'[server]\nstate_url = "{valkey.url}"'))
    return shop


def worker(shop: Shop, name: str):  # type: ignore[no-untyped-def]
    return served(shop.words, shop.directory / name)


async def test_the_other_worker_goes_on(shop: Shop, valkey: Server) -> None:
    """A session, a call that waits and a long result go on at the other worker after theirs was killed; the call is
    made once. While the store is away nothing is made, and the answer says that it may be tried again; afterwards it is
    made, once."""
    with worker(shop, "b") as second:
        with worker(shop, "a") as first:
            session_id = await opened(first, "ann's")
            async with caller(first, "ann's") as ann:
                handles = [await listed(ann) for _ in range(2)]
                states = [await suspended(ann, order) for order in range(3)]
                async with caller(second, "ann's") as there:
                    assert await price(there, handles[0], 9) == 63
                    assert await outcome(there, 2, states[2]) == "paid"
                assert re.search("used before", await outcome(ann, 2, states[2]))
            assert (await post(first, "ann's", LIST, session_id)).status_code == 200
        assert (await post(second, "bob's", LIST, session_id)).status_code == 404
        valkey.kill()
        assert (await post(second, "ann's", LIST, session_id)).status_code == 503
        async with caller(second, "ann's") as ann:
            assert re.search("cannot be reached; try again later", await outcome(ann, 0, states[0]))
            assert await price(ann, handles[0], 10) == 70
            assert await price(ann, handles[1], 10) == "state"
            valkey.start()
            for _ in range(100):
                if "try again later" not in (found := await outcome(ann, 0, states[0])):
                    break
                await asyncio.sleep(0.1)  # until the pause of the store is over
            else:
                raise AssertionError("the store is back, and not used")
            assert found == "paid"
            assert await price(ann, handles[1], 10) == 70
            assert re.search("used before", await outcome(ann, 0, states[0]))
            assert await outcome(ann, 1, states[1]) == "paid"
        assert (await post(second, "ann's", LIST, session_id)).status_code == 200
    assert shop.paid == {0: 1, 1: 1, 2: 1}
