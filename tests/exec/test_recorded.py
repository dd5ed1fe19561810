"""Runs that are recorded while they are made: chains, workflows and code, without secrets, and only so many."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolexec import ChainResult, CodeResult, Exec, Step, Tool
from toolexec.errors import ConfigurationError, ExecutionError
from toolexec.journal import Record, SQLiteJournal

CODE = """
import asyncio, random, time
began = time.time()
seen = await asyncio.gather(*(tools.shop.stock(item=item) for item in ("tea", "rice")))
try:
    await asyncio.wait_for(tools.shop.slow(item="salt"), 0.01)
except asyncio.TimeoutError:
    seen.append("late")
try:
    await tools.shop.broken(item="x")
except ToolError as error:
    seen.append(error.code)
return [seen, random.random() < 2, time.time() >= began]
"""
WORKFLOW = """
both := parallel { tea: run("shop:stock", {item: "tea"}), rice: run("shop:stock", {item: "rice"}) }
failed := try { run("shop:broken", {item: "x"}) } catch err { err.code }
return [both.tea, both.rice, failed, now() != ""]
"""
CHAIN = [Step("shop:stock", {"item": "tea"}, name="tea"), Step("shop:double", {"n": {"$ref": "tea"}})]
STOCK = {"tea": 3, "rice": 0}
SECRET = "sk-live-0123456789abcdefABCDEF"


class Shop:
    """Tools that count their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def stock(self, item: str) -> int:
        """Return how many there are."""
        self.calls.append(item)
        return STOCK[item]

    def double(self, n: int) -> int:
        """Return twice the number."""
        self.calls.append("double")
        return 2 * n

    async def slow(self, item: str) -> None:
        """Never end."""
        await asyncio.get_running_loop().create_future()

    async def broken(self, item: str) -> None:
        """Fail."""
        raise ExecutionError("it is broken", code="broken")

    @asynccontextmanager
    async def open(self, path: Path, **settings: Any) -> AsyncGenerator[Exec, None]:
        """Yield an Exec with these tools."""
        given: Any = {"journal": path / "runs.db", "record": 1, **settings}
        async with Exec(**given) as ex:
            for each in (self.stock, self.double, self.slow, self.broken):
                ex.add(each, f"shop:{each.__name__}")
            yield ex


async def run(ex: Exec, kind: str) -> ChainResult | CodeResult:
    """Make the run of a kind."""
    if kind == "chain":
        return await ex.run_chain(CHAIN)
    return await (ex.run_workflow(WORKFLOW) if kind == "workflow" else ex.execute_code(CODE))


VALUES = {
    "chain": 6,
    "workflow": [3, 0, "broken", True],
    "code": [[3, 0, "late", "broken"], True, True],
}


@pytest.fixture
def shop() -> Shop:
    """Return the tools."""
    return Shop()


@pytest.mark.parametrize("kind", VALUES)
async def test_a_run_of_each_kind_can_be_replayed(tmp_path: Path, shop: Shop, kind: str) -> None:
    """A recorded run gives its own result, is in the journal by then, and does the same again with nothing called."""
    async with shop.open(tmp_path) as ex:
        assert (await run(ex, kind)).value == VALUES[kind]
        before = list(shop.calls)
        [recorded] = await ex.runs.list()
        assert recorded.id.startswith("recorded:")
        assert (recorded.state, recorded.kind) == ("done", kind)
    async with shop.open(tmp_path, record=None) as ex:
        report = await ex.runs.replay(recorded.id)
        assert report.same, report.error
        assert (await ex.runs.resume(recorded.id)).value == VALUES[kind]
        async with ex.runs.debug(recorded.id) as session:
            await session.to_end()
            assert session.value == VALUES[kind]
    assert shop.calls == before


@pytest.mark.full
async def test_javascript_is_recorded(tmp_path: Path, shop: Shop) -> None:
    """A program in the other language of the embedded sandbox is replayed as well."""
    program = """
const seen = await Promise.all(["tea", "rice"].map(item => tools.shop.stock({item})));
try { await tools.shop.broken({item: "x"}) } catch (error) { seen.push(error.code) }
return seen;
"""
    async with shop.open(tmp_path) as ex:
        result = await ex.execute_code(program, language="javascript")
        assert (result.error, result.value) == (None, [3, 0, "broken"])
        [recorded] = await ex.runs.list()
        report = await ex.runs.replay(recorded.id)
        assert report.same, report.error


@pytest.mark.parametrize("kind", VALUES)
async def test_recorded_runs_are_compared_and_forked(tmp_path: Path, shop: Shop, kind: str) -> None:
    """A comparison finds what two of them did differently, and a fork goes on in another way from a call on."""
    async with shop.open(tmp_path) as ex:
        await run(ex, kind)
        STOCK["tea"] = 4
        try:
            await run(ex, kind)
        finally:
            STOCK["tea"] = 3
        second, first = await ex.runs.list()
        found = await ex.runs.diff(first.id, second.id)
        assert not found.same
        fork = await ex.runs.fork(first.id, at=1, answer=4, live=True)
        assert fork.run_id == f"{first.id.removeprefix('recorded:')}.fork-1"
        assert fork.result.value == (await ex.runs.resume(second.id)).value
        assert (await ex.runs.replay(fork.run_id)).same


async def test_a_run_that_fails_is_recorded_with_its_failure(tmp_path: Path, shop: Shop) -> None:
    """Runs that fail are those that are looked at."""
    async with shop.open(tmp_path) as ex:
        await ex.run_chain([Step("shop:broken", {"item": "x"})])
        await ex.execute_code('tools.shop.broken(item="x")')
        await ex.run_workflow("return ][")
        runs = await ex.runs.list()
        assert [each.state for each in runs] == ["failed"] * 3
        assert [(await ex.runs.replay(each.id)).same for each in runs] == [True] * 3


async def test_no_secret_is_written_down(tmp_path: Path, shop: Shop) -> None:
    """A secret in an answer, an argument, the program, its inputs or its output is replaced everywhere, and the run can
    be replayed all the same."""
    program = f"""
key = tools.vault.key()
print("the key is", key["token"])
tools.vault.use(header="Bearer " + key["token"], pin="{SECRET}")
return [key, "{SECRET}"]
"""
    async with shop.open(tmp_path) as ex:
        ex.add(lambda: {"token": "correct-horse-battery-staple"}, "vault:key")
        ex.add(lambda header, pin: {"used": header}, "vault:use")
        result = await ex.execute_code(program, files={"key.txt": SECRET.encode()}, env={"API_KEY": SECRET})
        assert result.error is None
        await ex.run_workflow(
            'input pin\nkey := run("vault:key", {})\nrun("vault:use", {header: key.token, pin: pin})',
            {"pin": SECRET},
        )
        await ex.run_chain(
            [Step("vault:key", {}, name="key"), Step("vault:use", {"header": {"$ref": "key.token"}, "pin": SECRET})]
        )
        runs = await ex.runs.list()
        assert [(await ex.runs.replay(each.id)).error for each in runs] == [None] * 3
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"REDACTED" in written
    for secret in ("correct-horse-battery-staple", SECRET):
        assert secret.encode() not in written


async def test_a_share_of_the_runs_is_recorded(tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance decides which runs are, each for itself."""
    chance = iter([0.1, 0.3, 0.2, 0.9])
    monkeypatch.setattr(random, "random", lambda: next(chance))
    async with shop.open(tmp_path, record=0.25) as ex:
        for _ in range(4):
            await ex.run_chain(CHAIN)
        assert len(await ex.runs.list()) == 2


async def test_a_large_run_is_not_recorded(tmp_path: Path, shop: Shop) -> None:
    """One whose calls come to more than the limit leaves nothing."""
    async with shop.open(tmp_path, record=Record(max_bytes=2000)) as ex:
        ex.add(lambda n: "x" * n, "shop:text")
        assert (await ex.run_chain([Step("shop:text", {"n": 3000})])).value == "x" * 3000
        assert (await ex.execute_code("return len(tools.shop.text(n=300_000))")).value == 300_000
        await ex.run_chain([Step("shop:text", {"n": 100})])
        [recorded] = await ex.runs.list()
        assert recorded.calls == 1


async def test_the_last_ones_are_kept(tmp_path: Path, shop: Shop) -> None:
    """Older recordings are forgotten; durable runs and forks of recordings are not."""
    async with shop.open(tmp_path, record=Record(keep=3)) as ex:
        await ex.run_chain(CHAIN, durable="order-1")
        await ex.run_chain(CHAIN)
        [recorded, _] = await ex.runs.list()
        fork = await ex.runs.fork(recorded.id, at=1, answer=5)
        for _ in range(20):
            await ex.run_chain(CHAIN)
        runs = [each.id for each in await ex.runs.list()]
        assert len(runs) == 3 + 2
        assert {"order-1", fork.run_id} <= {*runs}
        assert recorded.id not in runs


async def test_old_ones_are_forgotten(tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording is kept for so many seconds."""
    from tests.durable import host_time

    clock = host_time.install(monkeypatch)
    async with shop.open(tmp_path, record=Record(keep_seconds=60)) as ex:
        await ex.run_chain(CHAIN)
        clock.now += 61
        for _ in range(20):
            await ex.run_chain(CHAIN)
        assert len(await ex.runs.list()) == 20


async def test_a_recorded_run_does_what_it_would_do_otherwise(tmp_path: Path, shop: Shop) -> None:
    """Arguments are fitted, the tools are those of any run, and a run that is cancelled is undone."""
    seen: list[Any] = []
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with shop.open(tmp_path) as ex:
        ex.add(Tool(name="take", namespace="shop", input_schema=schema), handler=lambda args: seen.append(args["n"]))
        result = await ex.execute_code('tools.shop.take(n="7")\nreturn await tools.list_namespaces()')
        assert result.value == ["shop"]
        assert result.notes
        assert seen == [7]
        [recorded] = await ex.runs.list()
        assert (await ex.runs.replay(recorded.id)).same


@pytest.mark.parametrize("kind", ["chain", "workflow"])
async def test_a_recorded_run_that_is_cancelled_is_undone(tmp_path: Path, shop: Shop, kind: str) -> None:
    """Nothing goes on with it elsewhere, so what it has done is undone here, and it is not written down."""
    undone: list[str] = []
    began = asyncio.Event()
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}

    async def wait(args: Any) -> None:
        began.set()
        await asyncio.get_running_loop().create_future()

    async with shop.open(tmp_path) as ex:
        meta = {"toolexec/undo": "shop:cancel"}
        ex.add(Tool(name="order", namespace="shop", input_schema=schema, meta=meta), handler=lambda args: {"id": "o1"})
        ex.add(
            Tool(name="cancel", namespace="shop", input_schema=schema), handler=lambda args: undone.append(args["id"])
        )
        ex.add(Tool(name="wait", namespace="shop", input_schema=schema), handler=wait)
        if kind == "chain":
            work = ex.run_chain([Step("shop:order", {}), Step("shop:wait", {})], on_error="undo")
        else:
            work = ex.run_workflow('run("shop:order", {})\nrun("shop:wait", {})', on_error="undo")
        task = asyncio.ensure_future(work)
        await asyncio.wait_for(began.wait(), 30)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert undone == ["o1"]
        assert await ex.runs.list() == []


async def test_code_that_cannot_be_made_again_runs_as_ever(tmp_path: Path, shop: Shop) -> None:
    """A sandbox that cannot repeat a run is not passed over for one that could: the run is only not recorded."""
    async with shop.open(tmp_path, security_profile="dev", unsafe_opt_in=True) as ex:
        assert (await ex.execute_code("return 6 * 7")).value == 42
        assert await ex.runs.list() == []


async def test_a_part_of_a_run_is_recorded_with_that(tmp_path: Path, shop: Shop) -> None:
    """A tool that runs a program makes no recording of its own where a program called it."""
    async with shop.open(tmp_path) as ex:

        async def inner() -> Any:
            return (await ex.run_workflow('return run("shop:stock", {item: "tea"})')).value

        ex.add(inner, "shop:inner")
        assert (await ex.execute_code("return tools.shop.inner()")).value == 3
        assert len(await ex.runs.list()) == 1


async def test_a_journal_that_fails_is_no_failure_of_the_run(
    tmp_path: Path, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The result is there, and the log says that nothing was recorded."""
    journal = SQLiteJournal(tmp_path / "runs.db")
    async with shop.open(tmp_path, journal=journal) as ex:
        await ex.run_chain(CHAIN)
        journal.close()
        assert (await ex.run_chain(CHAIN)).value == 6
    assert "is not recorded" in caplog.text


async def test_what_makes_no_sense_is_refused(tmp_path: Path, shop: Shop) -> None:
    """A share needs a journal, and is one; the IDs of recordings are theirs."""
    with pytest.raises(ConfigurationError, match="recorded runs are kept in a journal"):
        Exec(record=1)
    with pytest.raises(ConfigurationError, match="share"):
        Record(share=2)
    async with shop.open(tmp_path) as ex:
        with pytest.raises(ConfigurationError, match="recorded runs, which are not begun by their ID"):
            await ex.run_chain(CHAIN, durable="recorded:mine")


async def test_without_it_nothing_is_written(tmp_path: Path, shop: Shop) -> None:
    """No journal is opened for runs that are not recorded."""
    async with shop.open(tmp_path, record=None) as ex:
        await ex.run_chain(CHAIN)
        await ex.execute_code(CODE)
    assert [*tmp_path.iterdir()] == []


def test_an_exec_without_a_loop_records(tmp_path: Path) -> None:
    """The blocking twin does the same."""
    with Exec(journal=tmp_path / "runs.db", record=1).sync as ex:
        ex.add(lambda n: n + 1, "math:next")
        assert ex.run_chain([Step("math:next", {"n": 1})]).value == 2
        [recorded] = ex.runs.list()
        assert ex.runs.replay(recorded.id).same
