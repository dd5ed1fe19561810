"""Calls as tasks, for the official client in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client._memory import InMemoryTransport
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult
from tests.server.harness import ERAS, connect, gated, serving
from tests.server.task_clients import TaskClient, taking_tasks
from tests.waiting import until

from toolexec import ConfigurationError, Exec, ToolContext
from toolexec.server.app import ToolServer
from toolexec.server.settings import TaskSettings
from toolexec.server.tasks import StoredTask, TaskOutcome, TaskStore

both = pytest.mark.parametrize("era", ERAS)
ALWAYS = TaskSettings(mode="always")


@asynccontextmanager
async def tasks_of(server: ToolServer, era: str, **options: Any) -> AsyncIterator[TaskClient]:
    async with taking_tasks(InMemoryTransport(server.lowlevel), era, **options) as client:
        yield client


def slow_tools(file: Path | None = None) -> tuple[Exec, asyncio.Event]:
    """Tools that wait until they may go on, and one that writes to a file until it is stopped."""
    ex, go = Exec(), asyncio.Event()

    async def wait(word: str, context: ToolContext) -> str:
        """Wait, and repeat the word."""
        context.report(3, 10, "on the way")
        await go.wait()
        return word

    async def append() -> str:
        """Write for ever."""
        assert file is not None
        while True:
            with file.open("a") as out:
                out.write("x")
            await asyncio.sleep(0.01)

    ex.add(wait, "job:wait")
    ex.add(append, "job:append")
    ex.add(lambda a, b: a + b, "math:add")
    return ex, go


WAIT = ("run_tool", {"tool_id": "job:wait", "args": {"word": "hello"}})


@both
async def test_a_task_gives_the_direct_result(era: str) -> None:
    """A call that takes long becomes a task; what it gives in the end is what a direct call gives."""
    ex, go = slow_tools()
    settings = {"tasks": TaskSettings(after=0.05), "expose": "direct"}
    async with serving(ex, **settings) as server, tasks_of(server, era) as client:
        [name] = [tool.name for tool in (await client.client.list_tools()).tools if "wait" in tool.name]
        task = await client.call(name, {"word": "hello"})
        assert task["status"] == "working"
        assert len(task["taskId"]) >= 32
        assert task["pollIntervalMs" if client.modern else "pollInterval"] > 0
        assert task["ttlMs" if client.modern else "ttl"] == 86_400_000
        assert (await client.get(task["taskId"]))["statusMessage"] == "on the way (3 of 10)"
        go.set()
        result = await client.result(task["taskId"])
        async with connect(server, era) as plain:
            direct = await plain.call_tool(name, {"word": "hello"})
        assert direct.content[0].text == "hello"
        for key, value in direct.model_dump(by_alias=True, mode="json", exclude_none=True).items():
            assert key == "_meta" or result.get(key, value) == value
        assert result["content"] == [{"type": "text", "text": "hello"}]
        assert (await client.get(task["taskId"]))["status"] == "completed"


async def test_quick_calls_stay_direct() -> None:
    """A call that is done before its time is answered directly, and leaves no task."""
    ex, _ = slow_tools()
    async with serving(ex) as server, tasks_of(server, "auto") as client:
        reply = await client.call("run_tool", {"tool_id": "math:add", "args": {"a": 1, "b": 2}})
        assert "taskId" not in reply
        assert reply["structuredContent"]["structured"] == 3
        assert server.tasks.list_tasks() == []


@both
async def test_never(era: str) -> None:
    """With `never`, calls are answered directly, and there are no requests about tasks."""
    ex, go = slow_tools()
    go.set()
    async with serving(ex, tasks=TaskSettings(mode="never", after=0)) as server, tasks_of(server, era) as client:
        assert "taskId" not in await client.call(*WAIT)
        with pytest.raises(MCPError) as error:
            await client.get("x")
        assert error.value.error.code == -32601
        capabilities = client.client.server_capabilities.model_dump(exclude_none=True)
        assert "tasks" not in capabilities
        assert "extensions" not in capabilities


@both
async def test_a_client_without_tasks(era: str) -> None:
    """A client that does not offer to take tasks never gets one, and may not ask for one in the newer era."""
    ex, go = slow_tools()
    go.set()
    async with serving(ex, tasks=ALWAYS) as server, connect(server, era) as plain:
        assert not (await plain.call_tool(*WAIT)).is_error
        if era != "legacy":
            with pytest.raises(MCPError) as error:
                await TaskClient(plain, era).get("x")
            assert error.value.error.code == -32021
            assert "io.modelcontextprotocol/tasks" in error.value.error.data["requiredCapabilities"]["extensions"]


async def test_the_words_of_each_era() -> None:
    """Each era reads in its own words that there are tasks, and has only its own requests."""
    ex, _ = slow_tools()
    async with serving(ex) as server:
        async with tasks_of(server, "legacy") as old:
            assert old.client.server_capabilities.tasks.requests.tools.call is not None
            tools = (await old.client.list_tools()).tools
            assert {tool.execution.task_support for tool in tools} == {"optional"}
            with pytest.raises(MCPError, match="not found"):
                await old.ask("tasks/update", "x", inputResponses={})
        async with tasks_of(server, "auto") as new:
            assert new.client.server_capabilities.extensions == {"io.modelcontextprotocol/tasks": {}}
            assert new.client.server_capabilities.tasks is None
            for method in ("tasks/result", "tasks/list"):
                with pytest.raises(MCPError) as error:
                    await new.ask(method, "x")
                assert error.value.error.code == -32601


@both
async def test_cancel_stops_the_work(era: str, tmp_path: Path) -> None:
    """Cancelling a task ends the tool: the file that it writes to grows no more."""
    file = tmp_path / "out"
    ex, _ = slow_tools(file)
    async with serving(ex, tasks=ALWAYS) as server, tasks_of(server, era) as client:
        task = await client.call("run_tool", {"tool_id": "job:append"})
        await until(file.exists)
        await client.cancel(task["taskId"])
        size = file.stat().st_size
        await asyncio.sleep(0.1)
        assert file.stat().st_size == size
        assert (await client.get(task["taskId"]))["status"] == "cancelled"
        if client.modern:
            await client.cancel(task["taskId"])  # acknowledged, as nothing is left to do
        else:
            with pytest.raises(MCPError, match="over already"):
                await client.cancel(task["taskId"])
            with pytest.raises(MCPError, match="cancelled"):
                await client.result(task["taskId"])


@both
async def test_cancel_stops_code(era: str, tmp_path: Path) -> None:
    """Cancelling a task of code ends its sandbox and the tools that it calls."""
    file = tmp_path / "out"
    ex, _ = slow_tools(file)
    async with serving(ex, tasks=ALWAYS) as server, tasks_of(server, era) as client:
        task = await client.call("execute_code", {"language": "python", "code": "tools.job.append()"})
        await until(file.exists)
        await client.cancel(task["taskId"])
        size = file.stat().st_size
        await asyncio.sleep(0.1)
        assert file.stat().st_size == size
        assert (await client.get(task["taskId"]))["status"] == "cancelled"


@both
async def test_failures(era: str) -> None:
    """A tool that reports a problem is completed, with isError; an unknown tool is refused before there is a task."""
    ex, _ = slow_tools()
    async with serving(ex, tasks=ALWAYS) as server, tasks_of(server, era) as client:
        task = await client.call("run_tool", {"tool_id": "no:such"})
        assert (await client.result(task["taskId"]))["isError"]
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call("nothing", {})
        with pytest.raises(MCPError, match="not found") as error:
            await client.get("nothing")
        assert error.value.error.code == -32602


def dangerous() -> tuple[Exec, list[str]]:
    ran: list[str] = []
    ex, _ = gated()

    def danger(path: str) -> str:
        """Delete."""
        ran.append(path)
        return f"gone {path}"

    ex.add(danger, "fs:danger")
    return ex, ran


TWICE = {"language": "python", "code": "tools.fs.danger(path='/x')\nreturn tools.fs.danger(path='/y')"}


async def accept(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"answer": "once"})


async def test_questions_of_the_newer_era() -> None:
    """Approvals are asked for by way of the task, each under a key of its own, and answered with tasks/update."""
    ex, ran = dangerous()
    keys: list[str] = []
    async with serving(ex, tasks=ALWAYS) as server, tasks_of(server, "auto", elicitation_callback=accept) as client:
        task_id = (await client.call("execute_code", TWICE))["taskId"]
        for _ in range(2):
            task = await client.until(task_id, "input_required")
            [(key, request)] = task["inputRequests"].items()
            assert request["method"] == "elicitation/create"
            assert "fs:danger" in request["params"]["message"]
            keys.append(key)
            answers = {key: {"action": "accept", "content": {"answer": "once"}}, "unknown": {"action": "decline"}}
            await client.ask("tasks/update", task_id, inputResponses=answers)
        assert "gone /y" in str(await client.result(task_id))
    assert len(set(keys)) == 2
    assert ran == ["/x", "/y"]


async def test_questions_of_the_handshake_era() -> None:
    """Approvals are asked for while the client waits for the result; each question names its task."""
    ex, ran = dangerous()
    seen: list[Any] = []

    async def answer(context: Any, params: Any) -> ElicitResult:
        seen.append(params.meta)
        return await accept(context, params)

    async with serving(ex, tasks=ALWAYS) as server, tasks_of(server, "legacy", elicitation_callback=answer) as client:
        task_id = (await client.call("execute_code", TWICE))["taskId"]
        await client.until(task_id, "input_required")
        assert "gone /y" in str(await client.result(task_id))
    assert ran == ["/x", "/y"]
    assert [meta["io.modelcontextprotocol/related-task"]["taskId"] for meta in seen] == [task_id, task_id]


@both
async def test_no_answer(era: str) -> None:
    """A question that is not answered in time is a no, and the task goes on with that."""
    ex, ran = dangerous()
    settings = {"tasks": ALWAYS, "approval_timeout": 0.2}
    async with serving(ex, **settings) as server, tasks_of(server, era, elicitation_callback=accept) as client:
        task = await client.call("run_tool", {"tool_id": "fs:danger", "args": {"path": "/x"}})
        await client.until(task["taskId"], "completed")
        assert (await client.result(task["taskId"]))["isError"]
    assert ran == []


async def test_cancel_while_a_question_is_open() -> None:
    """Cancelling a task whose question is just before the person ends the wait for its result at once."""
    ex, ran = dangerous()
    asked = asyncio.Event()

    async def never(context: Any, params: Any) -> ElicitResult:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(ex, tasks=ALWAYS) as server, tasks_of(server, "legacy", elicitation_callback=never) as client:
        task = await client.call("run_tool", {"tool_id": "fs:danger", "args": {"path": "/x"}})
        waiting = asyncio.create_task(client.result(task["taskId"]))
        async with asyncio.timeout(10):
            await asked.wait()
            await client.cancel(task["taskId"])
            with pytest.raises(MCPError, match="cancelled"):
                await waiting
    assert ran == []


async def test_a_question_before_the_task() -> None:
    """A question before the call has become a task is asked as ever; the call becomes a task when it goes on."""
    ex, _ = dangerous()
    go = asyncio.Event()

    async def danger() -> str:
        """Delete slowly."""
        await go.wait()
        return "gone"

    ex.add(danger, "slow:danger")
    settings = TaskSettings(after=1.0)
    async with serving(ex, tasks=settings) as server, tasks_of(server, "auto", elicitation_callback=accept) as client:
        call = ("run_tool", {"tool_id": "slow:danger"})
        asked = await client.call(*call)
        assert asked["resultType"] == "input_required"
        [key] = asked["inputRequests"]
        task = await client.client.session.call_tool(
            *call,
            input_responses={key: ElicitResult(action="accept", content={"answer": "once"})},
            request_state=asked["requestState"],
            allow_claimed=True,
        )
        task_id = task.model_dump()["taskId"]
        go.set()
        assert "gone" in str(await client.result(task_id))


@both
async def test_time_to_live(era: str) -> None:
    """After its time a task is gone, and its work is stopped."""
    ex, _ = slow_tools()
    settings = TaskSettings(mode="always", ttl=0.3)
    async with serving(ex, tasks=settings) as server, tasks_of(server, era) as client:
        task = await client.call(*WAIT)
        with pytest.raises(MCPError, match="not found, or it has expired"):
            await client.until(task["taskId"], "completed")
        await until(lambda: not server.tasks_at_work)


async def test_a_shorter_time_to_live() -> None:
    """A client of 2025-11-25 may ask for a shorter life of its task, not for a longer one."""
    ex, _ = slow_tools()
    async with serving(ex) as server, tasks_of(server, "legacy") as client:
        assert (await client.call(*WAIT, ttl=60_000))["ttl"] == 60_000
        assert (await client.call(*WAIT, ttl=10**12))["ttl"] == 86_400_000


async def test_list() -> None:
    """A client of 2025-11-25 lists the tasks of its own conversation, page by page."""
    ex, go = slow_tools()
    go.set()
    async with serving(ex) as server, tasks_of(server, "legacy") as client, tasks_of(server, "legacy") as other:
        made = [(await client.call(*WAIT))["taskId"] for _ in range(60)]
        page = await client.list()
        following = await client.list(cursor=page["nextCursor"])
        assert [task["taskId"] for task in page["tasks"] + following["tasks"]] == made[::-1]
        assert "nextCursor" not in following
        assert (await other.list())["tasks"] == []
        with pytest.raises(MCPError, match="invalid cursor"):
            await other.list(cursor=page["nextCursor"])


async def test_no_room() -> None:
    """Where as many tasks are at work as may be, further calls stay direct; one that asked for a task is refused."""
    ex, go = slow_tools()
    settings = TaskSettings(mode="always", max_per_caller=2)
    async with serving(ex, tasks=settings) as server, tasks_of(server, "auto") as client:
        tasks = [await client.call(*WAIT) for _ in range(2)]
        direct = asyncio.create_task(client.call(*WAIT))
        async with tasks_of(server, "legacy") as old:
            for _ in range(2):
                await old.call(*WAIT)
            with pytest.raises(MCPError, match="no more tasks"):
                await old.call(*WAIT)
        go.set()
        assert "hello" in str((await direct)["content"])
        for task in tasks:
            assert "hello" in str(await client.result(task["taskId"]))


@both
async def test_a_file_that_cannot_be_used(era: str, tmp_path: Path) -> None:
    """Without a file to keep tasks in, calls of the newer era stay direct, and the older one reads that there is none."""
    (tmp_path / "file").write_text("")
    ex, go = slow_tools()
    go.set()
    settings = TaskSettings(mode="always", path=str(tmp_path / "file" / "tasks.db"))
    async with serving(ex, tasks=settings) as server, tasks_of(server, era) as client:
        if client.modern:
            assert "hello" in str((await client.call(*WAIT))["content"])
        else:
            with pytest.raises(MCPError, match="no more tasks"):
                await client.call(*WAIT)


@both
async def test_the_server_closes(era: str, tmp_path: Path) -> None:
    """A task that is at work when the server closes is stopped and has failed; the next server says so."""
    settings = TaskSettings(mode="always", path=str(tmp_path / "tasks.db"))
    ex, _ = slow_tools()
    async with serving(ex, tasks=settings) as server, tasks_of(server, era) as client:
        task_id = (await client.call(*WAIT))["taskId"]
    ex, _ = slow_tools()
    async with serving(ex, tasks=settings) as server, tasks_of(server, era) as client:
        task = await client.get(task_id)
        assert task["status"] == "failed"
        assert "interrupted" in task["statusMessage"]


async def test_another_server_of_the_same_file(tmp_path: Path) -> None:
    """A task is read and cancelled through any server that shares the file."""
    settings = TaskSettings(mode="always", path=str(tmp_path / "tasks.db"))
    (ex, _), (other_ex, _) = slow_tools(), slow_tools()
    async with serving(ex, tasks=settings) as server, serving(other_ex, tasks=settings) as other:
        async with tasks_of(server, "auto") as client, tasks_of(other, "auto") as elsewhere:
            task_id = (await client.call(*WAIT))["taskId"]
            assert (await elsewhere.get(task_id))["status"] == "working"
            await elsewhere.cancel(task_id)
            await client.until(task_id, "cancelled")
            assert (await elsewhere.get(task_id))["status"] == "cancelled"


@both
async def test_a_result_that_cannot_be_written_yet(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is there while its file cannot be written, and is written as soon as it can be."""
    ex, go = slow_tools()
    go.set()
    refusals = [ConfigurationError("the disk is full")] * 2
    write = TaskStore.finish

    def finish(store: TaskStore, task_id: str, outcome: TaskOutcome) -> StoredTask | None:
        if refusals:
            raise refusals.pop()
        return write(store, task_id, outcome)

    monkeypatch.setattr(TaskStore, "finish", finish)
    async with serving(ex, tasks=ALWAYS) as server, tasks_of(server, era) as client:
        task = await client.call(*WAIT)
        assert "hello" in str(await client.result(task["taskId"]))
        await until(lambda: not server.tasks_at_work)
        assert refusals == []
        assert "hello" in str(await client.result(task["taskId"]))
