"""Runs that Temporal finds by caller, skill, tools and what they wait for."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace

import pytest
from packages.temporal.tests.server.servers import DevServer
from tests.waiting import until

from toolexec import Exec, Step
from toolexec.errors import ConfigurationError
from toolexec.model import Caller, Origin, acting
from toolexec_temporal import TemporalEngine, TemporalSettings

WAITS = [Step("t:note", {"n": 1}), Step("run:signal", {"name": "go"}), Step("t:note", {"n": 2})]


def _exec(settings: TemporalSettings) -> Exec:
    ex = Exec(journal=TemporalEngine(settings))
    ex.add(lambda n: n, "t:note")
    return ex


async def test_runs_are_found_by_what_they_are(server: DevServer, settings: TemporalSettings) -> None:
    """A namespace without the attributes gets the commands that make them; then runs are found by them while they wait."""
    with_them = replace(settings, search_attributes=True)
    async with _exec(with_them) as ex:
        with pytest.raises(ConfigurationError, match="search-attribute create") as caught:
            await ex.run_chain(WAITS, durable="run")
    for command in caught.value.message.split(": ", 1)[1].split("; "):
        _, *words = shlex.split(command)
        subprocess.run(
            [server._program, *words, "--address", server.address], check=True, capture_output=True, timeout=60
        )
    async with _exec(with_them) as ex, ex.worker():
        engine = ex.options.journal
        assert isinstance(engine, TemporalEngine)
        client = await engine.client()

        async def found(query: str) -> list[str]:
            return [each.id async for each in client.list_workflows(query)]

        with acting(Origin(caller=Caller(id="ann"))):
            await ex.run_chain(WAITS, durable="run")
        name = f"{settings.prefix}run"
        words = "ToolexecTools = 't:note' AND ToolexecWaits = 'go' AND ToolexecCaller = 'ann'"
        assert await until(lambda: found(words), 0.1) == [name]
        assert await found("ToolexecCaller = 'bob'") == []
        await ex.runs.signal("run", "go")
        assert (await ex.runs.follow("run")).raise_for_error().value == 2
        await until(lambda: found("ToolexecTools = 'run:signal' AND ToolexecWaits IS NULL"), 0.1)
