"""Results that several servers keep together: readable by their caller only, bounded, and not by who has the store."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolexec.errors import ConfigurationError, ResultNotFoundError, StateError
from toolexec.model.origin import Caller, Origin
from toolexec.run.results import ResultStore
from toolexec.server.kept_results import KeptResults
from toolexec.server.state import FileState, StateStore

ANN = Origin(caller=Caller(id="ann", method="api_key"))
BOB = Origin(caller=Caller(id="bob", method="api_key"))
ROOM = 200_000


class Worker:
    """One server: what it has in memory, and what it shares."""

    def __init__(self, store: StateStore | None, room: int = ROOM, keys: tuple[str, ...] = (), **options: Any) -> None:
        self.memory = ResultStore(1000, **options)
        self.kept = KeptResults(self.memory, lambda: store, room, keys)

    async def give(self, value: Any, origin: Origin) -> str:
        handle = self.memory.keep(value, origin)
        await self.kept.keep(origin)
        return handle

    async def read(self, handle: str, origin: Origin) -> Any:
        await self.kept.find(handle, origin)
        data = self.memory.data(handle, origin)
        return None if data is None else json.loads(data)


@pytest.fixture
async def file(tmp_path: Path) -> Any:
    """A file of state, closed at the end."""
    store = FileState(tmp_path / "server.db")
    yield store
    await store.aclose()


async def test_the_tools_of_a_result(file: FileState) -> None:
    """Another server knows which tools a result came of, as its caller only, and has the same value."""
    here, there = Worker(file), Worker(file)
    origin = replace(ANN, used_tools={"t:one", "t:two"})
    values = {await here.give(value, origin): value for value in ("x\0y" * 1000, ["z"], 7)}
    for handle, value in values.items():
        await there.kept.find(handle, ANN)
        for each in (here, there):
            assert each.memory.tools(handle, ANN) == {"t:one", "t:two"}
            assert each.memory.tools(handle, BOB) == frozenset()
        pages = [each.memory.read(handle, ANN, as_json=True).value for each in (here, there)]
        assert pages[0] == pages[1]
        assert pages[0][:500] in json.dumps(value, separators=(",", ":"))


def noise(chance: random.Random, size: int) -> str:
    """A text that cannot be made shorter."""
    return base64.b64encode(chance.randbytes(size)).decode()


def stored(file: FileState) -> int:
    """How many bytes of results are in the file, without their list."""
    with sqlite3.connect(file.path) as database:
        query = "SELECT total(length(value)) FROM state WHERE kind = 'result' AND key LIKE '%/%'"
        [(size,)] = database.execute(query).fetchall()
    database.close()
    return int(size)


@pytest.mark.parametrize("seed", range(3))
async def test_as_a_model_says(seed: int, file: FileState) -> None:
    """Servers that begin and end at random read what a caller's newest results are, as long as there is room for them,
    and no other caller's; what is kept stays within its bound."""
    chance = random.Random(seed)
    model: dict[str, tuple[Origin, Any]] = {}
    workers = [Worker(file), Worker(file)]
    for step in range(60):
        number = chance.randrange(2)
        what = chance.choice(("give", "give", "read", "end"))
        if what == "end":
            workers[number] = Worker(file)
        elif what == "give":
            origin, value = chance.choice((ANN, BOB)), noise(chance, chance.choice((10, 5_000, 30_000)))
            model[await workers[number].give(value, origin)] = (origin, value)
            assert await workers[1 - number].read([*model][-1], origin) == value, f"step {step}: the newest is lost"
        elif model:
            handle, (origin, value) = chance.choice([*model.items()])
            assert await workers[number].read(handle, origin) in (value, None), f"step {step}"
            assert await workers[number].read(handle, BOB if origin is ANN else ANN) is None
        assert stored(file) <= ROOM + 200
    last = Worker(file)
    kept = [handle for handle, (origin, value) in model.items() if await last.read(handle, origin) == value]
    assert 2 <= len(kept) < len(model)


async def test_long_values(file: FileState) -> None:
    """A value of many records comes back whole; one that is longer than all may be is not shared, and is read where it
    was made."""
    chance = random.Random(1)
    first, other = Worker(file, 4_000_000), Worker(file, 4_000_000)
    for size, is_shared in ((2_000_000, True), (4_000_000, False)):
        value = noise(chance, size)
        handle = await first.give(value, ANN)
        assert await first.read(handle, ANN) == value
        assert await other.read(handle, ANN) == (value if is_shared else None)


async def test_the_store_alone_reads_no_value(file: FileState) -> None:
    """The store has neither the value nor its handle in clear; with another server's keys it is not read, with one of
    several it is."""
    keys = ("a" * 32, "b" * 32)
    handle = await Worker(file, keys=keys[:1]).give("a word and another " * 100, ANN)
    raw = b"".join(path.read_bytes() for path in file.path.parent.iterdir())
    assert b"another" not in raw
    assert handle.encode() not in raw
    assert b"ann" not in raw
    for others, wanted in (((), False), (keys[1:], False), (keys[::-1], True)):
        assert (await Worker(file, keys=others).read(handle, ANN) is not None) == wanted


async def test_a_damaged_record(file: FileState) -> None:
    """A damaged record is not read, and does no harm; a damaged list begins again."""
    chance = random.Random(2)
    handle = await Worker(file, 4_000_000).give(noise(chance, 600_000), ANN)
    with sqlite3.connect(file.path) as database:
        database.execute("UPDATE state SET value = 'x' || value WHERE kind = 'result'")
    database.close()
    worker = Worker(file)
    assert await worker.read(handle, ANN) is None
    assert await worker.read(await worker.give("value", ANN), ANN) == "value"
    with pytest.raises(ResultNotFoundError):
        worker.memory.read(handle, ANN)


async def test_its_time(tmp_path: Path) -> None:
    """A value that is read is kept longer; one that is not goes."""
    now = 1e9
    file = FileState(tmp_path / "server.db", clock=lambda: now)
    first = Worker(file, keep_seconds=100)
    unread, read = await first.give("unread", ANN), await first.give("read", ANN)
    now += 90
    assert await Worker(file, keep_seconds=100).read(read, ANN) == "read"
    now += 30
    last = Worker(file, keep_seconds=100)
    assert await last.read(unread, ANN) is None
    assert await last.read(read, ANN) == "read"
    await file.aclose()


async def test_a_store_that_cannot_be_used(file: FileState, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be kept the log says it, and this server goes on; a store that is away is another error than an
    unknown handle."""
    await file.aclose()
    worker = Worker(file)
    handle = await worker.give("value", ANN)
    assert "would not outlive" in caplog.text
    assert await worker.read(handle, ANN) == "value"
    assert await worker.read("r-unknown", ANN) is None
    assert await Worker(None).read("r-unknown", ANN) is None

    class Away(FileState):
        async def get(self, kind: Any, key: str) -> str | None:
            raise StateError("it is away")

    away = Away(file.path)
    try:
        with pytest.raises(StateError):
            await Worker(away).read(handle, ANN)
    finally:
        await away.aclose()
    with pytest.raises(ConfigurationError):
        await file.get("result", "any")
