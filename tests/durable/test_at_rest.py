"""When a run is suspended: once its program waits for an answer, and not while it computes beside a question."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.waiting import until

from toolexec import Exec
from toolexec.durable.journal import CallState, Signal
from toolexec.durable.replay import Replay
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import RunWaitingError
from toolexec.model.json_value import JSONObject

PYTHON = """
import asyncio
asking = asyncio.create_task(tools.run("run:input", {"question": "Which?", "name": "which"}))
first = await tools.t.twice(n=1)
for n in range(400_000):
    pass
second = await tools.t.twice(n=first)
NEXT
"""
JAVASCRIPT = """
const asking = tools.run("run:input", {question: "Which?", name: "which"});
const first = await tools.t.twice({n: 1});
for (let n = 0; n < 4_000_000; n += 1);
const second = await tools.t.twice({n: first});
NEXT
"""
LEFT = {"python": (PYTHON, "asking.cancel()\nreturn second"), "javascript": (JAVASCRIPT, "return second;")}
ASKED = {
    "python": (PYTHON, "return [second, await asking]"),
    "javascript": (JAVASCRIPT, "return [second, await asking];"),
}

ANOTHER = """
import asyncio
try:
    async with asyncio.timeout(0.01):
        await tools.run("run:signal", {"name": "never"})
except TimeoutError:
    pass
await tools.t.twice(n=1)
return await tools.run("run:signal", {"name": "go"})
"""


async def twice(n: int) -> int:
    """Double a number."""
    return 2 * n


class LateJournal(SQLiteJournal):
    """A journal that is written to in threads, and writes how the first wait ended only once another has begun. No
    other call waits for what it writes then, whichever thread came first."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync="each")
        self.waits = threading.Event()

    def end(self, run_id: str, owner: str, step: str, state: CallState, outcome: JSONObject) -> None:
        """End a call; one that was called off ends later."""
        if state == "failed":
            assert self.waits.wait(60)
        super().end(run_id, owner, step, state, outcome)

    def take(self, run_id: str, owner: str, step: str, name: str) -> Signal | None:
        """Look for the other signal, which the run waits for now."""
        if name == "go":
            self.waits.set()
        return super().take(run_id, owner, step, name)


def opened(directory: Path, made: list[int]) -> Exec:
    """Return an Exec that suspends runs almost at once."""
    ex = Exec(journal=directory / "runs.db", linger=0.03)

    async def twice(n: int) -> int:
        made.append(n)
        return 2 * n

    ex.add(twice, "t:twice")
    return ex


@pytest.mark.parametrize("language", list(LEFT))
async def test_a_run_that_computes_is_not_suspended(tmp_path: Path, language: str) -> None:
    """A question that is open meanwhile, and that the program may not need, does not keep it from its next call."""
    source, end = LEFT[language]
    made: list[int] = []
    async with opened(tmp_path, made) as ex:
        result = await ex.execute_code(source.replace("NEXT", end), durable="run", language=language)
    assert (result.value, result.error, made) == (4, None, [1, 2])


@pytest.mark.parametrize("language", list(ASKED))
async def test_it_is_suspended_once_it_waits(tmp_path: Path, language: str) -> None:
    """The call after the computing is made, and then the run waits for the answer; none is made twice."""
    source, end = ASKED[language]
    made: list[int] = []
    async with opened(tmp_path, made) as ex:
        result = await ex.execute_code(source.replace("NEXT", end), durable="run", language=language)
        assert isinstance(result.error, RunWaitingError), result.error
        assert made == [1, 2]
        await ex.runs.signal("run", "which", "this")
        result = await ex.runs.resume("run")
    assert (result.value, result.error, made) == ([4, "this"], None, [1, 2])


async def test_it_is_suspended_though_something_else_ends(tmp_path: Path) -> None:
    """The end of a call that the program has called off comes while it waits for another: that does not wake it."""
    with LateJournal(tmp_path / "runs.db") as journal:
        async with Exec(journal=journal, linger=0.03) as ex:
            ex.add(twice, "t:twice")
            running = asyncio.ensure_future(ex.execute_code(ANOTHER, durable="run"))
            await until(running.done)
            error = (await running).error
            assert isinstance(error, RunWaitingError), error
            assert [wait["name"] for wait in error.details["waits"]] == ["go"]
            await ex.runs.signal("run", "go", "gone")
            assert (await ex.runs.resume("run")).value == "gone"


async def test_a_program_rests_until_an_answer_is_on_its_way() -> None:
    """From the answer on it is at work, though its thread may come to it much later; a chain only ever waits."""
    replay, chain = Replay("run", "code"), Replay("run", "chain")
    assert (replay.is_at_rest, chain.is_at_rest) == (False, True)
    assert replay.upcoming() is None
    assert not replay.is_at_rest, "an answer may be there already"
    replay.rest()
    assert replay.is_at_rest
    replay.wake()
    chain.wake()
    assert (replay.is_at_rest, chain.is_at_rest) == (False, True)
    replay.deliver(["1"])
    replay.direct("2")
    assert replay.is_at_rest
    replay.direct("")
    assert not replay.is_at_rest
