"""Keys that are changed on one server after the other: a program goes where its key is known, and runs once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from packages.remote.tests.here import remote_to, serving
from packages.remote.tests.processes import KEY
from packages.remote.tests.servers import OTHER
from packages.remote.tests.tools import Workshop
from tests.waiting import until

from toolexec.errors import ToolExecError
from toolexec.remote import RuntimeServerSettings
from toolexec.runtime import Runtime
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.server import serve_runtime
from toolexec_remote.signature import KeyRing


@pytest.mark.parametrize("protocol", ["duplex", "post"])
async def test_a_server_that_does_not_know_the_key_yet_is_passed_over(tmp_path: Path, protocol: str) -> None:
    """Each program runs on the other one; where none knows it, the error says that, and that nothing was run."""
    one, other = ScriptedSandbox(default=1), ScriptedSandbox(default=2)
    shop = Workshop()
    async with (
        serving(tmp_path / "1", one, keys=[OTHER]) as new,
        serving(tmp_path / "2", other) as old,
    ):
        async with remote_to(new, old, protocol=protocol) as backend:
            results = [(await backend.execute(shop.request("x"))).raise_for_error().value for _ in range(4)]
        assert results == [2] * 4
        async with remote_to(new, protocol=protocol) as backend:
            with pytest.raises(ToolExecError) as caught:
                await backend.execute(shop.request("x"))
    error: Any = caught.value if protocol == "post" else caught.value.__cause__
    assert (error.code, error.outcome, error.retryable) == ("unauthenticated", "not_sent", False)
    assert (len(one.requests), len(other.requests)) == (0, 4)


async def test_a_key_that_is_taken_away_from_one_server_leaves_the_others(tmp_path: Path) -> None:
    """Over connections that are open: what the one refuses with a proof, the other runs."""
    one, other = ScriptedSandbox(default=1), ScriptedSandbox(default=2)
    shop, ring, stop = Workshop(), KeyRing([KEY]), asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with Runtime([one]) as runtime, serving(tmp_path / "2", other) as old:
        settings = RuntimeServerSettings(port=0, keys=[KEY])
        served = serve_runtime(runtime, settings, tmp_path / "1", ring=ring, ready=address.set_result, stop=stop)
        task = asyncio.create_task(served)
        async with remote_to(await address, old) as backend:
            await backend.check()
            await until(lambda: all(each.up for each in backend.connections))
            ring.replace([OTHER])
            results = [(await backend.execute(shop.request("x"))).raise_for_error().value for _ in range(8)]
        stop.set()
        await task
    assert results == [2] * 8
    assert (len(one.requests), len(other.requests)) == (0, 8)
