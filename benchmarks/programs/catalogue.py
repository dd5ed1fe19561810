"""A thousand tools: register them, read their documentation, search them, call each for the first time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import described
from toolexec import Exec, InMemoryIndex, LocalBinding, Tool

SIZE = 1000
QUERIES = ("merge a branch", "find invoice", "archive mail message", "update the project report", "calendar event")


def measure_registration(meter: Meter) -> None:
    """Add tools to an index, made before or made from JSON data on the way."""
    definitions = [described(number) for number in range(SIZE)]
    tools = [Tool.from_dict(definition) for definition in definitions]
    bindings = [LocalBinding(tool.id) for tool in tools]

    def register_tools() -> None:
        index = InMemoryIndex()
        for tool, binding in zip(tools, bindings, strict=True):
            index.register(tool, binding)

    def register_definitions() -> None:
        index = InMemoryIndex()
        for definition, binding in zip(definitions, bindings, strict=True):
            index.register(Tool.from_dict(definition), binding)

    meter.sync("catalogue.register", register_tools, per=SIZE)
    meter.sync("catalogue.register_definition", register_definitions, per=SIZE)


def measure_index_build(meter: Meter, tools: Sequence[Tool]) -> None:
    """From tools to the first answer of a search, a tool."""
    for _ in range(2 if meter.quick else 5):
        index = InMemoryIndex()
        started = perf_counter()
        index.register_many((tool, LocalBinding(tool.id)) for tool in tools)
        index.search(QUERIES[0])
        meter.record("catalogue.build", (perf_counter() - started) / len(tools))


async def time_each(work: Callable[[str], Awaitable[Any]], items: Iterable[str]) -> list[float]:
    """The seconds of `await work(item)`, one by one."""
    taken: list[float] = []
    for item in items:
        started = perf_counter()
        await work(item)
        taken.append(perf_counter() - started)
    return taken


async def main(meter: Meter) -> None:
    """All of it."""
    measure_registration(meter)
    tools = [Tool.from_dict(described(number)) for number in range(SIZE)]
    measure_index_build(meter, tools)
    async with Exec() as ex:
        for tool in tools:
            ex.add(tool, handler=answer_any)
        ids = [tool.id for tool in tools]
        meter.record("catalogue.doc_first", *await time_each(ex.get_tool_doc, ids))
        meter.record("catalogue.doc_again", *await time_each(ex.get_tool_doc, ids))
        await meter.awaited("catalogue.search", search_all, ex, per=len(QUERIES))
    async with Exec() as ex:
        fresh = add_fresh(ex, SIZE)
        meter.record("catalogue.first_call", *await time_calls(ex, fresh))
        ids = [tool.id for tool in add_fresh(ex, 2 * SIZE)]
        meter.record("catalogue.doc_rendered", *await time_each(lambda tool_id: render(ex, tool_id), ids))


def add_fresh(ex: Exec, first: int) -> list[Tool]:
    """A thousand more tools, from the number *first* on, with schemas that nothing has seen yet."""
    tools = [Tool.from_dict(described(first + number)) for number in range(SIZE)]
    for tool in tools:
        ex.add(tool, handler=answer_any)
    return tools


async def render(ex: Exec, tool_id: str) -> dict[str, Any]:
    """A tool's documentation in the form that goes to a model or a terminal."""
    return (await ex.get_tool_doc(tool_id)).to_dict()


async def answer_any(args: dict[str, Any]) -> dict[str, Any]:
    """A handler that gives its arguments back."""
    return args


async def search_all(ex: Exec) -> None:
    """Every query once."""
    for query in QUERIES:
        await ex.search_tools(query)


async def time_calls(ex: Exec, tools: Sequence[Tool]) -> list[float]:
    """The seconds of each tool's first call, in which its schema is compiled."""
    taken: list[float] = []
    for tool in tools:
        args = dict.fromkeys(tool.input_schema.to_json()["required"], "x")
        started = perf_counter()
        result = await ex.run_tool(tool.id, args)
        taken.append(perf_counter() - started)
        assert result.ok
    return taken


if __name__ == "__main__":
    run_program(main)
