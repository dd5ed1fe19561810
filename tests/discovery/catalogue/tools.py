"""Tools and bindings of every shape that a catalogue has to keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolexec.discovery import InMemoryIndex
from toolexec.discovery.catalogue import SQLiteCatalogue
from toolexec.discovery.index import Index
from toolexec.model import Binding, LocalBinding, MCPBinding, ProviderBinding, Tool, ToolAnnotations
from toolexec.model.tool import Icon

SCHEMA = {"type": "object", "properties": {"title": {"type": "string", "description": "What it is called"}}}

ODD: list[tuple[Tool, tuple[Binding, ...]]] = [
    (Tool(name="plain", input_schema={}), (LocalBinding("plain"),)),
    (Tool(name="yes", namespace="git", input_schema=True), (LocalBinding("elsewhere"),)),
    (Tool(name="log", namespace="git", version="1.2.0", input_schema=SCHEMA), (MCPBinding("git", "log"),)),
    (Tool(name="log", namespace="git", version="1.10.0", input_schema=SCHEMA), (MCPBinding("git", "log"),)),
    (Tool(name="log", namespace="git", version="nightly", input_schema=SCHEMA), (MCPBinding("git", "other"),)),
    (
        Tool(name="file", namespace="git", input_schema=SCHEMA, output_schema={"type": "array"}, tags=["a", "B c"]),
        (ProviderBinding("with:colon and blank", "x:y"),),
    ),
    (
        Tool(
            name="whole",
            title="Whole\0thing",
            description="naïve 課題 \0 \x1f '\" \n",
            input_schema=SCHEMA,
            annotations=ToolAnnotations(title="T", read_only=True, destructive=False, open_world=True),
            icons=[Icon(src="https://x.example/a.png", mime_type="image/png", sizes=("1x1",), theme="dark")],
            meta={"summary": "short", "x": [1, {"y": None}]},
        ),
        (LocalBinding("whole"),),
    ),
    (
        Tool(name="halves", description="\ud83d broken \udc00", input_schema={"title": "\udfff"}, title="\ud800"),
        (MCPBinding("bro\ud800ken", "na\udc00me"),),
    ),
    (
        Tool(name="many", namespace="shop", input_schema={}, meta={"k": "\ud800"}),
        (MCPBinding("one", "many"), LocalBinding("shop:many"), ProviderBinding("two", "m")),
    ),
    *[
        (
            Tool(
                name=f"hints{read}{idem}{harm}{world}",
                input_schema={},
                annotations=ToolAnnotations(read_only=read, idempotent=idem, destructive=harm, open_world=world),
            ),
            (MCPBinding("hints", f"h{read}"),),
        )
        for read in (True, False)
        for idem in (True, False)
        for harm in (True, False, None)
        for world in (True, False, None)
    ],
]
"""Each tool that is unlike the others, with its bindings."""


def some_tool(number: int, words: str = "record of changes") -> Tool:
    """One of many tools that are much alike."""
    return Tool(
        name=f"tool_{number}",
        namespace=f"space{number % 5}",
        version=f"1.{number % 3}" if number % 2 else "",
        title=f"Tool {number}",
        description=f"Keeps the {words} of item{number}.",
        input_schema=SCHEMA,
        tags=["kept", f"t{number % 4}"],
    )


def filled(count: int = 0, *, odd: bool = True) -> InMemoryIndex:
    """An index with many tools that are alike, and the odd ones."""
    index = InMemoryIndex()
    for tool, bindings in ODD if odd else []:
        for binding in bindings:
            index.register(tool, binding)
    for number in range(count):
        tool = some_tool(number)
        index.register(tool, MCPBinding(f"server{number % 3}", tool.name))
    return index


def assert_same(left: Index, right: Index) -> None:
    """Both have the same tools with the same bindings, and find the same."""
    assert [(e.tool, e.bindings, e.binding, e.target) for e in left.tools()] == [
        (e.tool, e.bindings, e.binding, e.target) for e in right.tools()
    ]
    assert left.namespaces() == right.namespaces()
    assert len(left) == len(right)
    for query in ("", "item7", "recrods", "log", "課題", "kept"):
        assert left.search(query, 50, explain=True) == right.search(query, 50, explain=True)
        assert left.facets(query) == right.facets(query)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the catalogue is."""
    return tmp_path / "kept" / "tools.db"


def saved(path: Path, index: Index) -> None:
    """Store the index."""
    with SQLiteCatalogue(path) as catalogue:
        catalogue.save(index)


def stored(path: Path) -> Index:
    """The index as it is stored, and nothing else."""
    with SQLiteCatalogue(path) as catalogue:
        return catalogue.open()
