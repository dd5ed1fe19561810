"""Bindings say where a tool lives."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import InvalidToolError
from toolexec.model import Binding, LocalBinding, MCPBinding, ProviderBinding, binding_from_dict, prefer_local

LOCAL, PROVIDER, MCP = LocalBinding("h"), ProviderBinding("p", "t"), MCPBinding("s", "t")


@pytest.mark.parametrize(
    ("binding", "kind", "backend", "tool"),
    [(LOCAL, "local", "local", "h"), (PROVIDER, "provider", "p", "t"), (MCP, "mcp", "s", "t")],
)
def test_parts(binding: Binding, kind: str, backend: str, tool: str) -> None:
    """Every binding has a kind, a backend and the backend's name for the tool."""
    assert (binding.kind, binding.backend, binding.tool) == (kind, backend, tool)


@pytest.mark.parametrize("binding", [LOCAL, PROVIDER, MCP, ProviderBinding("a:b", "c"), MCPBinding("s", "with:colon")])
def test_round_trip(binding: Binding) -> None:
    """`binding_from_dict` reads what `to_dict` wrote."""
    assert binding_from_dict(binding.to_dict()) == binding


@pytest.mark.parametrize(
    "make",
    [
        lambda: LocalBinding(""),
        lambda: ProviderBinding("", "t"),
        lambda: ProviderBinding("p", ""),
        lambda: MCPBinding("", "t"),
        lambda: MCPBinding("s", ""),
        lambda: LocalBinding(7),  # type: ignore[arg-type]
    ],
)
def test_refuses_empty_names(make: Any) -> None:
    """A binding needs every name of its kind."""
    with pytest.raises(InvalidToolError, match="needs the name of its"):
        make()


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": ""},
        {"kind": "carrier-pigeon"},
        {"kind": ["mcp"]},
        {"kind": "mcp"},
        {"kind": "mcp", "mcp": None},
        {"kind": "mcp", "mcp": {"serverName": "s"}},
        {"kind": "provider", "provider": {"providerId": "p", "toolId": 3}},
        {"kind": "local", "local": {}},
        {"kind": "local", "mcp": {"serverName": "s"}},
    ],
)
def test_refuses_incomplete_data(data: dict[str, Any]) -> None:
    """Unknown kinds and missing parts raise."""
    with pytest.raises(InvalidToolError):
        binding_from_dict(data)


def test_names_do_not_run_together() -> None:
    """The same text split at another place is another binding."""
    assert ProviderBinding("a:b", "c") != ProviderBinding("a", "b:c")
    assert len({LOCAL, PROVIDER, MCP, LocalBinding("h")}) == 3


def test_prefer_local() -> None:
    """Local before provider before mcp; within a kind, the first registered."""
    assert prefer_local([MCP, PROVIDER, LOCAL]) is LOCAL
    assert prefer_local([MCP, PROVIDER]) is PROVIDER
    assert prefer_local([MCP, MCPBinding("other", "t")]) is MCP
