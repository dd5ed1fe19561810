"""The examples of the API page and the quick start, in Python: they print what they promise."""

from __future__ import annotations

from typing import Any

from toolexec import Exec, InMemoryIndex, LocalBackend, LocalBinding, Step, Tool
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery import InMemoryDocStore
from toolexec.model import MCPBinding
from toolexec.run import DefaultRunner, ToolCall

ADD = Tool(
    name="add",
    namespace="math",
    description="Adds two numbers",
    input_schema={"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
)


async def test_new() -> None:
    """An Exec over an index, docs and handlers by name."""

    def greet(args: dict[str, Any]) -> str:
        return f"Hello, {args['name']}!"

    index = InMemoryIndex()
    docs = InMemoryDocStore(index)
    async with Exec(index=index, docs=docs, local_handlers={"greet-handler": greet}) as executor:
        index.register(
            Tool(name="greet", namespace="demo", description="Greets a user", input_schema={"type": "object"}),
            LocalBinding("greet-handler"),
        )
        result = await executor.run_tool("demo:greet", {"name": "World"})
    assert result.value == "Hello, World!"
    assert result.duration > 0


async def test_run_tool() -> None:
    """The quick start: `math:add` with 5 and 3 gives 8."""
    async with Exec(local_handlers={"add-handler": lambda args: args["a"] + args["b"]}) as executor:
        executor.index.register(ADD, LocalBinding("add-handler"))
        result = await executor.run_tool("math:add", {"a": 5, "b": 3})
    assert result.value == 8


async def test_run_chain() -> None:
    """5 + 3, then 10 + 2: two steps, and 12 at the end."""
    async with Exec(local_handlers={"add-handler": lambda args: args["a"] + args["b"]}) as executor:
        executor.index.register(ADD, LocalBinding("add-handler"))
        result = await executor.run_chain(
            [
                Step(tool_id="math:add", args={"a": 5, "b": 3}),
                Step(tool_id="math:add", args={"a": 10, "b": 2}),
            ]
        )
    assert len(result.steps) == 2
    assert result.value == 12


async def test_search_tools() -> None:
    """A search for "greet" finds one of two tools."""
    ex = Exec()
    for name, description in (
        ("greet", "Greets a user with a friendly message"),
        ("farewell", "Says goodbye to a user"),
    ):
        ex.index.register(
            Tool(name=name, namespace="demo", description=description, input_schema={"type": "object"}),
            LocalBinding("handler"),
        )
    results = await ex.search_tools("greet", 5)
    assert [summary.id for summary in results] == ["demo:greet"]


async def test_search_then_run() -> None:
    """The first result of a search can be run by its ID."""
    ex = Exec()
    ex.add(lambda name: f"Hello, {name}!", "demo:greeting")
    results = await ex.search_tools("greeting tools", 5)
    assert (await ex.run_tool(results[0].id, {"name": "World"})).value == "Hello, World!"
    await ex.aclose()


async def test_get_tool_doc() -> None:
    """The full documentation has the tool and its summary."""
    ex = Exec()
    ex.index.register(ADD, LocalBinding("add-handler"))
    doc = await ex.get_tool_doc("math:add", "full")
    assert doc.tool is not None
    assert doc.tool == ADD
    assert doc.summary == "Adds two numbers"


async def test_chain_with_the_value_before() -> None:
    """The value of the first step goes into the second under `previous`."""
    async with Exec() as ex:
        ex.add(lambda title: {"number": 7, "title": title}, "github:create_issue")
        ex.add(lambda labels, previous: [previous["number"], labels], "github:add_labels")
        result = await ex.run_chain(
            [
                Step(tool_id="github:create_issue", args={"title": "Bug report"}),
                Step(tool_id="github:add_labels", args={"labels": ["bug"]}, use_previous=True),
            ]
        )
    assert result.value == [7, ["bug"]]
    assert [step.tool_id for step in result.steps] == ["github:create_issue", "github:add_labels"]


async def test_a_local_backend_by_hand() -> None:
    """A backend with tools of its own can be added as a whole."""
    backend = LocalBackend("calculator")
    backend.register("add", lambda args: args["a"] + args["b"], ADD.replace(namespace=""))
    async with Exec() as ex:
        ex.add_backends(backend)
        assert (await ex.run_tool("calculator:add", {"a": 5, "b": 3})).value == 8


async def test_the_run_package_directly() -> None:
    """A runner over an index and a registry needs no Exec."""
    index, backends = InMemoryIndex(), BackendRegistry()
    backends.register(local := LocalBackend())
    index.register(ADD, LocalBinding("add"))
    local.register("add", lambda args: args["a"] + args["b"])
    result = await DefaultRunner(index, backends).run(ToolCall("math:add", {"a": 5, "b": 3}))
    assert result.value == 8
    await backends.stop_all()


async def test_an_mcp_executor() -> None:
    """A function may stand in for MCP servers; it gets server, tool and arguments."""

    async def execute(server: str, tool: str, args: Any) -> list[Any]:
        return [server, tool, dict(args)]

    ex = Exec(mcp_executor=execute, provider_executor=execute)
    ex.index.register(ADD, MCPBinding("calc", "add"))
    assert (await ex.run_tool("math:add", {"a": 1})).value == ["calc", "add", {"a": 1}]
    await ex.aclose()
