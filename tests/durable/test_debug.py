"""A recorded run is made again offline and looked into: stops, variables, calls, expressions, and the way back."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Step
from toolexec.durable.engine import DurableEngine
from toolexec.durable.queues import Queue
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import (
    ConfigurationError,
    ExecutionError,
    InvalidRequestError,
    JournalError,
    RunBusyError,
    RunError,
)

CODE = """
total = 0
for n in range(1, 6):
    got = tools.t.double(n=n)
    total += got
def last(words):
    secret = "\\x1b[0;31m " + words
    return tools.t.double(n=100)
total += last("end")
return total
"""
FLOW = """
total := 0
for n in [1, 2, 3] {
    got := run("t:double", {n: n})
    total = total + got
}
both := parallel { a: run("t:double", {n: 10}), b: run("t:double", {n: 20}) }
return total + both.a
"""


class Counter:
    """What the tools have really done."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def double(self, n: int) -> int:
        """Return twice the number; fail for a negative one."""
        self.calls.append(n)
        if n < 0:
            raise ExecutionError("no negative numbers", code="negative")
        return 2 * n


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
async def ex(tmp_path: Path, counter: Counter) -> AsyncIterator[Exec]:
    async with Exec(journal=tmp_path / "runs.db", linger=0.05) as made:
        made.add(counter.double, "t:double")
        yield made


async def test_python_stops_at_calls_lines_and_back(ex: Exec, counter: Counter) -> None:
    """The program is where it is asked to be, with its variables and its calls, and nothing is called."""
    await ex.execute_code(CODE, durable="order")
    counter.calls.clear()
    async with ex.runs.debug("order") as session:
        await session.to_call(3)
        assert (session.reason, session.line) == ("call", 4)
        assert session.variables == {"total": "6", "n": "3", "got": "4"}
        assert [(call.args, call.value, call.is_open) for call in session.calls] == [
            ({"n": 1}, 2, False),
            ({"n": 2}, 4, False),
            ({"n": 3}, None, True),
        ]
        assert await session.evaluate("[total] * n") == "[6, 6, 6]"
        await session.step()
        assert (session.reason, session.line, session.variables["got"]) == ("line", 5, "6")
        await session.next_call()
        assert (session.line, session.calls[-1].args) == (4, {"n": 4})
        await session.to_call(6)
        assert [frame.function for frame in session.stack] == ["last", "<module>"]
        assert session.variables == {"words": "'end'", "secret": "'\\x1b[0;31m end'"}
        await session.back()
        assert session.calls[-1].args == {"n": 4}
        await session.to_line(9)
        assert (session.reason, session.line, session.variables["total"]) == ("line", 9, "30")
        await session.to_end()
        assert (session.reason, session.value) == ("end", 230)
    assert counter.calls == []


async def test_python_stops_where_it_failed(ex: Exec) -> None:
    """The variables are those of the line that failed, and an expression is evaluated there."""
    code = "def check(order):\n    limit = order * 2\n    raise ValueError(f'over {limit}')\ncheck(tools.t.double(n=2))"
    await ex.execute_code(code, durable="order")
    async with ex.runs.debug("order") as session:
        await session.to_error()
        assert (session.reason, session.line, session.variables) == ("error", 3, {"order": "4", "limit": "8"})
        assert "over 8" in str(session.error)
        assert await session.evaluate("limit + 1") == "9"
        with pytest.raises(InvalidRequestError, match="nothing is called"):
            await session.evaluate("tools.t.double(n=1)")


LARGE = {
    "blocking": "rows = tools.t.rows()\nlast = rows[-1]\nreturn last",
    "awaiting": "rows = await tools.t.rows()\nlast = rows[-1]\nopen = tools.t.double(n=4)\nreturn last + await open",
    "failing": "rows = tools.t.rows()\nlast = rows[-1]\nraise ValueError(last)",
}


@pytest.mark.parametrize("kind", list(LARGE))
async def test_large_results_are_looked_into(tmp_path: Path, counter: Counter, kind: str) -> None:
    """A result that stays on the host is shown as a variable and can be used in an expression; a call that is open
    stays so."""
    async with Exec(journal=tmp_path / "runs.db", result_bytes=2000) as ex:
        ex.add(counter.double, "t:double")
        ex.add(lambda: [*range(5000)], "t:rows")
        whole = await ex.execute_code(LARGE[kind], durable="order")
        counter.calls.clear()
        async with ex.runs.debug("order") as session:
            await session.to_line(LARGE[kind].count("\n") + 1)
            assert session.variables["last"] == "4999"
            assert session.variables["rows"].startswith("[0, 1, 2, ")
            assert session.variables.get("open", "<the result of call ").startswith("<the result of call ")
            assert await session.evaluate("len(rows), rows[-1], sum(rows)") == "(5000, 4999, 12497500)"
            with pytest.raises(InvalidRequestError, match="nothing is called"):
                await session.evaluate("tools.t.rows()")
            if kind == "failing":
                await session.to_error()
                assert await session.evaluate("rows[4000]") == "4000"
            await session.to_end()
            assert session.value == whole.value
        assert counter.calls == []


async def test_concurrent_python_shows_what_is_under_way(ex: Exec) -> None:
    """Calls that were gathered are open until the program has their answers."""
    all_asked = asyncio.Barrier(3)  # or a slow guest has the first answer before it makes the third call

    async def meet(n: int) -> int:
        await all_asked.wait()
        return 2 * n

    ex.add(meet, "t:meet")
    code = """
import asyncio
async def one(n):
    first = await tools.t.meet(n=n)
    return await tools.t.double(n=first)
return await asyncio.gather(one(1), one(2), one(3))
"""
    await ex.execute_code(code, durable="order")
    async with ex.runs.debug("order") as session:
        await session.to_call(3)
        assert [(call.args, call.is_open) for call in session.calls] == [({"n": n}, True) for n in (1, 2, 3)]
        assert session.variables == {"n": "3"}
        await session.to_call(6)
        last = session.calls[-1].args["n"]  # the answers came in any order
        assert session.variables == {"n": str(last // 2), "first": str(last)}


async def test_python_stops_before_a_chain(ex: Exec) -> None:
    """A chain of a program is made in one piece, so any step of it is the moment before the first."""
    code = """
first = {"tool": "t:double", "args": {"n": 1}}
value = await tools.run_chain([first, {"tool": "t:double", "args": {"n": {"$ref": "steps.0"}}}])
return await tools.t.double(n=value)
"""
    assert (await ex.execute_code(code, durable="order")).value == 8
    async with ex.runs.debug("order") as session:
        await session.to_call(2)
        assert (session.reason, session.line, [call.number for call in session.calls]) == ("call", 3, [1])
        await session.next_call()
        assert [(call.args, call.value) for call in session.calls] == [({"n": 1}, 2), ({"n": 2}, 4), ({"n": 4}, None)]


async def test_a_workflow_stops_at_calls_and_lines(ex: Exec, counter: Counter) -> None:
    """A workflow's line and variables are known at every step."""
    await ex.run_workflow(FLOW, durable="flow")
    counter.calls.clear()
    async with ex.runs.debug("flow") as session:
        await session.to_call(2)
        assert (session.reason, session.line) == ("call", 4)
        assert session.variables == {"total": "2", "n": "2", "got": "2"}
        assert await session.evaluate("total + n * 10") == "22"
        await session.step()
        assert (session.line, session.variables["got"]) == (5, "4")
        await session.to_call(5)
        assert (session.line, [call.is_open for call in session.calls]) == (7, [False, False, False, True, True])
        await session.to_end()
        assert (session.reason, session.value) == ("end", 32)
        await session.back()
        assert session.line == 7
    assert counter.calls == []


async def test_a_workflow_stops_where_it_failed(ex: Exec) -> None:
    """A failure that was handled before is not the one."""
    flow = 'a := try { run("t:double", {n: -1}) } catch err { 7 }\nrun("t:double", {n: a - 8})'
    result = await ex.run_workflow(flow, durable="flow")
    assert result.error is not None
    async with ex.runs.debug("flow") as session:
        await session.to_error()
        assert (session.reason, session.line, session.variables["a"]) == ("error", 2, "7")
        assert [call.error is not None for call in session.calls] == [True, True]


async def test_a_chain_stops_at_its_steps(ex: Exec, counter: Counter) -> None:
    """The variables of a chain are what its next step can refer to."""
    steps = [
        Step("t:double", {"n": 2}, name="first"),
        Step("t:double", {"n": {"$ref": "first"}}),
        Step("t:double", {"n": -1}),
    ]
    await ex.run_chain(steps, durable="chain")
    counter.calls.clear()
    async with ex.runs.debug("chain") as session:
        await session.to_call(2)
        assert (session.line, session.calls[-1].args) == (2, {"n": 4})
        assert session.variables == {"first": "4", "previous": "4", "steps.0": "4"}
        assert await session.evaluate("first * 3") == "12"
        await session.to_error()
        assert (session.reason, session.line, session.variables["steps.1"]) == ("error", 3, "8")
        await session.back()
        assert session.line == 2
    assert counter.calls == []


async def test_it_stops_at_what_a_stopped_run_wants(ex: Exec) -> None:
    """The call that nothing has answered yet is shown with its arguments."""
    await ex.execute_code('a = tools.t.double(n=1)\ntools.run("run:signal", {"name": f"go{a}"})', durable="order")
    async with ex.runs.debug("order") as session:
        await session.to_call(2)
        assert (session.line, session.calls[-1].args) == (2, {"name": "go2"})
        await session.to_end()
        assert isinstance(session.error, RunError)
        assert session.error.code == "run_unanswered"


@pytest.mark.parametrize("state", ["queued", "cancelled"])
async def test_what_a_run_wants_that_has_not_begun_can_be_answered(tmp_path: Path, state: str) -> None:
    """The way on that the error names is there: to the call, and into a fork with its answer."""
    async with Exec(journal=tmp_path / "runs.db", queues={"q": Queue()}) as ex:
        ex.add(lambda n: n, "t:double")
        await ex.runs.enqueue("q", chain=[Step("t:double", {"n": 2})], run_id="r")
        if state == "cancelled":
            assert await ex.runs.cancel("r")
        async with ex.runs.debug("r") as session:
            await session.to_end()
            assert session.error is not None
            assert "--to call:1" in session.error.message
            assert "runs resume" not in session.error.message
            await session.to_call(1)
            assert session.calls[0].args == {"n": 2}
        fork = await ex.runs.fork("r", at=1, answer=7)
        assert (fork.result.value, fork.reused) == (7, 1)


async def test_a_program_that_ends_too_soon_has_diverged(tmp_path: Path) -> None:
    """A recorded call that it does not come to is a difference, also at the end."""
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(Path(__file__).with_name("journal_1.sql").read_text())
    path.chmod(0o600)
    async with Exec(journal=path) as ex, ex.runs.debug("done") as session:
        await session.to_end()
        assert (session.reason, session.error and session.error.code) == ("error", "run_diverged")


async def test_nothing_can_be_reached(tmp_path: Path, counter: Counter) -> None:
    """No handler is called, no server is started, and nothing is written, for tools that are not even there."""
    async with Exec(journal=tmp_path / "runs.db") as ex:
        ex.add(counter.double, "t:double")
        await ex.execute_code(CODE, durable="order")
        await ex.run_workflow(FLOW, durable="flow")
        await ex.run_chain([Step("t:double", {"n": 1})], durable="chain")
        before = await ex.runs.list()
    counter.calls.clear()

    touched = tmp_path / "touched"
    async with Exec(journal=tmp_path / "runs.db") as ex:
        ex.add_mcp("server", command=[sys.executable, "-c", f"open({str(touched)!r}, 'w')"])
        for run_id in ("order", "flow", "chain"):
            async with ex.runs.debug(run_id) as session:
                await session.to_call(1)
                await session.step()
                await session.to_end()
                assert session.reason == "end", session.error
        assert await ex.runs.list() == before
    assert (counter.calls, touched.exists()) == ([], False)


async def test_bad_input_is_named(ex: Exec, tmp_path: Path) -> None:
    """A call that is not there, a run that runs, a session that is closed, a journal that is damaged."""
    await ex.run_chain([Step("t:double", {"n": 1})], durable="chain")
    session = ex.runs.debug("chain")
    with pytest.raises(ConfigurationError, match="not open"):
        await session.step()
    async with session:
        with pytest.raises(RunError, match="has no call 2"):
            await session.to_call(2)
        with pytest.raises(InvalidRequestError, match="place"):
            await session.evaluate("1")
    with pytest.raises(RunError, match="no run"):
        async with ex.runs.debug("other"):
            pass
    with SQLiteJournal(tmp_path / "runs.db") as journal:
        run = await ex.runs.get("chain")
        journal.create(replace(run, id="busy", state="running", result=None, created=0.0))
    with pytest.raises(RunBusyError, match="runs now"):
        async with ex.runs.debug("busy"):
            pass
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("UPDATE calls SET outcome = '{}'")
    with pytest.raises(JournalError):
        async with ex.runs.debug("chain"):
            pass


async def test_javascript_stops_at_calls(ex: Exec, counter: Counter) -> None:
    """The line is known by the failure that ends the program there; its variables are not."""
    pytest.importorskip("quickjs_rs")
    code = "const a = await tools.t.double({n: 1});\nconst b = await tools.t.double({n: a});\nreturn b;"
    result = await ex.execute_code(code, language="javascript", durable="order")
    assert result.value == 4, result.error
    counter.calls.clear()
    async with ex.runs.debug("order") as session:
        await session.to_call(2)
        assert (session.reason, session.line, session.variables) == ("call", 2, {})
        assert [(call.args, call.value) for call in session.calls] == [({"n": 1}, 2), ({"n": 2}, None)]
        with pytest.raises(InvalidRequestError, match="JavaScript"):
            await session.to_line(1)
        await session.next_call()
        assert (session.reason, session.value) == ("end", 4)
    assert counter.calls == []


def test_the_blocking_twin_does_the_same(tmp_path: Path, counter: Counter) -> None:
    """Sessions, forks and differences need no event loop."""
    with Exec(journal=tmp_path / "runs.db", linger=0.05).sync as ex:
        ex.add(counter.double, "t:double")
        ex.run_workflow(FLOW, durable="flow")
        with ex.runs.debug("flow") as session:
            session.to_call(2)
            assert (session.line, session.variables["n"], session.evaluate("n + 1")) == (4, "2", "3")
            assert (session.step().line, session.back().line, session.to_end().value) == (5, 4, 32)
        fork = ex.runs.fork("flow", at=5, answer=1)
        found = ex.runs.diff("flow", fork.run_id)
        assert found.to_dict()["first"] == found.calls[4].step


async def test_runs_of_an_engine_are_not_looked_into() -> None:
    """The error says where such runs are repeated."""
    members = [name for name in dir(DurableEngine) if not name.startswith("_")]
    engine: Any = type("Engine", (), dict.fromkeys(members, print))()
    ex = Exec(journal=engine)
    with pytest.raises(ConfigurationError, match="engine"):
        async with ex.runs.debug("order"):
            pass
    with pytest.raises(ConfigurationError, match="engine"):
        await ex.runs.fork("order", at=1)
