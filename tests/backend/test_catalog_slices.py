"""Many tools are published in slices, between which the event loop does other work."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import pytest
from tests.waiting import until

from toolexec import Exec, InMemoryIndex, Tool
from toolexec.backend import Catalog
from toolexec.backend.catalog import AT_ONCE
from toolexec.discovery.index import ChangeEvent, Index
from toolexec.model.binding import Binding, BindingKind, ProviderBinding
from toolexec.testing.memory import InMemoryBackend

MANY = 20_000
SOME = 4 * AT_ONCE


def some_tools(numbers: Iterable[int], description: str = "") -> list[Tool]:
    """Return tools of the namespace m."""
    schema = {"type": "object"}
    return [Tool(name=f"t{n}", namespace="m", description=description, input_schema=schema) for n in numbers]


@asynccontextmanager
async def changes_by_turn(index: Index) -> AsyncGenerator[Counter[int]]:
    """Count the changes of the index in each turn of the event loop."""
    loop = asyncio.get_running_loop()
    turn, counts, is_over = 0, Counter[int](), False

    def tick() -> None:
        nonlocal turn
        turn += 1
        if not is_over:
            loop.call_soon(tick)

    def changed(event: ChangeEvent) -> None:
        counts[turn] += 1

    stop = index.on_change(changed)
    tick()
    try:
        yield counts
    finally:
        is_over = True
        stop()


@pytest.fixture
def index() -> InMemoryIndex:
    """An empty index."""
    return InMemoryIndex()


@pytest.fixture
def catalog(index: InMemoryIndex) -> Catalog:
    """The catalog of a backend called m."""
    return Catalog(index, InMemoryBackend("m"))


async def test_no_turn_of_the_loop_publishes_many_tools() -> None:
    """An Exec takes 20,000 tools in at its start, reads them again, and removes them, in slices."""
    backend = InMemoryBackend("m", tools=some_tools(range(MANY)))
    async with Exec() as ex:
        async with changes_by_turn(ex.index) as counts:
            await ex.add_backends(backend)
            assert len(ex.index) == MANY == counts.total()
        assert max(counts.values()) <= AT_ONCE
        async with changes_by_turn(ex.index) as counts:
            backend.set_tools(some_tools(range(1, MANY + 1), "changed"))
            await until(lambda: ex.index.find("m:t0") is None, pause=0)
        assert len(ex.index) == MANY
        assert counts.total() == MANY + 1
        assert max(counts.values()) <= AT_ONCE
        async with changes_by_turn(ex.index) as counts:
            await ex.remove("m")
            assert len(ex.index) == 0
        assert max(counts.values()) <= AT_ONCE


async def test_tools_of_a_backend_that_does_not_change_them_are_published_in_slices() -> None:
    """Tools without a namespace have the name of the backend as theirs."""

    class Fixed:
        def __init__(self) -> None:
            self._all = InMemoryBackend("m")
            self.name, self.enabled = "m", True
            self.kind: BindingKind = self._all.kind
            self.start, self.aclose, self.status = self._all.start, self._all.aclose, self._all.status
            self.bind, self.call = self._all.bind, self._all.call

        async def list_tools(self) -> list[Tool]:
            return [Tool(name=f"t{number}", input_schema={"type": "object"}) for number in range(SOME)]

    async with Exec() as ex, changes_by_turn(ex.index) as counts:
        await ex.add_backends(Fixed())
        assert len(ex.index) == SOME
        assert ex.index.find("m:t0") is not None
        assert max(counts.values()) <= AT_ONCE


async def test_few_tools_are_there_at_once(index: InMemoryIndex, catalog: Catalog) -> None:
    """In place of as many others, too."""
    for numbers in (range(AT_ONCE), range(AT_ONCE, 2 * AT_ONCE)):
        catalog.publish(some_tools(numbers))
        assert sorted(entry.tool.id for entry in index.tools()) == sorted(f"m:t{number}" for number in numbers)


def test_without_a_loop_all_are_published_at_once(index: InMemoryIndex, catalog: Catalog) -> None:
    """There is nothing that waits."""
    catalog.publish(some_tools(range(SOME)))
    assert len(index) == SOME


async def test_what_is_gone_goes_last(index: InMemoryIndex, catalog: Catalog) -> None:
    """Until then each tool is the old one or the new one."""
    catalog.publish(some_tools(range(SOME)))
    await catalog.published()
    events: list[str] = []
    index.on_change(lambda event: events.append(event.type))
    catalog.publish(some_tools(range(AT_ONCE, SOME + AT_ONCE), "changed"))
    await until(lambda: len(events) >= AT_ONCE, pause=0)
    assert {index.get(f"m:t{number}").tool.description for number in range(SOME)} == {"", "changed"}
    await catalog.published()
    assert {entry.tool.description for entry in index.tools()} == {"changed"}
    first = events.index("tool_removed")
    assert set(events[first:]) == {"tool_removed"}
    assert len(events) - first == AT_ONCE


async def test_lists_do_not_mix(index: InMemoryIndex, catalog: Catalog) -> None:
    """Of those that are published meanwhile only the last one counts, after the first."""
    descriptions: list[str] = []
    index.on_change(lambda event: descriptions.append(index.get(event.tool_id).tool.description))
    for number in range(4):
        catalog.publish(some_tools(range(SOME), f"list {number}"))
        await asyncio.sleep(0)
    await catalog.published()
    assert descriptions == ["list 0"] * SOME + ["list 3"] * SOME


async def test_a_backend_that_is_withdrawn_meanwhile(index: InMemoryIndex, catalog: Catalog) -> None:
    """All of its tools go, and what it lists later does not come."""
    catalog.publish(some_tools(range(SOME)))
    catalog.publish(some_tools(range(2 * SOME)))
    catalog.withdraw()
    catalog.publish(some_tools(range(SOME)))
    await catalog.published()
    assert len(index) == 0


async def test_closing_meanwhile(index: InMemoryIndex, catalog: Catalog) -> None:
    """The index stays as it is, also before the first slice; closing twice does nothing."""
    for turns in (0, 3):
        catalog.publish(some_tools(range(SOME), f"{turns}"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await catalog.aclose()
        await catalog.aclose()
    assert 0 < len(index) < SOME
    catalog.publish(some_tools(range(SOME)))
    await catalog.published()
    assert len(index) == SOME


async def test_a_failure_between_two_lists(index: InMemoryIndex, caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged, and the list after it is published."""

    class Failing(InMemoryBackend):
        fails = False

        def bind(self, tool: Tool) -> Binding:
            if tool.name == f"t{SOME - 1}" and self.fails:
                raise OSError("no more")
            return ProviderBinding("m", tool.name)

    backend = Failing("m")
    catalog = Catalog(index, backend)
    backend.fails = True
    with caplog.at_level(logging.ERROR, "toolexec.backend.catalog"):
        catalog.publish(some_tools(range(SOME)))
        catalog.publish(some_tools(range(3)))
        await catalog.published()
    assert "no more" in caplog.text
    assert len(index) == 3
