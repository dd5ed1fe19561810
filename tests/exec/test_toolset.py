"""A toolset as the whole world of an Exec: what is outside of it is on no path to anything."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from toolexec import Exec, Tool, ToolAnnotations
from toolexec.backend import ProviderBackend
from toolexec.discovery import InMemoryIndex, Toolset
from toolexec.errors import ConfigurationError, NoBackendsError, ToolExecError, ToolNotFoundError
from toolexec.model import LocalBinding
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy, Rule

OPEN = {"type": "object"}
READS = ToolAnnotations(read_only=True)
SAFE = Toolset("safe", read_only=True, deny="files:peek_secret")
INSIDE = {"files:read", "files:look", "shop:list"}
OUTSIDE = ["files:write", "files:peek_secret", "shop:wipe", "absent:tool"]


def build(calls: list[str], **settings: Any) -> Exec:
    """Local and hosted tools, some of them safe; *calls* notes what is run."""

    def note(name: str) -> Any:
        def handle(args: dict[str, Any]) -> str:
            calls.append(name)
            return name

        return handle

    def remote(name: str, args: Any) -> str:
        calls.append(name)
        return name

    ex = Exec(**{"toolset": SAFE, **settings})
    for name, hints in (("read", READS), ("look", READS), ("peek_secret", READS), ("write", ToolAnnotations())):
        ex.add(Tool(name=name, namespace="files", annotations=hints, input_schema=OPEN), handler=note(name))
    offered = [
        Tool(name=name, namespace="shop", annotations=hints, input_schema=OPEN)
        for name, hints in (("list", READS), ("wipe", ToolAnnotations()))
    ]
    ex.add_backends(ProviderBackend("shop", remote, tools=offered))
    return ex


@pytest.fixture
async def world() -> AsyncIterator[tuple[Exec, list[str]]]:
    """The Exec, started, and what was run so far."""
    calls: list[str] = []
    async with build(calls) as ex:
        yield ex, calls


async def direct(ex: Exec, tool_id: str) -> Any:
    """`run_tool`."""
    return (await ex.run_tool(tool_id)).raise_for_error().value


async def streamed(ex: Exec, tool_id: str) -> Any:
    """`stream_tool`."""
    events = [event async for event in ex.stream_tool(tool_id)]
    return events[-1].data


async def chained(ex: Exec, tool_id: str) -> Any:
    """`run_chain`, with a retry where the chain may have one."""
    return (await ex.run_chain([{"tool": tool_id, "retries": 1}])).raise_for_error().value


async def coded(ex: Exec, tool_id: str) -> Any:
    """`execute_code`, by ID."""
    return await _code(ex, f"tools.run({tool_id!r}, {{}})")


async def coded_in_a_chain(ex: Exec, tool_id: str) -> Any:
    """`execute_code`, by a chain in it."""
    return await _code(ex, f"tools.run_chain([{{'tool_id': {tool_id!r}}}])")


async def coded_by_name(ex: Exec, tool_id: str) -> Any:
    """`execute_code`, by attributes."""
    return await _code(ex, f"tools.{tool_id.replace(':', '.')}()")


async def _code(ex: Exec, text: str) -> Any:
    result = await ex.execute_code(
        f"try:\n    found = {text}\nexcept ToolError as error:\n    found = error.code\nfound"
    )
    assert result.error is None
    if result.value == "tool_not_found":
        raise ToolNotFoundError("as code said")
    return result.value


PATHS: list[Callable[[Exec, str], Awaitable[Any]]] = [
    direct,
    streamed,
    chained,
    coded,
    coded_in_a_chain,
    coded_by_name,
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_calls(world: tuple[Exec, list[str]], path: Callable[[Exec, str], Awaitable[Any]]) -> None:
    """On every path, tools inside run, and those outside are not found and have not run."""
    ex, calls = world
    for tool_id in sorted(INSIDE):
        name = tool_id.partition(":")[2]
        assert name in json.dumps(await path(ex, tool_id))
        assert calls.pop() == name
    for tool_id in OUTSIDE:
        with pytest.raises(ToolNotFoundError):
            await path(ex, tool_id)
    assert calls == []


def test_blocking() -> None:
    """The blocking twin is within the same world."""
    calls: list[str] = []
    with build(calls).sync as ex:
        assert ex.run_tool("files:read").value == "read"
        with pytest.raises(ToolNotFoundError):
            ex.run_tool("files:write")
    assert calls == ["read"]


async def test_what_can_be_known(world: tuple[Exec, list[str]]) -> None:
    """Search, lists, namespaces, descriptions and suggestions have what is inside and nothing else."""
    ex, _ = world
    assert set((await ex.search_tools("", 50)).ids()) == INSIDE
    assert (await ex.search_tools("write wipe secret", 50)).ids() == []
    assert ex.index.namespaces() == ["files", "shop"]
    assert len(ex.index) == len(INSIDE)
    assert {entry.tool.id for entry in ex.everything.tools()} > INSIDE
    for tool_id in OUTSIDE:
        for ask in (ex.get_tool_doc, ex.run_tool):
            with pytest.raises(ToolNotFoundError) as caught:
                await ask(tool_id)
            assert set(caught.value.details["close"]) <= INSIDE
    with pytest.raises(ToolNotFoundError) as caught:
        await ex.run_tool("files:wrote")
    assert "files:write" not in str(caught.value)
    code = "[[t['id'] for t in tools.search('', 50)], tools.list_namespaces()]"
    result = await ex.execute_code(code)
    assert set(result.value[0]) == INSIDE
    assert result.value[1] == ["files", "shop"]


async def test_a_hidden_tool_and_none_at_all_are_told_of_alike(world: tuple[Exec, list[str]]) -> None:
    """The error does not reveal which tools there are outside."""
    ex, _ = world
    seen: set[str] = set()
    for tool_id in ("files:write", "files:wr1te"):
        with pytest.raises(ToolNotFoundError) as caught:
            await ex.run_tool(tool_id)
        seen.add(str(caught.value).replace(tool_id, "IT"))
    assert len(seen) == 1


async def test_what_comes_later(world: tuple[Exec, list[str]]) -> None:
    """A tool that is added later is there if it belongs here."""
    ex, calls = world
    ex.add(Tool(name="new", annotations=READS, input_schema=OPEN), handler=lambda args: calls.append("new"))
    ex.add(Tool(name="bad", input_schema=OPEN), handler=lambda args: calls.append("bad"))
    assert (await ex.run_tool("new")).ok
    with pytest.raises(ToolNotFoundError):
        await ex.run_tool("bad")
    assert calls == ["new"]


@pytest.mark.parametrize("toolset", [Toolset(), Toolset(allow=[]), Toolset.union([])])
async def test_an_empty_toolset_is_an_empty_world(toolset: Toolset) -> None:
    """An empty toolset shows nothing, and lets nothing run."""
    calls: list[str] = []
    async with build(calls, toolset=toolset) as ex:
        assert len(ex.index) == 0
        assert (await ex.search_tools("", 50)).ids() == []
        for tool_id in (*INSIDE, *OUTSIDE):
            with pytest.raises(ToolNotFoundError):
                await ex.run_tool(tool_id)
    assert calls == []


async def test_with_a_policy() -> None:
    """Both hold: the policy for each caller within the toolset; a view is kept for callers that see the same."""
    calls: list[str] = []
    policy = Policy([Rule("deny", tools="files:look", callers="guest-*")])
    gate = Gate(policy=policy)
    async with build(calls, gate=gate) as ex:
        for caller, expected in (
            ("guest-1", INSIDE - {"files:look"}),
            ("ann", INSIDE),
            ("guest-2", INSIDE - {"files:look"}),
        ):
            with acting(Origin(caller=Caller(id=caller))):
                index, docs = ex.visible()
                assert {entry.tool.id for entry in index.tools()} == expected
                assert ex.visible()[0] is index
                with pytest.raises(ToolNotFoundError):
                    docs.describe("files:write")
    for number in range(200):
        gate.view(ex.index, ex.docs, Origin(caller=Caller(id=f"c{number}")))
    assert len(gate._views) <= 64


async def test_tools_that_only_a_resolver_knows() -> None:
    """Such tools must be in the toolset, too; a resolver's definition does not replace that of a hidden tool."""
    reads = Tool(name="read", namespace="far", annotations=READS, input_schema=OPEN)
    writes = Tool(name="write", namespace="far", input_schema=OPEN)
    disguised = Tool(name="write", namespace="files", annotations=READS, input_schema=OPEN)
    known = {tool.id: tool for tool in (reads, writes, disguised)}
    loose = Tool(name="loose", namespace="far", input_schema=OPEN)
    calls: list[str] = []
    async with build(
        calls,
        tool_resolver=lambda tool_id: loose if tool_id == "far:loose" else known.get(tool_id),
        bindings_resolver=lambda tool_id: [] if tool_id == "far:loose" else [LocalBinding("files:read")],
    ) as ex:
        assert (await ex.run_tool("far:read")).value == "read"
        for tool_id in ("far:write", "files:write", "far:loose"):
            with pytest.raises(ToolNotFoundError):
                await ex.run_tool(tool_id)
        ex.reconfigure(max_tool_calls=5)
        assert calls == ["read"]
    async with build(
        calls, toolset=None, tool_resolver=lambda tool_id: loose, bindings_resolver=lambda tool_id: []
    ) as ex:
        with pytest.raises(NoBackendsError):
            await ex.run_tool("far:loose")


async def test_backends_that_are_down_give_nothing_away() -> None:
    """That a backend is down is told only of those of which something can be seen."""
    async with Exec(toolset=SAFE) as ex:
        await ex.add_mcp("dead", command="no-such-command-anywhere")
        with pytest.raises(ToolNotFoundError):
            await ex.run_tool("dead:tool")
        ex.everything.register(
            Tool(name="read", namespace="dead", annotations=READS, input_schema=OPEN), LocalBinding("x")
        )
        with pytest.raises(ToolExecError) as caught:
            await ex.run_tool("dead:tool")
        assert caught.value.code == "backend_unavailable"


async def test_it_can_be_set_afterwards() -> None:
    """`reconfigure` narrows the world before the first run of code; an own index stays as it is."""
    index = InMemoryIndex()
    ex = build([], toolset=None, index=index)
    assert ex.index is index
    ex.reconfigure(toolset=SAFE)
    async with ex:
        assert set((await ex.search_tools("", 50)).ids()) == INSIDE
        with pytest.raises(ToolNotFoundError):
            await ex.run_tool("files:write")
    assert len(index) > len(INSIDE)


def test_what_is_no_toolset() -> None:
    """Refuses what is not a toolset."""
    with pytest.raises(ConfigurationError, match="must be a Toolset"):
        Exec(toolset="safe")
