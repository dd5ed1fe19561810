"""A server that takes the place of another one is connected before it does: no call waits for its start."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from tests.config.test_reload import FILE, serving
from tests.waiting import until

from toolexec.config.build import Built
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool, Trouble

SETTINGS = '[audit]\nenabled = false\n[pinning]\nenabled = false\n[policy]\nremote_destructive = "allow"\n'


def table(server: ScriptedServer) -> str:
    """Return the settings with this server."""
    command, *args = server.command()
    return f"{SETTINGS}[mcpServers.one]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"


def one(directory: Path, name: str, *tools: str, trouble: Trouble | None = None) -> ScriptedServer:
    """Return a server that writes down what happens to it."""
    return ScriptedServer(
        tools=[ScriptedTool(tool) for tool in ("echo", *tools)],
        record=str(directory / name),
        trouble={"initialize": trouble} if trouble is not None else {},
    )


async def called(built: Built, **args: Any) -> Any:
    """Call the server, and return its answer."""
    return (await built.ex.run_tool("one:echo", args)).raise_for_error().value


async def test_the_tools_of_the_successor_are_there_in_the_turn_in_which_the_others_go(tmp_path: Path) -> None:
    """Once a reload is over the new server is connected, shows its tools, and answers."""
    before, after = one(tmp_path, "before"), one(tmp_path, "after", "shout")
    async with serving(table(before)) as (built, reload):
        FILE.write_text(table(after))
        changes = await reload()
        assert changes is not None
        assert changes.changed == ("one",)
        assert built.ex.index.find("one:shout") is not None
        assert [status.available for status in built.ex.backend_statuses() if status.name == "one"] == [True]
        assert await called(built, n=1) == {"n": 1}
    assert len(after.events("start")) == len(after.events("call")) == 1
    assert before.events("call") == []


async def test_calls_are_answered_while_the_successor_starts_and_it_is_closed_where_the_reload_is_given_up(
    tmp_path: Path,
) -> None:
    """The other one serves on; a server that stops in the middle of a reload leaves no process of it behind."""
    before, after = one(tmp_path, "before"), one(tmp_path, "after", trouble=Trouble(hang=True))
    limits = "[limits]\nstart_timeout = 60\n"
    async with serving(table(before) + limits) as (built, reload):
        FILE.write_text(table(after) + limits)
        reloading = asyncio.create_task(reload())
        await until(lambda: after.events("initialize"))
        assert await called(built, n=1) == {"n": 1}
        assert not reloading.done()
        reloading.cancel()
        with suppress(asyncio.CancelledError):
            await reloading
        assert reloading.cancelled()
        assert not psutil.pid_exists(after.events("start")[0]["pid"])
        assert await called(built, n=2) == {"n": 2}
    assert len(before.events("call")) == 2


async def test_a_successor_that_does_not_start_in_time_takes_the_place_all_the_same(tmp_path: Path) -> None:
    """A reload waits for it as long as a start may take, and no longer; the status says how it is."""
    before, after = one(tmp_path, "before"), one(tmp_path, "after", trouble=Trouble(hang=True))
    limits = "[limits]\nstart_timeout = 0.1\n"
    async with serving(table(before) + limits) as (built, reload):

        def is_available() -> bool:
            return any(status.available for status in built.ex.backend_statuses() if status.name == "one")

        await until(is_available)
        FILE.write_text(table(after) + limits)
        changes = await reload()
        assert changes is not None
        assert changes.changed == ("one",)
        assert not is_available()
    assert after.events("call") == []
