"""Views: a part of an index as if it were the whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.discovery import (
    ChangeEvent,
    DocEntry,
    Filters,
    InMemoryDocStore,
    InMemoryIndex,
    LexicalSearcher,
    Registered,
    SearchResults,
    ToolExample,
)
from toolexec.discovery.changes import ChangeLog
from toolexec.discovery.search import Hits
from toolexec.discovery.toolset import Toolset
from toolexec.discovery.view import DocsView, IndexView, SearchesWithin, both_filters
from toolexec.errors import ConfigurationError, InvalidCursorError, InvalidToolIDError, ToolNotFoundError
from toolexec.model import LocalBinding, Tool
from toolexec.testing.index_suite import INDEX_CHECKS, MakeIndex


def tool(tool_id: str, description: str = "", tags: tuple[str, ...] = ()) -> Tool:
    namespace, _, name = tool_id.rpartition(":")
    return Tool(name=name, namespace=namespace, description=description, tags=tags, input_schema={"type": "object"})


def add(index: Any, *tool_ids: str, **parts: Any) -> None:
    for tool_id in tool_ids:
        index.register(tool(tool_id, **parts), LocalBinding(tool_id))


def shows_open(entry: Registered) -> bool:
    return entry.tool.namespace != "hidden"


class Counting(InMemoryIndex):
    """Counts how often all tools are listed, and how many summaries are made."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = 0
        self.fetched: list[int] = []

    def tools(self) -> Any:
        self.listed += 1
        return super().tools()

    def search(self, query: str, limit: int = 10, **more: Any) -> SearchResults:
        found = super().search(query, limit, **more)
        self.fetched.append(len(found))
        return found


class Plain:
    """An index that can do no more than `Index` says."""

    def __init__(self, index: InMemoryIndex) -> None:
        self._index = index

    def __getattr__(self, name: str) -> Any:
        if name == "search_within":
            raise AttributeError(name)
        return getattr(self._index, name)

    def __len__(self) -> int:
        return len(self._index)


MAKERS: dict[str, MakeIndex] = {
    "everything": lambda: Toolset(allow="*").view(InMemoryIndex()),
    "of a view": lambda: IndexView(Toolset(allow="*").view(InMemoryIndex(LexicalSearcher())), lambda _: True),
    "ranked": lambda: Toolset(any_of=[Toolset(allow="*"), Toolset(query="x")]).view(InMemoryIndex()),
    "unstable": lambda: IndexView(InMemoryIndex(), lambda _: True, stable=False),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("check", INDEX_CHECKS, ids=lambda check: check.__name__)
def test_a_view_is_an_index(check: Callable[[MakeIndex], None], make: MakeIndex) -> None:
    """A view without a filter passes the contract suite for indexes."""
    check(make)


def mixed(index: Any, count: int = 30) -> Any:
    for number in range(count):
        add(index, f"hidden:read{number}", f"open:list{number}", description="reads a file")
    return index


@pytest.mark.parametrize("plain", [False, True], ids=["from the inside", "from the outside"])
def test_search_finds_what_is_deep_down(plain: bool) -> None:
    """However many hidden tools rank higher, the visible ones are found, in the order of the index, by view of view,
    too; and no hidden one."""
    index = InMemoryIndex()
    add(index, *(f"hidden:secret{n}" for n in range(300)), description="secret secret secret")
    add(index, "open:one", "open:two", description="one secret among many other words of a long text")
    seam: Any = Plain(index) if plain else index
    assert isinstance(seam, SearchesWithin) is not plain
    view = IndexView(seam, shows_open)
    for _ in range(3):  # the second time it is looked up
        assert view.search("secret", 5).ids() == ["open:one", "open:two"]
    assert view.search("secret", 1).ids() == ["open:one"]
    second = IndexView(view, lambda entry: entry.tool.name != "one")
    assert [second.search("secret", 1).ids() for _ in range(3)] == [["open:two"]] * 3
    assert second.search("secret", 0).ids() == []
    assert view.search("secret", 5, filters=Filters(namespace="hidden")).ids() == []


@pytest.mark.parametrize("plain", [False, True], ids=["from the inside", "from the outside"])
def test_a_view_of_a_view_finds_what_is_deep_down(plain: bool) -> None:
    """Each takes away many tools that rank higher; filters hold all the way."""
    index = InMemoryIndex()
    add(index, *(f"hidden:secret{n}" for n in range(100)), description="secret secret secret")
    add(index, *(f"open:secret{n}" for n in range(100)), description="secret secret secret")
    add(index, "open:last", description="one secret among many other words of a long text")
    seam: Any = Plain(index) if plain else index
    inner = IndexView(seam, shows_open, filters=Filters(namespace="open"))
    outer = IndexView(inner, lambda entry: entry.tool.name == "last")
    assert outer.search("secret", 2).ids() == ["open:last"]
    assert outer.search("secret", 2, filters=Filters(namespace="open")).ids() == ["open:last"]
    assert outer.search("secret", 2, filters=Filters(namespace="hidden")).ids() == []
    everything = frozenset(entry.tool.id for entry in index.tools())
    assert inner.search_within("secret", 2, everything, filters=Filters(namespace="hidden")).ids() == []
    assert inner.search_within("secret", 2, frozenset(["open:last", "hidden:secret1"])).ids() == ["open:last"]
    assert inner.search("qqqqqq secret", 1).note == ""
    assert outer.search("qqqqqq").note == "nothing that can be seen from here has these words"


def test_scores_and_reasons_stay() -> None:
    """A view changes neither the scores nor the explanations."""
    index = mixed(InMemoryIndex())
    view = IndexView(index, shows_open)
    all_found = index.search("file", 100, explain=True)
    assert list(view.search("file", 100, explain=True)) == list(all_found.filter_by_namespace("open"))
    assert view.search("file", 3).score_type == all_found.score_type


def test_what_is_shown_is_computed_once() -> None:
    """Counting, listing and paging look at all tools once, and after a change only at what has changed."""
    index = mixed(Counting())
    view = IndexView(index, shows_open)
    for _ in range(3):
        assert (len(view), len(view.tools()), view.namespaces()) == (30, 30, ["open"])
        assert view.namespaces_page(5).items == ("open",)
    assert index.listed == 1
    add(index, "new:one")
    assert (len(view), view.namespaces()) == (31, ["new", "open"])
    assert index.listed == 1
    passing = IndexView(index, shows_open, stable=False)
    assert (len(passing), len(passing)) == (31, 31)
    assert index.listed == 3


class Switch:
    """A state that tools are hidden by."""

    def __init__(self) -> None:
        self.hidden: set[str] = set()
        self.log = ChangeLog()

    @property
    def version(self) -> int:
        """Return how often it was turned."""
        return self.log.version

    def changed_since(self, version: int) -> Collection[str] | None:
        """Return what was turned since then."""
        return self.log.changed_since(version)

    def turn(self, *tool_ids: str) -> None:
        """Hide what is shown, and show what is hidden."""
        self.hidden ^= set(tool_ids)
        self.log.add(tool_ids)


def test_a_state_shows_and_hides_tools_of_a_kept_view() -> None:
    """A view follows the state that it goes by, without a look at the other tools, and its cursors end with it."""
    index, switch = Counting(), Switch()
    add(index, *(f"n{number}:tool" for number in range(2000)))
    view = IndexView(index, lambda entry: entry.tool.id not in switch.hidden, states=[switch])
    page = view.namespaces_page(5)
    assert len(view) == 2000
    switch.turn("n1:tool", "n7:tool")
    assert (len(view), "n7" in view.namespaces(), view.namespace_counts().get("n1")) == (1998, False, None)
    with pytest.raises(InvalidCursorError):
        view.namespaces_page(5, cursor=page.next_cursor)
    switch.turn("n7:tool")
    assert (len(view), "n7" in view.namespaces(), view.namespace_counts()["n7"]) == (1999, True, 1)
    assert [entry.tool.id for entry in view.tools()] == sorted(f"n{n}:tool" for n in range(2000) if n != 1)
    assert index.listed == 1
    switch.turn(*(f"n{number}:tool" for number in range(2000)))
    assert [entry.tool.id for entry in view.tools()] == ["n1:tool"]
    assert index.listed == 2


@given(st.lists(st.tuples(st.sampled_from(["add", "drop", "turn", "retag"]), st.integers(0, 12)), max_size=60))
def test_a_kept_view_shows_what_a_new_one_shows(steps: list[tuple[str, int]]) -> None:
    """Whatever changes in whatever order, the kept view is as one that looks at everything."""
    index, switch = InMemoryIndex(LexicalSearcher()), Switch()

    def visible(entry: Registered) -> bool:
        return entry.tool.id not in switch.hidden and "secret" not in entry.tool.tags

    view = IndexView(index, visible, states=[switch])
    for what, number in steps:
        tool_id = f"n{number % 4}:t{number}"
        known = index.find(tool_id) is not None
        if what == "turn":
            switch.turn(tool_id)
        elif what == "drop" and known:
            index.unregister(tool_id)
        elif what == "add" or known:
            tags = ("secret",) if what == "retag" else ()
            index.replace(tool(tool_id, tags=tags), LocalBinding(tool_id))
        fresh = IndexView(index, visible, stable=False)
        assert list(view.tools()) == list(fresh.tools())
        assert (view.namespaces(), view.namespace_counts()) == (fresh.namespaces(), fresh.namespace_counts())


def test_a_search_fetches_little() -> None:
    """Where most is visible, no more is fetched than is wanted; filters of a toolset are applied inside."""
    index = Counting()
    add(index, *(f"open:tool{n}" for n in range(500)), *(f"rare:tool{n}" for n in range(3)), description="paint a wall")
    assert len(IndexView(index, shows_open).search("paint", 10)) == 10
    assert index.fetched == [10]
    index.fetched.clear()
    assert len(Toolset(namespaces="rare").view(index).search("paint", 10)) == 3
    assert index.fetched == [3]


def test_pages() -> None:
    """Pages walk through all that is visible; a cursor is for its query, caller and version only."""
    index = mixed(InMemoryIndex(), 7)
    view, other = IndexView(index, shows_open, "ann"), IndexView(index, shows_open, "bob")
    found: list[str] = []
    cursor = None
    while True:
        page = view.search_page("file", 3, cursor=cursor)
        found += [summary.id for summary in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == view.search("file", 100).ids()
    assert len(found) == 7
    first = view.search_page("file", 3).next_cursor
    for ask in (
        lambda: view.search_page("other", 3, cursor=first),
        lambda: other.search_page("file", 3, cursor=first),
        lambda: view.search_page("file", 3, cursor=first, filters=Filters(namespace="open")),
        lambda: view.namespaces_page(3, cursor=first),
        lambda: view.search_page("file", 3, cursor="x"),
    ):
        with pytest.raises(InvalidCursorError):
            ask()
    with pytest.raises(ConfigurationError):
        view.search_page("file", 0)
    add(index, "a:x", "b:x")
    with pytest.raises(InvalidCursorError):
        view.search_page("file", 3, cursor=first)
    names = view.namespaces_page(2)
    assert names.items == ("a", "b")
    assert view.namespaces_page(2, cursor=names.next_cursor).items == ("open",)


def test_a_hidden_tool_is_like_one_that_there_is_not() -> None:
    """The errors are the same word for word, with the same suggestions, and none of them is hidden."""
    index = InMemoryIndex()
    add(index, "hidden:delete_files", "open:delete_file", "open:read")
    view = IndexView(index, shows_open)
    messages: list[str] = []
    for tool_id in ("hidden:delete_files", "absent:delete_files"):
        with pytest.raises(ToolNotFoundError) as caught:
            view.get(tool_id)
        messages.append(str(caught.value).replace(tool_id, "IT"))
        assert caught.value.details["close"] == ["open:delete_file"]
    assert messages[0] == messages[1]
    assert view.get("open:read").tool.id == "open:read"
    with pytest.raises(ToolNotFoundError) as caught:
        view.get("elsewhere:read")
    assert caught.value.details["close"] == ["open:read"]
    with pytest.raises(InvalidToolIDError):
        view.get("a b")


class Corrects(LexicalSearcher):
    """Knows what `scret` was meant to be, if any tool at all has the word."""

    def search(self, query: str, limit: int, accept: Any = None) -> Any:
        found = super().search(query.replace("scret", "secret"), limit, accept)
        return Hits(found, did_you_mean=query.replace("scret", "secret") if "scret" in query else None)


def test_words_of_hidden_tools_are_not_suggested() -> None:
    """Reports a corrected word only where a visible tool has it."""
    index = InMemoryIndex(Corrects())
    add(index, "hidden:one", description="read the secret")
    view = IndexView(index, shows_open)
    assert index.search("read the scret").did_you_mean == "read the secret"
    assert view.search("read the scret").did_you_mean is None
    add(index, "open:one", description="read the secret")
    assert view.search("read the scret").did_you_mean == "read the secret"
    many = " ".join(f"scret{n}" for n in range(9))
    assert view.search(many).did_you_mean is None


@pytest.mark.parametrize("ranked", [False, True])
def test_changes_of_hidden_tools_are_not_heard_of(ranked: bool) -> None:
    """A listener is notified of tools that are shown before or after, and of refreshes."""
    index = InMemoryIndex()
    events: list[ChangeEvent] = []

    def visible(entry: Registered) -> bool:
        return "shown" in entry.tool.tags

    add(index, "a:old", tags=("shown",))
    view = IndexView(index, visible, ranked=ranked)
    stop = view.on_change(events.append)

    def heard() -> list[tuple[str, str]]:
        found = [(event.type, event.tool_id) for event in events]
        events.clear()
        return found

    add(view, "a:x")
    assert heard() == []
    add(view, "a:y", tags=("shown",))
    assert heard() == [("registered", "a:y")]
    index.replace(tool("a:x", tags=("shown",)), LocalBinding("a:x"))
    assert heard() == [("updated", "a:x")]
    view.replace(tool("a:y"), LocalBinding("a:y"))
    assert heard() == [("updated", "a:y")]
    view.unregister("a:y")
    assert heard() == []
    view.unregister("a:old")
    assert heard() == [("tool_removed", "a:old")]
    view.register_many([(tool("a:z", tags=("shown",)), LocalBinding("z")), (tool("a:w"), LocalBinding("w"))])
    assert heard() == [("registered", "a:z")]
    assert view.refresh() == view.version
    assert heard() == [("refreshed", "")]
    stop()
    add(index, "a:later", tags=("shown",))
    assert heard() == []


def test_a_change_that_moves_others_is_heard_of() -> None:
    """With a search for the best, a new tool may push another one out."""
    index = InMemoryIndex()
    add(index, "a:letters", description="letters and many other words that make it long")
    view = Toolset(query="letters", limit=1).view(index)
    events: list[str] = []
    view.on_change(lambda event: events.append(event.tool_id))
    add(index, "a:numbers", description="numbers")
    assert events == []
    add(index, "letters:letters", description="letters")
    assert events == ["letters:letters"]
    assert [entry.tool.id for entry in view.tools()] == ["letters:letters"]
    index.unregister("letters:letters")
    assert events == ["letters:letters"] * 2


def test_counts_are_of_what_is_shown() -> None:
    """With a query, with filters, with neither."""
    index = mixed(InMemoryIndex(), 7)
    add(index, "open:other", description="something else", tags=("odd",))
    view = IndexView(index, shows_open)
    assert (view.facets().total, dict(view.facets().namespaces)) == (8, {"open": 8})
    assert view.facets("file").total == 7
    assert view.facets("file", filters=Filters(tags=("odd",))).total == 0
    assert view.facets(filters=Filters(tags=("odd",))).to_dict()["tags"] == {"odd": 1}


def test_no_lock_of_a_searcher_is_in_the_way() -> None:
    """A searcher may ask with its own lock held whether a tool is shown; that asks no index in turn."""

    class Locking(LexicalSearcher):
        def search(self, query: str, limit: int, accept: Any = None) -> Any:
            with guard:
                return super().search(query, limit, accept)

        def add(self, tool: Tool, bindings: Any = ()) -> None:
            with guard:
                super().add(tool, bindings)

    guard = threading.Lock()
    index = InMemoryIndex(Locking())
    add(index, *(f"hidden:secret{n}" for n in range(100)), "open:secret", description="secret")
    best = Toolset(namespaces=["open", "other"], query="secret").view(index)
    done: list[Any] = []

    def search(view: IndexView) -> None:
        done.append(view.search("secret", 5).ids())

    for view in (IndexView(index, shows_open), IndexView(index, shows_open, stable=False), best):
        thread = threading.Thread(target=search, args=(view,), daemon=True)
        thread.start()
        thread.join(10)
    assert done == [["open:secret"]] * 3


def test_documentation_of_what_is_shown() -> None:
    """Descriptions and examples are there for visible tools alone; what is written goes to the store behind."""
    index = InMemoryIndex()
    add(index, "hidden:delete_files", "open:delete_file")
    store = InMemoryDocStore(index)
    docs = DocsView(store, IndexView(index, shows_open))
    docs.register_doc("open:delete_file", DocEntry(summary="Deletes one."))
    docs.register_examples("open:delete_file", [ToolExample(title="One", args={})])
    assert docs.describe("open:delete_file", "summary").summary == "Deletes one."
    assert [example.title for example in docs.list_examples("open:delete_file")] == ["One"]
    for tool_id in ("hidden:delete_files", "absent:delete_files"):
        for ask in (docs.describe, docs.list_examples):
            with pytest.raises(ToolNotFoundError) as caught:
                ask(tool_id)
            assert caught.value.details["close"] == ["open:delete_file"]
    with pytest.raises(InvalidToolIDError):
        docs.describe("a b")


def test_two_filters_at_once() -> None:
    """Both hold; where they cannot, nothing passes; of two backends the first is said."""
    assert both_filters(None, None) == Filters()
    assert both_filters(Filters(namespace="a"), None) == both_filters(None, Filters(namespace="a"))
    one, two = Filters(namespace="a", tags=("x",), backend="mcp"), Filters(read_only=True, tags=("y",), backend="git")
    assert both_filters(one, two) == Filters(namespace="a", tags=("x", "y"), backend="mcp", read_only=True)
    assert both_filters(Filters(namespace="a"), Filters(namespace="b")) is None
    assert both_filters(Filters(read_only=True), Filters(read_only=False)) is None
