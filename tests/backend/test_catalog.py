"""An index in step with a backend."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import InMemoryIndex, Tool
from toolexec.backend import Catalog
from toolexec.errors import InvalidToolError
from toolexec.model.binding import Binding, LocalBinding, ProviderBinding
from toolexec.testing.memory import InMemoryBackend


def a_tool(name: str, description: str = "") -> Tool:
    """A tool of the backend."""
    return Tool(name=name, namespace="m", description=description, input_schema={"type": "object"})


@pytest.fixture
def index() -> InMemoryIndex:
    """An empty index."""
    return InMemoryIndex()


@pytest.fixture
def catalog(index: InMemoryIndex) -> Catalog:
    """The catalog of a backend called m."""
    return Catalog(index, InMemoryBackend("m"))


def shown(index: InMemoryIndex) -> list[str]:
    """Return the IDs in the index."""
    return [entry.tool.id for entry in index.tools()]


def test_tools_come_change_and_go(index: InMemoryIndex, catalog: Catalog) -> None:
    """The index shows exactly what was published last."""
    catalog.publish([a_tool("a"), a_tool("b")])
    assert shown(index) == ["m:a", "m:b"]
    catalog.publish([a_tool("b", "now with a description"), a_tool("c")])
    assert shown(index) == ["m:b", "m:c"]
    assert index.get("m:b").tool.description == "now with a description"
    assert index.get("m:b").binding == ProviderBinding("m", "b")
    catalog.withdraw()
    assert shown(index) == []
    catalog.withdraw()


def test_nothing_happens_when_nothing_has_changed(index: InMemoryIndex, catalog: Catalog) -> None:
    """A second publication of the same tools loses none of them."""
    for _ in range(2):
        catalog.publish([a_tool("a")])
        assert shown(index) == ["m:a"]
        assert index.get("m:a").bindings == (ProviderBinding("m", "a"),)


def test_a_tool_that_belongs_to_someone_else_is_left_out(index: InMemoryIndex, catalog: Catalog) -> None:
    """The reason is kept until the next publication, and the other's tool stays as it is."""
    index.register(a_tool("a", "mine"), LocalBinding("a"))
    catalog.publish([a_tool("a", "yours"), a_tool("b")])
    assert "another definition" in catalog.refused["m:a"]
    assert index.get("m:a").bindings == (LocalBinding("a"),)
    catalog.publish([a_tool("b")])
    assert catalog.refused == {}
    catalog.withdraw()
    assert shown(index) == ["m:a"]


def test_a_tool_that_two_host_stays_with_the_other(index: InMemoryIndex, catalog: Catalog) -> None:
    """Only the backend's own binding goes."""
    index.register(a_tool("a"), LocalBinding("a"))
    catalog.publish([a_tool("a")])
    assert len(index.get("m:a").bindings) == 2
    catalog.publish([])
    assert index.get("m:a").bindings == (LocalBinding("a"),)


def test_a_new_definition_of_a_tool_that_two_host(index: InMemoryIndex, catalog: Catalog) -> None:
    """The backend no longer hosts the old one, and may not replace it for the other: its binding goes."""
    catalog.publish([a_tool("a")])
    index.register(a_tool("a"), LocalBinding("a"))
    catalog.publish([a_tool("a", "changed")])
    assert list(catalog.refused) == ["m:a"]
    assert index.get("m:a").bindings == (LocalBinding("a"),)
    catalog.withdraw()
    assert shown(index) == ["m:a"]


def test_a_binding_that_changes(index: InMemoryIndex) -> None:
    """The new one takes the place of the old one."""

    class Renaming(InMemoryBackend):
        suffix = ""

        def bind(self, tool: Tool) -> Binding:
            if tool.name == "bad":
                raise InvalidToolError("no name", code="invalid_binding")
            return ProviderBinding("m", tool.name + self.suffix)

    backend = Renaming("m")
    catalog = Catalog(index, backend)
    catalog.publish([a_tool("a")])
    backend.suffix = "2"
    catalog.publish([a_tool("a"), a_tool("bad")])
    assert index.get("m:a").bindings == (ProviderBinding("m", "a2"),)
    assert catalog.refused == {"m:bad": "no name"}


def test_what_someone_else_has_taken_out_already(
    index: InMemoryIndex, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Withdrawing it again is no error, not even when that happens at the same moment."""
    catalog.publish([a_tool("a"), a_tool("b")])
    index.unregister("m:a")
    unregister = index.unregister

    def twice(*args: Any) -> None:
        unregister(*args)
        unregister(*args)

    monkeypatch.setattr(index, "unregister", twice)
    catalog.withdraw()
    assert shown(index) == []
