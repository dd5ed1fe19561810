"""Finding tools by what they produce, through an `Exec` and its documentation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from toolexec import Exec, Filters, Tool, ToolAnnotations, ToolNotFoundError
from toolexec.errors import ConfigurationError

ISSUE = {"type": "object", "properties": {"id": {"type": "string"}, "title": {"type": "string"}}}


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """Tools around issues."""
    async with Exec() as made:
        made.add(
            Tool(
                name="list_issues",
                namespace="tracker",
                description="All issues of a project.",
                annotations=ToolAnnotations(read_only=True),
                input_schema={"type": "object"},
                output_schema={"type": "object", "properties": {"issues": {"type": "array", "items": ISSUE}}},
            ),
            handler=lambda args: {"issues": [{"id": "I-7", "title": "x"}]},
        )
        made.add(
            Tool(
                name="create_issue",
                namespace="tracker",
                description="Opens an issue.",
                input_schema={"type": "object"},
                output_schema=ISSUE,
            ),
            handler=lambda args: {"id": "I-8", "title": "y"},
        )
        closing = {"type": "object", "properties": {"issue_id": {"type": "string"}}, "required": ["issue_id"]}
        made.add(
            Tool(name="close_issue", namespace="tracker", description="Closes an issue.", input_schema=closing),
            handler=lambda args: f"closed {args['issue_id']}",
        )
        yield made


async def test_search_by_what_is_produced(ex: Exec) -> None:
    """By an argument's name or that of a tool's argument; words, filters and limits hold; each says where."""
    found = await ex.search_tools("", produces="issue_id")
    assert set(found.ids()) == {"tracker:list_issues", "tracker:create_issue"}
    assert {s.id: s.produces for s in found} == {"tracker:list_issues": "issues[].id", "tracker:create_issue": "id"}
    assert found[0].to_dict()["produces"]
    assert (await ex.search_tools("list", produces="issue_id")).ids() == ["tracker:list_issues"]
    assert (await ex.search_tools("", 1, produces="tracker:close_issue.issue_id"))[0].produces is not None
    read_only = await ex.search_tools("", produces="issue_id", filters=Filters(read_only=True))
    assert read_only.ids() == ["tracker:list_issues"]


async def test_nothing_produces_it(ex: Exec) -> None:
    """An empty answer says so; what is not there is an error."""
    found = await ex.search_tools("", produces="warehouse_id")
    assert (list(found), found.note) == ([], "no tool is known to produce warehouse_id")
    with pytest.raises(ToolNotFoundError):
        await ex.search_tools("", produces="tracker:nothing.issue_id")
    with pytest.raises(ConfigurationError, match="it has issue_id"):
        await ex.search_tools("", produces="tracker:close_issue.other")


async def test_documentation_names_producers(ex: Exec) -> None:
    """The full documentation says for each argument who makes it; the shorter ones do not."""
    doc = await ex.get_tool_doc("tracker:close_issue")
    assert doc.producers["issue_id"][0].tool_id == "tracker:list_issues"
    assert doc.to_dict()["producers"]["issue_id"][0]["path"] == "issues[].id"
    assert not (await ex.get_tool_doc("tracker:close_issue", "schema")).producers


async def test_a_suggested_chain_runs(ex: Exec) -> None:
    """From the goal to a chain, and from the chain to its value."""
    suggestion = await ex.suggest_chain("tracker:close_issue")
    assert [step.tool_id for step in suggestion.steps] == ["tracker:list_issues", "tracker:close_issue"]
    result = await ex.run_chain(suggestion.steps)
    assert result.value == "closed I-7"


def test_the_blocking_twin() -> None:
    """`sync` has them, too."""
    ex = Exec()
    with ex.sync as sync:
        ex.add(lambda: {"id": 1}, "a:make_thing")
        assert sync.suggest_chain("a:make_thing").steps[0].tool_id == "a:make_thing"
        assert sync.search_tools("", produces="zebra_id").note
        assert sync.tool_facets().total == 1
