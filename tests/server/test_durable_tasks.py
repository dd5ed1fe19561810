"""Tasks that are durable runs: what they wait for is asked of their client, and they outlive their server."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from mcp.client._memory import InMemoryTransport
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult
from tests.server.harness import ERAS, AskFirst, connect, serving
from tests.server.task_clients import TaskClient, taking_tasks
from tests.waiting import until

from toolexec import ConfigurationError, Exec, tool
from toolexec.durable.journal import RunRecord, Wait
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import InputValidationError
from toolexec.run.gate import Gate
from toolexec.server.app import ToolServer
from toolexec.server.durable import NO_ANSWER, answer_to, questions_of
from toolexec.server.settings import ServeSettings, TaskSettings

both = pytest.mark.parametrize("era", ERAS)

STEPS = [
    {"tool_id": "shop:pay", "args": {"order": 7}},
    {"tool_id": "run:input", "args": {"question": "How many?", "schema": {"type": "integer"}}},
    {"tool_id": "shop:mail", "args": {"text": {"$ref": "steps.1"}}},
]
WORKFLOW = """run("shop:pay", {order: 7})
many := run("run:input", {question: "How many?", schema: {"type": "integer"}})
return run("shop:mail", {text: many})
"""
CODE = """tools.shop.pay(order=7)
many = tools.run("run:input", {"question": "How many?", "schema": {"type": "integer"}})
return tools.shop.mail(text=many)
"""
SKILL = f"""+++
name = "order"
description = "Pays, asks and writes"
+++
{WORKFLOW}"""
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chain": ("run_chain", {"steps": STEPS}),
    "workflow": ("run_workflow", {"workflow": WORKFLOW}),
    "code": ("execute_code", {"language": "python", "code": CODE}),
    "skill": ("run_tool", {"tool_id": "skill:order", "args": {}}),
}


class Shop:
    """Opens servers over the same files, as those of several processes are, and counts what was paid."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.paid: list[int] = []

    def exec(self, **options: Any) -> Exec:
        ex = Exec(**{"journal": self.directory / "runs.db", "linger": 0.05, **options})
        ex.add(lambda order: self.paid.append(order) or order, "shop:pay")
        ex.add(lambda text: f"sent: {text}", "shop:mail")
        ex.add_skill(SKILL)
        return ex

    @asynccontextmanager
    async def serve(self, *, durable: bool = True, ex: Exec | None = None, **more: Any) -> AsyncIterator[ToolServer]:
        tasks = TaskSettings(**{"mode": "always", "durable": durable, "path": str(self.directory / "tasks.db"), **more})
        async with serving(ex or self.exec(), tasks=tasks) as server:
            yield server


class HeldJournal(SQLiteJournal):
    """A journal that is read in threads; its first reader of a run waits for `free`. It counts who takes a run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync="each")
        self.held = False
        self.free = threading.Event()
        self.claims = 0

    def get(self, run_id: str) -> RunRecord:
        """Read a run."""
        if not self.held:
            self.held = True
            assert self.free.wait(60)
        return super().get(run_id)

    def claim(self, run_id: str, owner: str, lease: float) -> RunRecord:
        """Take a run."""
        self.claims += 1
        return super().claim(run_id, owner, lease)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop without orders."""
    return Shop(tmp_path)


@asynccontextmanager
async def tasks_of(server: ToolServer, era: str, reply: Any = None) -> AsyncIterator[TaskClient]:
    """A client that takes tasks; in the older era it replies *reply* to whatever it is asked."""

    async def answer(context: Any, params: Any) -> ElicitResult:
        return reply if isinstance(reply, ElicitResult) else ElicitResult(action="accept", content={"answer": reply})

    async with taking_tasks(InMemoryTransport(server.lowlevel), era, elicitation_callback=answer) as client:
        yield client


async def reply_to(client: TaskClient, task_id: str, content: dict[str, Any], action: str = "accept") -> None:
    """Answer the only question of a task, where that is not asked while the client waits for the result."""
    task = await client.until(task_id, "input_required")
    if client.modern:
        [key] = task["inputRequests"]
        reply = {"action": action, **({"content": content} if action == "accept" else {})}
        await client.ask("tasks/update", task_id, inputResponses={key: reply})


@both
@pytest.mark.parametrize("kind", CALLS)
async def test_a_run_waits_for_an_input(era: str, kind: str, shop: Shop) -> None:
    """The task of a run that waits is input_required; its client's answer wakes it, and the result is the direct
    one."""
    async with shop.serve() as server, tasks_of(server, era, 3) as client:
        task_id = (await client.call(*CALLS[kind]))["taskId"]
        await reply_to(client, task_id, {"answer": 3})
        result = await client.result(task_id)
        run = await server.ex.runs.get(task_id)
        kept = await server.ex.runs.list()
    assert "sent: 3" in str(result)
    assert not result.get("isError")
    assert shop.paid == [7]
    assert (run.state, [each.id for each in kept]) == ("done", [task_id])


@both
@pytest.mark.parametrize("kind", CALLS)
async def test_a_run_that_waits_outlives_its_server(era: str, kind: str, shop: Shop) -> None:
    """The next server has the task, asks for what it waits for, and gives the result, which the one after that has,
    too."""
    async with shop.serve() as server, tasks_of(server, era) as client:
        task_id = (await client.call(*CALLS[kind]))["taskId"]
        await client.until(task_id, "input_required")
    async with shop.serve() as server, tasks_of(server, era, 5) as client:
        await reply_to(client, task_id, {"answer": 5})
        result = await client.result(task_id)
    async with shop.serve() as server, tasks_of(server, era) as client:
        again = await client.result(task_id)
    assert "sent: 5" in str(result)
    assert again == result
    assert shop.paid == [7]


@pytest.mark.parametrize("kind", CALLS)
async def test_a_run_is_answered_before_its_next_server_has_looked(kind: str, shop: Shop) -> None:
    """An answer is taken at once, of a run that the server has not read yet; only then is the program run again."""
    async with shop.serve() as server, tasks_of(server, "auto") as client:
        task_id = (await client.call(*CALLS[kind]))["taskId"]
        task = await client.until(task_id, "input_required")
        await until(lambda: is_waiting(server.ex, task_id))
    with HeldJournal(shop.directory / "runs.db") as journal:
        async with shop.serve(ex=shop.exec(journal=journal)) as server, tasks_of(server, "auto") as client:
            await until(lambda: journal.held)
            replies = {key: {"action": "accept", "content": {"answer": 5}} for key in task["inputRequests"]}
            await client.ask("tasks/update", task_id, inputResponses=replies)
            claims = journal.claims
            journal.free.set()
            result = await client.result(task_id)
    assert "sent: 5" in str(result)
    assert (claims, journal.claims, shop.paid) == (0, 1, [7])


async def is_waiting(ex: Exec, run_id: str) -> bool:
    """Return whether a run is suspended."""
    return (await ex.runs.get(run_id)).state == "waiting"


async def test_a_run_at_work_outlives_its_server(shop: Shop) -> None:
    """A run that is stopped with its server, in the middle of a call that may be repeated, is resumed by the next."""
    began: list[int] = []

    @tool("shop:slow", idempotent=True)
    async def slow(n: int) -> int:
        """Take long the first time."""
        began.append(n)
        if len(began) == 1:
            await asyncio.Event().wait()
        return n

    def with_slow() -> Exec:
        ex = shop.exec()
        ex.add(slow)
        return ex

    call = ("execute_code", {"language": "python", "code": "tools.shop.pay(order=1)\nreturn tools.shop.slow(n=4)"})
    async with shop.serve(ex=with_slow()) as server, tasks_of(server, "auto") as client:
        task_id = (await client.call(*call))["taskId"]
        await until(lambda: began)
    async with shop.serve(ex=with_slow()) as server, tasks_of(server, "auto") as client:
        assert "4" in str((await client.result(task_id))["content"])
    assert (began, shop.paid) == ([4, 4], [1])


@both
async def test_another_server_takes_the_answer(era: str, shop: Shop) -> None:
    """A client may answer any server of the same files: the one that has the run goes on with it."""
    async with shop.serve() as one, shop.serve() as other:
        async with tasks_of(one, era) as client, tasks_of(other, era, 4) as elsewhere:
            task_id = (await client.call(*CALLS["code"]))["taskId"]
            await reply_to(elsewhere, task_id, {"answer": 4})
            assert "sent: 4" in str(await elsewhere.result(task_id))
            assert "sent: 4" in str(await client.result(task_id))
    assert shop.paid == [7]


@both
async def test_the_operator_answers(era: str, shop: Shop) -> None:
    """A signal to the run of the same ID, from any process, wakes the task as well."""
    async with shop.serve() as server, tasks_of(server, era, ElicitResult(action="cancel")) as client:
        task_id = (await client.call(*CALLS["chain"]))["taskId"]
        await client.until(task_id, "input_required")
        async with shop.exec() as ex:
            assert await ex.runs.signal(task_id, "input:1", 6)
        assert "sent: 6" in str(await client.result(task_id))


@both
async def test_approvals(era: str, shop: Shop) -> None:
    """A question of a policy is asked by way of the task, in this server or the next; no answer but a yes will do."""

    def dangerous(ran: list[str]) -> Exec:
        ex = shop.exec(gate=Gate(approval=AskFirst()))
        ex.add(lambda path: ran.append(path) or f"gone {path}", "fs:danger")
        return ex

    ran: list[str] = []
    code = "first = tools.fs.danger(path='/x')\ntry:\n    tools.fs.danger(path='/y')\nexcept ToolError as e:\n"
    call = ("execute_code", {"language": "python", "code": f"{code}    return [first, e.code]"})
    async with shop.serve(ex=dangerous(ran)) as server, tasks_of(server, era, "once") as client:
        task_id = (await client.call(*call))["taskId"]
        task = await client.until(task_id, "input_required")
        if client.modern:
            [(key, request)] = task["inputRequests"].items()
            assert "fs:danger is to run, from code" in request["params"]["message"]
            answer = {"action": "accept", "content": {"answer": "once"}}
            await client.ask("tasks/update", task_id, inputResponses={key: answer})
        else:
            async with shop.exec() as ex:
                [wait] = (await ex.runs.get(task_id)).waits
                await ex.runs.signal(task_id, wait.name, "once")
        await until(lambda: ran)
    async with shop.serve(ex=dangerous(ran)) as server, tasks_of(server, era, ElicitResult(action="decline")) as client:
        await reply_to(client, task_id, {}, "decline")
        assert "approval_denied" in str(await client.result(task_id))
    assert ran == ["/x"]


async def test_an_answer_under_the_key_of_before(shop: Shop) -> None:
    """The next server asks for an approval under the same key; an answer to what is not asked is refused."""

    def asking(ran: list[str]) -> Exec:
        ex = shop.exec(gate=Gate(approval=AskFirst()))
        ex.add(lambda path: ran.append(path) or f"gone {path}", "fs:danger")
        return ex

    ran: list[str] = []
    call = ("execute_code", {"language": "python", "code": "return tools.fs.danger(path='/x')"})
    yes = {"action": "accept", "content": {"answer": "once"}}
    async with shop.serve(ex=asking(ran)) as server, tasks_of(server, "auto") as client:
        task_id = (await client.call(*call))["taskId"]
        [key] = (await client.until(task_id, "input_required"))["inputRequests"]
    async with shop.exec(gate=Gate(approval=AskFirst())) as ex:  # it is made again, and asks again
        ex.add(lambda path: path, "fs:danger")
        result = await ex.runs.resume(task_id)
        assert result.error is not None
        assert result.error.code == "run_waiting"
    async with shop.serve(ex=asking(ran)) as server, tasks_of(server, "auto") as client:
        await client.until(task_id, "input_required")
        with pytest.raises(MCPError, match="does not ask approval-99 now"):
            await client.ask("tasks/update", task_id, inputResponses={"approval-99": yes})
        for _ in range(2):  # the same answer twice is one
            await client.ask("tasks/update", task_id, inputResponses={key: yes})
        assert "gone /x" in str(await client.result(task_id))
    assert ran == ["/x"]


@both
async def test_cancelling(era: str, shop: Shop) -> None:
    """A task that is cancelled cancels its run, and a run that is cancelled its task."""
    async with shop.serve() as server, tasks_of(server, era) as client:
        ids = [(await client.call(*CALLS["workflow"]))["taskId"] for _ in range(2)]
        for task_id in ids:
            await client.until(task_id, "input_required")
        await client.cancel(ids[0])
        await server.ex.runs.cancel(ids[1])
        for task_id in ids:
            await client.until(task_id, "cancelled")
            await until(lambda: _is_cancelled(server.ex, task_id))  # noqa: B023 - it is awaited here
    assert shop.paid == [7, 7]


async def _is_cancelled(ex: Exec, run_id: str) -> bool:
    return (await ex.runs.get(run_id)).state == "cancelled"


async def test_its_time_is_over(shop: Shop) -> None:
    """After its time a task is gone, and its run is cancelled, also by the next server."""
    async with shop.serve(ttl=0.5) as server, tasks_of(server, "auto") as client:
        task_id = (await client.call(*CALLS["chain"]))["taskId"]
        await until(lambda: _is_cancelled(server.ex, task_id), 0.05)
    async with shop.serve(ttl=600) as server, tasks_of(server, "auto") as client:
        task_id = (await client.call(*CALLS["chain"]))["taskId"]
        await client.until(task_id, "input_required")
    with closing(sqlite3.connect(shop.directory / "tasks.db")) as database, database:
        database.execute("UPDATE tasks SET created = created - 600")  # while no server is there
    async with shop.serve() as server:
        await until(lambda: _is_cancelled(server.ex, task_id), 0.05)


async def test_an_answer_that_does_not_fit(shop: Shop) -> None:
    """An unfit reply is refused, and the question stays open; so it does when the client's user declines."""
    async with shop.serve() as server, tasks_of(server, "auto") as client:
        task_id = (await client.call(*CALLS["chain"]))["taskId"]
        with pytest.raises(MCPError, match="integer"):
            await reply_to(client, task_id, {"answer": "many"})
        for unfilled in ({}, {"value": 2}):
            with pytest.raises(MCPError, match="'answer' of the form is missing"):
                await reply_to(client, task_id, unfilled)
        await reply_to(client, task_id, {}, "decline")
        task = await client.until(task_id, "input_required")
        assert task["statusMessage"] == "it waits for input:1"
        await reply_to(client, task_id, {"answer": 2})
        assert "sent: 2" in str(await client.result(task_id))


async def test_an_answer_that_does_not_fit_is_asked_again(shop: Shop) -> None:
    """A client of 2025-11-25 is asked again while it waits for the result, three times at most."""
    async with shop.serve() as server:
        replies = iter(["many", 3])

        async def answer(context: Any, params: Any) -> ElicitResult:
            assert params.requested_schema["properties"]["answer"]["type"] == "integer"
            return ElicitResult(action="accept", content={"answer": next(replies)})

        target = InMemoryTransport(server.lowlevel)
        async with taking_tasks(target, "legacy", elicitation_callback=answer) as client:
            task_id = (await client.call(*CALLS["chain"]))["taskId"]
            assert "sent: 3" in str(await client.result(task_id))


async def test_a_client_that_cannot_be_asked(shop: Shop) -> None:
    """The client reads what the run waits for, which the operator must answer."""
    async with shop.serve() as server:
        async with taking_tasks(InMemoryTransport(server.lowlevel), "auto") as client:
            task_id = (await client.call(*CALLS["chain"]))["taskId"]

            async def waits() -> bool:
                return (await client.get(task_id)).get("statusMessage") == "it waits for input:1"

            await until(waits)
            task = await client.get(task_id)
    assert task["status"] == "working"
    assert "inputRequests" not in task


async def test_quick_calls_leave_nothing(shop: Shop) -> None:
    """A call that is done before it would become a task is answered directly, as ever, and its run is forgotten."""
    call = ("run_chain", {"steps": STEPS[:1]})
    async with shop.serve(mode="auto") as server, tasks_of(server, "auto") as client:
        reply = await client.call(*call)
        assert await server.ex.runs.list() == []
    async with shop.serve(mode="auto", durable=False) as server, tasks_of(server, "auto") as client:
        plain = await client.call(*call)
    for each in (reply, plain):
        text = each["structuredContent"]
        text.pop("durationMs")
        text["results"][0].pop("durationMs")
    assert reply["structuredContent"] == plain["structuredContent"]


async def test_a_call_that_waits_is_a_task_at_once(shop: Shop) -> None:
    """A run that begins to wait does not hold its request open until `after` is over."""
    async with shop.serve(mode="auto", after=3600) as server, tasks_of(server, "auto") as client:
        task_id = (await client.call(*CALLS["code"]))["taskId"]
        await reply_to(client, task_id, {"answer": 1})
        assert "sent: 1" in str(await client.result(task_id))


async def test_no_room_for_a_run_that_waits(shop: Shop) -> None:
    """Where no more tasks can be kept, a run that waits is refused, and cancelled."""
    async with shop.serve(max_per_caller=1) as server, tasks_of(server, "auto") as client:
        await client.call(*CALLS["chain"])
        with pytest.raises(MCPError, match="no more tasks"):
            await client.call(*CALLS["chain"])
        assert len(await server.ex.runs.list()) == 1


async def test_what_cannot_be_durable(shop: Shop) -> None:
    """A client that takes no tasks, dry runs, tools that are not skills: all of them run as ever."""
    async with shop.serve() as server:
        async with connect(server, "auto") as plain:
            assert "sent" not in str(await plain.call_tool(*CALLS["chain"]))  # there is no run:input
        async with tasks_of(server, "auto") as client:
            for call in (
                ("run_tool", {"tool_id": "shop:mail", "args": {"text": "x"}}),
                ("run_chain", {"steps": [{"tool_id": "shop:mail", "args": {"text": "x"}}], "dry_run": True}),
            ):
                await client.result((await client.call(*call))["taskId"])
        assert await server.ex.runs.list() == []


async def test_a_run_that_fails(shop: Shop) -> None:
    """The failure of a durable run is that of the call, also after a restart."""
    call = ("execute_code", {"language": "python", "code": f"{CODE.replace('return', 'x =')}\n1 / 0"})
    async with shop.serve() as server, tasks_of(server, "auto") as client:
        task_id = (await client.call(*call))["taskId"]
        await client.until(task_id, "input_required")
    async with shop.serve() as server, tasks_of(server, "auto") as client:
        await reply_to(client, task_id, {"answer": 1})
        result = await client.result(task_id)
    assert result["isError"]
    assert "ZeroDivisionError" in str(result)


def test_it_needs_a_journal() -> None:
    """Without one there is nothing to keep runs in."""
    with pytest.raises(ConfigurationError, match=r"tasks\.durable needs a journal"):
        ToolServer(Exec(), ServeSettings(tasks=TaskSettings(durable=True)))


FORM = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}
NESTED = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("schema", "fields", "content", "payload"),
    [
        (None, ["answer"], {"answer": "3"}, "3"),
        ({"type": "integer"}, ["answer"], {"answer": 3}, 3),
        ({"enum": ["a", "b"]}, ["answer"], {"answer": "a"}, "a"),
        (FORM, ["name", "age"], {"name": "Ann", "age": 3}, {"name": "Ann", "age": 3}),
        (NESTED, ["answer"], {"answer": "[1, 2]"}, [1, 2]),
    ],
    ids=["no schema", "a number", "a choice", "a form", "a list"],
)
def test_forms_for_inputs(schema: Any, fields: list[str], content: dict[str, Any], payload: Any) -> None:
    """An input is asked for in fields that any client has, and its answer is what the program asked for."""
    details = {"question": "Which\x1b[31m?", **({"schema": schema} if schema else {})}
    wait = Wait(step="4", kind="input", name="input:4", details=details)
    [(key, (_, request))] = questions_of((wait,)).items()
    assert key == "input-4"
    assert request.params.message == "Which\\x1b[31m?"
    assert [*request.params.requested_schema["properties"]] == fields
    assert answer_to(wait, ElicitResult(action="accept", content=content)) == payload
    assert answer_to(wait, ElicitResult(action="cancel")) is NO_ANSWER


def test_other_questions() -> None:
    """A signal is asked for as text or JSON, an unknown outcome as yes or no; a time asks no one."""
    signal = Wait(step="1", kind="signal", name="paid")
    settle = Wait(step="2?settle.1", kind="settle", name="settle:2", details={"tool": "shop:pay", "args": {"order": 1}})
    waits = (signal, settle, Wait(step="3", kind="time", due=1.0), Wait(step="", kind="settle", name="retry"))
    questions = questions_of(waits)
    assert [*questions] == ["signal-1", "settle-2?settle.1"]
    assert "shop:pay" in questions["settle-2?settle.1"][1].params.message
    for text, payload in (("yes", "yes"), ('{"by": 1}', {"by": 1})):
        assert answer_to(signal, ElicitResult(action="accept", content={"answer": text})) == payload
    content = {"done": True, "value": "12"}
    assert answer_to(settle, ElicitResult(action="accept", content=content)) == {"done": True, "value": 12}
    with pytest.raises(InputValidationError, match="'done' of the form must be true or false"):
        answer_to(settle, ElicitResult(action="accept", content={"value": "12"}))
