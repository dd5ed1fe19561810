"""`toolexec serve` as a process: what is left of callers whose API key is taken out or expires."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult
from tests.server.office import Office, key
from tests.server.test_restart import LIST, opened, post
from tests.server.test_tasks_restart import caller, over_stdio
from tests.waiting import until

pytestmark = pytest.mark.full
TEAM = "team"
AUDIT = "[audit]\nenabled = true\n"
DURABLE = '[tasks]\nmode = "always"\ndurable = true\n'
SLEEPS = "tools.run('run:sleep', {'seconds': 8})\nreturn tools.office.sign()"
SIGNAL = "tools.run('run:signal', {'name': 'go'})\nreturn tools.office.sign()"
ASKS = "return [tools.run('run:input', {'question': 'Go on?'}), tools.office.sign()]"


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """A office without settings."""
    return Office(tmp_path)


async def begun(url: str, program: str, status: str, credential: str = "ann's") -> str:
    """Have ann, or another caller, run a program as a durable run; return its ID once it has got so far."""

    async def never(context: Any, params: Any) -> ElicitResult:
        raise NotImplementedError

    async with caller(url, "auto", credential, elicitation_callback=never) as ann:
        task_id = (await ann.call("execute_code", {"language": "python", "code": program}))["taskId"]
        await ann.until(task_id, status)
    return task_id


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_run_that_goes_on_after_its_key(office: Office, transport: str) -> None:
    """A durable run whose caller's key is taken out while the server is down goes on at the next one, also at one over
    stdio, which makes no call for it, and has that on record."""
    office.set(DURABLE, key("bob"), key("ann"))
    with office.serve() as url:
        task_id = await begun(url, SLEEPS, "working")
        await until(lambda: "it waits" in office.task(task_id).message)
    office.set(DURABLE, key("bob"))
    async with AsyncExitStack() as stack:
        if transport == "http":
            stack.enter_context(office.serve())
        else:
            await stack.enter_async_context(over_stdio(office.words, office.directory, "auto"))
        await until(lambda: office.task(task_id).is_over)
    assert office.records("office:sign") == [("call", "policy_denied")]
    assert office.done == []
    assert "policy_denied" in str(office.task(task_id).outcome)


@pytest.mark.parametrize("endpoint", ["", TEAM], ids=["main", "endpoint"])
@pytest.mark.parametrize("way", ["RUN", "--due", "work"])
async def test_a_run_that_a_command_goes_on_with(office: Office, way: str, endpoint: str) -> None:
    """A durable run of a served caller makes no call when a command goes on with it after the caller's key was taken
    out, and that is on record; that of a caller with a key makes it."""
    others = (AUDIT, key("bob"), key("eve", TEAM))
    office.set(DURABLE, *others, key("ann", endpoint))
    with office.serve() as url:
        run_id = await begun(at(url, endpoint), SIGNAL, "input_required")
        kept = await begun(url, SIGNAL, "input_required", "bob's")
        await until(lambda: {run["state"] for run in office.runs()} == {"waiting"})
    office.set(DURABLE, *others)
    for each in (run_id, kept):
        office.command("runs", "signal", each, "go")
    if way == "work":
        with office.begun("runs", "work"):
            await until(lambda: {run["state"] for run in office.runs()} == {"done", "failed"})
    else:
        for each in (run_id, kept) if way == "RUN" else (way,):
            office.command("runs", "resume", each)
    assert {run["id"]: run["state"] for run in office.runs()} == {run_id: "failed", kept: "done"}
    assert office.done == ["signed"]
    assert sorted(office.records("office:sign")) == [("call", "ok"), ("call", "policy_denied")]


async def test_a_run_of_no_caller(office: Office) -> None:
    """A durable run that a command has begun goes on by a command, whatever keys a server takes."""
    office.set(AUDIT, key("bob"))
    office.command("code", "-e", SIGNAL, "--durable", "own")
    office.command("runs", "signal", "own", "go")
    assert "signed" in office.command("runs", "resume", "own")
    assert office.done == ["signed"]


@pytest.mark.parametrize("is_down", [False, True], ids=["reload", "restart"])
async def test_a_task_that_asks_no_one(office: Office, is_down: bool) -> None:
    """A task that waits for an answer of a caller whose key is taken out is cancelled, and says why; so is its run. One
    that waits for another caller stays."""
    office.set(DURABLE, key("bob"), key("ann"))

    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        task_id = await begun(first.enter_context(office.serve()), ASKS, "input_required")
        if is_down:
            first.close()
        office.set(DURABLE, key("bob"))
        if is_down:
            stack.enter_context(office.serve())
        await until(lambda: office.task(task_id).is_over)
    task = office.task(task_id)
    assert (task.status, "API key of its caller" in task.message) == ("cancelled", True)
    assert office.done == []


async def test_a_task_at_an_endpoint(office: Office) -> None:
    """A task that waits at an endpoint is cancelled when the key there is taken out; a key of the same name elsewhere
    does not count."""
    keys = (key("bob"), key("ann"), key("eve", TEAM))
    office.set(DURABLE, *keys, key("ann", TEAM))
    with office.serve() as url:
        task_id = await begun(at(url, TEAM), ASKS, "input_required")
        other = await begun(url, ASKS, "input_required")
        office.set(DURABLE, *keys)
        await until(lambda: office.task(task_id, TEAM).is_over)
        assert office.task(task_id, TEAM).status == "cancelled"
        await until(lambda: office.task(other).status == "input_required")  # the file may be behind what clients see


@pytest.mark.parametrize("endpoint", ["", TEAM], ids=["main", "endpoint"])
async def test_sessions_of_a_key_that_expires(office: Office, endpoint: str) -> None:
    """The sessions of a key end when it expires, though no request comes with it; those of another one go on."""
    others = (key("bob"), key("eve", TEAM))
    office.set(*others, key("ann", endpoint))
    with office.serve() as url:
        await opened(at(url, endpoint), "ann's")
        other = await opened(url, "bob's")
        assert await office.sessions(url, "bob's") == 2
        soon = datetime.now(UTC) + timedelta(seconds=20)
        office.set(*others, key("ann", endpoint, expires=soon.isoformat()))
        await until(lambda: are_left(office, url, 1), pause=0.1)  # the key has changed
        for _ in range(2):
            await opened(at(url, endpoint), "ann's")
        await until(lambda: are_left(office, url, 1), pause=0.1)
        assert (await post(url, "bob's", LIST, other)).status_code == 200


async def are_left(office: Office, url: str, sessions: int) -> bool:
    return await office.sessions(url, "bob's") == sessions


def at(url: str, endpoint: str) -> str:
    return url.replace("/mcp", f"/{endpoint}/mcp") if endpoint else url
