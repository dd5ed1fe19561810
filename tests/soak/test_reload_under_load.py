"""Reloads, one after the other, of a server under up to 200 calls a second: no call fails."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count, cycle
from pathlib import Path
from time import perf_counter

import pytest
from tests.cli.live_server import write
from tests.server.crowd import HOSTILE, Crowd, Server, key_of, served, settings_of
from tests.waiting import until

from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

pytestmark = [
    pytest.mark.soak,
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP"),
]

CALLERS = [f"caller-{number}" for number in range(50)]
MOST = 200
"""Calls a second, on a machine that can do twice that."""
QUIET, LOUD = 10, 40
"""Seconds without reloads, and with them."""
TAKEN_OVER = re.compile(r"the settings were reloaded; (?!nothing has changed)")
OFTEN = 0.5
"""Seconds between two reloads, beside what they take."""


def server(name: str, *tools: str) -> str:
    """Return the table of a server with these tools, which answer with their arguments."""
    command, *args = ScriptedServer(tools=[ScriptedTool(tool, "Echo.") for tool in tools]).command()
    return f"[mcpServers.{name}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"


RULES = '[pinning]\nenabled = false\n[policy]\nremote_destructive = "allow"\n'
KEPT = server("kept", "echo") + server("other", "echo")
SOME = '[toolsets.some]\nbackends = ["kept"]\n[endpoints.beside]\ntoolsets = ["some"]\n'
ONE = f'[[endpoints.beside.auth.api_keys]]\nid = "one"\nsha256 = "{"0" * 64}"\n'
FORM = '[transforms."kept:echo"]\ndescription = "Echoes."\n'
BOTH = '[tools.both]\ndescription = "Echo"\nsteps = [{ tool = "kept:echo", args = { n = 2 } }]\n'
CHANGES = {
    "policy": ('[[policy.rules]]\neffect = "deny"\ntools = "no:such"\n' + KEPT, []),
    "a key more": (KEPT, ["newcomer"]),
    "a server more": (KEPT + server("more", "echo"), []),
    "a server replaced": (server("kept", "echo") + server("other", "echo", "shout"), []),
    "a toolset and an endpoint": (KEPT + SOME + ONE, []),
    "a transform and a composed tool": (KEPT + FORM + BOTH, []),
    "as before": (KEPT, []),
}
"""What a file has beside its callers, by what is changed with it, and which callers are new."""


@asynccontextmanager
async def reloads(server: Server) -> AsyncGenerator[list[str]]:
    """Change the file again and again during the block, and have the server take it over by itself and at SIGHUP by
    turns; yields what has been taken over."""
    taken: list[str] = []

    async def keep_reloading() -> None:
        for number, (what, (more, callers)) in zip(count(), cycle(CHANGES.items())):
            before = len(TAKEN_OVER.findall(server.log))
            write(server.directory / "toolexec.toml", settings_of([*CALLERS, HOSTILE, *callers], RULES + more))
            if number % 2:
                server.process.send_signal(signal.SIGHUP)
            await until(lambda seen=before: len(TAKEN_OVER.findall(server.log)) > seen, 0.05)
            taken.append(what)
            await asyncio.sleep(OFTEN)

    reloading = asyncio.create_task(keep_reloading())
    yield taken
    reloading.cancel()
    await asyncio.wait([reloading])
    assert reloading.cancelled(), reloading.exception()


def row(name: str, crowd: Crowd, reloaded: int) -> str:
    """Return what a crowd's calls came to, and forget how long they took."""
    took = sorted(each * 1000 for each in crowd.took)
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    crowd.took.clear()
    return (
        f"{name:8} {len(took):6} calls  {len(crowd.errors):3} errors  p50 {p50:7.1f} ms  p99 {p99:7.1f} ms"
        f"  max {took[-1]:7.1f} ms  {reloaded} reloads"
    )


async def test_no_call_fails_however_often_the_settings_are_reloaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Keys, rules, servers, toolsets, endpoints and tools change every second under steady calls of a local tool and of
    two servers, one of which is replaced each time: every call is answered, with what was asked for."""
    tools = ("load:echo", "kept:echo", "other:echo")
    with served(tmp_path, CALLERS, RULES + KEPT) as server:
        async with Crowd(server.url, CALLERS, tools) as crowd:
            await crowd.calls(3)
            began = perf_counter()
            await crowd.calls(3)
            rate = min(MOST, 3 * len(CALLERS) / (perf_counter() - began) / 2)
            pause = len(CALLERS) / rate
            crowd.took.clear()
            quiet, loud = (max(round(seconds / pause), 3) for seconds in (QUIET, LOUD))
            await crowd.calls(quiet, pause)
            rows = [f"{rate:.0f} calls a second", row("quiet", crowd, 0)]
            async with reloads(server) as taken:
                await crowd.calls(loud, pause)
            rows.append(row("reloads", crowd, len(taken)))
    with capfd.disabled():
        print("", *rows, sep="\n")
    assert crowd.errors == []
    assert crowd.answered == dict.fromkeys(CALLERS, 6 + quiet + loud)
    assert set(taken) == set(CHANGES), server.log
    assert key_of("newcomer") not in server.log
