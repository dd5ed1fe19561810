"""`toolexec serve` as a process: answers that it has kept, and callers to whom what they came of is denied since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.server.harness import ERAS
from tests.server.http.links import settled
from tests.server.office import Office, key
from tests.server.task_clients import OVER, TaskClient
from tests.server.test_restart import caller as client
from tests.server.test_streams_restart import at, outcome
from tests.server.test_tasks_restart import caller
from tests.waiting import until

pytestmark = pytest.mark.full
TASKS = '[tasks]\nmode = "always"\n'
DENY = '[[policy.rules]]\neffect = "deny"\ntools = ["office:{}"]\ncallers = "ann"\n'
PROGRAM = "return tools.office.sign()"
SLEEPS = "tools.run('run:sleep', {'seconds': 0.1})\nreturn tools.office.sign()"

WAITS = "signed = tools.office.sign()\ntools.run('run:signal', {'name': 'go'})\nreturn signed"


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """An office without settings."""
    return Office(tmp_path)


async def answer(ann: TaskClient, task_id: str) -> str:
    """Return what is answered to a caller who asks for a result: the result, or how the call stands."""
    if ann.modern:
        task = await ann.until(task_id, *OVER)
        return str(task["result"]) if task["status"] == "completed" else task["error"]["data"]["outcome"]
    try:
        return str(await ann.result(task_id))
    except MCPError as error:
        data: Any = error.error.data
        return data["outcome"]


async def is_denied(office: Office, url: str, tool: str) -> bool:
    """Return whether the server has taken over the rule that forbids a tool."""
    text = (await office.call(url, "ann's", f"office:{tool}")).text
    return "policy_denied" in text or "tool_not_found" in text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
async def test_tasks(office: Office, durable: bool, era: str) -> None:
    """A task gives no result that came of a tool which has been denied to its caller since, called by itself or by a
    program, at the same process or the next one; it does once the tool is allowed again."""
    settings = [TASKS + ("durable = true\n" if durable else ""), key("ann")]
    office.set(*settings)
    calls = [("run_tool", {"tool_id": "office:sign"})]
    calls += [("execute_code", {"language": "python", "code": code}) for code in (PROGRAM, SLEEPS)[: 1 + durable]]
    with office.serve() as url:
        async with caller(url, era, "ann's") as ann:
            tasks = [(await ann.call(*call))["taskId"] for call in calls]
            before = [await answer(ann, task) for task in tasks]
            assert all("signed" in each for each in before)
            office.set(*settings, DENY.format("sign"))
            await until(lambda: is_denied(office, url, "sign"), pause=0.1)
            assert [await answer(ann, task) for task in tasks] == ["denied"] * len(tasks)
    with office.serve() as url:
        async with caller(url, era, "ann's") as ann:
            assert [await answer(ann, task) for task in tasks] == ["denied"] * len(tasks)
    office.set(*settings)
    with office.serve() as url:
        async with caller(url, era, "ann's") as ann:
            assert [await answer(ann, task) for task in tasks] == before


async def test_a_run_that_an_earlier_process_began(office: Office) -> None:
    """A task of a durable run gives no result that came of a tool which an earlier process has called for it, and which
    is denied to its caller since."""
    durable = TASKS + "durable = true\n"
    office.set(durable, key("ann"))
    with office.serve() as url:
        async with caller(url, "auto", "ann's") as ann:
            task_id = (await ann.call("execute_code", {"language": "python", "code": WAITS}))["taskId"]
            await until(lambda: office.task(task_id).message)
    office.command("runs", "signal", task_id, "go")
    with office.serve() as url:
        async with caller(url, "auto", "ann's") as ann:
            assert "signed" in await answer(ann, task_id)
            office.set(durable, key("ann"), DENY.format("sign"))
            await until(lambda: is_denied(office, url, "sign"), pause=0.1)
            assert await answer(ann, task_id) == "denied"


async def test_a_stream_of_a_result(office: Office) -> None:
    """A client that has lost its connection while it waited for the result of a task, and comes back to that stream,
    gets no result that came of a tool which is denied to it by now, at the same process or the next one; it does once
    the tool is allowed again."""
    office.set(TASKS, key("ann"))
    with office.serve() as url:
        link = at(url)
        session = await link.open()
        params = {"name": "run_tool", "arguments": {"tool_id": "office:wait"}, "task": {}}
        async with link.called(session, 11, params) as announced:
            *_, (_, message) = [event async for event in announced]
        task_id = message["result"]["task"]["taskId"]
        async with link.called(session, 12, {"taskId": task_id}, "tasks/result") as waiting:
            last, _ = await anext(waiting)
            await until(lambda: "waited" in office.done)
        office.go()
        await settled(office.state / "server.db", "result")
        office.set(TASKS, key("ann"), DENY.format('sign", "office:wait'))
        await until(lambda: is_denied(office, url, "sign"), pause=0.1)
        assert await outcome(link, session, last) == "denied"
    with office.serve() as url:
        assert await outcome(at(url), session, last) == "denied"
    office.set(TASKS, key("ann"))
    with office.serve() as url:
        assert await outcome(at(url), session, last) == "waited"


async def test_results_read_by_handle(office: Office) -> None:
    """A result that was too long for a reply is not read any more once a tool that it came of is denied to its caller,
    at the same process or the next one; it is once the tool is allowed again."""
    office.set(key("ann"))
    program = "return [tools.office.files(), tools.office.sign()]"
    with office.serve() as url:
        async with client(url, "ann's") as ann:
            made = await ann.call_tool("execute_code", {"language": "python", "code": program})
            assert made.structured_content is not None
            handle = made.structured_content["value"]["handle"]
            assert "file 0" in await page(ann, handle)
            office.set(key("ann"), DENY.format("files"))
            await until(lambda: is_denied(office, url, "files"), pause=0.1)
            assert "policy_denied" in await page(ann, handle)
    with office.serve() as url:
        async with client(url, "ann's") as ann:
            assert "policy_denied" in await page(ann, handle)
    office.set(key("ann"))
    with office.serve() as url:
        async with client(url, "ann's") as ann:
            assert "file 0" in await page(ann, handle)


async def page(ann: Any, handle: str) -> str:
    result = await ann.call_tool("read_result", {"handle": handle, "path": "[0]"})
    return str(result)
