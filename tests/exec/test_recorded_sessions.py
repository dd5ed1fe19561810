"""Sessions that are recorded: any program of one is made again offline, with what those before it have left behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec
from toolexec.errors import ConfigurationError, InvalidRequestError, JournalError, RunError
from toolexec.journal import Record, RunRecord, SQLiteJournal

SECRET = "sk-live-0123456789abcdefABCDEF"
PROGRAMS = (
    (
        'import random, time\nseen = [tools.shop.stock(item="tea")]\nopened = time.time()\nluck = random.random()\n'
        'def look(item):\n    return tools.shop.stock(item=item)\nopen("note.txt", "w").write("tea")\nreturn len(seen)'
    ),
    'import asyncio\nseen.append(look("rice"))\nawait asyncio.sleep(0.01)\nlater = time.time()\nreturn seen',
    (
        'seen.append(look("salt"))\nfound = open("note.txt").read()\nseen.append(random.random() != luck)\n'
        "return [*seen, found, later > opened, time.time() >= later]"
    ),
)
VALUE = [3, 0, 8, True, "tea", True, True]


class Shop:
    """A tool that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def stock(self, item: str) -> int:
        """Return how many there are."""
        self.calls.append(item)
        return {"tea": 3, "rice": 0, "salt": 8}[item]

    @asynccontextmanager
    async def open(self, path: Path, **settings: Any) -> AsyncGenerator[Exec, None]:
        """Yield an Exec with the tool."""
        given: Any = {"journal": path / "runs.db", "record": 1, **settings}
        async with Exec(**given) as ex:
            ex.add(self.stock, "shop:stock")
            yield ex


@pytest.fixture
def shop() -> Shop:
    """Return the tool."""
    return Shop()


async def recorded(ex: Exec) -> list[RunRecord]:
    """Return the recorded runs, the first one first."""
    return [await ex.runs.get(run.id) for run in reversed(await ex.runs.list())]


async def run_all(ex: Exec, *programs: str, **settings: Any) -> list[Any]:
    """Run programs in one session, and return their values."""
    async with ex.session(**settings) as session:
        return [(await session.execute_code(program)).value for program in programs]


async def test_each_program_is_made_again_with_what_those_before_it_left(tmp_path: Path, shop: Shop) -> None:
    """Each is a run of its own: variables, functions, files, random numbers and the clock are as they were; in another
    process, with no tool, and with nothing called."""
    async with shop.open(tmp_path) as ex:
        assert await run_all(ex, *PROGRAMS) == [1, [3, 0], VALUE]
        runs = await recorded(ex)
        assert [run.state for run in runs] == ["done"] * 3
        assert [(each["number"], each["previous"]) for run in runs if (each := run.settings["session"])] == [
            (1, ""),
            (2, runs[0].id),
            (3, runs[1].id),
        ]
    async with Exec(journal=tmp_path / "runs.db") as ex:
        for run in runs:
            report = await ex.runs.replay(run.id)
            assert (report.same, report.error, report.calls) == (True, None, 2 if run is runs[1] else 1)
    assert shop.calls == ["tea", "rice", "salt"]


async def test_the_third_program_is_looked_into(tmp_path: Path, shop: Shop) -> None:
    """Stops, lines, variables of the earlier programs, expressions and the way back are as in any other run."""
    async with shop.open(tmp_path) as ex:
        await run_all(ex, *PROGRAMS)
        run = (await recorded(ex))[2]
        async with ex.runs.debug(run.id) as session:
            await session.to_call(1)
            assert (session.reason, session.line, session.variables["seen"]) == ("call", 1, "[3, 0]")
            assert session.calls[0].args == {"item": "salt"}
            assert [frame.line for frame in session.stack] == [1]
            assert await session.evaluate("seen[0] * 10 + len(open('note.txt').read())") == "33"
            await session.to_line(3)
            assert (session.line, session.variables["found"], session.variables["seen"]) == (3, "'tea'", "[3, 0, 8]")
            assert (await session.step()).line == 4
            assert (await session.back()).line == 3
            assert (await session.to_end()).value == VALUE
        async with ex.runs.debug((await recorded(ex))[1].id) as session:
            assert (await session.step()).line == 1
            assert (await session.to_end()).value == [3, 0]
        found = await ex.runs.diff(run.id, run.id)
        assert found.same
        with pytest.raises(ConfigurationError, match="program of a session"):
            await ex.runs.fork(run.id, at=1, answer=1)
    assert shop.calls == ["tea", "rice", "salt"]


async def test_a_failed_program_is_followed_by_others(tmp_path: Path, shop: Shop) -> None:
    """A program that fails leaves what it had done by then, and a replay stops at its failure."""
    programs = ('x = tools.shop.stock(item="tea")\nraise ValueError("no")', 'return [x, tools.shop.stock(item="salt")]')
    async with shop.open(tmp_path) as ex:
        assert await run_all(ex, *programs) == [None, [3, 8]]
        failed, done = await recorded(ex)
        assert (failed.state, done.state) == ("failed", "done")
        assert (await ex.runs.replay(failed.id)).same
        assert (await ex.runs.replay(done.id)).same
        async with ex.runs.debug(failed.id) as session:
            await session.to_error()
            assert (session.reason, session.line, session.variables["x"]) == ("error", 2, "3")


async def test_secrets_of_earlier_programs_are_hidden_in_later_ones(tmp_path: Path, shop: Shop) -> None:
    """A secret that a name has shown to be one is one in all programs after it."""
    async with shop.open(tmp_path) as ex:
        ex.add(lambda n: {"token": "correct-horse-battery"}, "shop:login")
        await run_all(ex, "kept = tools.shop.login(n=1)['token']", "print(kept)\nreturn kept", env={"api_key": SECRET})
        runs = await recorded(ex)
        report = await ex.runs.replay(runs[1].id)
        assert report.same, report.error
    text = "".join(file.read_bytes().decode("latin-1") for file in tmp_path.iterdir())
    assert (SECRET in text, "correct-horse" in text, len(runs)) == (False, False, 2)


async def test_programs_after_one_that_cannot_be_made_again_are_not_recorded(
    tmp_path: Path, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """Those before it are, the session itself goes on as ever, and the log says why."""
    caplog.set_level("INFO")
    async with shop.open(tmp_path, record=Record(max_bytes=100)) as ex:
        small = 'return tools.shop.stock(item="tea")'
        many = 'for n in range(20):\n    tools.shop.stock(item="tea")\nkept = 5'
        last = 'import time\ntime.sleep(0.01)\nreturn kept + tools.shop.stock(item="salt")'
        assert await run_all(ex, small, many, last) == [3, None, 13]
        assert len(await recorded(ex)) == 1
    assert "a program before it is not recorded" in caplog.text


async def test_a_stopped_program_ends_the_recording(tmp_path: Path, shop: Shop) -> None:
    """Where it was when it was stopped is up to chance."""
    async with shop.open(tmp_path) as ex, ex.session() as session:
        await session.execute_code("x = 1")
        task = asyncio.ensure_future(session.execute_code('tools.shop.stock(item="tea")\nimport time\ntime.sleep(60)'))
        await until(lambda: shop.calls)
        task.cancel()
        await asyncio.wait([task])
        assert [run.settings["session"]["number"] for run in await recorded(ex)] == [1]


async def test_a_program_whose_predecessor_is_gone_says_so(tmp_path: Path, shop: Shop) -> None:
    """A program cannot be made again without those before it; the first one still can."""
    async with shop.open(tmp_path) as ex:
        await run_all(ex, *PROGRAMS)
        first, second, third = await recorded(ex)
        await ex.runs.delete(second.id)
        with pytest.raises(RunError, match="the program before it in its session") as gone:
            await ex.runs.replay(third.id)
        assert gone.value.code == "run_not_found"
        assert (await ex.runs.replay(first.id)).same


async def test_a_program_that_was_refused_is_not_one_of_the_session(tmp_path: Path, shop: Shop) -> None:
    """A refused program has changed nothing, so the one after it is recorded, and made again, as the next."""
    async with shop.open(tmp_path) as ex:
        async with ex.session() as session:
            await session.execute_code("x = 5")
            with pytest.raises(InvalidRequestError):
                await session.execute_code("return 1", language="javascript")
            assert (await session.execute_code("return x")).value == 5
        runs = await recorded(ex)
        assert [run.settings["session"]["number"] for run in runs] == [1, 2]
        assert (await ex.runs.replay(runs[1].id)).same


@pytest.mark.parametrize("place", [{"number": 2, "previous": "recorded:b"}, {"number": 2, "previous": "recorded:a"}])
async def test_a_forged_order_of_programs_is_refused(tmp_path: Path, place: dict[str, Any]) -> None:
    """A journal in which a program comes before itself, or is not the one before, is damaged: nothing is made again."""
    settings: dict[str, Any] = {"given": {}, "now": 1e9, "seed": 1, "recorded": True}
    opened = {"given": {}, "now": 1e9, "seed": 1}
    with closing(SQLiteJournal(tmp_path / "runs.db")) as journal:
        for name, own in (("b", place), ("a", {"number": 2, "previous": "recorded:b"})):
            forged = {**settings, "session": {**own, "opened": opened}}
            run = RunRecord(
                id=f"recorded:{name}", kind="code", source="x = 1", digest="", settings=forged, state="done", result={}
            )
            journal.record(run, [], [])
    async with Exec(journal=tmp_path / "runs.db") as ex:
        with pytest.raises(JournalError, match="not the program before it"):
            await ex.runs.replay("recorded:a")


async def test_a_session_is_recorded_as_a_whole_or_not_at_all(
    tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share is one of sessions; workflows in one are runs of their own, which need no other."""
    taken = iter([0.1, 0.9])
    monkeypatch.setattr(random, "random", lambda: next(taken))
    async with shop.open(tmp_path, record=0.5) as ex:
        await run_all(ex, "x = 1", "return x")
        await run_all(ex, "x = 2", "return x")
        assert [run.result["value"] for run in await recorded(ex) if run.result] == [None, 1]
        taken = iter([0.1, 0.1])
        async with ex.session() as session:
            result = await session.execute_code('return run("shop:stock", {item: "tea"})', language="workflow")
            assert result.value == 3
        assert [run.kind for run in await recorded(ex)] == ["code", "code", "workflow"]


async def test_a_session_with_a_seed_and_a_clock_keeps_them(tmp_path: Path, shop: Shop) -> None:
    """Both are the caller's, recorded or not."""
    program = "import random, time\nreturn [random.random(), int(time.time())]"
    async with shop.open(tmp_path) as ex:
        values = await run_all(ex, program, program, seed=7, now=1e9)
        for run in await recorded(ex):
            assert (await ex.runs.replay(run.id)).same
    async with shop.open(tmp_path, record=None) as ex:
        assert await run_all(ex, program, program, seed=7, now=1e9) == values
    assert values[0][1] == 10**9
    assert values[0][0] != values[1][0]


PARTS = (
    'seen.append(tools.shop.stock(item="tea"))',
    'seen += await asyncio.gather(tools.shop.stock(item="rice"), tools.shop.stock(item="salt"))',
    "seen.append(random.random())",
    "await asyncio.sleep(0.002)\nseen.append(time.time())",
    'try:\n    tools.shop.stock(item="nothing")\nexcept ToolError as error:\n    seen.append(error.code)',
    "with open('log.txt', 'a') as log:\n    log.write(str(len(seen)))",
    "seen.append(open('log.txt').read())",
    "def last():\n    return seen[-1]",
    "seen.append(last())",
    "class Counter:\n    n = 0\ncounter = Counter()",
    "counter.n += 1\nseen.append(counter.n)",
    "seen.append(seen[99])",
)


async def test_sessions_made_up_at_random_are_equal_to_the_bit(tmp_path: Path, shop: Shop) -> None:
    """Whatever programs do one after the other, failures included: each of them is the same again, in another Exec."""
    chance = random.Random(32)
    async with shop.open(tmp_path) as ex:
        for _ in range(8):
            programs = [
                "\n".join([*chance.choices(PARTS, k=chance.randint(1, 4)), "return seen"])
                for _ in range(chance.randint(2, 5))
            ]
            await run_all(ex, "import asyncio, random, time\nseen = []", *programs)
    async with Exec(journal=tmp_path / "runs.db") as ex:
        runs = await recorded(ex)
        reports = [await ex.runs.replay(run.id) for run in runs]
    assert [report.run_id for report in reports if not report.same] == []
    assert {"done", "failed"} == {run.state for run in runs}
    assert sum(report.calls for report in reports) > 20
