"""Durable runs whose journal is elsewhere: its methods run in threads, and all is as with a file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.durable.postgres import Server, server
from tests.waiting import until

from toolexec import Exec, Step
from toolexec.errors import RunWaitingError
from toolexec.journal import Record

pytestmark = pytest.mark.full

CODE = """
import asyncio
first = await asyncio.gather(*(tools.t.add(n=n) for n in range(6)))
sent = tools.run("run:signal", {"name": "go"})
return [first, sent, await tools.t.add(n=6)]
"""


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    """Start a server for the tests of this module."""
    with server() as started:
        yield started


def address(database: Server) -> str:
    """Return where the server listens, as a URL."""
    return f"postgresql://tests@/postgres?host={database.directory}"


async def test_code_waits_and_goes_on(database: Server) -> None:
    """A program is suspended in one Exec, and finished by another, with no call made twice."""
    done: list[int] = []

    async def add(n: int) -> int:
        await asyncio.sleep(0.001 * (n % 3))
        done.append(n)
        return n

    async with Exec(journal=address(database), linger=0.05) as ex:
        ex.add(add, "t:add")
        result = await ex.execute_code(CODE, durable="waits")
        assert isinstance(result.error, RunWaitingError), result.error
    async with Exec(journal=address(database), linger=0.05) as ex:
        ex.add(add, "t:add")
        assert await ex.runs.signal("waits", "go", {"by": "bike"})
        result = (await ex.runs.resume_due())["waits"]
        assert (result.error, result.value) == (None, [[0, 1, 2, 3, 4, 5], {"by": "bike"}, 6])
        assert sorted(done) == [0, 1, 2, 3, 4, 5, 6]
        assert (await ex.runs.replay("waits")).same


async def test_a_chain_that_was_stopped_goes_on(database: Server) -> None:
    """The step that was under way is settled by a decision."""
    done: list[int] = []
    hangs = asyncio.Event()

    async def add(n: int) -> int:
        done.append(n)
        if n == 1:
            await hangs.wait()
        return n

    async with Exec(journal=address(database), linger=0.05) as ex:
        ex.add(add, "t:add")
        task = asyncio.ensure_future(ex.run_chain([Step("t:add", {"n": n}) for n in range(3)], durable="stops"))
        await until(lambda: 1 in done)
        task.cancel()
        await asyncio.wait([task])
        waiting = await ex.runs.resume("stops")
        assert isinstance(waiting.error, RunWaitingError), waiting.error
        await ex.runs.signal("stops", "settle:1", {"done": True, "value": 1})
        result = await ex.runs.resume("stops")
        assert (result.error, result.value, done) == (None, 2, [0, 1, 2])


async def test_other_runs_are_recorded_there(database: Server) -> None:
    """Runs that are not durable are recorded and replayed, and the last ones are kept, as in a file."""
    async with Exec(journal=address(database), record=Record(keep=2)) as ex:
        ex.add(lambda n: n + 1, "t:next")
        for n in range(21):
            assert (await ex.run_chain([Step("t:next", {"n": n})])).value == n + 1
        recorded = [run for run in await ex.runs.list() if run.id.startswith("recorded:")]
        assert len(recorded) == 2
        assert [(await ex.runs.resume(run.id)).value for run in recorded] == [21, 20]
        assert (await ex.runs.replay(recorded[0].id)).same
