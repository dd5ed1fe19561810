"""A file that changes under load: no call fails, whatever is added, changed and removed."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import httpx2
import pytest
from tests.cli.live_server import Caller, live_server, write

from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")]
_CALLERS = 8


def server(name: str, *tools: str) -> str:
    """Return the table of a server with these tools, which answer with their arguments."""
    command, *args = ScriptedServer(tools=[ScriptedTool(tool, "Echo.") for tool in tools]).command()
    return f"[mcpServers.{name}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"


async def test_no_call_fails_while_the_file_is_reloaded_again_and_again(tmp_path: Path) -> None:
    """Servers are added, changed and removed, and so are rules, transforms and composed tools, while callers call a
    server that stays and one that is replaced; each has had answers after each change, in the session of before."""
    base = (
        '[server]\nexpose = "meta"\n[audit]\nenabled = false\n[pinning]\nenabled = false\n[policy]\nremote_destructive = "allow"\n'
        + server("kept", "echo")
    )
    more = server("new", "echo")
    rule = '[[policy.rules]]\neffect = "deny"\ntools = "no:such"\n'
    form = '[transforms."kept:echo"]\ndescription = "Echoes."\n'
    both = '[tools.both]\ndescription = "Echo"\nsteps = [{ tool = "kept:echo", args = { n = 2 } }]\n'
    other = server("other", "echo")
    replaced = server("other", "echo", "shout")
    steps = {
        "servers added: new": base + other + more,
        "servers changed: other": base + replaced + more,
        "changed: policy.rules": base + replaced + more + rule,
        "transforms: kept:echo": base + replaced + more + rule + form,
        "composed tools: both": base + replaced + more + rule + form + both,
        "servers removed: new": base + replaced + form,
    }
    file = tmp_path / "toolexec.toml"
    write(file, base + other)
    limits = httpx2.Limits(max_connections=_CALLERS)
    async with live_server(file) as served, httpx2.AsyncClient(timeout=60, verify=False, limits=limits) as client:
        callers = [Caller(served.url, client) for _ in range(_CALLERS)]
        counts = [0] * _CALLERS
        counted = asyncio.Condition()

        async def keep_calling(number: int, caller: Caller) -> None:
            await caller.open()
            tool = "kept:echo" if number % 2 else "other:echo"
            while True:
                result = await caller.call(tool, n=counts[number])
                assert json.loads(result["content"][0]["text"])["n"] == counts[number]
                async with counted:
                    counts[number] += 1
                    counted.notify_all()

        async with asyncio.TaskGroup() as group:
            calling = [group.create_task(keep_calling(*each)) for each in enumerate(callers)]
            for words, text in steps.items():
                write(file, text)
                served.process.send_signal(signal.SIGHUP)
                assert "the settings were reloaded" in await served.said(words)
                enough = [count + 1 for count in counts]
                async with counted:
                    while any(map(int.__lt__, counts, enough)):
                        await counted.wait()
            for task in calling:
                task.cancel()
        assert not [line for line in served.lines if line.startswith("error")]
    assert min(counts) >= len(steps)
