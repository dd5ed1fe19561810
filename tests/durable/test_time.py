"""Time in durable code: its timers are steps of the run, and a replay sees the same clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.durable.host_time import HostTime, install

from toolexec import Exec, Tool, ToolAnnotations
from toolexec.durable.journal import RunRecord
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import RunWaitingError
from toolexec.exec.run_data import origin_to_json, run_digest
from toolexec.model.origin import current_origin

ANY = {"type": "object"}
REPEATABLE = ToolAnnotations(idempotent=True)

PYTHON = {
    "sleeps": (
        """
import asyncio, time
out = []
async def nap(name, seconds):
    began = time.monotonic()
    await asyncio.sleep(seconds)
    out.append([name, time.monotonic() - began >= seconds])
await asyncio.gather(nap("b", 0.03), nap("a", 0.01))
""",
        [["a", True], ["b", True]],
    ),
    "blocking sleep": (
        """
import time
wall, steady = time.time(), time.monotonic()
time.sleep(0.02)
out = [time.time() - wall > 0.019, time.monotonic() - steady >= 0.02]
""",
        [True, True],
    ),
    "timeout fires": (
        """
import asyncio
try:
    async with asyncio.timeout(0.02):
        out = await tools.fx.never()
except TimeoutError:
    out = ["late", await tools.fx.echo(n=1)]
""",
        ["late", 1],
    ),
    "wait_for is in time": (
        """
import asyncio
out = await asyncio.wait_for(tools.fx.echo(n=4), 3600)
""",
        4,
    ),
    "call_later beside calls": (
        """
import asyncio
out = []
loop = asyncio.get_running_loop()
loop.call_later(0.02, out.append, "second")
loop.call_later(0.01, out.append, "first")
loop.call_later(3600, out.append, "never")
try:
    await asyncio.wait_for(tools.fx.never(), 0.05)
except TimeoutError:
    out.append("late")
""",
        ["first", "second", "late"],
    ),
    "polling": (
        """
import asyncio
out = []
while not out or out[-1] < 3:
    out.append(await tools.fx.count())
    await asyncio.sleep(0.01)
""",
        [1, 2, 3],
    ),
}
JAVASCRIPT = {
    "timeouts": (
        """
const out = [];
const nap = (name, ms) => new Promise((done) => setTimeout(() => { out.push(name); done(); }, ms));
const began = performance.now();
await Promise.all([nap("b", 30), nap("a", 10)]);
out.push(performance.now() - began >= 30);
""",
        ["a", "b", True],
    ),
    "race that a timer wins": (
        """
const late = (ms) => new Promise((done) => setTimeout(() => done("late"), ms));
const out = [await Promise.race([tools.fx.never({}), late(20)])];
out.push(await tools.fx.release({n: 1}));
""",
        ["late", 1],
    ),
    "race that a call wins": (
        """
const late = (ms) => new Promise((done) => setTimeout(() => done("late"), ms));
const out = await Promise.race([tools.fx.echo({n: 4}), late(3600000)]);
""",
        4,
    ),
    "interval": (
        """
const out = [];
await new Promise((done) => {
  const id = setInterval(() => { out.push(out.length); if (out.length === 3) { clearInterval(id); done(); } }, 10);
});
""",
        [0, 1, 2],
    ),
    "polling": (
        """
const out = [];
while (out.length === 0 || out.at(-1) < 3) {
  out.push(await tools.fx.count({}));
  await new Promise((done) => setTimeout(done, 10));
}
""",
        [1, 2, 3],
    ),
}
ENDS = {
    "python": "\nimport time\nawait tools.fx.note(seen=[out, time.time(), time.monotonic()])\n"
    "await tools.fx.hold()\nreturn out\n",
    "javascript": "\nawait tools.fx.note({seen: [out, Date.now(), performance.now()]});\n"
    "await tools.fx.hold({});\nreturn out;\n",
}
"""A call with all that the clock has shown: one that is not the recorded one ends the run."""
CASES = [
    pytest.param(language, source + ENDS[language], value, id=f"{language} {name}")
    for language, programs in (("python", PYTHON), ("javascript", JAVASCRIPT))
    for name, (source, value) in programs.items()
]


class Place:
    """A journal, and tools that count what they do; each Exec that is opened stands for another process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.counted = 0
        self.seen: list[Any] = []
        self.hangs = False
        self.hung = asyncio.Event()
        self.released = asyncio.Event()

    def open(self, **settings: Any) -> Exec:
        """Return an Exec on the journal."""
        ex = Exec(journal=self.directory / "runs.db", linger=0.05, **settings)
        for name in ("echo", "count", "never", "release", "note", "hold"):
            tool = Tool(name=name, namespace="fx", input_schema=ANY, annotations=REPEATABLE)
            ex.add(tool, handler=getattr(self, name))
        return ex

    async def echo(self, args: dict[str, Any]) -> int:
        """Return the number."""
        return args["n"]

    def count(self, args: dict[str, Any]) -> int:
        """Return how often this was called."""
        self.counted += 1
        return self.counted

    async def never(self, args: dict[str, Any]) -> None:
        """Wait until it is cancelled, or released."""
        await self.released.wait()

    async def release(self, args: dict[str, Any]) -> int:
        """End all calls that wait, and return the number."""
        self.released.set()
        return args["n"]

    def note(self, args: dict[str, Any]) -> None:
        """Keep what the program has seen."""
        self.seen.append(args["seen"])

    async def hold(self, args: dict[str, Any]) -> None:
        """Hold the program up, where the test is to end its process here."""
        if self.hangs:
            self.hangs = False
            self.hung.set()
            await asyncio.get_running_loop().create_future()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return an empty journal with its tools."""
    return Place(tmp_path)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> HostTime:
    """Put another clock in place of the host's, in durable runs."""
    return install(monkeypatch)


@pytest.mark.parametrize(("language", "source", "value"), CASES)
async def test_timers_do_the_same_in_each_kind_of_run(
    place: Place, host: HostTime, language: str, source: str, value: Any
) -> None:
    """A plain run, a durable one that loses its process, the one that goes on, and a replay agree."""
    async with place.open() as ex:
        plain = await ex.execute_code(source, language=language)
        assert (plain.value, plain.error) == (value, None)
        counted, place.counted, place.hangs = place.counted, 0, True
        place.released.clear()
        run = asyncio.ensure_future(ex.execute_code(source, language=language, durable="run"))
        await asyncio.wait([run, asyncio.ensure_future(place.hung.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert not run.done(), run.result()
        run.cancel()
        await asyncio.wait([run])
    async with place.open() as ex:
        host.now += 60  # a minute later
        resumed = await ex.runs.resume("run")
        assert (resumed.value, resumed.error) == (value, None)
        report = await ex.runs.replay("run")
        assert (report.same, report.error) == (True, None)
    assert place.counted == counted
    assert len(place.seen) == 2  # in the plain run, and once in the durable one


async def test_the_clock_goes_on_by_what_calls_and_timers_take(place: Place, host: HostTime) -> None:
    """The program sees the time that has passed, and a replay the very same times."""
    source = """
import time
began = time.monotonic()
tools.fx.slow(seconds=2.5)
middle = time.monotonic()
time.sleep(7)
return [round(middle - began, 3), round(time.monotonic() - middle, 3)]
"""

    async def slow(args: dict[str, Any]) -> None:
        await host.pause(args["seconds"])

    async with place.open() as ex:
        ex.add(Tool(name="slow", namespace="fx", input_schema=ANY), handler=slow)
        result = await ex.execute_code(source, durable="run")
        assert (result.value, result.error) == ([2.5, 7.0], None)
        assert (await ex.runs.replay("run")).same


@pytest.mark.parametrize("jumps", [[-3600.0], [-3600.0, 7200.0], [86_400.0, -86_400.0], [5.0] * 4])
async def test_a_host_clock_that_is_set_never_sets_that_of_the_program_back(
    place: Place, host: HostTime, jumps: list[float]
) -> None:
    """A program's time goes on by at least what it has slept, in both of its clocks."""
    source = """
import asyncio, time
seen = [(time.time(), time.monotonic())]
for n in range(4):
    try:
        await (asyncio.sleep(2) if n % 2 else asyncio.wait_for(tools.fx.never(), 2))
    except TimeoutError:
        pass
    seen.append((time.time(), time.monotonic()))
return [later[i] - earlier[i] >= 2 - 1e-5 for earlier, later in zip(seen, seen[1:]) for i in (0, 1)]
"""
    host.jumps = [*jumps]
    async with place.open() as ex:
        result = await ex.execute_code(source, durable="run")
        assert (result.value, result.error) == ([True] * 8, None)
        assert (await ex.runs.replay("run")).same


LONG_SLEEPS = {
    "python": "import asyncio\nawait asyncio.sleep(7200)\nreturn await tools.fx.echo(n=5)",
    "python blocking": "import time\ntime.sleep(7200)\nreturn tools.fx.echo(n=5)",
    "javascript": "await new Promise((done) => setTimeout(done, 7200000));\nreturn await tools.fx.echo({n: 5});",
}


@pytest.mark.parametrize("name", LONG_SLEEPS)
async def test_a_long_sleep_holds_no_process(place: Place, host: HostTime, name: str) -> None:
    """The run is listed with the time when it is due, and goes on then: not before, and in any process."""
    began = host.now
    async with place.open() as ex:
        result = await ex.execute_code(LONG_SLEEPS[name], language=name.split()[0], durable="run")
        assert isinstance(result.error, RunWaitingError), result.error
        [run] = await ex.runs.list(["waiting"])
        [wait] = run.waits
        assert (wait.kind, wait.step) == ("time", "t1")
        assert wait.due == pytest.approx(began + 7200, abs=1)
        assert await ex.runs.resume_due() == {}
    async with place.open() as ex:
        host.now += 7201
        result = (await ex.runs.resume_due())["run"]
        assert (result.value, result.error) == (5, None)
        assert (await ex.runs.replay("run")).same


QUESTIONS = {
    "python": """
import asyncio
try:
    async with asyncio.timeout(3600):
        return await tools.run("run:input", {"question": "How many?", "name": "many"})
except TimeoutError:
    return "no answer"
""",
    "javascript": """
const late = new Promise((done) => setTimeout(() => done("no answer"), 3600000));
return await Promise.race([tools.run("run:input", {question: "How many?", name: "many"}), late]);
""",
}


@pytest.mark.parametrize("language", QUESTIONS)
@pytest.mark.parametrize("answered", [True, False])
async def test_a_time_limit_around_a_question_fires(
    place: Place, host: HostTime, language: str, answered: bool
) -> None:
    """The run is suspended with both, and what comes first decides."""
    async with place.open() as ex:
        result = await ex.execute_code(QUESTIONS[language], language=language, durable="run")
        assert isinstance(result.error, RunWaitingError), result.error
        assert sorted(str(wait["kind"]) for wait in result.error.waits) == ["input", "time"]
    async with place.open() as ex:
        if answered:
            await ex.runs.signal("run", "many", 3)
        host.now += 1800 if answered else 3601
        result = (await ex.runs.resume_due())["run"]
        assert (result.value, result.error) == (3 if answered else "no answer", None)
        assert (await ex.runs.replay("run")).same


LEFT = {
    "shield": """
import asyncio
asks = [asyncio.shield(tools.run("run:input", {"question": "Why?", "name": name})) for name in "cab"]
try:
    await asyncio.wait_for(asks[0], 0.02)
except TimeoutError:
    return await tools.fx.echo(n=7)
""",
    "shield of a signal, and at once": """
import asyncio
await tools.fx.echo(n=1)
left = asyncio.shield(tools.run("run:signal", {"name": "go"}))
return 7
""",
    "tasks": """
import asyncio
tasks = [asyncio.create_task(tools.run("run:input", {"question": "Why?", "name": name})) for name in "cab"]
return await tools.fx.echo(n=7)
""",
    "gather": """
import asyncio
left = asyncio.gather(tools.run("run:signal", {"name": "go"}), tools.fx.echo(n=1), return_exceptions=True)
return await tools.fx.echo(n=7)
""",
}


@pytest.mark.parametrize("program", LEFT)
async def test_what_a_program_waits_for_no_longer_does_not_hold_its_run(place: Place, program: str) -> None:
    """The run ends with the program; each question and signal is recorded as called off, and a replay does the same."""
    async with place.open() as ex:
        result = await ex.execute_code(LEFT[program], durable="run")
        assert (result.value, result.error) == (7, None)
        [run] = await ex.runs.list()
        assert (run.state, run.waits) == ("done", ())
        calls = await ex.runs.calls("run")
        left = [call for call in calls if call.tool in ("run:input", "run:signal")]
        assert left
        assert {call.state for call in left} == {"failed"}
        assert all("called off" in str(call.outcome) for call in left)
        assert [int(call.step) for call in left] == sorted(int(call.step) for call in left)
        assert (await ex.runs.replay("run")).same
        assert await ex.runs.calls("run") == calls


async def test_a_signal_that_is_only_called_holds_the_run(place: Place) -> None:
    """A call whose `await` was forgotten is finished as any other; so is one that ends a task which was cancelled."""
    code = """
import asyncio
async def child():
    try:
        await asyncio.sleep(3600)
    finally:
        seen.append(await tools.run("run:signal", {"name": "stop"}))
        await tools.fx.note(seen=seen)
seen = []
task = asyncio.create_task(child())
await asyncio.sleep(0)
tools.run("run:signal", {"name": "go"})
return 7
"""
    async with place.open() as ex:
        for name in ("stop", "go"):
            result = await ex.execute_code(code, durable="run")
            assert isinstance(result.error, RunWaitingError), result.error
            await ex.runs.signal("run", name, name)
        result = await ex.execute_code(code, durable="run")
        assert (result.value, result.error) == (7, None)
        assert (await ex.runs.replay("run")).same


async def test_short_timers_keep_the_process(place: Place, host: HostTime) -> None:
    """Those within `timer_linger` are waited for; 0 has each longer than `linger` suspend the run."""
    source = "import time\ntime.sleep(8)\nreturn 1"
    async with place.open() as ex:
        assert (await ex.execute_code(source, durable="kept")).value == 1
    source = "import time\ntime.sleep(1500)\nreturn 1"
    async with place.open(timer_linger=0) as ex:
        assert isinstance((await ex.execute_code(source, durable="left")).error, RunWaitingError)


async def test_waiting_does_not_count_towards_the_time_limit(place: Place) -> None:
    """A program may sleep for longer than its time limit in all, with none of it gone."""
    source = "import time\nfor _ in range(4):\n    time.sleep(0.3)\nreturn 1"
    async with place.open() as ex:
        await ex.execute_code("1")
        result = await ex.execute_code(source, durable="run", timeout=1)
        assert (result.value, result.error) == (1, None)


async def test_a_fixed_clock_stays_fixed(place: Place, host: HostTime) -> None:
    """With `now` a sleep moves the program's clock only, as in a run that is not durable."""
    source = "import time\nbegan = time.time()\ntime.sleep(7200)\nreturn [round(began), round(time.time() - began)]"
    async with place.open() as ex:
        for durable in (None, "run"):
            result = await ex.execute_code(source, now=1000.0, durable=durable)
            assert (result.value, result.error) == ([1000, 7200], None)
    assert host.paused == []


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_call_that_was_called_off_is_not_made_again(place: Place, host: HostTime, repeatable: bool) -> None:
    """A time limit has cancelled it: a process that goes on neither repeats it nor asks what became of it."""
    source = """
import asyncio
try:
    async with asyncio.timeout(1):
        await tools.fx.stuck()
except TimeoutError:
    await tools.fx.hold()
return "late"
"""
    made: list[int] = []

    async def stuck(args: dict[str, Any]) -> None:
        made.append(1)
        await asyncio.get_running_loop().create_future()

    def opened() -> Exec:
        ex = place.open()
        hints = REPEATABLE if repeatable else ToolAnnotations()
        ex.add(Tool(name="stuck", namespace="fx", input_schema=ANY, annotations=hints), handler=stuck)
        return ex

    place.hangs = True
    async with opened() as ex:
        run = asyncio.ensure_future(ex.execute_code(source, durable="run"))
        await place.hung.wait()
        run.cancel()
        await asyncio.wait([run])
    async with opened() as ex:
        result = await ex.runs.resume("run")
        assert (result.value, result.error) == ("late", None)
        calls = await ex.runs.calls("run")
        assert [call.state for call in calls if call.tool in ("fx:stuck", "run:settle")] == ["failed"]
        assert (await ex.runs.replay("run")).same
    assert made == [1]


async def test_a_run_of_an_older_journal_keeps_its_clock(place: Place, host: HostTime) -> None:
    """The run was begun when a sleep moved the clock at once, and is repeated like that."""
    source = "import time\nbegan = time.time()\ntime.sleep(7200)\nreturn [began, time.time() - began > 7199, tools.fx.count()]"
    settings = {"given": {}, "origin": origin_to_json(current_origin()), "seed": 1, "now": 1000.0}
    run = RunRecord(id="old", kind="code", source=source, digest=run_digest("code", source, {}), settings=settings)
    with SQLiteJournal(place.directory / "runs.db") as journal:
        journal.create(run)
    async with place.open() as ex:
        result = await ex.runs.resume("old")
        assert result.error is None, result.error
        assert result.value[1:] == [True, 1]
        assert [call.tool for call in await ex.runs.calls("old")] == ["fx:count"]
        assert (await ex.runs.replay("old")).same
    assert host.paused == []
