"""Cache of HTTP services: what they say about keeping their answers holds, and a write ends what was read before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.run.layers.resilience import Clock
from tests.run.layers.site import Reply, Site

from toolexec import Exec
from toolexec.errors import ToolExecError
from toolexec.model.cache_hint import CACHE_HINT, CacheHint, hint_of_headers, read_hint
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run import Gate
from toolexec.run.layers.cache import Cache

OPERATIONS = (
    "read GET /things/{n}",
    "other GET /others/{n}",
    "write POST /things/{n}",
    "put PUT /things/{n}",
    "delete DELETE /things/{n}",
)


class Shelf:
    """A service that counts what is on its shelf; *headers* come with each answer, and *status* with each write."""

    def __init__(self, path: Path | None = None, **rules: Any) -> None:
        self.headers: dict[str, str] = {}
        self.status = 200
        self.count = 0
        self.site = Site(self._answer)
        self.clock = Clock()
        self._rules = {"ttl": 300, "clock": self.clock, "path": path, **rules}

    def _answer(self, method: str, path: str) -> Reply:
        if method == "GET":
            return 200, self.headers, {"count": self.count, "path": path}
        self.count += 1  # the work is done, whatever is answered
        return self.status, {}, {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Exec]:
        """Yield an Exec with the service's tools behind a cache."""
        async with self.site.running(), Exec(gate=Gate(cache=Cache(**self._rules))) as ex:
            await ex.add_openapi("shelf", self.site.document(*OPERATIONS))
            yield ex


async def seen(ex: Exec, name: str = "read", number: int = 1, caller: str = "") -> tuple[int, bool]:
    """Read from the shelf; return the count, and whether it was cached."""
    with acting(Origin(caller=Caller(id=caller))):
        result = await ex.run_tool(f"shelf:{name}", {"n": number})
    return result.raise_for_error().value["count"], result.cached


async def write(ex: Exec, name: str = "write") -> None:
    """Write to the shelf, whatever comes of it."""
    try:
        await ex.run_tool(f"shelf:{name}", {"n": 1})
    except ToolExecError:
        pass


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ({}, True),
        ({"cache-control": "public"}, True),
        ({"cache-control": "max-age=60"}, True),
        ({"cache-control": "private, max-age=60"}, True),
        ({"cache-control": "no-store"}, False),
        ({"cache-control": "No-Cache"}, False),
        ({"cache-control": "max-age=0, must-revalidate"}, False),
        ({"cache-control": "max-age=60", "age": "60"}, False),
        ({"vary": "*"}, False),
        ({"vary": "accept-encoding"}, True),
    ],
    ids=str,
)
async def test_a_service_says_what_may_be_kept(headers: dict[str, str], kept: bool) -> None:
    """An answer that must not be kept is read again each time."""
    shelf = Shelf()
    shelf.headers = headers
    async with shelf.open() as ex:
        assert await seen(ex) == (0, False)
        assert await seen(ex) == (0, kept)
    assert len(shelf.site.seen) == (1 if kept else 2)


async def test_an_answer_is_kept_as_long_as_the_service_says() -> None:
    """The shorter of its time and the cache's own counts."""
    shelf = Shelf(ttl=50)
    async with shelf.open() as ex:
        for age, seconds in (("20", 20), ("90", 50)):
            shelf.headers = {"cache-control": f"max-age={age}"}
            assert await seen(ex, number=seconds) == (0, False)
            shelf.clock.now += seconds - 1
            assert await seen(ex, number=seconds) == (0, True)
            shelf.clock.now += 1
            assert await seen(ex, number=seconds) == (0, False)


async def test_a_private_answer_is_for_its_caller() -> None:
    """Callers that share answers do not share those that are private."""
    shelf = Shelf(identity="none")
    async with shelf.open() as ex:
        assert await seen(ex, caller="ann") == (0, False)
        assert await seen(ex, caller="bob") == (0, True)
        shelf.headers = {"cache-control": "private"}
        assert await seen(ex, caller="ann", number=2) == (0, False)
        assert await seen(ex, caller="bob", number=2) == (0, False)


@pytest.mark.parametrize("path", [None, "cache.db"])
@pytest.mark.parametrize("tool", ["write", "put"])
@pytest.mark.parametrize("status", [200, 0], ids=["done", "lost"])
async def test_a_write_ends_what_was_read(tmp_path: Path, path: str | None, tool: str, status: int) -> None:
    """After a write, or one whose outcome is unknown, everything of its backend is read again, for every caller."""
    shelf = Shelf(tmp_path / path if path else None)
    shelf.status = status
    async with shelf.open() as ex:
        for name, caller in (("read", "ann"), ("read", "bob"), ("other", "ann")):
            assert await seen(ex, name, caller=caller) == (0, False)
            assert await seen(ex, name, caller=caller) == (0, True)
        await write(ex, tool)
        for name, caller in (("read", "ann"), ("read", "bob"), ("other", "ann")):
            assert await seen(ex, name, caller=caller) == (1, False)
            assert await seen(ex, name, caller=caller) == (1, True)


async def test_a_write_counts_in_another_process(tmp_path: Path) -> None:
    """Two that share the file of a cache share what was written, too."""
    shelf = Shelf(tmp_path / "cache.db")
    second = Gate(cache=Cache(path=tmp_path / "cache.db", clock=shelf.clock))
    async with shelf.open() as ex, Exec(gate=second) as other:
        await other.add_openapi("shelf", shelf.site.document(*OPERATIONS))
        assert await seen(ex) == (0, False)
        assert await seen(other) == (0, True)
        await write(other)
        assert await seen(ex) == (1, False)


async def test_a_call_that_did_nothing_ends_nothing() -> None:
    """A write that was refused before it was sent leaves what was read."""
    shelf = Shelf()
    async with shelf.open() as ex:
        await seen(ex)
        with pytest.raises(ToolExecError):
            await ex.run_tool("shelf:write", {"n": "not a number"})
        assert await seen(ex) == (0, True)


async def test_other_backends_keep_their_answers() -> None:
    """A write says nothing about another service."""
    shelf, second = Shelf(), Shelf()
    async with shelf.open() as ex, second.site.running():
        await ex.add_openapi("second", second.site.document(*OPERATIONS))
        await ex.run_tool("second:read", {"n": 1})
        await write(ex)
        assert (await ex.run_tool("second:read", {"n": 1})).cached


@pytest.mark.parametrize(
    ("meta", "hint"),
    [
        ({}, CacheHint()),
        ({CACHE_HINT: {"max_age": 5}}, CacheHint(5.0)),
        ({CACHE_HINT: {"private": True}}, CacheHint(private=True)),
        ({CACHE_HINT: {"max_age": "soon"}}, CacheHint(0.0)),
        ({CACHE_HINT: {"max_age": -1}}, CacheHint(0.0)),
        ({CACHE_HINT: "no"}, CacheHint(0.0)),
    ],
    ids=str,
)
def test_hints_of_replies(meta: dict[str, Any], hint: CacheHint) -> None:
    """A hint restricts; one that makes no sense keeps the answer from being kept."""
    assert read_hint(meta) == hint


def test_a_hint_is_read_as_it_was_written() -> None:
    """A hint that was read from headers comes back unchanged from the metadata of a reply."""
    for text in ("no-store", "private", "private, max-age=7", "max-age=x", ""):
        hint = hint_of_headers({"cache-control": text})
        assert read_hint({CACHE_HINT: hint.to_json()} if hint.to_json() else {}) == hint
