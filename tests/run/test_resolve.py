"""From an ID to a tool and the binding to use: the index first, then the resolvers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from toolexec.errors import (
    BackendUnavailableError,
    InvalidToolIDError,
    NoBackendsError,
    ToolNotFoundError,
)
from toolexec.model import Binding, LocalBinding, MCPBinding, ProviderBinding, Tool
from toolexec.run import Resolver, ToolCall

TOOL = Tool(name="t", namespace="ns", input_schema={"type": "object"})
LOCAL, PROVIDER, MCP = LocalBinding("h"), ProviderBinding("acme", "t"), MCPBinding("server", "t")


def _know(tool_id: str) -> Tool | None:
    return TOOL if tool_id == TOOL.id else None


def _fail(tool_id: str) -> Any:
    raise LookupError("the catalogue is closed")


def test_the_index_comes_first(workshop: Any) -> None:
    """A tool of the index is resolved without asking a resolver."""
    workshop.index.register(TOOL, LOCAL)
    found = Resolver(workshop.index, workshop.backends, tool_resolver=_fail, bindings_resolver=_fail).resolve("ns:t")
    assert (found.tool, found.binding, found.bindings) == (TOOL, LOCAL, (LOCAL,))


def test_all_bindings_are_there(workshop: Any) -> None:
    """Every binding in order of registration, and the preferred one."""
    for binding in (MCP, PROVIDER, LOCAL):
        workshop.index.register(TOOL, binding)
    found = Resolver(workshop.index, workshop.backends).resolve("ns:t")
    assert found.bindings == (MCP, PROVIDER, LOCAL)
    assert found.binding == LOCAL


@pytest.mark.parametrize(
    ("bindings", "chosen"),
    [([MCP, PROVIDER, LOCAL], LOCAL), ([MCP, PROVIDER], PROVIDER), ([MCP], MCP)],
)
def test_resolvers_alone(workshop: Any, bindings: Sequence[Binding], chosen: Binding) -> None:
    """Without an index the two resolvers do; local is preferred to provider, provider to MCP."""
    resolver = Resolver(None, workshop.backends, tool_resolver=_know, bindings_resolver=lambda _: bindings)
    assert resolver.resolve("ns:t").binding == chosen


def test_resolvers_help_the_index_out(workshop: Any) -> None:
    """A resolver may supply what the index lacks."""
    resolver = Resolver(workshop.index, workshop.backends, tool_resolver=_know, bindings_resolver=lambda _: [LOCAL])
    assert resolver.resolve("ns:t").tool is TOOL


async def test_a_resolved_tool_runs(workshop: Any) -> None:
    """A runner with resolvers runs a tool that no index knows."""
    workshop.local.register("h", lambda args: args["x"])
    resolver = Resolver(None, workshop.backends, tool_resolver=_know, bindings_resolver=lambda _: [LOCAL])
    result = await workshop.runner(resolver=resolver).run(ToolCall("ns:t", {"x": 7}))
    assert (result.value, result.tool_id) == (7, "ns:t")


@pytest.mark.parametrize("tool_id", ["", ":", "a:", ":b", "a:b:c:d", "a b", "ä", "a" * 129, "a:b:", None, 5])
def test_malformed_ids(workshop: Any, tool_id: Any) -> None:
    """A malformed ID is refused before any resolver is asked."""
    resolver = Resolver(None, workshop.backends, tool_resolver=_fail)
    with pytest.raises(InvalidToolIDError):
        resolver.resolve(tool_id)


def test_nobody_knows_it(workshop: Any) -> None:
    """An unknown tool is reported with similar IDs."""
    workshop.index.register(TOOL, LOCAL)
    with pytest.raises(ToolNotFoundError) as caught:
        Resolver(workshop.index, workshop.backends, tool_resolver=_know).resolve("ns:tt")
    assert caught.value.details["close"] == ["ns:t"]
    assert (caught.value.tool_id, caught.value.op) == ("ns:tt", "resolve")


def test_nobody_to_ask(workshop: Any) -> None:
    """Without index and resolvers nothing is found."""
    with pytest.raises(ToolNotFoundError):
        Resolver(None, workshop.backends).resolve("t")


def test_a_failed_tool_resolver_is_the_cause(workshop: Any) -> None:
    """The resolver's exception is the cause of the error."""
    with pytest.raises(ToolNotFoundError) as caught:
        Resolver(workshop.index, workshop.backends, tool_resolver=_fail).resolve("ns:t")
    assert isinstance(caught.value.__cause__, LookupError)
    assert "the catalogue is closed" in caught.value.details["note"]


def test_a_failed_bindings_resolver_is_the_cause(workshop: Any) -> None:
    """The exception of the bindings resolver is the cause; the tool is known, but nothing hosts it."""
    with pytest.raises(NoBackendsError, match="the catalogue is closed") as caught:
        Resolver(None, workshop.backends, tool_resolver=_know, bindings_resolver=_fail).resolve("ns:t")
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize("bindings", [None, []])
def test_no_bindings(workshop: Any, bindings: Any) -> None:
    """A tool without any binding cannot run."""
    resolver = Resolver(
        None,
        workshop.backends,
        tool_resolver=_know,
        bindings_resolver=None if bindings is None else lambda _: bindings,
    )
    with pytest.raises(NoBackendsError) as caught:
        resolver.resolve("ns:t")
    assert (caught.value.tool_id, caught.value.op) == ("ns:t", "resolve")


def test_a_selector_of_ones_own(workshop: Any) -> None:
    """A selector may prefer MCP to local."""
    resolver = Resolver(
        None,
        workshop.backends,
        tool_resolver=_know,
        bindings_resolver=lambda _: [LOCAL, MCP],
        selector=lambda bindings: bindings[-1],
    )
    assert resolver.resolve("ns:t").binding == MCP


def test_a_selector_that_fails(workshop: Any) -> None:
    """Its exception is the cause."""
    resolver = Resolver(
        None, workshop.backends, tool_resolver=_know, bindings_resolver=lambda _: [LOCAL], selector=lambda b: b[5]
    )
    with pytest.raises(NoBackendsError) as caught:
        resolver.resolve("ns:t")
    assert isinstance(caught.value.__cause__, IndexError)
    assert caught.value.op == "select_backend"


def test_a_selector_that_makes_something_up(workshop: Any) -> None:
    """A binding that was not offered is refused."""
    resolver = Resolver(
        None, workshop.backends, tool_resolver=_know, bindings_resolver=lambda _: [LOCAL], selector=lambda b: MCP
    )
    with pytest.raises(NoBackendsError, match="not offered"):
        resolver.resolve("ns:t")


def test_a_backend_that_is_not_connected(workshop: Any) -> None:
    """An unknown tool in the namespace of a backend that is down is not unknown: it cannot be looked up just now."""
    from toolexec.backend import ProviderBackend

    backend = ProviderBackend("acme", print)
    backend.enabled = False
    workshop.backends.register(backend)
    with pytest.raises(BackendUnavailableError, match="switched off") as caught:
        Resolver(workshop.index, workshop.backends).resolve("acme:t")
    assert (caught.value.backend, caught.value.retryable) == ("acme", True)
