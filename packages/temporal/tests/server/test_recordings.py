"""Runs on Temporal that are made again offline, forked and compared, as those of a journal are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Step
from toolexec.errors import InputValidationError, JournalError, RunError
from toolexec_temporal import TemporalEngine, TemporalSettings, recordings

KEY = "a secret of more than sixteen characters"
CODE = """
import asyncio
first = tools.t.double(n=1)
pair = await asyncio.gather(tools.t.double(n=first), tools.t.double(n=first + 1))
await asyncio.sleep(0.01)
return sum(pair) + tools.t.double(n=pair[0])
"""
FLOW = """
first := run("t:double", {n: 1})
pair := parallel { a: run("t:double", {n: first}), b: run("t:double", {n: first + 1}) }
return pair.a + pair.b + run("t:double", {n: pair.a})
"""
CHAIN = [Step("t:double", {"n": 1}), Step("t:double", {"n": {"$ref": "steps.0"}})]


class Tools:
    """A tool that writes down what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def exec(self, settings: TemporalSettings) -> Exec:
        ex = Exec(journal=TemporalEngine(settings))

        async def double(n: int) -> int:
            """Doubles a number."""
            self.asked.append(n)
            return 2 * n

        ex.add(double, "t:double")
        return ex


async def begin(ex: Exec, kind: str, run_id: str) -> Any:
    if kind == "chain":
        return await ex.run_chain(CHAIN, durable=run_id)
    if kind == "workflow":
        return await ex.run_workflow(FLOW, durable=run_id)
    return await ex.execute_code(CODE, durable=run_id, timeout=60)


@pytest.mark.parametrize(("kind", "value", "calls"), [("chain", 4, 2), ("workflow", 18, 4), ("code", 18, 4)])
async def test_a_run_does_the_same_again_offline(
    settings: TemporalSettings, tmp_path: Path, kind: str, value: int, calls: int
) -> None:
    """Whatever it is, encrypted and with payloads kept elsewhere: a replay is equal and calls nothing, and stops where
    it should."""
    settings = replace(settings, key=KEY, large_directory=tmp_path, large_bytes=100)
    tools = Tools()
    async with tools.exec(settings) as ex, ex.worker():
        result = await begin(ex, kind, "run")
        assert result.raise_for_error().value == value
        made = [*tools.asked]
        report = await ex.runs.replay("run")
        assert (report.same, report.error) == (True, None)
        async with ex.runs.debug("run") as session:
            await session.to_call(2)
            assert (session.reason, session.calls[0].value, session.calls[1].args) == ("call", 2, {"n": 2})
            if kind != "chain":
                assert session.line in (3, 4)
                assert await session.evaluate("first + 40") == "42"
                assert (await session.step()).reason == "line" or kind == "code"
            await session.to_end()
            assert (session.reason, session.value, len(session.calls)) == ("end", value, calls)
        assert tools.asked == made
        assert (await ex.runs.diff("run", "run")).to_dict()["same"]
        assert (await ex.runs.calls("run"))[0].number == 1


@pytest.mark.parametrize("kind", ["chain", "workflow", "code"])
async def test_a_fork_goes_on_in_another_way(settings: TemporalSettings, kind: str) -> None:
    """A fork has the answers of its parent up to the call, and the changed one; the rest is called by workers, once it is
    resumed, or at once where it is live. A list of differences begins with the changed call."""
    tools = Tools()
    async with tools.exec(settings) as ex, ex.worker():
        await begin(ex, kind, "run")
        tools.asked.clear()
        fork = await ex.runs.fork("run", at=1, answer=10)
        error = fork.result.error
        assert error is not None
        assert (fork.run_id, fork.reused, error.code, error.details["call"]) == ("run.fork-1", 1, "run_unanswered", 2)
        assert tools.asked == []
        parked = await ex.runs.get("run.fork-1")
        assert (parked.state, parked.settings["parent"]["id"]) == ("waiting", "run")
        async with ex.runs.debug("run.fork-1") as session:
            await session.to_call(2)
            assert session.calls[1].args == {"n": 10}
        resumed = await ex.runs.resume("run.fork-1")
        live = await ex.runs.fork("run", at=1, answer=10, live=True)
        assert live.run_id == "run.fork-2"
        assert resumed.value == live.result.value == (20 if kind == "chain" else 20 + 22 + 40)
        assert sorted(tools.asked) == ([10, 10] if kind == "chain" else [10, 10, 11, 11, 20, 20])
        found = await ex.runs.diff("run", live.run_id)
        assert found.first is not None
        assert (found.first.differs, "value" in found.differs) == (("result",), True)
        assert (await ex.runs.replay("run.fork-1")).same


async def test_a_fork_of_a_fork_answers_the_next_call(settings: TemporalSettings) -> None:
    """Forks of forks answer call after call, with nothing called; an error and a changed program do as well."""
    tools = Tools()
    async with tools.exec(settings) as ex, ex.worker():
        await begin(ex, "chain", "run")
        tools.asked.clear()
        await ex.runs.fork("run", at=1, answer=10, id="one")
        two = await ex.runs.fork("one", at=2, answer=7, id="two")
        assert two.result.value == 7
        failed = await ex.runs.fork("run", at=2, error={"message": "sold out", "code": "gone"}, id="three")
        assert failed.result.error is not None
        assert failed.result.error.code == "gone"
        await begin(ex, "code", "code")
        tools.asked.clear()
        changed = await ex.runs.fork("code", source=CODE.replace("sum(pair)", "sum(pair) * 100"), id="four")
        assert (changed.result.value, changed.reused > 3) == (1008, True)
        assert tools.asked == []
        with pytest.raises(InputValidationError):
            await ex.runs.fork("run", at=1, answer="ten", id="five")
        with pytest.raises(RunError, match="no call 9"):
            await ex.runs.fork("run", at=9, answer=1)
        with pytest.raises(RunError) as taken:
            await ex.runs.fork("run", at=1, answer=11, id="one")
        assert taken.value.code == "run_changed"


async def test_a_waiting_run_is_looked_into_up_to_its_wait(settings: TemporalSettings) -> None:
    """A run that has not ended is made again up to where it is, by the same program."""
    tools = Tools()
    code = 'n = tools.t.double(n=4)\nname = tools.run("run:signal", {"name": "go"})\nreturn name * n'
    async with tools.exec(settings) as ex, ex.worker():
        waiting = await ex.execute_code(code, durable="run", timeout=60)
        assert waiting.error is not None
        assert waiting.error.code == "run_waiting"
        async with ex.runs.debug("run") as session:
            await session.to_end()
            assert session.error is not None
            assert (session.error.code, session.variables.get("n", "8")) == ("run_unanswered", "8")
            await session.to_call(2)
            assert (session.line, session.variables["n"]) == (2, "8")
        fork = await ex.runs.fork("run", at=2, answer="ab")
        assert fork.result.value == "ab" * 8
        assert tools.asked == [4]


async def test_without_a_worker_the_error_says_what_is_missing(
    settings: TemporalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history is read by what repeats it."""
    monkeypatch.setattr(recordings, "_SECONDS", 0.5)
    tools = Tools()
    async with tools.exec(settings) as ex, ex.worker(patience=0.1):
        await begin(ex, "chain", "run")
    async with tools.exec(settings) as ex:
        with pytest.raises(JournalError, match="start a worker of this version"):
            await ex.runs.replay("run")
