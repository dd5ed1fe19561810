"""Durable runs of an Exec: they go on where they stopped, and do nothing twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec, Step, Tool, ToolAnnotations, ToolContext
from toolexec.errors import (
    CodeError,
    ConfigurationError,
    ExecutionError,
    InputValidationError,
    InvalidResultError,
    RunBusyError,
    RunError,
    RunWaitingError,
    SandboxUnavailableError,
    ToolTimeoutError,
)
from toolexec.exec.run_results import RunResult
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy, Rule

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Shop:
    """An Exec whose tools count what they really did; each one made by `open` stands for another process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.done: list[int] = []
        self.keys: list[str] = []
        self.hanging: list[int] = []
        self.hangs = asyncio.Event()
        self.hung = asyncio.Event()
        self.opened: list[Exec] = []

    def open(self, **settings: Any) -> Exec:
        """Return an Exec on the journal of the shop."""
        ex = Exec(journal=self.directory / "runs.db", linger=0.05, **settings)
        hints = {"add": ToolAnnotations(), "again": ToolAnnotations(idempotent=True)}
        for name, hint in hints.items():
            ex.add(Tool(name=name, namespace="t", input_schema=NUMBER, annotations=hint), handler=self.add)
        checked = {"toolexec/check": "t:has"}
        ex.add(Tool(name="paid", namespace="t", input_schema=NUMBER, meta=checked), handler=self.add)
        read_only = ToolAnnotations(read_only=True)
        ex.add(Tool(name="has", namespace="t", input_schema=NUMBER, annotations=read_only), handler=self.has)
        ex.add(Tool(name="fail", namespace="t", input_schema=NUMBER), handler=self.fail)
        ex.add(Tool(name="hang", namespace="t", input_schema=NUMBER), handler=self.hang)
        self.opened.append(ex)
        return ex

    async def add(self, args: dict[str, Any]) -> int:
        """Do it, and return twice the number. A negative one never returns."""
        self.done.append(args["n"])
        if args["n"] < 0 and not self.hangs.is_set():
            self.hung.set()
            await asyncio.sleep(3600)
        return args["n"] * 2

    async def hang(self, args: dict[str, Any]) -> int:
        """Do nothing, for ever."""
        self.hanging.append(args["n"])
        self.hung.set()
        await asyncio.sleep(3600)
        return 0

    def has(self, args: dict[str, Any]) -> Any:
        """Return whether it was done."""
        return {"done": args["n"] in self.done, "value": args["n"] * 2}

    def fail(self, args: dict[str, Any]) -> None:
        """Fail."""
        self.done.append(args["n"])
        raise ExecutionError("no such shelf", details={"shelf": 4}, code="shelf")

    async def stop(self, work: Awaitable[Any]) -> None:
        """Begin *work*, and stop it as soon as a call of it hangs."""
        task = asyncio.ensure_future(work)
        hung = asyncio.ensure_future(self.hung.wait())
        await asyncio.wait([task, hung], return_when=asyncio.FIRST_COMPLETED)
        assert not task.done(), task.result()
        task.cancel()
        await asyncio.wait([task])
        self.hung.clear()
        self.hangs.set()


@pytest.fixture
async def shop(tmp_path: Path) -> Any:
    made = Shop(tmp_path)
    yield made
    for ex in made.opened:
        await ex.aclose()


def adds(*numbers: int, tool: str = "t:add") -> list[Step]:
    """Return a chain of calls."""
    return [Step(tool, {"n": number}) for number in numbers]


async def settled(shop: Shop, run_id: str, opened: Callable[[], Exec] | None = None) -> RunResult:
    """Resume a run that was stopped in a call, say that the call did its work, and return the result."""
    ex = (opened or shop.open)()
    waiting = await ex.runs.resume(run_id)
    assert isinstance(waiting.error, RunWaitingError), waiting.error
    [wait] = waiting.error.waits
    assert await ex.runs.signal(run_id, str(wait["name"]), True)
    return await ex.runs.resume(run_id)


async def test_a_finished_run_is_not_made_again(shop: Shop) -> None:
    """The same chain under the same ID gives the result that it has, also in another process."""
    first = await shop.open().run_chain(adds(1, 2, 3), durable="order")
    again = await shop.open().run_chain(adds(1, 2, 3), durable="order")
    assert (first.value, again.value, shop.done) == (6, 6, [1, 2, 3])
    assert [step.value for step in again.steps] == [2, 4, 6]


async def test_another_source_under_the_same_id_is_refused(shop: Shop) -> None:
    """A running ID stands for one program with its inputs."""
    ex = shop.open()
    await ex.run_chain(adds(1), durable="order")
    with pytest.raises(RunError) as caught:
        await ex.run_chain(adds(2), durable="order")
    assert (caught.value.code, caught.value.run_id, shop.done) == ("run_changed", "order", [1])


async def test_a_run_goes_on_where_its_process_stopped(shop: Shop) -> None:
    """Steps that are done are answered from the journal; one of a repeatable tool is made again."""
    steps = [*adds(1, 2), *adds(-3, tool="t:again"), *adds(4)]
    await shop.stop(shop.open().run_chain(steps, durable="order"))
    result = await shop.open().runs.resume("order")
    assert (result.value, result.error, shop.done) == (8, None, [1, 2, -3, -3, 4])


@pytest.mark.parametrize("was_done", [True, False])
async def test_a_check_decides_on_an_unknown_outcome(shop: Shop, was_done: bool) -> None:
    """The tool that knows is asked, and what was done is not done again."""
    await shop.stop(shop.open().run_chain(adds(1, -2, 3, tool="t:paid"), durable="order"))
    if not was_done:
        shop.done.remove(-2)
    result = await shop.open().runs.resume("order")
    assert (result.error, shop.done.count(-2)) == (None, 1)
    assert shop.done == ([1, -2, 3])


@pytest.mark.parametrize(("decision", "count", "value"), [({"done": True, "value": 7}, 1, 7), (False, 2, -4)])
async def test_an_unknown_outcome_waits_for_a_decision(shop: Shop, decision: Any, count: int, value: int) -> None:
    """Without a check the run waits, and a call that may have done its work is not repeated silently."""
    await shop.stop(shop.open().run_chain(adds(1, -2), durable="order"))
    ex = shop.open()
    waiting = await ex.runs.resume("order")
    assert isinstance(waiting.error, RunWaitingError)
    assert [wait["name"] for wait in waiting.error.waits] == ["settle:1"]
    assert shop.done == [1, -2]
    assert await ex.runs.signal("order", "settle:1", decision) is True
    result = (await ex.runs.resume_due())["order"]
    assert (result.value, shop.done.count(-2)) == (value, count)


async def test_a_person_may_say_that_a_call_failed(shop: Shop) -> None:
    """The question warns of a process that may still be at work; the program gets the failure, in each replay."""
    await shop.stop(shop.open().run_chain(adds(1, -2), durable="order"))
    ex = shop.open()
    waiting = await ex.runs.resume("order")
    assert isinstance(waiting.error, RunWaitingError)
    [wait] = (await ex.runs.get("order")).waits
    assert "may still be at work" in str((wait.details or {})["question"])
    await ex.runs.signal("order", wait.name, {"failed": "no stock"})
    result, again = await ex.runs.resume("order"), await shop.open().runs.resume("order")
    for each in (result, again):
        assert isinstance(each.error, ExecutionError)
        assert "no stock" in each.error.message
    assert shop.done == [1, -2]
    assert (await ex.runs.replay("order")).same


async def test_errors_come_back_as_they_were(shop: Shop) -> None:
    """A recorded failure has its class, code and details, and the program handles it as it did."""
    code = """
try:
    tools.t.fail(n=1)
except ToolError as error:
    caught = [error.code, error.details]
tools.t.hang(n=2)
return caught
"""
    await shop.stop(shop.open().execute_code(code, durable="careful"))
    result = await settled(shop, "careful")
    assert (result.error, result.value, shop.done) == (None, ["shelf", {"shelf": 4}], [1])


async def test_concurrent_answers_come_in_their_recorded_order(shop: Shop) -> None:
    """A program that depends on which call was quicker does the same again."""
    after, ended = {3: 1, 2: 3, 0: 2}, [asyncio.Event() for _ in range(4)]

    async def race(n: int) -> int:
        if n in after:
            await ended[after[n]].wait()
        ended[n].set()
        return n

    code = """
import asyncio
order = []
async def one(n):
    order.append(await tools.t.race(n=n))
await asyncio.gather(*map(one, range(4)))
tools.t.add(n=-int("9" + "".join(map(str, order))))
return order
"""

    def opened() -> Exec:
        ex = shop.open()
        ex.add(race, "t:race")
        return ex

    await shop.stop(opened().execute_code(code, durable="race"))
    result = await settled(shop, "race", opened)
    first = [int(digit) for digit in str(-shop.done[0])[1:]]
    assert first != [0, 1, 2, 3]
    assert (result.value, result.error) == (first, None)
    assert (await opened().runs.replay("race")).same


async def test_the_first_failure_of_branches_stays_the_first(shop: Shop) -> None:
    """The branch that was cancelled has no outcome, and is neither made again nor asked about."""
    flow = """
try {
    parallel { a: run("t:add", {n: -1}), b: run("t:fail", {n: 2}) }
} catch err {
    print(err.message)
}
run("t:hang", {n: 3})
return "over"
"""
    ex = shop.open()
    task = asyncio.ensure_future(ex.run_workflow(flow, durable="branches"))
    await until(lambda: 3 in shop.hanging)
    await shop.stop(task)
    ex = shop.open()
    waiting = await ex.runs.resume("branches")
    assert isinstance(waiting.error, RunWaitingError), waiting.error
    [wait] = waiting.error.waits
    assert (wait["name"], shop.done) == ("settle:0.2", [-1, 2])
    await ex.runs.signal("branches", "settle:0.2", True)
    result = await ex.runs.resume("branches")
    assert (result.value, shop.done) == ("over", [-1, 2])
    assert (await ex.runs.replay("branches")).same


async def test_a_program_that_does_something_else_is_stopped_at_its_line(shop: Shop) -> None:
    """A program that depends on more than its calls is stopped, and not guessed over."""
    code = """found = tools.search("colour")
for tool in found:
    tools.t.add(n=len(tool["id"]))
tools.t.hang(n=1)
"""
    ex = shop.open()
    ex.add(lambda n: n, "paint:colour")
    await shop.stop(ex.execute_code(code, durable="finder"))
    before = list(shop.done)
    other = shop.open()
    other.add(lambda n: n, "paint:colour_of_things")
    result = await other.runs.resume("finder")
    assert isinstance(result.error, RunError)
    assert (result.error.code, result.error.details["line"], shop.done) == ("run_diverged", 3, before)
    assert (await other.runs.get("finder")).state == "waiting"


async def test_a_workflow_that_does_something_else_is_stopped_at_its_line(shop: Shop) -> None:
    """Another text in the journal is as another program: its first other call is named with its line."""
    ex = shop.open()
    result = await ex.run_workflow('print("a")\nx := run("t:add", {n: 1})\nreturn x', durable="flow")
    assert result.value == 2
    run = await ex.runs.get("flow")
    calls = await ex.runs.calls("flow")
    from dataclasses import replace

    from toolexec.durable.sqlite import SQLiteJournal

    with SQLiteJournal(shop.directory / "other.db") as journal:
        journal.create(
            replace(run, source='print("a")\n\nx := run("t:add", {n: 2})\nreturn x', state="running", owner="")
        )
        journal.claim("flow", "another", 30)
        journal.begin("flow", "another", calls[0])
        assert calls[0].outcome is not None
        journal.end("flow", "another", calls[0].step, calls[0].state, calls[0].outcome)
        journal.renew("flow", "another", 0)
        other = Exec(journal=journal)
        shop.opened.append(other)
        other.add(lambda n: n, "t:add")
        changed = await other.runs.resume("flow", accept_changes=True)
    assert isinstance(changed.error, RunError)
    assert (changed.error.code, changed.error.details["line"]) == ("run_diverged", 3)


async def test_two_processes_cannot_have_one_run(shop: Shop) -> None:
    """The second one is refused, and the first goes on."""
    task = asyncio.ensure_future(shop.open().run_chain(adds(-1, 2), durable="order"))
    await until(shop.hung.is_set)
    with pytest.raises(RunBusyError):
        await shop.open().runs.resume("order")
    task.cancel()
    await asyncio.wait([task])


async def test_a_changed_tool_is_noticed_before_anything_is_called(shop: Shop) -> None:
    """The schemas of tools that were called are compared; a caller may accept what has changed."""
    await shop.stop(shop.open().run_chain([*adds(1), *adds(-2, tool="t:again")], durable="order"))
    ex = shop.open()
    ex.index.unregister("t:add")
    ex.add(lambda n, more=None: n, "t:add")
    changed = await ex.runs.resume("order")
    assert isinstance(changed.error, RunError)
    assert (changed.error.code, shop.done) == ("run_changed", [1, -2])
    result = await ex.runs.resume("order", accept_changes=True)
    assert (result.value, result.error) == (-4, None)


async def test_a_run_sleeps_without_a_process(shop: Shop) -> None:
    """A long pause suspends the run; what was called before is not called again."""
    ex = shop.open()
    flow = 'run("t:add", {n: 1})\nrun("run:sleep", {seconds: 1h})\nreturn run("t:add", {n: 2})'
    waiting = await ex.run_workflow(flow, durable="slow")
    assert isinstance(waiting.error, RunWaitingError)
    [wait] = waiting.error.waits
    run = await ex.runs.get("slow")
    assert (wait["kind"], run.state, shop.done) == ("time", "waiting", [1])
    assert run.waits[0].due is not None
    assert 3500 < run.waits[0].due - run.created < 3700
    assert await ex.runs.resume_due() == {}


async def test_the_pause_before_another_attempt_is_recorded(shop: Shop) -> None:
    """A pause of the workflow language is over once, and takes no time in a replay."""
    ex = shop.open()
    left = [ToolTimeoutError("late", retryable=True)]

    def flaky(args: dict[str, Any]) -> int:
        if left:
            raise left.pop()
        return 4

    hints = ToolAnnotations(idempotent=True)
    ex.add(Tool(name="flaky", namespace="t", input_schema={"type": "object"}, annotations=hints), handler=flaky)
    result = await ex.run_workflow('return retry 2 delay 30ms { run("t:flaky", {}) }', durable="short")
    assert (result.value, result.error) == (4, None)
    assert [call.tool for call in await ex.runs.calls("short")] == ["t:flaky", "run:sleep", "t:flaky"]
    assert (await ex.runs.replay("short")).same


async def test_a_signal_wakes_a_run_in_another_process(shop: Shop) -> None:
    """The program gets what was sent, now and in each replay."""
    code = "tools.t.add(n=1)\nreturn tools.run('run:signal', {'name': 'paid'})"
    waiting = await shop.open().execute_code(code, durable="bill")
    assert isinstance(waiting.error, RunWaitingError)
    ex = shop.open()
    assert await ex.runs.signal("bill", "paid", {"sum": 12.5}) is True
    results = await ex.runs.resume_due()
    assert (results["bill"].value, shop.done) == ({"sum": 12.5}, [1])
    assert (await ex.runs.replay("bill")).same


async def test_a_signal_may_come_first(shop: Shop) -> None:
    """A signal is kept for a run that does not wait for it yet."""
    ex = shop.open()
    steps = [*adds(-1, tool="t:again"), Step("run:signal", {"name": "paid"})]
    await shop.stop(ex.run_chain(steps, durable="bill"))
    assert await ex.runs.signal("bill", "paid", 5) is False
    assert (await ex.runs.resume("bill")).value == 5


async def test_an_input_fits_what_was_asked_for(shop: Shop) -> None:
    """An answer that does not fit the schema is refused where it is given, and the run goes on waiting."""
    ask = Step("run:input", {"question": "How many?", "schema": {"type": "integer"}})
    ex = shop.open()
    waiting = await ex.run_chain([ask], durable="form")
    assert isinstance(waiting.error, RunWaitingError)
    assert waiting.error.waits[0]["details"]["question"] == "How many?"  # type: ignore[index]
    with pytest.raises(InputValidationError):
        await ex.runs.signal("form", "input:0", "three")
    await ex.runs.signal("form", "input:0", 3)
    assert (await ex.runs.resume("form")).value == 3


@pytest.mark.parametrize("schema", [{"type": "zzz"}, {"$ref": "#/nowhere"}, {"$ref": "https://a.example/b"}])
@pytest.mark.parametrize("kind", ["chain", "code", "workflow"])
async def test_a_question_without_a_possible_answer_is_refused(shop: Shop, kind: str, schema: dict[str, str]) -> None:
    """A question with a schema that cannot be used fails at once, as no answer to it would ever be taken."""
    ex, args = shop.open(), {"question": "How many?", "schema": schema}
    if kind == "chain":
        result: Any = await ex.run_chain([Step("run:input", args)], durable="form")
    elif kind == "code":
        result = await ex.execute_code(f'return tools.run("run:input", {args!r})', durable="form")
    else:
        result = await ex.run_workflow(f'return run("run:input", {json.dumps(args)})', durable="form")
    assert "/schema" in str(result.error)
    assert (await ex.runs.get("form")).state == "failed"


@pytest.mark.parametrize(("answer", "done"), [("once", [1]), (True, [1]), ("no", []), ("perhaps", [])])
async def test_an_approval_may_take_days(shop: Shop, answer: Any, done: list[int]) -> None:
    """A call that must be approved waits in the journal, and is made after a yes only."""
    gate = Gate(policy=Policy([Rule("ask", tools="t:add")]))
    waiting = await shop.open(gate=gate).run_chain(adds(1), durable="order")
    assert isinstance(waiting.error, RunWaitingError)
    assert waiting.error.waits[0]["name"] == "approve:0"
    assert shop.done == []
    ex = shop.open(gate=gate)
    await ex.runs.signal("order", "approve:0", answer)
    result = await ex.runs.resume("order")
    assert shop.done == done
    assert (result.error is None) == bool(done)
    if result.error is not None:
        assert result.error.code == "approval_denied"


async def test_a_handler_knows_its_step_and_its_key(shop: Shop) -> None:
    """A handler that asks for its context gets the step of the call, and the key that all attempts at it share."""
    seen: list[tuple[str, str]] = []

    def note(context: ToolContext, n: int) -> int:
        seen.append((context.step, context.idempotency_key))
        return n

    ex = shop.open()
    ex.add(note, "t:note")
    await ex.run_chain(adds(1, 2, tool="t:note"), durable="order")
    await ex.run_workflow('return run("t:note", {n: 3})', durable="flow")
    assert seen[:2] == [("0", "order/0"), ("1", "order/1")]
    assert seen[2][1] == f"flow/{seen[2][0]}"


async def test_an_approval_counts_for_one_call(shop: Shop) -> None:
    """The next call asks again."""
    gate = Gate(policy=Policy([Rule("ask", tools="t:add")]))
    ex = shop.open(gate=gate)
    await ex.run_chain(adds(1, 2), durable="order")
    await ex.runs.signal("order", "approve:0", "once")
    waiting = await ex.runs.resume("order")
    assert isinstance(waiting.error, RunWaitingError)
    assert (waiting.error.waits[0]["name"], shop.done) == ("approve:1", [1])


async def test_a_signal_for_an_unknown_run(shop: Shop) -> None:
    """The sender gets an error, and nothing is kept."""
    with pytest.raises(RunError) as caught:
        await shop.open().runs.signal("unknown", "paid")
    assert caught.value.code == "run_not_found"


async def test_a_result_that_is_too_large_is_the_same_error_in_each_replay(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program gets the error, too."""
    monkeypatch.setattr("toolexec.durable.outcomes.MAX_OUTCOME_BYTES", 1000)
    ex = shop.open()
    ex.add(lambda: "x" * 2000, "t:huge")
    result = await ex.run_chain([Step("t:huge", stop_on_error=False)], durable="large")
    assert isinstance(result.steps[0].error, InvalidResultError)
    assert (await ex.runs.replay("large")).same


async def test_a_run_can_be_cancelled(shop: Shop) -> None:
    """The process that has it stops it, and it cannot be resumed."""
    ex = shop.open()
    task = asyncio.ensure_future(ex.run_chain(adds(-1, 2), durable="order"))
    await until(shop.hung.is_set)
    assert await shop.open().runs.cancel("order") is False
    result = await task
    assert result.error is not None
    assert (result.error.code, (await ex.runs.get("order")).state) == ("run_cancelled", "cancelled")
    again = await ex.runs.resume("order")
    assert again.error is not None
    assert (again.error.code, shop.done) == ("run_cancelled", [-1])


async def test_a_waiting_run_is_cancelled_at_once(shop: Shop) -> None:
    """Nothing has to wake up for that; then it can be deleted."""
    ex = shop.open()
    await ex.run_chain([Step("run:signal", {"name": "x"})], durable="bill")
    with pytest.raises(RunBusyError):
        await ex.runs.delete("bill")
    assert await ex.runs.cancel("bill") is True
    assert await ex.runs.delete("bill") is True
    assert await ex.runs.list() == []


async def test_code_needs_a_sandbox_that_can_make_it_again(shop: Shop) -> None:
    """All others are refused before anything runs."""
    ex = shop.open(unsafe_opt_in=True)
    with pytest.raises(SandboxUnavailableError, match="cannot make a run of python again"):
        await ex.execute_code("return 1", durable="unsafe", profile="dev")
    assert shop.done == []


async def test_without_a_journal_nothing_is_durable() -> None:
    """The error names the setting."""
    async with Exec() as ex:
        with pytest.raises(ConfigurationError) as caught:
            await ex.run_chain([Step("t:add", {"n": 1})], durable="order")
    assert caught.value.setting == "journal"


async def test_chance_and_time_are_the_same_in_each_replay(shop: Shop) -> None:
    """A durable program gets its seed and its clock once."""
    code = "import random, time\nx = [random.random(), time.time()]\ntools.t.hang(n=1)\nreturn x"
    ex = shop.open()
    await shop.stop(ex.execute_code(code, durable="dice"))
    result = await settled(shop, "dice")
    other = await ex.execute_code(code.replace("tools.t.hang(n=1)", "pass"), durable="dice2")
    assert result.value != other.value
    assert (await ex.runs.replay("dice")).same


async def test_a_failed_program_is_a_finished_run(shop: Shop) -> None:
    """Its error is kept, with the line."""
    ex = shop.open()
    first = await ex.execute_code("tools.t.add(n=1)\n1 / 0", durable="bad")
    again = await ex.execute_code("tools.t.add(n=1)\n1 / 0", durable="bad")
    for result in (first, again):
        assert isinstance(result.error, CodeError)
        assert result.error.line == 2
    assert (shop.done, (await ex.runs.get("bad")).state) == ([1], "failed")


async def test_a_chain_of_code_has_a_step_for_each_call(shop: Shop) -> None:
    """The steps carry the number of the request and their own."""
    ex = shop.open()
    code = 'return tools.run_chain([{"tool_id": "t:add", "args": {"n": 1}}, {"tool_id": "t:add", "args": {"n": 2}}])'
    result = await ex.execute_code(code, durable="chain")
    first = (await ex.runs.calls("chain"))[0].step.partition(".")[0]
    assert (result.value, [call.step for call in await ex.runs.calls("chain")]) == (4, [f"{first}.0", f"{first}.1"])
    assert (await ex.runs.replay("chain")).same


def test_the_blocking_facade_has_the_same(tmp_path: Path) -> None:
    """`Exec.sync.runs` does all of it without an event loop."""
    with Exec(journal=tmp_path / "runs.db", linger=0.05).sync as ex:
        result: RunResult = ex.run_chain([Step("run:signal", {"name": "go"})], durable="bill")
        assert isinstance(result.error, RunWaitingError)
        assert [run.id for run in ex.runs.list(["waiting"])] == ["bill"]
        assert ex.runs.signal("bill", "go", 1)
        assert ex.runs.resume_due()["bill"].value == 1
        assert ex.runs.replay("bill").same
        assert ex.runs.get("bill").state == "done"
        assert len(ex.runs.calls("bill")) == 1
        assert ex.runs.delete("bill")


async def test_a_worker_goes_on_with_runs_as_they_wake(shop: Shop) -> None:
    """The worker runs until it is cancelled."""
    ex = shop.open()
    await ex.run_chain([Step("run:signal", {"name": "go"})], durable="bill")
    results: dict[str, RunResult] = {}
    note: Callable[[str, RunResult], None] = results.__setitem__
    worker = asyncio.ensure_future(shop.open().runs.work(idle=0.01, on_result=note))
    await ex.runs.signal("bill", "go", 7)
    await until(lambda: "bill" in results)
    worker.cancel()
    await asyncio.wait([worker])
    assert results["bill"].value == 7


async def test_who_is_cancelled_follows_no_more(shop: Shop) -> None:
    """Following ends also where it is cancelled in the moment in which a signal comes."""
    ex = shop.open()
    await ex.run_chain([Step("run:signal", {"name": "go"})], durable="bill")
    for _ in range(5):
        seen: list[object] = []
        following = asyncio.create_task(ex.runs.follow("bill", on_waits=seen.append))
        await until(lambda seen=seen: seen)
        await ex.runs.signal("bill", "other")
        following.cancel()
        ended, _ = await asyncio.wait([following], timeout=2)
        following.cancel()
        assert ended


async def test_a_run_is_followed_to_its_end(shop: Shop) -> None:
    """A run goes on whenever it can, says what it waits for meanwhile, and gives the result of the whole."""
    ex, elsewhere = shop.open(), shop.open()
    steps = [*adds(1), Step("run:signal", {"name": "go"}), Step("run:sleep", {"seconds": 0.2}), *adds(2)]
    await ex.run_chain(steps, durable="bill")
    seen: list[list[str]] = []
    following = asyncio.create_task(
        ex.runs.follow("bill", on_waits=lambda waits: seen.append([wait.name or wait.kind for wait in waits]))
    )
    await until(lambda: seen)
    await elsewhere.runs.signal("bill", "go")
    result = await following
    assert result.raise_for_error().value == 4
    assert seen[:2] == [["go"], []]
    assert shop.done == [1, 2]
    with pytest.raises(RunError) as caught:
        await ex.runs.follow("nothing")
    assert caught.value.code == "run_not_found"
