"""What every `Index` must do, as plain functions: run them with any test framework, or with none."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from toolexec.discovery.index import BulkIndex, ChangeEvent, Index, bulk, get_tool
from toolexec.discovery.summary import Filters, Summary
from toolexec.discovery.view import browsable
from toolexec.errors import (
    BackendNotFoundError,
    ConfigurationError,
    InvalidCursorError,
    InvalidToolIDError,
    ToolConflictError,
    ToolNotFoundError,
)
from toolexec.model.binding import LocalBinding, MCPBinding, ProviderBinding
from toolexec.model.tool import Tool
from toolexec.testing.report import Report, checks_of

MakeIndex: TypeAlias = Callable[[], Index]
"""Makes a new, empty index whose searcher can page."""


def _tool(tool_id: str, description: str = "", **parts: Any) -> Tool:
    namespace, _, name = tool_id.rpartition(":")
    parts = {"input_schema": {"type": "object"}, **parts}
    return Tool(name=name, namespace=namespace, description=description, **parts)


def _filled(make: MakeIndex) -> Index:
    index = make()
    for tool_id, description in (
        ("git:commit", "Record changes"),
        ("git:log", "Show the history of changes"),
        ("docker:run", "Start a container"),
        ("weather", "Tells the temperature"),
    ):
        index.register(_tool(tool_id, description), LocalBinding(tool_id))
    return index


def _ids(summaries: Collection[Summary]) -> list[str]:
    return [summary.id for summary in summaries]


@contextmanager
def _refuses(what: str, *kinds: type[Exception]) -> Any:
    try:
        yield
    except kinds:
        return
    raise AssertionError(f"{what} must raise {' or '.join(kind.__name__ for kind in kinds)}")


def _unchanged(index: Index, what: str, *, version: bool = True) -> AbstractContextManager[None]:
    def state() -> tuple[Any, ...]:
        known = browsable(index).namespaces()
        return version and index.version, len(index), [entry.bindings for entry in index.tools()], known

    @contextmanager
    def watch() -> Any:
        before = state()
        yield
        assert before == state(), f"{what} must leave the index as it was"

    return watch()


def finds_what_was_registered(make: MakeIndex) -> None:
    """Require that a registered tool is found by its ID, with and without a namespace, with its binding."""
    index = _filled(make)
    entry = get_tool(index, "git:log")
    assert entry.tool.description == "Show the history of changes", "get returned another tool"
    assert entry.binding == LocalBinding("git:log"), "get returned another binding"
    assert entry.bindings == (LocalBinding("git:log"),), "the tool has one binding"
    assert get_tool(index, "weather").tool.id == "weather", "a tool without a namespace must be found by its name"
    assert len(index) == 4, "len must count the tools"
    assert [e.tool.id for e in index.tools()] == sorted(e.tool.id for e in index.tools()), "tools() must go by ID"


def tells_unknown_from_malformed(make: MakeIndex) -> None:
    """`find` gives None; `get` raises, and offers similar IDs for an unknown one."""
    index = _filled(make)
    assert index.find("git:push") is None, "an unknown tool must be None"
    with _refuses("an unknown ID", ToolNotFoundError):
        get_tool(index, "git:push")
    for malformed in ("", "a::c", ":a", "a:", "a:b:c:d", "a b"):
        with _refuses(f"the ID {malformed!r}", InvalidToolIDError):
            get_tool(index, malformed)
    close: Any = ()
    try:
        get_tool(index, "git:comit")
    except ToolNotFoundError as error:
        close = error.details["close"]
    assert "git:commit" in close, f"git:comit must suggest git:commit, not {close}"


def keeps_several_bindings(make: MakeIndex) -> None:
    """Bindings keep the order of registration; the default choice is local, then provider, then mcp."""
    index = make()
    tool = _tool("git:log", "History")
    remote, hosted, local = MCPBinding("git", "log"), ProviderBinding("a:b", "c"), LocalBinding("log")
    for binding in (remote, hosted, local, remote):
        index.register(tool, binding)
    entry = get_tool(index, "git:log")
    assert entry.bindings == (remote, hosted, local), f"bindings are {entry.bindings}"
    assert entry.binding == local, "the local binding must be preferred"
    index.register(tool, ProviderBinding("a", "b:c"))
    assert len(get_tool(index, "git:log").bindings) == 4, "('a:b', 'c') and ('a', 'b:c') are two bindings"


def refuses_another_definition(make: MakeIndex) -> None:
    """Require that a known ID with another definition raises, and that nothing changes."""
    index = _filled(make)
    with _unchanged(index, "a refused registration"), _refuses("another description", ToolConflictError):
        index.register(_tool("git:log", "Something else"), LocalBinding("other"))
    with _unchanged(index, "a refused registration"), _refuses("another schema", ToolConflictError):
        schema = {"type": "object", "required": ["a"]}
        index.register(_tool("git:log", "Show the history of changes", input_schema=schema), LocalBinding("other"))


def accepts_the_same_definition(make: MakeIndex) -> None:
    """Require that another form or order of keys is the same schema; new tags replace the old ones."""
    index = make()
    index.register(_tool("a:b", tags=["old"], input_schema={"type": "object", "required": ["x"]}), LocalBinding("one"))
    same = _tool("a:b", tags=["new"], input_schema='{"required": ["x"], "type": "object"}')
    index.register(same, LocalBinding("two"))
    assert len(get_tool(index, "a:b").bindings) == 2, "both bindings must be there"
    assert get_tool(index, "a:b").tool.tags == ("new",), "tags must be replaced"


def registers_all_or_none(make: MakeIndex) -> None:
    """`register_many` with one bad item changes nothing; with good ones all are there; an empty batch is fine."""
    index = _filled(make)
    at_once = isinstance(index, BulkIndex)  # else what was done is undone, and the version grows
    good, bad = _tool("new:one"), _tool("git:log", "Another")
    with (
        _unchanged(index, "a refused batch", version=at_once),
        _refuses("a batch with a conflict", ToolConflictError),
    ):
        bulk(index).register_many([(good, LocalBinding("one")), (bad, LocalBinding("two"))])
    twice = [(_tool("new:a", "x"), LocalBinding("a")), (_tool("new:a", "y"), LocalBinding("b"))]
    with (
        _unchanged(index, "a refused batch", version=at_once),
        _refuses("a batch that contradicts itself", ToolConflictError),
    ):
        bulk(index).register_many(twice)
    with _unchanged(index, "an empty batch"):
        bulk(index).register_many([])
    bulk(index).register_many((_tool(f"new:t{i}"), LocalBinding(f"t{i}")) for i in range(3))
    assert len(index) == 7, "all three must be there"


def replaces_its_own_definition(make: MakeIndex) -> None:
    """`replace` takes the new definition when the binding is the tool's only one, and refuses it otherwise."""
    index = _filled(make)
    bulk(index).replace(_tool("weather", "Forecasts rain"), LocalBinding("weather"))
    assert get_tool(index, "weather").tool.description == "Forecasts rain", "the new definition must be there"
    assert _ids(index.search("forecasts")) == ["weather"], "the new words must be found"
    assert index.search("temperature") == [], "the old words must be gone"
    with _unchanged(index, "a refused replacement"), _refuses("a foreign binding's definition", ToolConflictError):
        bulk(index).replace(_tool("weather", "Another"), MCPBinding("w", "weather"))


def unregisters_bindings_and_tools(make: MakeIndex) -> None:
    """Removing one of two bindings keeps the tool; removing the last removes the tool and its namespace."""
    index = _filled(make)
    remote = MCPBinding("docker", "run")
    index.register(get_tool(index, "docker:run").tool, remote)
    index.unregister("docker:run", LocalBinding("docker:run"))
    assert get_tool(index, "docker:run").binding == remote, "the other binding must be chosen now"
    with _unchanged(index, "a refused removal"), _refuses("an unknown binding", BackendNotFoundError):
        index.unregister("docker:run", LocalBinding("docker:run"))
    with _unchanged(index, "a refused removal"), _refuses("an unknown tool", ToolNotFoundError):
        index.unregister("no:tool")
    index.unregister("docker:run", remote)
    assert index.find("docker:run") is None, "without bindings the tool must be gone"
    assert browsable(index).namespaces() == ["", "git"], f"the namespace must be gone: {browsable(index).namespaces()}"
    assert index.search("container") == [], "a removed tool must not be found"
    index.unregister("git:log")
    assert len(index) == 2, "unregister without a binding must remove the tool"


def resolves_versions(make: MakeIndex) -> None:
    """`namespace:name` finds the highest version by precedence, not by text; a whole ID finds exactly that one."""
    index = make()
    for version in ("1.9.0", "1.10.0", "1.10.0-rc.1", "nightly"):
        index.register(_tool("ns:t").replace(version=version), LocalBinding(version))
    found = index.find("ns:t")
    assert found is not None, "ns:t must find a version"
    assert found.tool.version == "1.10.0", f"ns:t must find 1.10.0, not {found.tool.version}"
    assert get_tool(index, "ns:t:1.9.0").tool.version == "1.9.0", "a whole ID must find exactly that version"
    index.unregister("ns:t:1.10.0")
    assert get_tool(index, "ns:t").tool.version == "1.10.0-rc.1", "the next best version must be found now"


def searches_with_scores_and_limits(make: MakeIndex) -> None:
    """Results are summaries with a score, best first, at most *limit*; an empty query lists by ID."""
    index = _filled(make)
    results = index.search("changes", 5)
    assert set(_ids(results)) == {"git:commit", "git:log"}, f"'changes' found {_ids(results)}"
    assert all(result.score is not None and result.score > 0 for result in results), "results need scores"
    assert _ids(index.search("", 2)) == ["docker:run", "git:commit"], "an empty query must list by ID"
    assert index.search("changes", 0) == [], "a limit of 0 must give nothing"
    assert index.search("terraform") == [], "an unknown word must find nothing"


def searches_with_filters(make: MakeIndex) -> None:
    """Filters narrow a search before the limit is applied, and none means all."""
    index = _filled(make)
    assert _ids(index.search("", 1, filters=Filters(namespace="git"))) == ["git:commit"], "namespace filter"
    assert _ids(index.search("", 5, filters=Filters(namespace=""))) == ["weather"], "'' selects the bare tools"
    assert len(index.search("", 5, filters=Filters())) == 4, "an empty filter must let all through"
    assert index.search("", 5, filters=Filters(backend="mcp")) == [], "backend filter"


def pages_through_everything(make: MakeIndex) -> None:
    """Pages together give each result once, in the order of `search`; the last one has no cursor."""
    index = _filled(make)
    for query in ("", "changes"):
        found: list[str] = []
        cursor: str | None = None
        for _ in range(10):
            page = browsable(index).search_page(query, 1, cursor=cursor)
            found += _ids(page.items)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == _ids(index.search(query, 100)), f"pages of {query!r} gave {found}"
    assert browsable(index).search_page("", 10**30).next_cursor is None, "a huge limit must give one page"
    first = browsable(index).namespaces_page(2)
    second = browsable(index).namespaces_page(2, cursor=first.next_cursor)
    assert first.items + second.items == ("", "docker", "git"), "namespace pages must give each once"


def binds_cursors_to_their_question(make: MakeIndex) -> None:
    """Require that a damaged cursor is refused, one of another query, filter, method, index or version, and a limit of
    0.
    """
    index = _filled(make)
    pages = browsable(index)
    cursor = pages.search_page("", 1).next_cursor
    assert cursor is not None, "there must be a second page"
    foreign = (
        ("another query", lambda: pages.search_page("git", 1, cursor=cursor)),
        (
            "another filter",
            lambda: pages.search_page("", 1, cursor=cursor, filters=Filters(namespace="git")),
        ),
        ("another method", lambda: pages.namespaces_page(1, cursor=cursor)),
        ("another index", lambda: browsable(_filled(make)).search_page("", 1, cursor=cursor)),
        ("a damaged cursor", lambda: pages.search_page("", 1, cursor=f"{cursor[:-2]}xx")),
        ("no cursor at all", lambda: pages.search_page("", 1, cursor="not a cursor")),
        ("other text", lambda: pages.search_page("", 1, cursor="bm90IGpzb24=")),
    )
    for what, ask in foreign:
        with _refuses(what, InvalidCursorError):
            ask()
    for limit in (0, -1):
        with _refuses(f"a limit of {limit}", ConfigurationError):
            pages.search_page("", limit)
    if isinstance(index, BulkIndex):
        index.refresh()
    else:
        index.unregister("weather")
    with _refuses("a stale cursor", InvalidCursorError):
        pages.search_page("", 1, cursor=cursor)


def lists_namespaces(make: MakeIndex) -> None:
    """Namespaces are sorted; the empty one counts when a tool has none."""
    assert browsable(make()).namespaces() == [], "an empty index has no namespaces"
    assert browsable(_filled(make)).namespaces() == ["", "docker", "git"], "namespaces must be sorted and complete"


def tells_listeners_what_happened(make: MakeIndex) -> None:
    """Require one event for each change, with type, tool, binding and version; none for a repeated registration."""
    index = make()
    events: list[ChangeEvent] = []
    stop = index.on_change(events.append)
    tool, local, remote = _tool("a:b"), LocalBinding("b"), MCPBinding("a", "b")
    index.register(tool, local)
    index.register(tool, local)
    index.register(tool, remote)
    index.register(tool.replace(tags=["x"]), local)
    index.unregister("a:b", remote)
    index.unregister("a:b", local)
    expected = ["registered", "backend_added", "updated", "backend_removed", "tool_removed"]
    if isinstance(index, BulkIndex):
        assert index.refresh() == index.version, "refresh must give the new version"
        expected.append("refreshed")
    kinds = [event.type for event in events]
    assert kinds == expected, f"events were {kinds}"
    assert [event.tool_id for event in events[:5]] == ["a:b"] * 5, "events must name the tool"
    assert events[1].binding == remote, "events must name the binding"
    versions = [event.version for event in events]
    assert versions == sorted(set(versions)), f"versions must rise: {versions}"
    assert versions[-1] == index.version, "the last event must have the index's version"
    stop()
    stop()
    index.register(tool, local)
    assert len(events) == len(expected), "a stopped listener must get no events"


def delivers_without_locks(make: MakeIndex) -> None:
    """Require that a listener may use and change the index, stop itself or raise; all get the events in order."""
    index = make()
    seen: list[str] = []

    def raises(event: ChangeEvent) -> None:
        raise RuntimeError("a listener's own problem")

    def follows_up(event: ChangeEvent) -> None:
        if event.tool_id == "a:first":
            stop()
            index.register(_tool("a:second"), LocalBinding("second"))
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(len, index).result(timeout=30) == 2, "another thread must be able to read"

    index.on_change(raises)
    stop = index.on_change(follows_up)
    index.on_change(lambda event: seen.append(event.tool_id))
    index.register(_tool("a:first"), LocalBinding("first"))
    assert seen == ["a:first", "a:second"], f"events came as {seen}"


def stands_many_threads(make: MakeIndex) -> None:
    """Threads that register, search, list and remove at once lose nothing and see events in order."""
    index = make()
    versions: list[int] = []
    index.on_change(lambda event: versions.append(event.version))

    def work(turn: int) -> None:
        keep, drop = _tool(f"ns{turn % 5}:keep{turn}", "keep me"), _tool(f"ns{turn % 5}:drop{turn}")
        index.register(keep, LocalBinding(keep.name))
        index.register(drop, LocalBinding(drop.name))
        assert get_tool(index, keep.id).tool == keep, "a registered tool must be there"
        assert index.search(keep.name, 1), "a registered tool must be found"
        browsable(index).namespaces()
        index.tools()
        index.unregister(drop.id)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(60)))
    assert len(index) == 60, f"60 tools must be left, not {len(index)}"
    assert len(index.search("keep", 1000)) == 60, "the searcher must know exactly those"
    assert versions == sorted(versions), "events must come in the order of the changes"
    assert len(versions) == 180, f"there were 180 changes, {len(versions)} events"


INDEX_CHECKS: tuple[Callable[[MakeIndex], None], ...] = tuple(checks_of(__name__).values())
"""Every check; each takes a factory of empty indexes and raises AssertionError with the broken promise."""


def check_index(make: MakeIndex, *, known_gaps: Collection[str] = ()) -> None:
    """Put the indexes that *make* gives through every check; see `Report` for known gaps and for what is raised."""
    checks = {check.__name__: check for check in INDEX_CHECKS}
    report = Report("index", checks, known_gaps)
    for name, check in checks.items():
        with report.check(name):
            check(make)
    report.conclude()
