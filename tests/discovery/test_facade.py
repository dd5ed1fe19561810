"""Index and documentation behind one object."""

from __future__ import annotations

import pytest

from toolexec.discovery import (
    ChangeEvent,
    Discovery,
    DocEntry,
    Filters,
    InMemoryDocStore,
    InMemoryIndex,
    LexicalSearcher,
    ToolExample,
)
from toolexec.errors import ConfigurationError, InvalidToolError, ToolNotFoundError
from toolexec.model import LocalBinding, MCPBinding, Tool

LOG = Tool(name="log", namespace="git", description="Shows the history", input_schema=True, tags=["old"])
RUN = Tool(name="run", namespace="docker", description="Starts a container", input_schema=True)
LOCAL = LocalBinding("log")
TOO_LARGE = DocEntry(summary="s", examples=(ToolExample(args={f"k{i}": i for i in range(99)}),))


def filled() -> Discovery:
    """A facade with two tools."""
    discovery = Discovery()
    discovery.register_many([(LOG, LOCAL), (RUN, LocalBinding("run"))])
    return discovery


class TestParts:
    def test_defaults(self) -> None:
        """Everything is there without an argument, ranked by BM25."""
        discovery = Discovery()
        assert isinstance(discovery.index, InMemoryIndex)
        assert isinstance(discovery.docs, InMemoryDocStore)
        assert discovery.index.searcher.name == "bm25"

    def test_own_parts_are_used(self) -> None:
        """A given searcher ranks, a given index and store hold."""
        assert Discovery(searcher=LexicalSearcher()).index.searcher.name == "lexical"  # type: ignore[attr-defined]
        index = InMemoryIndex()
        docs = InMemoryDocStore(index)
        discovery = Discovery(index=index, docs=docs)
        discovery.register(LOG, LOCAL, DocEntry(notes="n"))
        assert index.get("git:log").tool == LOG
        assert docs.describe("git:log").notes == "n"

    def test_an_empty_index_is_still_an_index(self) -> None:
        """An index without tools is false as a condition, but it is the one that was given."""
        index = InMemoryIndex()
        assert Discovery(index=index).index is index

    def test_searcher_and_index_contradict(self) -> None:
        """The searcher belongs to the index."""
        with pytest.raises(ConfigurationError, match="not both"):
            Discovery(index=InMemoryIndex(), searcher=LexicalSearcher())

    def test_ten_examples_by_default(self) -> None:
        """The store that is made here shows at most ten."""
        discovery = filled()
        discovery.register_examples("git:log", [ToolExample(title=str(i)) for i in range(15)])
        assert len(discovery.list_examples("git:log")) == 10
        assert len(discovery.list_examples("git:log", 2)) == 2


class TestUse:
    def test_find_read_and_list(self) -> None:
        """The questions of a caller, answered by the parts."""
        discovery = filled()
        assert [item.id for item in discovery.search("history")] == ["git:log"]
        assert [item.id for item in discovery.search("", filters=Filters(namespace="docker"))] == ["docker:run"]
        page = discovery.search_page("", 1)
        assert [item.id for item in discovery.search_page("", 1, cursor=page.next_cursor).items] == ["git:log"]
        assert discovery.namespaces() == ["docker", "git"]
        assert discovery.get("git:log").binding == LOCAL
        discovery.register_doc("git:log", DocEntry(summary="Sum"))
        assert discovery.describe("git:log", "summary").summary == "Sum"
        with pytest.raises(ToolNotFoundError):
            discovery.get("git:lgo")

    def test_changes_are_told(self) -> None:
        """One event per registration, until stopped."""
        discovery = Discovery()
        events: list[ChangeEvent] = []
        stop = discovery.on_change(events.append)
        discovery.register(LOG, LOCAL, DocEntry(summary="s"))
        stop()
        discovery.register(RUN, LOCAL)
        assert [event.type for event in events] == ["registered"]


class TestBothOrNeither:
    def test_a_new_tool(self) -> None:
        """If the documentation is refused, the tool is not there."""
        discovery = Discovery()
        with pytest.raises(InvalidToolError):
            discovery.register(LOG, LOCAL, TOO_LARGE)
        assert len(discovery.index) == 0

    def test_a_known_tool(self) -> None:
        """Bindings and tags of a known tool stay as they were."""
        discovery = filled()
        for binding in (LOCAL, MCPBinding("git", "log")):
            with pytest.raises(InvalidToolError):
                discovery.register(LOG.replace(tags=["new"]), binding, TOO_LARGE)
            entry = discovery.get("git:log")
            assert entry.bindings == (LOCAL,)
            assert entry.tool.tags == ("old",)

    def test_a_new_version_of_a_known_tool(self) -> None:
        """Another version is another tool."""
        discovery = Discovery()
        discovery.register(LOG.replace(version="1.0.0"), LOCAL)
        with pytest.raises(InvalidToolError):
            discovery.register(LOG, LOCAL, TOO_LARGE)
        assert [entry.tool.id for entry in discovery.index.tools()] == ["git:log:1.0.0"]
