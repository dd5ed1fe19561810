"""When a run is suspended: once its program waits for an answer, and not while it computes beside a question."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolexec import Exec
from toolexec.durable.replay import Replay
from toolexec.errors import RunWaitingError

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


async def test_a_program_rests_until_an_answer_is_on_its_way() -> None:
    """From the answer on it is at work, though its thread may come to it much later; a chain only ever waits."""
    replay, chain = Replay("run", "code"), Replay("run", "chain")
    assert (replay.is_at_rest, chain.is_at_rest) == (False, True)
    replay.upcoming()
    assert replay.is_at_rest
    replay.wake()
    chain.wake()
    assert (replay.is_at_rest, chain.is_at_rest) == (False, True)
    replay.deliver(["1"])
    replay.direct("2")
    assert replay.is_at_rest
    replay.direct("")
    assert not replay.is_at_rest
