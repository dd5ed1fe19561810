"""The index in memory, beyond what every index must do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toolexec.discovery import BM25Searcher, ChangeEvent, Filters, InMemoryIndex, LexicalSearcher
from toolexec.errors import ConfigurationError, InvalidToolError, ToolConflictError, ToolNotFoundError
from toolexec.model import Binding, LocalBinding, MCPBinding, ProviderBinding, Tool, ToolAnnotations


def tool(tool_id: str, description: str = "", **parts: Any) -> Tool:
    """A tool with this ID."""
    namespace, _, name = tool_id.rpartition(":")
    return Tool(**{"name": name, "namespace": namespace, "description": description, "input_schema": True, **parts})


def index_of(*ids: str) -> InMemoryIndex:
    """An index with these tools, each with a local binding."""
    index = InMemoryIndex()
    index.register_many((tool(tool_id), LocalBinding(tool_id)) for tool_id in ids)
    return index


class TestRegistration:
    @pytest.mark.parametrize(
        ("what", "where"),
        [(None, LocalBinding("h")), ({"name": "t"}, LocalBinding("h")), (tool("t"), None), (tool("t"), "h")],
    )
    def test_takes_tools_and_bindings_only(self, what: Any, where: Any) -> None:
        """Anything else is refused, and the index stays usable."""
        index = InMemoryIndex()
        with pytest.raises(InvalidToolError, match="takes a Tool and a binding"):
            index.register(what, where)
        index.register(tool("t"), LocalBinding("h"))

    @pytest.mark.parametrize(
        ("changes", "difference"),
        [
            ({"description": "x"}, "another description"),
            ({"title": "x", "meta": {"a": 1}}, "another title, meta"),
            ({"input_schema": {"required": ["a"]}}, "another input_schema"),
            (
                {"output_schema": True, "annotations": ToolAnnotations(read_only=True)},
                "another annotations, output_schema",
            ),
        ],
    )
    def test_a_conflict_says_what_differs(self, changes: dict[str, Any], difference: str) -> None:
        """The error names the differing parts, who was first and who was refused."""
        index = index_of("a:b")
        with pytest.raises(ToolConflictError, match=difference) as caught:
            index.register(tool("a:b").replace(**changes), MCPBinding("a", "b"))
        assert caught.value.details["registered"] == [{"kind": "local", "local": {"name": "a:b"}}]
        assert caught.value.details["refused"]["kind"] == "mcp"
        index.register(tool("a:c"), LocalBinding("c"))

    def test_lists_in_schemas_are_compared(self) -> None:
        """The same schema twice, with lists in it, neither crashes nor conflicts."""
        index = InMemoryIndex()
        for name in ("one", "two"):
            index.register(tool("t", input_schema={"type": "object", "required": ["a", "b"]}), LocalBinding(name))
        assert len(index.get("t").bindings) == 2

    def test_a_failing_batch_changes_nothing(self) -> None:
        """A batch that raises halfway changes nothing, either."""
        index = index_of("a:b")
        version = index.version

        def batch() -> Iterator[tuple[Tool, Binding]]:
            yield tool("new:one"), LocalBinding("one")
            raise RuntimeError("source broke")

        with pytest.raises(RuntimeError, match="source broke"):
            index.register_many(batch())
        assert (len(index), index.version, index.namespaces()) == (1, version, ["a"])
        assert index.search("one") == []

    def test_a_batch_may_bring_several_bindings(self) -> None:
        """The second binding of a tool in one batch joins the first."""
        index = InMemoryIndex()
        events: list[str] = []
        index.on_change(lambda event: events.append(event.type))
        index.register_many([(tool("t"), LocalBinding("a")), (tool("t"), MCPBinding("s", "t"))])
        assert len(index.get("t").bindings) == 2
        assert events == ["registered", "backend_added"]

    def test_nothing_changes_by_repetition(self) -> None:
        """The same again is no change: same version, same cursors, no event."""
        index = index_of("a:b", "a:c")
        version, cursor = index.version, index.search_page("", 1).next_cursor
        index.register(tool("a:b"), LocalBinding("a:b"))
        index.replace(tool("a:b"), LocalBinding("a:b"))
        assert index.version == version
        assert index.search_page("", 1, cursor=cursor).items[0].id == "a:c"

    def test_replace_of_an_unknown_tool_registers(self) -> None:
        """There is nothing to replace yet."""
        index = InMemoryIndex()
        index.replace(tool("a:b"), LocalBinding("x"))
        index.replace(tool("a:b"), MCPBinding("a", "b"))
        assert len(index.get("a:b").bindings) == 2

    def test_stored_tools_are_safe_from_callers(self) -> None:
        """Changing the dict that a tool was made of does not change the index."""
        schema = {"type": "object", "required": ["a"]}
        index = InMemoryIndex()
        index.register(tool("t", input_schema=schema), LocalBinding("h"))
        schema["required"].append("b")  # type: ignore[attr-defined]
        assert index.get("t").tool.input_schema.to_json() == {"type": "object", "required": ["a"]}


class TestSelection:
    def test_own_selector(self) -> None:
        """A selector of one's own decides, also when bindings go."""

        def prefer_mcp(bindings: Sequence[Binding]) -> Binding:
            return max(bindings, key=lambda binding: binding.kind == "mcp")

        index = InMemoryIndex(selector=prefer_mcp)
        remote = MCPBinding("s", "t")
        index.register(tool("t"), LocalBinding("h"))
        index.register(tool("t"), remote)
        assert index.get("t").binding == remote
        index.unregister("t", remote)
        assert index.get("t").binding == LocalBinding("h")

    def test_a_selector_must_choose_from_what_there_is(self) -> None:
        """Anything else is a configuration error, and nothing is registered."""
        index = InMemoryIndex(selector=lambda _: LocalBinding("invented"))
        with pytest.raises(ConfigurationError, match="not one of its bindings") as caught:
            index.register(tool("t"), LocalBinding("h"))
        assert caught.value.tool_id == "t"
        assert len(index) == 0

    def test_provider_ids_with_colons_can_go(self) -> None:
        """A binding is named by itself, whatever characters it has."""
        index = InMemoryIndex()
        binding = ProviderBinding("a:b", "c:d")
        index.register(tool("t"), binding)
        index.unregister("t", binding)
        assert len(index) == 0


class TestLookup:
    def test_close_names(self) -> None:
        """The same name elsewhere comes first, else what looks alike."""
        index = index_of("git:log", "svn:log", "math:add")
        for wrong, close in (("hg:log", ["git:log", "svn:log"]), ("math:ad", ["math:add"]), ("zzzzzz", [])):
            with pytest.raises(ToolNotFoundError) as caught:
                index.get(wrong)
            assert caught.value.details["close"] == close

    def test_versions_that_are_not_semantic(self) -> None:
        """Such versions rank below the semantic ones, and as strings among themselves."""
        index = InMemoryIndex()
        for version in ("beta", "alpha", "0.0.1-rc"):
            index.register(tool("n:t", version=version), LocalBinding(version))
        assert index.get("n:t").tool.version == "0.0.1-rc"
        index.unregister("n:t:0.0.1-rc")
        assert index.get("n:t").tool.version == "beta"
        index.unregister("n:t:beta")
        index.unregister("n:t:alpha")
        assert index.find("n:t") is None

    def test_an_unversioned_tool_wins(self) -> None:
        """`namespace:name` is first of all an ID of its own."""
        index = index_of("n:t")
        index.register(tool("n:t", version="9.0.0"), LocalBinding("9"))
        assert index.get("n:t").tool.version == ""


class TestSearch:
    def test_filters_and_huge_limits(self) -> None:
        """A page of everything that passes."""
        index = index_of("a:b", "a:c", "d:e")
        page = index.search_page("", 10**30, filters=Filters(namespace="a"))
        assert [item.id for item in page.items] == ["a:b", "a:c"]

    def test_default_searcher_has_several_words(self) -> None:
        """The default finds by any word of the query, ranks, and pages in the same order."""
        index = index_of("git:git_status", "git:git_commit", "docker:docker_run")
        found = [item.id for item in index.search("git status")]
        assert found == ["git:git_status", "git:git_commit"]
        assert index.searcher.name == "bm25"
        first = index.search_page("git status", 1)
        second = index.search_page("git status", 1, cursor=first.next_cursor)
        assert [item.id for item in (*first.items, *second.items)] == found
        assert first.items[0].score == index.search("git status")[0].score

    def test_only_deterministic_searchers_page(self) -> None:
        """Others can search, not page."""

        class Moody(LexicalSearcher):
            name = "moody"
            deterministic = False

        index = InMemoryIndex(Moody())
        index.register(tool("t"), LocalBinding("h"))
        assert len(index.search("t")) == 1
        with pytest.raises(ConfigurationError, match="moody searcher cannot be paged"):
            index.search_page("t", 1)

    def test_the_searcher_is_told_once(self) -> None:
        """One `add` per new or changed tool or set of bindings, none per query."""
        told: list[str] = []

        class Listening(BM25Searcher):
            def add(self, tool: Tool, bindings: object = ()) -> None:
                told.append(f"+{tool.id}")
                super().add(tool)

            def remove(self, tool_id: str) -> None:
                told.append(f"-{tool_id}")
                super().remove(tool_id)

        index = InMemoryIndex(Listening())
        index.register(tool("t"), LocalBinding("h"))
        index.register(tool("t"), MCPBinding("s", "t"))
        index.search("t")
        index.register(tool("t", tags=["new"]), LocalBinding("h"))
        index.unregister("t", LocalBinding("h"))
        index.search("t")
        index.unregister("t")
        assert told == ["+t", "+t", "+t", "+t", "-t"]

    def test_a_hit_that_is_gone_is_left_out(self) -> None:
        """A tool that disappears during a search is not in the answer."""

        class Slow(LexicalSearcher):
            def search(self, *args: Any) -> Any:
                hits = super().search(*args)
                index.unregister("a:b")
                return hits

        index = InMemoryIndex(Slow())
        index.register(tool("a:b"), LocalBinding("h"))
        assert index.search("b") == []


class TestEvents:
    def test_a_listener_may_wait_for_another_thread(self) -> None:
        """No lock is held: what another thread changes meanwhile is done, and told afterwards, in order."""
        index = InMemoryIndex()
        seen: list[str] = []

        def wait_for_other(event: ChangeEvent) -> None:
            seen.append(event.tool_id)
            if event.tool_id == "first":
                other = threading.Thread(target=index.register, args=(tool("second"), LocalBinding("2")))
                other.start()
                other.join(timeout=30)
                assert not other.is_alive()
                assert index.find("second") is not None

        index.on_change(wait_for_other)
        index.register(tool("first"), LocalBinding("1"))
        assert seen == ["first", "second"]

    def test_stopping_another_listener_in_the_middle(self) -> None:
        """One that was stopped by an earlier one is not told any more."""
        index = InMemoryIndex()
        seen: list[str] = []
        index.on_change(lambda _: stop())
        stop = index.on_change(lambda event: seen.append(event.tool_id))
        index.on_change(lambda event: seen.append(f"last {event.tool_id}"))
        index.register(tool("t"), LocalBinding("h"))
        assert seen == ["last t"]

    def test_subscribing_in_the_middle(self) -> None:
        """A listener that joins during an event hears the next one."""
        index = InMemoryIndex()
        seen: list[str] = []
        stop = index.on_change(lambda _: (stop(), index.on_change(lambda event: seen.append(event.tool_id))))
        index.register(tool("one"), LocalBinding("h"))
        index.register(tool("two"), LocalBinding("h"))
        assert seen == ["two"]

    def test_failures_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        """A raising listener costs no other one anything, and is named in the log."""
        index = InMemoryIndex()
        seen: list[str] = []

        def fail(_: ChangeEvent) -> None:
            raise RuntimeError("listener broke")

        index.on_change(fail)
        index.on_change(lambda event: seen.append(event.type))
        with caplog.at_level(logging.ERROR):
            index.register(tool("t"), LocalBinding("h"))
        assert "listener broke" in caplog.text
        assert seen == ["registered"]

    def test_an_interrupt_passes_and_delivery_goes_on(self) -> None:
        """Ctrl-C in a listener reaches the caller; later changes are told again."""
        index = InMemoryIndex()
        seen: list[str] = []

        def interrupt(event: ChangeEvent) -> None:
            seen.append(event.tool_id)
            if event.tool_id == "one":
                raise KeyboardInterrupt

        index.on_change(interrupt)
        with pytest.raises(KeyboardInterrupt):
            index.register(tool("one"), LocalBinding("h"))
        index.register(tool("two"), LocalBinding("h"))
        assert seen == ["one", "two"]

    def test_order_across_threads(self) -> None:
        """However many threads change the index, every event comes once and in order, also to late listeners."""
        index = InMemoryIndex()
        early: list[int] = []
        late: list[int] = []
        index.on_change(lambda event: early.append(event.version))

        def work(turn: int) -> None:
            if turn == 50:
                index.on_change(lambda event: late.append(event.version))
            index.register(tool(f"n:t{turn}"), LocalBinding("h"))
            index.refresh()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(100)))
        assert early == list(range(1, 201))
        assert late == early[-len(late) :]

    def test_nobody_listening_keeps_nothing(self) -> None:
        """Without listeners no event waits."""
        index = index_of("a:b")
        assert not index._events
        assert index.refresh() == index.version == 2
