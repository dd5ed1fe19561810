"""Find a tool by words, then read how to use it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from toolexec import DocEntry, Exec, Filters, ToolExample, tool


@tool(namespace="mail", read_only=True)
def search(words: str, limit: int = 5) -> list[str]:
    """Find messages in the inbox."""
    return [words] * limit


@tool(namespace="mail", destructive=True)
def delete(message: str) -> bool:
    """Remove a message from the inbox permanently."""
    return bool(message)


@tool(namespace="weather", read_only=True)
def forecast(city: str) -> str:
    """Tell how the weather will be."""
    return f"sunny in {city}"


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """Three tools to choose from."""
    async with Exec() as ex:
        for function_tool in (search, delete, forecast):
            ex.add(function_tool)
        yield ex


async def test_search(ex: Exec) -> None:
    """A search gives short summaries without schemas, the best first."""
    found = await ex.search_tools("what is the weather like")
    assert found[0].id == "weather:forecast"
    assert found[0].short_description == "Tell how the weather will be."


async def test_search_with_filters(ex: Exec) -> None:
    """Filters leave out what does not qualify, such as tools that may destroy something."""
    found = await ex.search_tools("messages inbox", filters=Filters(namespace="mail", destructive=False))
    assert [summary.id for summary in found] == ["mail:search"]


async def test_describe(ex: Exec) -> None:
    """There are three levels of documentation: a summary, the schemas, everything."""
    assert (await ex.get_tool_doc("mail:search", "summary")).summary == "Find messages in the inbox."
    doc = await ex.get_tool_doc("mail:search", "schema")
    assert doc.tool is not None
    assert doc.tool.input_schema.to_json()["required"] == ["words"]


async def test_notes_and_examples(ex: Exec) -> None:
    """The author of a tool can say more about it."""
    example = ToolExample(title="the latest invoice", args={"words": "invoice", "limit": 1})
    ex.docs.register_doc("mail:search", DocEntry(notes="Searches the last 90 days.", examples=[example]))
    doc = await ex.get_tool_doc("mail:search")
    assert doc.notes == "Searches the last 90 days."
    assert doc.examples[0].args == {"words": "invoice", "limit": 1}


async def test_search_then_run(ex: Exec) -> None:
    """That is the whole idea: find a tool, then run it."""
    best = (await ex.search_tools("weather", 1))[0]
    assert (await ex.run_tool(best.id, {"city": "Oslo"})).value == "sunny in Oslo"
