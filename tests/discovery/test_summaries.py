"""Summaries of hits, of which a part is kept."""

from __future__ import annotations

from toolexec.discovery.index import Registered
from toolexec.discovery.summaries import Summaries
from toolexec.discovery.summary import summarize
from toolexec.model.binding import LocalBinding, MCPBinding
from toolexec.model.tool import Tool


def registered(name: str, description: str = "Adds.", *backends: str) -> Registered:
    tool = Tool(name=name, namespace="m", description=description, input_schema={"type": "object"}, tags=("sum",))
    local = LocalBinding(tool.id)
    return Registered(tool, (local, *(MCPBinding(backend, name) for backend in backends)), local)


def test_a_summary_is_that_of_summarize_each_time() -> None:
    """A tool that is found again has the same summary, with the score of that search."""
    made, entry = Summaries(), registered("add")
    for score in (1.5, 0.25):
        assert made.of(entry, score, None) == summarize(entry.tool, entry.bindings, score=score)


def test_another_entry_of_a_tool_has_a_summary_of_its_own() -> None:
    """A changed description and a further binding show in the next summary."""
    made = Summaries()
    made.of(registered("add"), 1.0, None)
    assert made.of(registered("add", "Sums up."), 1.0, None).short_description == "Sums up."
    assert made.of(registered("add", "Sums up.", "calc"), 1.0, None).bindings == ("local:local", "mcp:calc")


def test_more_tools_than_are_kept_have_right_summaries() -> None:
    """A bounded number of tools is kept, and one that was left out is described again."""
    made = Summaries()
    entries = [registered(f"tool{number}") for number in range(3000)]
    for entry in (*entries, *entries[:10]):
        assert made.of(entry, 0.5, None) == summarize(entry.tool, entry.bindings, score=0.5)
    assert len(made) <= 2048
