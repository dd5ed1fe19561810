"""A run is forked at a call, goes on in another way, and is compared with the one that it came from."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Step, Tool
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import (
    ConfigurationError,
    ExecutionError,
    InputValidationError,
    PolicyError,
    RunError,
    RunWaitingError,
)
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy, Rule

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CODE = """
import asyncio, time, random
started = time.time()
total = tools.t.double(n=1)
order = []
async def one(n):
    order.append(await tools.t.double(n=n))
await asyncio.gather(one(2), one(3), one(4))
total += sum(order)
last = tools.t.double(n=total)
return {"order": order, "last": last, "random": random.random(), "took": time.time() - started}
"""
FLOW = """
parts := parallel for n in [1, 2, 3] { run("t:double", {n: n}) }
total := parts[0] + parts[1] + parts[2]
last := run("t:double", {n: total})
return last
"""
CHAIN = [
    Step("t:double", {"n": 2}, name="first"),
    Step("t:double", {"n": {"$ref": "first"}}),
    Step("t:double", {"n": {"$ref": "steps.1"}}),
]


class Counter:
    """What the tools have really done."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.beside: frozenset[int] = frozenset()
        self._all_began = asyncio.Event()

    async def double(self, args: dict[str, Any]) -> int:
        """Return twice the number, the quicker the larger it is; those of `beside` once all of them have begun."""
        self.calls.append(args["n"])
        if args["n"] in self.beside:
            if self.beside <= {*self.calls}:
                self._all_began.set()
            await self._all_began.wait()
        await asyncio.sleep(0.01 / args["n"] if 0 < args["n"] < 10 else 0)
        return 2 * args["n"]


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
async def ex(tmp_path: Path, counter: Counter) -> AsyncIterator[Exec]:
    async with Exec(journal=tmp_path / "runs.db", linger=0.05) as made:
        tool = Tool(name="double", namespace="t", input_schema=NUMBER, output_schema={"type": "integer"})
        made.add(tool, handler=counter.double)
        yield made


async def began(ex: Exec, kind: str, counter: Counter) -> Any:
    """Run the program of a kind as the run `order`, and forget its calls."""
    if kind == "chain":
        result: Any = await ex.run_chain(CHAIN, durable="order")
    elif kind == "workflow":
        counter.beside = frozenset({1, 2, 3})
        result = await ex.run_workflow(FLOW, durable="order")
    else:
        counter.beside = frozenset({2, 3, 4})
        result = await ex.execute_code(CODE, durable="order")
    assert result.error is None
    counter.beside = frozenset()
    counter.calls.clear()
    return result


@pytest.mark.parametrize(("kind", "at", "unanswered"), [("chain", 2, 3), ("workflow", 2, 4), ("code", 3, 5)])
async def test_a_fork_stops_at_the_first_call_that_nothing_answers(
    ex: Exec, counter: Counter, kind: str, at: int, unanswered: int
) -> None:
    """Calls before it, and those that were under way beside it, are answered by the parent; nothing is called."""
    await began(ex, kind, counter)
    fork = await ex.runs.fork("order", at=at, answer=1000)
    error = fork.result.error
    assert isinstance(error, RunError)
    assert (error.code, error.details["call"], counter.calls) == ("run_unanswered", unanswered, [])
    assert (fork.run_id, fork.parent, fork.call, fork.reused) == ("order.fork-1", "order", at, unanswered - 1)
    run = await ex.runs.get(fork.run_id)
    assert (run.state, run.settings["parent"]["id"]) == ("waiting", "order")
    # No worker goes on with it; asked for, it makes the calls that are left, and no others.
    assert await ex.runs.resume_due() == {}
    result = await ex.runs.resume(fork.run_id)
    assert result.error is None
    assert len(counter.calls) == 1
    assert counter.calls[0] >= 1000
    again = await ex.runs.fork("order", at=at, answer=1000, live=True)
    assert again.result.value == result.value
    assert (again.run_id, len(counter.calls)) == ("order.fork-2", 2)


async def test_a_fork_can_be_answered_to_its_end(ex: Exec, counter: Counter) -> None:
    """The call that a fork wants is answered by a fork of it, and no tool is ever called."""
    await began(ex, "workflow", counter)
    first = await ex.runs.fork("order", at=1, answer=5)
    async with ex.runs.debug(first.run_id) as session:
        await session.to_call(4)
        assert session.calls[-1].args == {"n": 5 + 4 + 6}
    second = await ex.runs.fork(first.run_id, at=4, answer=99)
    assert (second.result.value, second.run_id) == (99, "order.fork-1.fork-1")
    assert counter.calls == []
    found = await ex.runs.diff("order", second.run_id)
    assert found.first is not None
    assert (found.first.step, found.first.differs, found.differs) == (found.calls[0].step, ("result",), ("value",))
    assert [call.differs for call in found.calls] == [("result",), (), (), ("arguments", "result")]


async def test_an_unchanged_fork_is_the_run(ex: Exec, counter: Counter) -> None:
    """Random numbers, the clock and the order of concurrent answers are those of the parent."""
    result = await began(ex, "code", counter)
    value = (await ex.runs.calls("order"))[-1].outcome or {}
    fork = await ex.runs.fork("order", at=5, answer=value["value"])
    assert (fork.result.value, counter.calls) == (result.value, [])
    found = await ex.runs.diff("order", fork.run_id)
    assert (found.same, found.first) == (True, None)


async def test_a_fork_gets_an_error(ex: Exec, counter: Counter) -> None:
    """The program handles it as one of the tool's."""
    code = (
        "try:\n    a = tools.t.double(n=1)\nexcept ToolError as error:\n    a = [error.code, error.message]\nreturn a"
    )
    await ex.execute_code(code, durable="order")
    fork = await ex.runs.fork("order", at=1, error={"message": "no stock", "code": "stock"})
    assert fork.result.value == ["stock", "no stock"]
    plain = await ex.runs.fork("order", at=1, error="sold out")
    assert plain.result.value == [ExecutionError.code, "sold out"]


async def test_a_changed_program_uses_the_answers_as_far_as_it_agrees(ex: Exec, counter: Counter) -> None:
    """Without a call, the fork begins where the program first does something else."""
    await began(ex, "workflow", counter)
    same = await ex.runs.fork("order", source=FLOW.replace("return last", "return last + 1"))
    assert (same.result.value, same.reused, counter.calls) == (25, 4, [])
    other = await ex.runs.fork("order", source=FLOW.replace("{n: total}", "{n: total + 1}"), live=True)
    assert (other.result.value, other.call, other.reused, counter.calls) == (26, 4, 3, [13])
    with pytest.raises(RunError) as caught:
        await ex.runs.fork("order", at=4, answer=1, source=FLOW.replace("[1, 2, 3]", "[1, 7, 3]"))
    assert (caught.value.code, caught.value.details["line"]) == ("run_diverged", 2)
    await ex.run_chain(CHAIN, durable="chain")
    steps = [CHAIN[0].to_dict(), {"tool": "t:double", "args": {"n": 50}}]
    chain = await ex.runs.fork("chain", source=json.dumps({"steps": steps}), live=True)
    assert (chain.result.value, chain.reused, counter.calls[-1]) == (100, 1, 50)


async def test_bad_input_is_named(ex: Exec, counter: Counter, tmp_path: Path) -> None:
    """Nothing is begun by a fork that makes no sense."""
    await began(ex, "chain", counter)
    for wrong in ({}, {"answer": 1}, {"at": 1, "answer": 1, "error": "x"}, {"at": 1, "error": {"code": "x"}}):
        with pytest.raises(ConfigurationError):
            await ex.runs.fork("order", **wrong)  # type: ignore[arg-type]
    with pytest.raises(RunError, match="has no call 17"):
        await ex.runs.fork("order", at=17, answer=1)
    with pytest.raises(InputValidationError):
        await ex.runs.fork("order", at=1, answer="two")
    with pytest.raises(RunError, match="already"):
        await ex.runs.fork("order", at=1, answer=1, id="order")
    with SQLiteJournal(tmp_path / "runs.db") as journal:
        assert [run.id for run in journal.runs()] == ["order"]


async def test_a_fork_belongs_to_its_maker(ex: Exec, counter: Counter) -> None:
    """A call of it is done for the caller who forks, and not for the one who began the parent."""
    with acting(Origin(caller=Caller(id="ann"))):
        await began(ex, "chain", counter)
    with acting(Origin(caller=Caller(id="bob"))):
        fork = await ex.runs.fork("order", at=1, answer=4)
    assert (await ex.runs.get(fork.run_id)).caller == "bob"


async def test_a_fork_that_was_not_written_whole_calls_nothing(
    ex: Exec, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process died while it copied the answers: what lacks would be made again."""
    await began(ex, "chain", counter)
    with monkeypatch.context() as patched:
        patched.setattr(SQLiteJournal, "end", _dies)
        with pytest.raises(KeyboardInterrupt):
            await ex.runs.fork("order", at=3, live=True)
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("UPDATE runs SET owner = '' WHERE id = 'order.fork-1'")
    result = await ex.runs.resume("order.fork-1")
    assert result.error is not None
    assert (result.error.code, counter.calls) == ("run_changed", [])


def _dies(*_: Any) -> None:
    raise KeyboardInterrupt


async def test_workers_go_on_with_a_fork_that_was_resumed(ex: Exec, counter: Counter) -> None:
    """Not before: it was made to be looked at. When it waits after that, they take it up as any other run."""
    steps = [Step("t:double", {"n": 1}), Step("t:double", {"n": 2}), Step("run:signal", {"name": "go"})]
    assert isinstance((await ex.run_chain(steps, durable="r")).error, RunWaitingError)
    await ex.runs.signal("r", "go")
    await ex.runs.resume("r")
    counter.calls.clear()
    fork = await ex.runs.fork("r", at=1, answer=5)
    await ex.runs.signal(fork.run_id, "retry")
    assert (await ex.runs.resume_due(), counter.calls) == ({}, [])
    assert isinstance((await ex.runs.resume(fork.run_id)).error, RunWaitingError)
    await ex.runs.signal(fork.run_id, "go", 7)
    assert (await ex.runs.resume_due())[fork.run_id].value == 7
    assert counter.calls == [2]


async def test_a_fork_that_was_not_resumed_takes_no_place_of_what_is_due(ex: Exec, counter: Counter) -> None:
    """However few runs a worker asks for, it gets those that it can go on with."""
    steps = [Step("t:double", {"n": 1}), Step("run:signal", {"name": "go"})]
    await ex.run_chain(CHAIN, durable="order")
    for number in range(3):
        fork = await ex.runs.fork("order", at=1, answer=number)
        await ex.runs.signal(fork.run_id, "retry")
    assert isinstance((await ex.run_chain(steps, durable="waits")).error, RunWaitingError)
    await ex.runs.signal("waits", "go", 7)
    counter.calls.clear()
    assert (await ex.runs.resume_due(limit=1))["waits"].value == 7
    assert counter.calls == []


async def test_a_run_that_cannot_go_on_tries_it_once_for_each_signal(tmp_path: Path) -> None:
    """A signal `retry` is taken by the attempt that it has made; after that the run waits for another one."""
    steps = [Step("t:double", {"n": 1}), Step("run:signal", {"name": "go"})]
    async with Exec(journal=tmp_path / "retried.db", linger=0.05) as ex:
        ex.add(lambda n: 2 * n, "t:double")
        assert isinstance((await ex.run_chain(steps, durable="r")).error, RunWaitingError)
        await ex.runs.signal("r", "go", 7)
    async with Exec(journal=tmp_path / "retried.db", linger=0.05) as ex:
        for _ in range(2):  # the tool is gone
            result = (await ex.runs.resume_due())["r"]
            assert getattr(result.error, "code", "") == "run_changed"
            assert (await ex.runs.get("r")).state == "waiting"
            assert await ex.runs.resume_due() == {}
            assert await ex.runs.signal("r", "retry")
        ex.add(lambda n: 2 * n, "t:double")
        assert (await ex.runs.resume_due())["r"].value == 7
        taken = [signal.name for signal in await ex.runs.signals("r") if signal.taken_by]
        assert sorted(taken) == ["go", "retry", "retry"]


async def test_a_fork_whose_resumption_is_refused_stays_as_it_was(ex: Exec, tmp_path: Path, counter: Counter) -> None:
    """Waiting for its caller, so that it can be looked at and forked, and nothing is due."""
    await ex.run_chain(CHAIN, durable="r")
    fork = await ex.runs.fork("r", at=1, answer=5)
    gate = Gate(policy=Policy([Rule("deny", runs=["chain"])]))
    async with Exec(journal=tmp_path / "runs.db", gate=gate) as other:
        other.add(counter.double, "t:double")
        with pytest.raises(PolicyError):
            await other.runs.resume(fork.run_id, accept_changes=True)
    assert (await ex.runs.get(fork.run_id)).state == "waiting"
    assert (await ex.runs.fork(fork.run_id, at=2, answer=6)).reused == 2
