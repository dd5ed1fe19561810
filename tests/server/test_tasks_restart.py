"""`toolexec serve` as a process: its tasks when it is killed and started again, and when another caller asks."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult
from tests.config.commands import COMMAND
from tests.server.harness import ERAS
from tests.server.processes import environment, served
from tests.server.task_clients import TaskClient, taking_tasks
from tests.waiting import until

from toolexec.server.auth.credentials import hash_key
from toolexec.server.settings import TaskSettings
from toolexec.server.tasks import TaskStore

pytestmark = pytest.mark.full
both = pytest.mark.parametrize("era", ERAS)
APP = '''
import asyncio
import os
from toolexec import tool


@tool("job:pid")
def pid() -> int:
    """The number of the server's process."""
    return os.getpid()


@tool("job:append")
async def append(path: str) -> str:
    """Write to a file for ever."""
    while True:
        with open(path, "a") as out:
            out.write("x")
        await asyncio.sleep(0.01)
'''
SETTINGS = f"""
[sources]
python = ["app.py"]
[server]
expose = "meta"
port = 0
[tasks]
mode = "always"
[[auth.api_keys]]
id = "ann"
sha256 = "{hash_key("ann's")}"
[[auth.api_keys]]
id = "bob"
sha256 = "{hash_key("bob's")}"
"""
PID = ("run_tool", {"tool_id": "job:pid"})
ASKS = (
    "pid = tools.job.pid()\nreturn [pid, tools.run('run:input', {'question': 'Go on?', 'schema': {'type': 'boolean'}})]"
)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The command line of a server that makes each call a task."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "toolexec.toml").write_text(SETTINGS)
    return [*COMMAND, "serve", "-c", str(tmp_path / "toolexec.toml")]


def append_to(path: Path) -> tuple[str, dict[str, Any]]:
    return "run_tool", {"tool_id": "job:append", "args": {"path": str(path)}}


async def stands_still(path: Path) -> bool:
    size = path.stat().st_size
    await asyncio.sleep(0.2)
    return path.stat().st_size == size


@asynccontextmanager
async def caller(url: str, era: str, key: str, **options: Any) -> AsyncGenerator[TaskClient]:
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60, verify=False) as http:
        async with taking_tasks(streamable_http_client(url, http_client=http), era, **options) as client:
            yield client


def answering(url: str, era: str, key: str) -> AbstractAsyncContextManager[TaskClient]:
    """A caller who says yes to whatever is asked while it waits for a result."""

    async def yes(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": True})

    return caller(url, era, key, elicitation_callback=yes)


async def refused(client: TaskClient, method: str, task_id: str) -> None:
    with pytest.raises(MCPError, match="not found") as error:
        await client.ask(method, task_id, **({"inputResponses": {}} if method == "tasks/update" else {}))
    assert error.value.error.code == -32602


@both
async def test_over_http(era: str, words: list[str], tmp_path: Path) -> None:
    """A finished task is there after a kill and a new start, an interrupted one has failed; both only for their
    caller, who is known by a key."""
    file = tmp_path / "out"
    with served(words, tmp_path) as url:
        async with caller(url, era, "ann's") as ann, caller(url, era, "bob's") as bob:
            finished = (await ann.call(*PID))["taskId"]
            result = await ann.result(finished)
            running = (await ann.call(*append_to(file)))["taskId"]
            stopped = (await ann.call(*append_to(tmp_path / "stopped")))["taskId"]
            await until((tmp_path / "stopped").exists)
            for method in ["tasks/get", "tasks/cancel", "tasks/update" if bob.modern else "tasks/result"]:
                await refused(bob, method, stopped)
            await ann.cancel(stopped)
            assert await stands_still(tmp_path / "stopped")
            if not ann.modern:
                assert len((await ann.list())["tasks"]) == 3
                assert (await bob.list())["tasks"] == []
            await until(file.exists)
    assert await stands_still(file)
    with served(words, tmp_path) as url:
        async with caller(url, era, "ann's") as ann, caller(url, era, "bob's") as bob:
            assert await ann.result(finished) == result
            task = await ann.get(running)
            assert task["status"] == "failed"
            assert "interrupted" in task["statusMessage"]
            assert (await ann.get(stopped))["status"] == "cancelled"
            await refused(bob, "tasks/get", finished)


@both
async def test_a_durable_run_survives_kills(era: str, words: list[str], tmp_path: Path) -> None:
    """A run that waits is there after a kill of its server; only its own caller can answer, and the result is there
    after one more kill."""
    settings = tmp_path / "toolexec.toml"
    settings.write_text(SETTINGS.replace('mode = "always"', 'mode = "always"\ndurable = true'))
    with served(words, tmp_path) as url:
        async with answering(url, era, "ann's") as ann:
            task_id = (await ann.call("execute_code", {"language": "python", "code": ASKS}))["taskId"]
            await ann.until(task_id, "input_required")
    with served(words, tmp_path) as url:
        async with answering(url, era, "ann's") as ann, answering(url, era, "bob's") as bob:
            for method in ["tasks/get", "tasks/cancel", "tasks/update" if bob.modern else "tasks/result"]:
                await refused(bob, method, task_id)
            task = await ann.until(task_id, "input_required")
            if ann.modern:
                [key] = task["inputRequests"]
                reply = {"action": "accept", "content": {"answer": True}}
                await ann.ask("tasks/update", task_id, inputResponses={key: reply})
            result = await ann.result(task_id)
            assert re.search(r"\d+, ?true", result["content"][0]["text"].replace("\n", ""))
    with served(words, tmp_path) as url:
        async with caller(url, era, "ann's") as ann:
            assert await ann.result(task_id) == result


@asynccontextmanager
async def over_stdio(words: list[str], tmp_path: Path, era: str) -> AsyncGenerator[TaskClient]:
    server = StdioServerParameters(command=words[0], args=words[1:], env=environment(tmp_path))
    with (tmp_path / "stderr").open("a") as stderr:
        async with taking_tasks(stdio_client(server, errlog=stderr), era) as client:
            yield client


@both
async def test_over_stdio(era: str, words: list[str], tmp_path: Path) -> None:
    """The same holds over stdio; and a task is cancelled by way of the file, too."""
    file = tmp_path / "out"
    async with over_stdio(words, tmp_path, era) as client:
        finished = (await client.call(*PID))["taskId"]
        result = await client.result(finished)
        stopped = (await client.call(*append_to(file)))["taskId"]
        await until(file.exists)
        store = TaskStore(TaskSettings(path=str(tmp_path / "state/toolexec/tasks.db")))
        assert {task.id for task in store.list_tasks()} == {finished, stopped}
        assert store.cancel_task(stopped)
        await client.until(stopped, "cancelled")
        store.close()
        assert await stands_still(file)
        running = (await client.call(*append_to(file)))["taskId"]
        os.kill(int(re.findall(r"\d{2,}", result["content"][0]["text"])[0]), signal.SIGKILL)
    async with over_stdio(words, tmp_path, era) as client:
        assert await client.result(finished) == result
        assert (await client.get(running))["status"] == "failed"
        assert await stands_still(file)
