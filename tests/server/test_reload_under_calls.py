"""Reloads of a server, one after the other, while it is called without a pause: no call fails."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from tests.cli.live_server import write
from tests.server.crowd import HOSTILE, Crowd, served, settings_of
from tests.soak.test_reload_under_load import CHANGES, KEPT, RULES, TAKEN_OVER
from tests.waiting import until

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP"),
]
CALLERS = [f"caller-{number}" for number in range(20)]


async def test_no_call_fails_while_the_settings_are_reloaded(tmp_path: Path) -> None:
    """Callers of both eras call a local tool and two servers all the time, while rules, keys, servers, toolsets,
    endpoints and tools change once each, and a file with an error is refused: every call is answered."""
    with served(tmp_path, CALLERS, RULES + KEPT) as server:
        async with Crowd(server.url, CALLERS, ("load:echo", "kept:echo", "other:echo")) as crowd:
            await crowd.calls(3)
            over, rounds = asyncio.Event(), 0

            async def keep_calling() -> None:
                nonlocal rounds
                while not over.is_set():
                    await crowd.calls(3)
                    rounds += 3

            calling = asyncio.create_task(keep_calling())
            file = server.directory / "toolexec.toml"
            for number, (what, (more, callers)) in enumerate(CHANGES.items(), 1):
                text, before = settings_of([*CALLERS, HOSTILE, *callers], RULES + more), rounds
                if what == "as before":
                    write(file, text.replace("[policy]", "[policy"))
                    server.process.send_signal(signal.SIGHUP)
                    await until(lambda: "the settings were not reloaded" in server.log, 0.05)
                write(file, text)
                server.process.send_signal(signal.SIGHUP)
                await until(lambda seen=number: len(TAKEN_OVER.findall(server.log)) >= seen, 0.05)
                await until(lambda done=before: rounds > done, 0.05)  # calls were under way at each change
            over.set()
            await calling
    assert crowd.errors == []
    assert crowd.answered == dict.fromkeys(CALLERS, 3 + rounds)
