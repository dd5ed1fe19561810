"""A catalogue in a file: what is stored comes back as it was, at once, and part by part."""

from __future__ import annotations

import gc
import pickle
import sqlite3
import threading
from pathlib import Path

import pytest
from tests.discovery.catalogue.tools import ODD, SCHEMA, assert_same, filled, saved, some_tool, stored

from toolexec import Exec
from toolexec.discovery import BM25Config, BM25Searcher, InMemoryIndex, LexicalSearcher
from toolexec.discovery.catalogue import SQLiteCatalogue, fingerprint
from toolexec.errors import CatalogueError, ConfigurationError, ToolConflictError
from toolexec.model import LocalBinding, MCPBinding, ProviderBinding, Tool


@pytest.mark.full
def test_what_is_stored_comes_back(path: Path) -> None:
    """Every tool, binding, version and answer of a search is as it was."""
    index = filled(2500)
    with SQLiteCatalogue(path) as catalogue:
        assert catalogue.save(index) == len(index)
        assert len(catalogue) == len(index)
        assert catalogue.verify() == len(index)
    assert_same(stored(path), index)


def test_lookups_are_those_of_an_index(path: Path) -> None:
    """The highest version is found without one; what an index can do with changes works."""
    saved(path, filled(20))
    index = stored(path)
    found = index.find("git:log")
    assert found is not None
    assert found.tool.id == "git:log:1.10.0"
    assert index.find("git:lo") is None
    index.unregister("git:log:1.10.0")
    assert index.get("git:log").tool.version == "1.2.0"
    index.register(ODD[0][0], MCPBinding("more", "plain"))
    assert index.get("plain").bindings == (LocalBinding("plain"), MCPBinding("more", "plain"))
    assert index.get("plain").binding == LocalBinding("plain")
    with pytest.raises(ToolConflictError):
        index.register(ODD[0][0].replace(description="other"), LocalBinding("plain"))


def test_a_new_file_is_empty(path: Path) -> None:
    """There is an index to begin with."""
    index = stored(path)
    assert len(index) == 0
    assert index.namespaces() == []
    assert index.search("anything") == []
    assert_same(index, InMemoryIndex())


@pytest.mark.full
def test_saving_replaces_all(path: Path) -> None:
    """A tool that has left the index leaves the file, too."""
    saved(path, filled(3000, odd=False))
    saved(path, filled(5))
    assert_same(stored(path), filled(5))


def test_tools_are_made_when_they_are_looked_at(path: Path) -> None:
    """Several threads may look at once, and copies are whole; what an entry does not have it says as always."""
    saved(path, filled(300))
    index = stored(path)
    entries = index.tools()
    ready = threading.Barrier(4)
    seen: list[list[Tool]] = []

    def look() -> None:
        ready.wait(10)
        seen.append([entry.tool for entry in entries])

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(tools == [entry.tool for entry in filled(300).tools()] for tools in seen)
    assert all(tools == seen[0] for tools in seen)
    assert pickle.loads(pickle.dumps(seen[0])) == seen[0]
    fresh = stored(path).tools()[3]
    with pytest.raises(AttributeError, match="nothing"):
        _ = fresh.nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_the_collector_is_as_it_was(path: Path) -> None:
    """Opening leaves garbage collection on or off."""
    saved(path, filled())
    stored(path)
    assert gc.isenabled()
    gc.disable()
    try:
        stored(path)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_only_some_backends(path: Path) -> None:
    """Tools of others are as if they were not there; a tool with several bindings keeps those that are wanted."""
    saved(path, filled(30))
    with SQLiteCatalogue(path) as catalogue:
        index = catalogue.open(backends={"server1", "two"}, local=False)
    assert {b.backend for entry in index.tools() for b in entry.bindings} == {"server1", "two"}
    assert index.get("shop:many").bindings == (ProviderBinding("two", "m"),)
    assert index.get("shop:many").binding == ProviderBinding("two", "m")
    assert len(index) == 11
    assert {summary.id for summary in index.search("item1 item4 item2", 50)} >= {"space1:tool_1:1.1", "space4:tool_4"}
    assert "space2:tool_2" not in index.search("item2", 50).ids()
    with SQLiteCatalogue(path) as catalogue:
        here = catalogue.open(backends=())
    assert {b.kind for entry in here.tools() for b in entry.bindings} == {"local"}


def test_a_selector_chooses_among_several(path: Path) -> None:
    """The preferred binding is the selector's."""
    saved(path, filled())
    with SQLiteCatalogue(path) as catalogue:
        index = catalogue.open(selector=lambda bindings: bindings[-1])
    assert index.get("shop:many").binding == ProviderBinding("two", "m")


@pytest.mark.parametrize("config", [None, BM25Config(name_boost=1.0)])
def test_another_way_to_rank(path: Path, config: BM25Config | None) -> None:
    """With boosts of its own the index is built again; without a snapshot, too."""
    index = filled(300)
    saved(path, index)
    if config is None:
        with sqlite3.connect(path) as database:
            database.execute("DELETE FROM search")
        database.close()
    with SQLiteCatalogue(path) as catalogue:
        found = catalogue.open(config=config)
    expected = InMemoryIndex(BM25Searcher(config))
    expected.register_many((entry.tool, binding) for entry in index.tools() for binding in entry.bindings)
    assert_same(found, expected)


def test_another_searcher(path: Path) -> None:
    """A searcher of one's own is notified of every tool, and leaves no snapshot."""
    index = InMemoryIndex(LexicalSearcher())
    index.register(some_tool(1), MCPBinding("a", "b"))
    saved(path, index)
    with SQLiteCatalogue(path) as catalogue:
        found = catalogue.open(searcher=LexicalSearcher())
        assert catalogue.verify() == 1
    assert found.search("item1").score_type == "lexical"
    assert_same(found, index)


def test_a_damaged_snapshot_is_built_anew(path: Path) -> None:
    """The search index can always be made of the tools; `verify` says that it is damaged."""
    index = filled(300)
    saved(path, index)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE search SET data = substr(data, 1, 1000)")
    database.close()
    assert_same(stored(path), index)
    with SQLiteCatalogue(path) as catalogue, pytest.raises(CatalogueError, match="snapshot"):
        catalogue.verify()


# -- by backend -------------------------------------------------------------------------------------------------


def test_tools_of_a_backend(path: Path) -> None:
    """By the name of the backend, whatever its kind, with all bindings of each."""
    saved(path, filled(9))
    with SQLiteCatalogue(path) as catalogue:
        assert [tool.id for tool, _ in catalogue.tools_of("server1")] == [
            "space1:tool_1:1.1",
            "space2:tool_7:1.1",
            "space4:tool_4",
        ]
        assert catalogue.tools_of("two") == [ODD[8]]
        assert [tool.id for tool, _ in catalogue.tools_of("local")] == ["git:yes", "plain", "shop:many", "whole"]
        assert catalogue.tools_of("bro\ud800ken") == [ODD[7]]
        assert catalogue.tools_of("none") == []


def test_fingerprints(path: Path) -> None:
    """Fingerprints ignore the order, and differ for any other tool or binding."""
    saved(path, filled(9))
    with SQLiteCatalogue(path) as catalogue:
        before = catalogue.fingerprint_of("server1")
        tools = catalogue.tools_of("server1")
    assert before == fingerprint(reversed(tools)) == fingerprint(iter(tools))
    others = [fingerprint(tools[1:]), fingerprint([*tools, *tools]), fingerprint([])]
    others += [fingerprint([(tools[0][0].replace(description="x"), tools[0][1]), *tools[1:]])]
    others += [fingerprint([(tools[0][0], (MCPBinding("server1", "x"),)), *tools[1:]])]
    assert len({before, *others}) == 6


def test_replacing_the_tools_of_a_backend(path: Path) -> None:
    """New ones come, changed ones are replaced, gone ones go; the same again is not written."""
    saved(path, filled(9))
    fresh = [(some_tool(1, "new words"), MCPBinding("server1", "tool_1")), (some_tool(50), MCPBinding("server1", "x"))]
    with SQLiteCatalogue(path) as catalogue:
        assert catalogue.replace_tools("server1", fresh)
        assert {tool.id: (tool, bindings[0]) for tool, bindings in catalogue.tools_of("server1")} == {
            tool.id: (tool, binding) for tool, binding in fresh
        }
        before = catalogue.fingerprint_of("server1")
        assert not catalogue.replace_tools("server1", reversed(fresh))
        assert catalogue.fingerprint_of("server1") == before
        assert catalogue.verify() == len(filled(9)) - 1
        assert catalogue.open().search("new words")[0].id == "space1:tool_1:1.1"
        assert catalogue.replace_tools("server1", [])
        assert catalogue.tools_of("server1") == []
        catalogue.clear()
        assert catalogue.replace_tools("server1", fresh)
        assert catalogue.replace_tools("server1", [])
        assert catalogue.verify() == 0


def test_replacing_leaves_what_lives_elsewhere_too(path: Path) -> None:
    """Other bindings of a tool stay, and a tool with another definition does not take its place."""
    saved(path, filled())
    many = ODD[8][0]
    with SQLiteCatalogue(path) as catalogue:
        assert not catalogue.replace_tools("one", [(many, MCPBinding("one", "many"))])
        assert catalogue.replace_tools("one", [(many, MCPBinding("one", "renamed"))])
        assert set(catalogue.tools_of("one")[0][1]) == {*ODD[8][1][1:], MCPBinding("one", "renamed")}
        assert catalogue.replace_tools("one", [])
        assert catalogue.tools_of("two") == [(many, ODD[8][1][1:])]
        with pytest.raises(ToolConflictError, match="another definition"):
            catalogue.replace_tools("one", [(many.replace(description="x"), MCPBinding("one", "many"))])
        with pytest.raises(ConfigurationError, match="bound to mcp:other, not to one"):
            catalogue.replace_tools("one", [(many, MCPBinding("other", "many"))])
        assert catalogue.replace_tools("three", [(many, MCPBinding("three", "many"))])
        assert catalogue.tools_of("three")[0][1] == (*ODD[8][1][1:], MCPBinding("three", "many"))
        assert catalogue.verify() == len(ODD)


def test_clearing(path: Path) -> None:
    """Nothing is left."""
    saved(path, filled(5))
    with SQLiteCatalogue(path) as catalogue:
        catalogue.clear()
        assert len(catalogue.open()) == 0


def test_closing_twice_and_using_it_again(path: Path) -> None:
    """A closed catalogue opens its file again when it is used again."""
    catalogue = SQLiteCatalogue(path)
    catalogue.save(filled(3))
    catalogue.close()
    catalogue.close()
    assert len(catalogue) == len(filled(3))
    catalogue.close()


@pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf")])
def test_delays_that_make_no_sense(path: Path, delay: float) -> None:
    """Refuses invalid delays at once."""
    with pytest.raises(ConfigurationError, match="delay"):
        SQLiteCatalogue(path, delay=delay)


async def test_an_exec_over_it(path: Path) -> None:
    """Stored tools are found, described and, with their handlers there, run."""
    index = InMemoryIndex()
    index.register(Tool(name="add", namespace="math", description="Adds", input_schema=SCHEMA), LocalBinding("add"))
    saved(path, index)
    async with Exec(index=stored(path), local_handlers={"add": lambda args: args["title"]}) as ex:
        assert (await ex.search_tools("adds")).ids() == ["math:add"]
        assert (await ex.get_tool_doc("math:add")).tool == index.get("math:add").tool
        assert (await ex.run_tool("math:add", {"title": "x"})).value == "x"
