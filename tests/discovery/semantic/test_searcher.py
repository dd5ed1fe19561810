"""Search by meaning: what is embedded, when, and what is found."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toolexec.discovery import Filters, InMemoryIndex
from toolexec.discovery.semantic import EmbeddingSearcher, InMemoryVectors
from toolexec.discovery.semantic.searcher import document_text, plain_text
from toolexec.errors import ConfigurationError
from toolexec.model import LocalBinding, Tool

MakeTool = Callable[..., Tool]


def filled(searcher: EmbeddingSearcher, tools: list[Tool]) -> EmbeddingSearcher:
    """The searcher, told of the tools."""
    for tool in tools:
        searcher.add(tool)
    return searcher


def ids(hits: list[Any]) -> list[str]:
    """The IDs, best first."""
    return [hit.tool_id for hit in hits]


class TestWhatIsEmbedded:
    def test_only_at_a_search_and_in_batches(self, embedder: Any, shop: list[Tool]) -> None:
        """Adding costs nothing; the first search embeds the query, then the tools, at most a batch at a time."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        assert embedder.calls == []
        searcher.search("letter", 3)
        assert [len(call) for call in embedder.calls] == [1, 4, 1]
        assert embedder.calls[0] == ["letter"]

    def test_known_texts_are_not_embedded_again(self, embedder: Any, shop: list[Tool]) -> None:
        """Neither queries, nor tools that are announced again, come back, or have the text of another."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        searcher.search("letter", 3)
        calls = len(embedder.calls)
        searcher.remove("weather")
        assert "weather" not in ids(searcher.search("rains", 5))
        filled(searcher, shop)
        assert ids(searcher.search("rains", 5)) == ["weather"]
        searcher.search("letter", 3)
        assert embedder.calls[calls:] == [["rains"]]

    def test_a_text_that_two_tools_share(self, embedder: Any, make_tool: MakeTool) -> None:
        """Embeds a shared string once in a batch."""
        searcher = EmbeddingSearcher(embedder, text=lambda tool: tool.description)
        filled(searcher, [make_tool("a:one", "Same text"), make_tool("b:two", "same  TEXT")])
        assert ids(searcher.search("same", 5)) == ["a:one", "b:two"]
        assert embedder.embedded() == ["same", "same text"]

    def test_a_change_replaces(self, embedder: Any, shop: list[Tool], make_tool: MakeTool) -> None:
        """The old words no longer find it."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        searcher.search("letter", 3)
        searcher.add(make_tool("weather", "Forecasts storms"))
        assert ids(searcher.search("rains", 5)) == []
        assert ids(searcher.search("storms", 5)) == ["weather"]

    def test_the_text_of_a_tool(self, make_tool: MakeTool) -> None:
        """Namespace and name in words, description, tags; no parameters."""
        tool = make_tool("gitHub:create_issue", "Opens  an\nISSUE", ("vcs",))
        assert document_text(tool) == "git hub create issue. opens an issue. vcs"

    def test_texts_are_bounded_and_can_be_encoded(self, embedder: Any, make_tool: MakeTool) -> None:
        """A megabyte, lone surrogates and control characters."""
        searcher = filled(EmbeddingSearcher(embedder), [make_tool("a:b", "\ud800\x00 word " * 100_000)])
        assert ids(searcher.search("word\udfff", 3)) == ["a:b"]
        searcher.search("word " * 100_000, 3)
        assert max(map(len, embedder.embedded())) <= 2000
        assert all(text.encode() for text in embedder.embedded())
        assert plain_text("\ud800X") == "?x"

    def test_a_text_function_that_fails(self, embedder: Any, shop: list[Tool], caplog: Any) -> None:
        """The tool's ID takes its place."""

        def text(tool: Tool) -> str:
            if tool.name == "weather":
                raise ValueError("no text")
            return document_text(tool)

        searcher = filled(EmbeddingSearcher(embedder, text=text), shop)
        assert ids(searcher.search("weather", 5)) == ["weather"]
        assert "weather" in caplog.text

    def test_prepare_embeds_ahead(self, embedder: Any, shop: list[Tool]) -> None:
        """All of it; a search then embeds only its query."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        assert searcher.prepare() == 0
        assert len(embedder.embedded()) == len(shop)
        searcher.search("letter", 3)
        assert len(embedder.embedded()) == len(shop) + 1


class TestStore:
    def test_a_snapshot_saves_the_work(self, embedder: Any, shop: list[Tool], make_tool: MakeTool) -> None:
        """A new process embeds what is new or changed; what is gone is not found."""
        store = InMemoryVectors()
        filled(EmbeddingSearcher(embedder, store=store), shop).prepare()
        embedder.calls.clear()
        again = EmbeddingSearcher(embedder, store=InMemoryVectors.load(store.dump()))
        filled(again, [*shop[:3], make_tool("files:write", "Save it")])
        assert ids(again.search("text", 5)) == ["files:read"]
        assert ids(again.search("save", 5)) == ["files:write"]
        assert ids(again.search("rains", 5)) == []
        assert embedder.calls == [["text"], ["file write. save it"], ["save"], ["rains"]]

    def test_another_embedder_makes_its_own(self, embedder: Any, shop: list[Tool]) -> None:
        """Vectors that were kept under another name do not count."""
        store = InMemoryVectors()
        filled(EmbeddingSearcher(embedder, store=store), shop).prepare()
        embedder.calls.clear()
        embedder.name = "words 2"
        filled(EmbeddingSearcher(embedder, store=store), shop).prepare()
        assert len(embedder.embedded()) == len(shop)

    def test_what_is_long_gone_is_forgotten(self, embedder: Any, make_tool: MakeTool) -> None:
        """A few vectors are kept for tools that may come back, not thousands."""
        store = InMemoryVectors()
        embedder.batch = 1000
        searcher = EmbeddingSearcher(embedder, store=store)
        tools = [make_tool(f"many:t{i}", f"word{i}") for i in range(1500)]
        filled(searcher, tools).prepare()
        for tool in tools[:900]:
            searcher.remove(tool.id)
        filled(searcher, [make_tool("new:one", "fresh")]).prepare()
        assert len(store) == 1501
        for tool in tools[:1200]:
            searcher.remove(tool.id)
        assert ids(filled(searcher, [make_tool("new:two", "fresh")]).search("fresh", 5)) == ["new:one", "new:two"]
        assert len(store) == 302
        assert ids(filled(searcher, tools[:1]).search("word0", 1)) == ["many:t0"]


class TestSearch:
    def test_the_closest_first_above_the_floor(self, embedder: Any, shop: list[Tool]) -> None:
        """With the cosine as the score; what has too little in common is left out."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        hits = searcher.search("send a letter", 5)
        assert ids(hits)[:2] == ["mail:send", "mail:delete"]
        assert 1 >= hits[0].score > hits[1].score > 0
        picky = filled(EmbeddingSearcher(embedder, min_score=hits[1].score), shop)
        assert picky.search("send a letter", 5) == hits[:1]
        embedder.min_score = 0.999
        assert filled(EmbeddingSearcher(embedder), shop).search("send a letter", 5) == []

    def test_without_words(self, embedder: Any, shop: list[Tool]) -> None:
        """A blank query lists by ID, one of signs only finds nothing; neither is embedded."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        assert ids(searcher.search(" ", 2, lambda tool_id: tool_id != "files:read")) == ["files:write", "mail:delete"]
        assert searcher.search("?!", 5) == []
        assert searcher.search("letter", 0) == []
        assert searcher.scores("?!", ["weather"]) == {}
        assert embedder.calls == []

    def test_filters_of_an_index(self, embedder: Any, shop: list[Tool]) -> None:
        """Filters hold, and pages follow one another."""
        index = InMemoryIndex(EmbeddingSearcher(embedder))
        for tool in shop:
            index.register(tool, LocalBinding(tool.id))
        found = index.search("text letter", 5, filters=Filters(tags=("text",)))
        assert sorted(found.ids()) == ["files:read", "files:write"]
        assert found.score_type == "embedding"
        whole = index.search("text letter", 5).ids()
        first = index.search_page("text letter", 2)
        second = index.search_page("text letter", 5, cursor=first.next_cursor)
        assert [summary.id for summary in (*first.items, *second.items)] == whole
        assert len(whole) == 4

    def test_explain(self, embedder: Any, shop: list[Tool]) -> None:
        """The cosine is a part; there is nothing to explain for tools that are not found."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        hit = searcher.search("letter", 1)[0]
        why = searcher.explain("letter", hit.tool_id)
        assert why is not None
        assert why.parts == {"embedding": hit.score}
        assert searcher.explain("letter", "weather") is None
        assert searcher.explain("letter", "never:there") is None

    def test_many_threads(self, embedder: Any, shop: list[Tool], make_tool: MakeTool) -> None:
        """Each answer is whole and knows what was added before, and nothing is embedded twice."""
        searcher = filled(EmbeddingSearcher(embedder), shop)

        def turn(number: int) -> bool:
            word = "".join(chr(ord("a") + int(digit)) for digit in f"{number:04}")
            searcher.add(make_tool(f"extra:t{number}", word))
            return f"extra:t{number}" in ids(searcher.search(word, 5))

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(turn, range(200)))
        texts = embedder.embedded()
        assert len(texts) == len(set(texts)) == len(shop) + 400

    def test_changes_while_texts_are_made(self, embedder: Any, shop: list[Tool], make_tool: MakeTool) -> None:
        """The newest form counts, and what is gone stays away."""

        def text(tool: Tool) -> str:
            if tool.id == "weather" and "rains" in tool.description:
                searcher.add(make_tool("weather", "storms"))
                searcher.remove("mail:send")
            return document_text(tool)

        searcher = EmbeddingSearcher(embedder, text=text)
        filled(searcher, [shop[-1], *shop[:-1]])
        assert "mail:send" not in ids(searcher.search("letter", 5))
        assert ids(searcher.search("rains", 5)) == []
        assert ids(searcher.search("storms", 5)) == ["weather"]

    def test_changes_while_vectors_are_made(self, embedder: Any, shop: list[Tool], make_tool: MakeTool) -> None:
        """An old form's vector is never taken for the new one's, whether the embedder takes it or not."""
        plain = embedder.embed

        def embed(texts: list[str]) -> list[list[float]]:
            for name in ("good", "poison"):
                if texts != ["letter"] and any(f"{name} one" in text for text in texts):
                    searcher.add(make_tool(f"a:{name}", "letter two"))
            return plain(texts)

        embedder.embed = embed
        searcher = filled(EmbeddingSearcher(embedder), [make_tool("a:good", "letter good one"), *shop])
        assert "a:good" not in ids(searcher.search("letter", 9))
        assert "a:good" in ids(searcher.search("letter", 9))
        searcher.add(make_tool("a:poison", "letter poison one"))
        searcher.search("letter", 9)
        embedder.embed = lambda texts: [embedder.vector(text) for text in texts]
        assert "a:poison" in ids(searcher.search("letter", 9))

    def test_the_last_queries_are_remembered(self, embedder: Any, shop: list[Tool]) -> None:
        """Some hundreds, not all."""
        searcher = filled(EmbeddingSearcher(embedder), shop)
        for number in range(300):
            searcher.search("letter", 1)
            searcher.search(f"number {number}", 1)
        asked = len(embedder.calls)
        searcher.search("letter", 1)
        searcher.search("number 299", 1)
        assert len(embedder.calls) == asked
        searcher.search("number 1", 1)
        assert len(embedder.calls) == asked + 1

    def test_whether_it_blocks(self, embedder: Any, make_tool: MakeTool) -> None:
        """Always when the embedder does, or may; else at its first use, and when there is much to embed."""
        searcher = filled(EmbeddingSearcher(embedder), [make_tool("a:b")])
        assert searcher.blocks is True
        searcher.search("b", 1)
        assert searcher.blocks is False
        filled(searcher, [make_tool(f"a:t{i}") for i in range(300)])
        assert searcher.blocks is True
        searcher.prepare()
        assert searcher.blocks is False
        assert EmbeddingSearcher(lambda texts: [[1.0] for _ in texts]).blocks is True

    def test_what_makes_no_sense_is_refused(self, embedder: Any) -> None:
        """Times that are not positive, scores that are no cosines."""
        for options in ({"timeout": 0}, {"timeout": -1}, {"pause": 0}):
            with pytest.raises(ConfigurationError, match="seconds above 0"):
                EmbeddingSearcher(embedder, **options)
        for name in ("timeout", "min_score"):
            with pytest.raises(ConfigurationError, match=f"{name} must be a number"):
                EmbeddingSearcher(embedder, **{name: float("nan")})
        for wrong in (-0.1, 1.1):
            with pytest.raises(ConfigurationError, match="from 0 to 1"):
                EmbeddingSearcher(embedder, min_score=wrong)
