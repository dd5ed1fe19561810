"""`toolexec serve` as two processes with a Valkey and nothing else in common: a task of one is served by the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp_types import ElicitResult
from tests.config.commands import COMMAND
from tests.server.harness import ERAS
from tests.server.processes import served
from tests.server.test_tasks_restart import APP, PID, SETTINGS, append_to, caller, refused, stands_still
from tests.waiting import until

if TYPE_CHECKING:
    from packages.valkey.tests.conftest import Server

pytestmark = pytest.mark.full
LATE = '''

@tool("job:late")
async def late() -> str:
    """Takes longer than a task is silent."""
    await asyncio.sleep(12)
    return "late"
'''
ASK = """
[[policy.rules]]
name = "asks"
effect = "ask"
tools = ["job:ask"]
"""
ASKED = '''

@tool("job:ask")
def ask() -> str:
    """Needs an approval."""
    return "asked"
'''


@pytest.fixture
def words(tmp_path: Path, valkey: Server) -> list[str]:
    """The command line of servers that make each call a task, and share their state."""
    (tmp_path / "app.py").write_text(APP + LATE + ASKED)
    shared = f'[server]\nstate_url = "{valkey.url}"\nstate_keys = ["{"k" * 32}"]'
    (tmp_path / "toolexec.toml").write_text(SETTINGS.replace("[server]", shared) + ASK)
    return [*COMMAND, "serve", "-c", str(tmp_path / "toolexec.toml")]


async def once(context: Any, params: Any) -> ElicitResult:
    """The user of a client, who says yes."""
    return ElicitResult(action="accept", content={"answer": "once"})


async def test_the_other_worker_serves_tasks(words: list[str], tmp_path: Path) -> None:
    """In both eras, a task of one worker is read, listed, answered and cancelled at the other, by its caller only; its
    result is there after a kill, one that was at work has failed with what it did unknown, and one that takes long at a
    worker that lives has not."""
    done: dict[str, tuple[str, object]] = {}
    running: dict[str, str] = {}
    slow: dict[str, str] = {}
    with served(words, tmp_path / "b") as second:
        with served(words, tmp_path / "a") as first:
            for era in ERAS:
                file = tmp_path / era
                options = {"elicitation_callback": once}
                async with (
                    caller(first, era, "ann's", **options) as ann,
                    caller(second, era, "ann's", **options) as there,
                ):
                    task_id = (await ann.call(*PID))["taskId"]
                    done[era] = (task_id, await ann.result(task_id))
                    assert await there.result(task_id) == done[era][1]
                    running[era] = (await ann.call(*append_to(file)))["taskId"]
                    await until(file.exists)
                    assert (await there.get(running[era]))["status"] == "working"
                    slow[era] = (await there.call("run_tool", {"tool_id": "job:late"}))["taskId"]
                    asking = (await ann.call("run_tool", {"tool_id": "job:ask"}))["taskId"]
                    task = await there.until(asking, "input_required")
                    if there.modern:
                        [key] = task["inputRequests"]
                        reply = {"action": "accept", "content": {"answer": "once"}}
                        await there.ask("tasks/update", asking, inputResponses={key: reply})
                    assert "asked" in str(await there.result(asking))
                    stopped = (await ann.call(*append_to(tmp_path / f"{era}-stopped")))["taskId"]
                    await until((tmp_path / f"{era}-stopped").exists)
                    async with caller(second, era, "bob's") as bob:
                        for method in ["tasks/get", "tasks/cancel", "tasks/update" if bob.modern else "tasks/result"]:
                            await refused(bob, method, stopped)
                    await there.cancel(stopped)
                    await ann.until(stopped, "cancelled")
                    assert await stands_still(tmp_path / f"{era}-stopped")
                    assert (await there.get(stopped))["status"] == "cancelled"
                    if not there.modern:
                        listed = {task["taskId"] for task in (await there.list())["tasks"]}
                        assert listed >= {task_id, running[era], slow[era], stopped}

        async def afterwards(era: str) -> None:
            async with caller(second, era, "ann's") as ann:
                assert await ann.result(done[era][0]) == done[era][1]
                task = await ann.until(running[era], "failed")
                assert "what it did until then is unknown" in task["statusMessage"]
                assert await stands_still(tmp_path / era)
                assert "late" in str(await ann.result(slow[era]))

        await asyncio.gather(*map(afterwards, ERAS))
