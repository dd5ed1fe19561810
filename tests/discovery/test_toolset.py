"""Toolsets: what is in them, how they combine, what they say of themselves."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from toolexec.discovery import Filters, InMemoryIndex, Registered
from toolexec.discovery.toolset import Toolset
from toolexec.errors import ConfigurationError
from toolexec.model import LocalBinding, MCPBinding, ProviderBinding, Tool, ToolAnnotations

READS, WRITES, DESTROYS = ToolAnnotations(read_only=True), ToolAnnotations(destructive=False), ToolAnnotations()


def tool(tool_id: str, hints: ToolAnnotations = READS, **parts: Any) -> Tool:
    namespace, _, name = tool_id.rpartition(":")
    version = ""
    if namespace.count(":"):
        namespace, name, version = tool_id.split(":")
    meta = {"category": parts.pop("category")} if "category" in parts else {}
    return Tool(
        name=name,
        namespace=namespace,
        version=version,
        annotations=hints,
        meta=meta,
        input_schema={"type": "object"},
        **parts,
    )


def catalogue() -> InMemoryIndex:
    """Nine tools of every kind."""
    index = InMemoryIndex()
    local = [
        tool("git:log", tags=["code", "safe"], category="vcs", description="Show the history of changes"),
        tool("git:push", WRITES, tags=["code"], category="vcs", description="Send changes to a remote"),
        tool("files:read", tags=["disk", "safe"], description="Read a file"),
        tool("files:wipe", DESTROYS, tags=["disk"], description="Remove every file"),
        tool("files:old:1.0.0", description="Read an old file"),
        tool("weather", category="world", description="Tell the temperature"),
    ]
    for each in local:
        index.register(each, LocalBinding(each.id))
    index.register(tool("mail:send", WRITES, description="Send a letter"), MCPBinding("post", "send"))
    index.register(tool("mail:list", description="List letters"), MCPBinding("post", "list"))
    index.register(tool("shop:buy", DESTROYS, description="Buy something"), ProviderBinding("shop", "buy"))
    return index


ALL = {entry.tool.id for entry in catalogue().tools()}


def within(toolset: Toolset, index: InMemoryIndex | None = None) -> set[str]:
    index = index if index is not None else catalogue()
    members, view = toolset.on(index), toolset.view(index)
    found = {entry.tool.id for entry in index.tools() if members(entry)}
    assert {entry.tool.id for entry in view.tools()} == found
    assert {summary.id for summary in view.search("", 100)} == found
    assert {tool_id for tool_id in ALL if view.find(tool_id) is not None} == found
    return found


CONDITIONS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a namespace": ({"namespaces": "git"}, {"git:log", "git:push"}),
    "any of two namespaces": ({"namespaces": ["git", "shop"]}, {"git:log", "git:push", "shop:buy"}),
    "no namespace": ({"namespaces": [""]}, {"weather"}),
    "any of the tags": ({"any_tags": ["Code", "disk"]}, {"git:log", "git:push", "files:read", "files:wipe"}),
    "all of the tags": ({"all_tags": ["code", "safe"]}, {"git:log"}),
    "none of the tags": ({"no_tags": ["code", "disk"], "backends": "local"}, {"files:old:1.0.0", "weather"}),
    "a category": ({"categories": ["vcs"]}, {"git:log", "git:push"}),
    "no category": ({"categories": "", "namespaces": "mail"}, {"mail:send", "mail:list"}),
    "a kind of backend": ({"backends": "mcp"}, {"mail:send", "mail:list"}),
    "a backend": ({"backends": ["shop"]}, {"shop:buy"}),
    "a backend in full": ({"backends": ["mcp:post", "provider:post"]}, {"mail:send", "mail:list"}),
    "reads": ({"read_only": True}, {"git:log", "files:read", "files:old:1.0.0", "weather", "mail:list"}),
    "does not destroy": ({"destructive": False, "namespaces": "git"}, {"git:log", "git:push"}),
    "IDs": ({"allow": ["git:log", "weather"]}, {"git:log", "weather"}),
    "patterns": ({"allow": ["*:l?[sg]*"]}, {"git:log", "mail:list"}),
    "all versions": ({"allow": "files:ol?"}, {"files:old:1.0.0"}),
    "one version": ({"allow": "files:old:1.*"}, {"files:old:1.0.0"}),
    "whole IDs": ({"allow": "git"}, set()),
    "letter case": ({"allow": "GIT:*"}, set()),
    "deny wins": ({"allow": "git:*", "deny": ["git:p*"]}, {"git:log"}),
    "deny alone": ({"deny": ["files:*", "git:*", "mail:*", "files:old"]}, {"weather", "shop:buy"}),
    "all must pass": ({"namespaces": ["git", "files"], "read_only": True, "any_tags": "code"}, {"git:log"}),
    "a search": ({"query": "letters", "limit": 1}, {"mail:list"}),
    "a search within": ({"query": "file", "limit": 1, "no_tags": "disk"}, {"files:old:1.0.0"}),
    "a function": ({"where": lambda entry: len(entry.tool.name) == 3}, {"git:log", "files:old:1.0.0", "shop:buy"}),
    "no condition": ({}, set()),
    "an empty list of namespaces": ({"namespaces": []}, set()),
    "an empty list of tags": ({"any_tags": []}, set()),
    "an empty list of categories": ({"categories": []}, set()),
    "an empty list of backends": ({"backends": []}, set()),
    "an empty list of IDs": ({"allow": []}, set()),
    "an empty list of toolsets": ({"any_of": []}, set()),
    "nothing taken from nothing": ({"deny": [], "all_tags": [], "no_tags": [], "none_of": []}, set()),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(name: str) -> None:
    """Each condition lets in what it says, by every way to look; nothing said means nothing in."""
    given, expected = CONDITIONS[name]
    assert within(Toolset(**given)) == expected


def test_the_backend_that_calls_go_to_counts() -> None:
    """A tool that is also elsewhere is where its calls go."""
    index = InMemoryIndex()
    both = tool("git:log")
    for binding in (MCPBinding("hub", "log"), LocalBinding("git:log")):
        index.register(both, binding)
    assert within(Toolset(backends="local"), index) == {"git:log"}
    assert within(Toolset(backends="mcp"), index) == set()


GIT, SAFE, DISK = Toolset("git", namespaces="git"), Toolset("safe", read_only=True), Toolset("disk", any_tags="disk")


def test_they_combine() -> None:
    """Toolsets combine by and, or, without; the parts stay as they are."""
    assert within(GIT & SAFE) == {"git:log"}
    assert within(GIT | DISK) == {"git:log", "git:push", "files:read", "files:wipe"}
    assert within((GIT | DISK) - SAFE) == {"git:push", "files:wipe"}
    assert within(SAFE - GIT - DISK) == {"files:old:1.0.0", "weather", "mail:list"}
    assert within(GIT | Toolset()) == within(GIT)
    assert within(GIT & Toolset()) == set()
    assert within(GIT - Toolset()) == within(GIT)
    assert Toolset.union([GIT, DISK, SAFE], "all three") == Toolset("all three", any_of=[GIT, DISK, SAFE])
    assert within(Toolset.union([])) == set()
    assert (GIT & SAFE & DISK).all_of == (GIT, SAFE, DISK)


def test_a_search_in_a_part() -> None:
    """Each part with a query has its own best tools."""
    letters = Toolset("letters", query="letters", limit=1)
    assert within(letters | GIT) == {"mail:list", "git:log", "git:push"}
    assert within(Toolset(namespaces="mail") - letters) == {"mail:send"}
    assert letters.is_ranked
    assert (GIT & letters).is_ranked
    assert not GIT.is_ranked


def test_they_are_live() -> None:
    """Additions are in at once, changes go, and a better tool takes the position of the best."""
    index = catalogue()
    safe, best = Toolset(read_only=True).view(index), Toolset(query="history", limit=1).view(index)
    assert [entry.tool.id for entry in best.tools()] == ["git:log"]
    index.register(tool("history", description="history history"), LocalBinding("history"))
    assert safe.find("history") is not None
    assert "history" in safe.search("history", 5).ids()
    assert [entry.tool.id for entry in best.tools()] == ["history"]
    index.replace(tool("history", WRITES, description="history"), LocalBinding("history"))
    assert safe.find("history") is None
    index.unregister("history")
    assert [entry.tool.id for entry in best.tools()] == ["git:log"]


def test_a_function_that_fails_lets_nothing_in() -> None:
    """Neither into what it is about, nor by way of what it is taken away from."""

    def broken(entry: Registered) -> bool:
        raise RuntimeError(entry.tool.id)

    doubtful = Toolset("doubtful", where=broken)
    for toolset in (doubtful, GIT - doubtful, GIT | doubtful, Toolset(query="file", none_of=[doubtful])):
        found = within(toolset)
        assert found == (set() if toolset != GIT | doubtful else {"git:log", "git:push"})


def test_filters_are_handed_on() -> None:
    """Filters that an index can apply are among `filters`; parts that must all hold add theirs."""
    full = Toolset(namespaces="git", all_tags=["a"], backends="mcp", read_only=True)
    assert full.filters == Filters(namespace="git", tags=("a",), backend="mcp", read_only=True)
    assert Toolset(namespaces=["a", "b"], backends=["mcp:x"], any_tags="q").filters == Filters()
    assert (GIT & SAFE).filters == Filters(namespace="git", read_only=True)
    assert (GIT & Toolset(namespaces="other")).filters in (Filters(namespace="git"), Filters(namespace="other"))
    assert within(GIT & Toolset(namespaces="files")) == set()
    assert (GIT | SAFE).filters == Filters()


def test_in_words() -> None:
    """`describe` says all of it."""
    assert Toolset().describe() == "no tools"
    assert Toolset(deny="a:*").describe() == "all tools, except those with an ID like a:*"
    full = Toolset(
        "mine",
        namespaces=["", "b"],
        any_tags=["c", "d"],
        all_tags=["e", "f"],
        no_tags="g",
        categories=["h"],
        backends="mcp",
        read_only=False,
        destructive=True,
        idempotent=True,
        open_world=False,
        allow=[f"x{n}" for n in range(10)],
        where=len,
        all_of=[GIT, Toolset(allow="y")],
        any_of=[],
        query="some words",
        limit=3,
        deny=["z"],
        none_of=[SAFE],
    )
    assert full.describe() == (
        'mine: tools of the namespace "" or b, tagged c or d, tagged e and f, not tagged g, of the category h, '
        "on the backend mcp, that may write, that may destroy, that can be repeated, that do not reach the outside, "
        "with an ID like x0 or x1 or x2 or x3 or x4 or x5 or x6 or x7 or 2 more, that len accepts, "
        'in each of git, (tools with an ID like y), in any of (none), among the best 3 for "some words", '
        "except those with an ID like z and those in safe"
    )
    assert len(Toolset(allow=["x" * 500] * 8).describe()) == 2000


def test_as_data_and_back() -> None:
    """A toolset is what its data says; only functions cannot be written down."""
    toolset = Toolset(
        "mine",
        description="What I use",
        namespaces=["a"],
        read_only=False,
        query="words",
        limit=3,
        deny="a:b",
        any_of=[Toolset(allow="a:*"), Toolset("deep", all_of=[Toolset(no_tags="x")])],
    )
    data = toolset.to_dict()
    assert data == {
        "name": "mine",
        "description": "What I use",
        "namespaces": ["a"],
        "read_only": False,
        "deny": ["a:b"],
        "query": "words",
        "limit": 3,
        "any_of": [{"allow": ["a:*"]}, {"name": "deep", "all_of": [{"no_tags": ["x"]}]}],
    }
    assert Toolset.from_dict(data) == toolset
    assert Toolset.from_dict({"allow": "a"}, "given").name == "given"
    assert Toolset().to_dict() == {}
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Toolset("f", where=len).to_dict()


def nested(depth: int) -> dict[str, Any]:
    data: dict[str, Any] = {"allow": "a"}
    for _ in range(depth):
        data = {"any_of": [data]}
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"namespace": "a"}, "did you mean namespaces"),
        ({"zzz": 1}, "the keys are name,"),
        ({"where": "len"}, "unknown key 'where'"),
        ([], "must be a mapping"),
        ({"allow": []}, "allow of a toolset is empty"),
        ({"deny": None}, "deny of a toolset is empty"),
        ({"any_of": []}, "any_of of a toolset is empty"),
        ({"any_of": "name"}, "must be a list of toolsets"),
        ({"any_of": ["name"]}, "must be a mapping"),
        ({"allow": 5}, "must be a list of strings"),
        ({"allow": [5]}, "must be a text"),
        ({"allow": "x" * 501}, "at most 500"),
        ({"allow": ["x"] * 10_001}, "at most 10000"),
        ({"allow": [f"{n}*" for n in range(1001)]}, "more than 1000 patterns"),
        ({"namespaces": "git*"}, "allow takes patterns"),
        ({"any_tags": ["!!"]}, "is not a tag"),
        ({"read_only": "yes"}, "must be true or false"),
        ({"limit": 0}, "limit of a toolset must be"),
        ({"limit": True}, "limit of a toolset must be"),
        ({"name": 5}, "name of a toolset must be a text"),
        (nested(16), "16 deep"),
    ],
)
def test_data_that_makes_no_sense(data: Any, message: str) -> None:
    """Refuses invalid data with a message that names the fix."""
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        Toolset.from_dict(data)


def test_what_else_makes_no_sense() -> None:
    """Values that no data can have are refused as well; sets are lists."""
    with pytest.raises(ConfigurationError, match="a function of a tool"):
        Toolset(where="len")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a list of toolsets"):
        Toolset(any_of=["git"])  # type: ignore[list-item]
    assert Toolset(allow={"b", "a"}).allow == ("a", "b")  # type: ignore[arg-type]
    assert Toolset(none_of=GIT).none_of == (GIT,)  # type: ignore[arg-type]


def test_a_toolset_cannot_grow_without_end() -> None:
    """One that is made of itself over and over is refused before it is slow."""
    toolset = GIT
    with pytest.raises(ConfigurationError, match="at most 500 others"):
        for _ in range(16):
            toolset = Toolset(any_of=[toolset, toolset, toolset])
    assert toolset.size <= 500


def test_hostile_patterns_are_quick() -> None:
    """A pattern that would make a naive matcher go back and forth is done in one pass."""
    index = InMemoryIndex()
    long = tool(f"{'a' * 128}:{'a' * 128}")
    index.register(long, LocalBinding("x"))
    hostile = Toolset(allow=[f"{'*a' * 249}b", "[z-a]*", "[", "[!a]?*[]"])
    assert [entry.tool.id for entry in hostile.view(index).tools()] == []


def test_many_threads() -> None:
    """A view that is asked from many threads while tools come and go never shows what is not in."""
    index = catalogue()
    view = Toolset(query="letters", namespaces="mail", limit=5).view(index)
    wrong: list[str] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            found = [entry.tool.id for entry in view.tools()] + view.search("letters", 50).ids()
            wrong.extend(tool_id for tool_id in found if not tool_id.startswith("mail:"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(100):
        for namespace in ("mail", "spam"):
            index.register(tool(f"{namespace}:letters{number}", description="letters"), LocalBinding("x"))
        index.unregister(f"mail:letters{number}")
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert {entry.tool.id for entry in view.tools()} <= {"mail:list", "mail:send"}
