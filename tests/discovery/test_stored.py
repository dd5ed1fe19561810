"""An index whose tools were stored: it is an index like others, and gives way to what its backends say now."""

from __future__ import annotations

import pytest

from toolexec.backend import ProviderBackend
from toolexec.backend.catalog import Catalog
from toolexec.discovery import BM25Searcher
from toolexec.discovery.index import Registered
from toolexec.discovery.stored import StoredIndex
from toolexec.errors import ToolConflictError
from toolexec.model import LocalBinding, MCPBinding, ProviderBinding, Tool
from toolexec.testing.index_suite import check_index


def tool(name: str, description: str = "") -> Tool:
    return Tool(name=name, namespace="git", description=description, input_schema={})


def stored(*names: str, backend: str = "git") -> StoredIndex:
    """An index with stored tools of one backend."""
    entries: dict[str, Registered] = {}
    searcher = BM25Searcher()
    for name in names:
        binding = ProviderBinding(backend, name)
        entries[f"git:{name}"] = Registered(tool(name), (binding,), binding)
        searcher.add(tool(name), [binding])
    return StoredIndex(entries, searcher, by_backend={backend: list(entries)})


def backend(name: str = "git") -> ProviderBackend:
    return ProviderBackend(name, lambda name, args: name)


def test_it_is_an_index() -> None:
    """An empty one passes the contract suite for indexes."""
    check_index(lambda: StoredIndex({}, BM25Searcher()))


def test_what_is_not_listed_any_more_goes() -> None:
    """When the backend lists its tools, gone ones go, changed ones are replaced, and the others stay untouched."""
    index = stored("log", "push", "gone")
    index.register(tool("gone"), LocalBinding("git:gone"))
    heard: list[tuple[str, str]] = []
    index.on_change(lambda event: heard.append((event.type, event.tool_id)))
    catalog = Catalog(index, backend())
    catalog.publish([tool("log"), tool("push", "changed"), tool("new")])
    assert sorted(heard) == [
        ("backend_removed", "git:gone"),
        ("registered", "git:new"),
        ("updated", "git:push"),
    ]
    assert index.get("git:gone").bindings == (LocalBinding("git:gone"),)
    assert index.search("changed").ids() == ["git:push"]
    catalog.publish([])
    assert [entry.tool.id for entry in index.tools()] == ["git:gone"]


def test_other_backends_keep_theirs() -> None:
    """Only what was stored of the backend itself is its to withdraw; not what another kind has under its name."""
    index = stored("log", backend="one")
    Catalog(index, backend("two")).publish([])
    assert index.has_stored("one")
    other = StoredIndex(dict(index._entries), BM25Searcher(), by_backend={"one": ["git:log", "git:unknown"]})
    other.unregister("git:log")
    other.register(tool("log"), MCPBinding("one", "log"))
    Catalog(other, backend("one")).publish([])
    assert len(other) == 1


def test_a_backend_that_is_removed_takes_its_stored_tools_along() -> None:
    """Removes them even if the backend was never started."""
    index = stored("log", "push")
    Catalog(index, backend()).withdraw()
    assert len(index) == 0
    assert not index.has_stored("git")
    assert index.take_stored("git") == ()


def test_stored_tools_give_way() -> None:
    """A tool with the same ID and another definition takes the place of one that was not seen again, and of no other."""
    index = stored("log", "push")
    index.register(tool("log", "mine"), LocalBinding("git:log"))
    assert index.get("git:log").bindings == (LocalBinding("git:log"),)
    assert index.search("mine").ids() == ["git:log"]
    catalog = Catalog(index, backend())
    catalog.publish([tool("log"), tool("push")])
    assert "git:log" in catalog.refused
    with pytest.raises(ToolConflictError):
        index.register(tool("push", "mine"), LocalBinding("git:push"))
    assert index.get("git:push").bindings == (ProviderBinding("git", "push"),)
