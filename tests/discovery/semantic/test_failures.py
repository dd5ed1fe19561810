"""Embedders that fail, hang or answer nonsense: the search says so, and nothing is lost."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from toolexec.discovery import BM25Searcher
from toolexec.discovery.semantic import EmbeddingSearcher, HybridSearcher, InMemoryVectors
from toolexec.discovery.semantic import guard as guard_module
from toolexec.discovery.semantic import searcher as searcher_module
from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.model import Tool

MakeTool = Callable[..., Tool]


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the pauses."""
    made = Clock()
    monkeypatch.setattr(guard_module, "time", made)
    return made


def filled(searcher: Any, tools: list[Tool]) -> Any:
    """The searcher, told of the tools."""
    for tool in tools:
        searcher.add(tool)
    return searcher


def ids(hits: list[Any]) -> list[str]:
    """The IDs, best first."""
    return [hit.tool_id for hit in hits]


class TestAnEmbedderThatFails:
    def test_the_words_are_still_searched(self, embedder: Any, shop: list[Tool], clock: Clock) -> None:
        """Hybrid answers as its lexical side does, with a note and no secrets; search by meaning alone finds nothing."""
        embedder.down = True
        hybrid = filled(HybridSearcher(BM25Searcher(), EmbeddingSearcher(embedder)), shop)
        hits = hybrid.search("letter", 5)
        assert ids(hits) == ids(filled(BM25Searcher(), shop).search("letter", 5))
        assert hits.note == "search by meaning is off: the embedder words failed (RuntimeError)"
        alone = filled(EmbeddingSearcher(embedder), shop).search("letter", 5)
        assert alone == []
        assert alone.note == hits.note

    def test_a_pause_and_then_everything_is_there(
        self, embedder: Any, shop: list[Tool], make_tool: MakeTool, clock: Clock
    ) -> None:
        """While it is off it is not asked again; tools that came meanwhile are found afterwards."""
        searcher = filled(EmbeddingSearcher(embedder, pause=30), shop)
        embedder.down = True
        searcher.search("letter", 5)
        asked = len(embedder.calls)
        clock.now += 29
        searcher.add(make_tool("new:one", "Fresh fish"))
        assert "off" in searcher.search("fish", 5).note
        assert len(embedder.calls) == asked
        embedder.down = False
        clock.now += 2
        hits = searcher.search("fish", 5)
        assert (ids(hits), hits.note) == (["new:one"], "")
        assert len(searcher.search("letter", 5)) == 2

    def test_documents_have_a_pause_of_their_own(self, embedder: Any, shop: list[Tool], clock: Clock) -> None:
        """When only documents fail, queries go on among those tools that have a vector."""
        searcher = filled(EmbeddingSearcher(embedder), shop[:2])
        searcher.search("letter", 5)
        filled(searcher, shop)
        searcher.search("text", 5)
        assert ids(searcher.search("letter", 5)) != []

        def slow(texts: Sequence[str]) -> list[list[float]]:
            if "weather" in texts[0]:
                raise TimeoutError("https://host/?key=s3cret")
            return [embedder.vector(text) for text in texts]

        embedder.embed = slow
        searcher.add(Tool(name="weather", description="Changed", input_schema=True))
        hits = searcher.search("somebody", 5)
        assert ids(hits) == ["mail:send"]
        assert hits.note == "1 of 5 tools are not searched by meaning yet: the embedder words failed (TimeoutError)"
        assert searcher.search("disk", 5)

    def test_what_may_be_quoted(self, embedder: Any, shop: list[Tool], clock: Clock, caplog: Any) -> None:
        """The note names what to install; a wrong configuration, such as a path, is only in the log."""
        embedder.down, embedder.error = True, MissingExtraError("semantic", needed_for="this model")
        note = filled(EmbeddingSearcher(embedder), shop).search("letter", 5).note
        assert "pip install 'toolexec[semantic]'" in note
        embedder.error = ConfigurationError("no model in models/secret-place")
        note = filled(EmbeddingSearcher(embedder), shop).search("letter", 5).note
        assert note.endswith("(ConfigurationError)")
        assert "models/secret-place" in caplog.text

    def test_a_panic(self, embedder: Any, shop: list[Tool], clock: Clock) -> None:
        """Libraries in Rust raise what is no Exception; it ends as a note, too. The user's Ctrl-C does not."""

        class Panic(BaseException):
            pass

        embedder.down, embedder.error = True, Panic("at the disco")
        searcher = filled(EmbeddingSearcher(embedder), shop)
        assert searcher.search("letter", 5).note.endswith("failed (RuntimeError)")
        clock.now += 60
        embedder.error = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            searcher.search("letter", 5)

    def test_a_text_that_it_does_not_take(
        self, embedder: Any, shop: list[Tool], make_tool: MakeTool, clock: Clock, caplog: Any
    ) -> None:
        """Leaves such a string out and searches all others; it has another chance when it changes."""
        bad = [make_tool(f"bad:t{i}", f"poison {i}") for i in range(3)]
        searcher = filled(EmbeddingSearcher(embedder), [bad[0], *shop[:3], bad[1], *shop[3:], bad[2]])
        with caplog.at_level(logging.WARNING):
            hits = searcher.search("letter", 5)
        assert (sorted(ids(hits)), hits.note) == (["mail:delete", "mail:send"], "")
        assert all(tool.id in caplog.text for tool in bad)
        assert "s3cret" not in caplog.text
        assert searcher.prepare() == 3
        filled(searcher, [make_tool("bad:t0", "cured letter")])
        assert "bad:t0" in ids(searcher.search("letter", 5))

    def test_a_query_that_it_does_not_take(self, embedder: Any, shop: list[Tool], clock: Clock) -> None:
        """That search is without meaning; the next one is not."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        hits = searcher.search("poison letter", 5)
        assert (hits, hits.note) == (
            [],
            "search by meaning is off: the embedder words does not take the text (RuntimeError)",
        )
        assert len(searcher.search("letter", 5)) == 2
        assert searcher.scores("poison again", ["mail:send"]) == {}

    @pytest.mark.parametrize(
        "answer",
        [
            None,
            [],
            "ab",
            {"a": 1},
            [[]],
            [[1.0] * 9999],
            [[1.0, 2.0], [1.0, 2.0]],
            [[1.0, math.nan]],
            [[math.inf, 1.0]],
            [["x", "y"]],
            [None],
            [[10**400]],
            ["Bearer s3cret"],
            [["s3cret"]],
        ],
        ids=repr,
    )
    def test_nonsense(self, answer: Any, shop: list[Tool], clock: Clock) -> None:
        """Whatever is not a vector for each text counts as a failure."""

        class Nonsense:
            blocks = False

            def embed(self, texts: Sequence[str], /) -> Any:
                return answer

        hits = filled(EmbeddingSearcher(Nonsense()), shop).search("letter", 5)
        assert hits == []
        assert hits.note.startswith("search by meaning is off: the embedder Nonsense failed (it did not give 1 vectors")
        assert "s3cret" not in hits.note

    def test_another_length_than_before(self, embedder: Any, shop: list[Tool], clock: Clock) -> None:
        """All vectors have the length of the first."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        searcher.search("letter", 5)
        embedder.vector = lambda text: [1.0] * 100
        assert "512 numbers" in searcher.search("another", 5).note

    def test_a_coroutine_from_one_that_never_blocks(self, shop: list[Tool], clock: Clock) -> None:
        """The error says that such an embedder must be declared as blocking."""

        class Odd:
            blocks = False

            async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
                return [[1.0] for _ in texts]

        assert "must not say that it never blocks" in filled(EmbeddingSearcher(Odd()), shop).search("letter", 5).note


class TestAnEmbedderThatBlocks:
    def test_on_an_event_loop(self, embedder: Any, shop: list[Tool]) -> None:
        """A coroutine is run elsewhere, so a search may be made on a loop's own thread; close ends that thread."""

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            await asyncio.sleep(0)
            return [embedder.vector(text) for text in texts]

        async def main() -> list[str]:
            return ids(searcher.search("rains", 5))

        searcher = filled(EmbeddingSearcher(embed), shop)
        assert asyncio.run(main()) == ["weather"]
        assert "toolexec-embedder" in {thread.name for thread in threading.enumerate()}
        searcher.close()
        assert "toolexec-embedder" not in {thread.name for thread in threading.enumerate()}
        assert ids(searcher.search("somebody", 5)) == ["mail:send"]
        searcher.close()

    @pytest.mark.full
    @pytest.mark.parametrize("kind", ["sync", "async"])
    def test_one_that_hangs(self, kind: str, embedder: Any, shop: list[Tool]) -> None:
        """The time limit holds, and the answer is the lexical one."""
        release = threading.Event()

        async def sleep(texts: Sequence[str]) -> list[list[float]]:
            await asyncio.sleep(60)
            return []

        def wait(texts: Sequence[str]) -> list[list[float]]:
            release.wait(60)
            return []

        hybrid = HybridSearcher(BM25Searcher(), EmbeddingSearcher(wait if kind == "sync" else sleep, timeout=0.05))
        hits = filled(hybrid, shop).search("letter", 5)
        assert sorted(ids(hits)) == ["mail:delete", "mail:send"]
        assert "no answer within 0.05 s" in hits.note
        release.set()
        hybrid.close()

    def test_what_does_not_fit_into_the_time_comes_later(
        self, embedder: Any, make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A search begins no batch once its time is over; the note tells how many are left, and none is lost."""
        clock = Clock()
        monkeypatch.setattr(searcher_module, "time", clock)
        plain = embedder.embed

        def slow(texts: Sequence[str]) -> list[list[float]]:
            clock.now += 3 if len(texts) > 1 else 0
            return plain(texts)

        embedder.embed, embedder.blocks, embedder.batch = slow, True, 10
        searcher = filled(EmbeddingSearcher(embedder, timeout=5), [make_tool(f"a:t{i:02}", "thing") for i in range(40)])
        hits = searcher.search("thing", 50)
        assert (len(hits), hits.note) == (20, "20 of 40 tools are not searched by meaning yet")
        assert searcher.prepare() == 0
        hits = searcher.search("thing", 50)
        assert (len(hits), hits.note) == (40, "")
        assert len(embedder.embedded()) == 41
        searcher.close()

    def test_while_another_search_embeds(self, embedder: Any, shop: list[Tool]) -> None:
        """One that cannot wait for it any longer answers with what there is."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        searcher._timeout = 0.05
        with searcher._embedding:
            hits = searcher.search("letter", 5)
        assert (hits, hits.note) == ([], "5 of 5 tools are not searched by meaning yet")

    def test_a_batch_that_hangs_is_tried_last(self, embedder: Any, shop: list[Tool], clock: Clock) -> None:
        """A batch that hangs is tried last, so that the others get their turn."""
        plain = embedder.embed

        def slow(texts: Sequence[str]) -> list[list[float]]:
            if any("mail" in text for text in texts):
                raise TimeoutError
            return plain(texts)

        embedder.embed, embedder.batch = slow, 2
        searcher = filled(EmbeddingSearcher(embedder), shop)
        for _ in range(3):
            found = ids(searcher.search("rains", 5))
            clock.now += 60
        assert found == ["weather"]


class TestAStoreThatFails:
    def test_its_errors_become_notes(self, embedder: Any, shop: list[Tool]) -> None:
        """Each operation of the store turns its errors into notes."""

        class Broken(InMemoryVectors):
            broken = ""

            def add(self, entries: Any) -> None:
                if self.broken == "add":
                    raise OSError("password=s3cret")
                super().add(entries)

            def search(self, *args: Any, **kwargs: Any) -> Any:
                if self.broken == "search":
                    raise OSError("password=s3cret")
                return super().search(*args, **kwargs)

            def scores(self, *args: Any) -> Any:
                if self.broken == "search":
                    raise OSError("password=s3cret")
                return super().scores(*args)

        store = Broken()
        searcher = filled(EmbeddingSearcher(embedder, store=store), shop[:2])
        searcher.search("letter", 5)
        filled(searcher, shop)
        store.broken = "add"
        hits = searcher.search("letter", 5)
        assert len(hits) == 2
        assert hits.note == "3 of 5 tools are not searched by meaning yet: the vector store failed (OSError)"
        store.broken = "search"
        assert searcher.search("letter", 5).note == "search by meaning is off: the vector store failed (OSError)"
        assert searcher.scores("letter", ["mail:send"]) == {}
        store.broken = ""
        assert searcher.search("rains", 5).note == ""

    def test_vectors_of_another_length(self, embedder: Any, shop: list[Tool], caplog: Any) -> None:
        """A store of another model's vectors is named as the reason, in the log with the lengths."""
        searcher = filled(EmbeddingSearcher(embedder, store=InMemoryVectors(3)), shop)
        assert "the vector store failed (ConfigurationError)" in searcher.search("letter", 5).note
        assert "a sequence of 3 finite numbers" in caplog.text
