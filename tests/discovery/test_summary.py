"""Summaries, filters, and what a tool's metadata means."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.discovery import Filters, Summary, summarize
from toolexec.discovery.summary import cut, parameter_words
from toolexec.model import LocalBinding, MCPBinding, ProviderBinding, Tool, ToolAnnotations

LOCAL, MCP = LocalBinding("h"), MCPBinding("git", "log")


def tool(**parts: Any) -> Tool:
    """A tool with these parts."""
    return Tool(**{"name": "t", "input_schema": {"type": "object"}, **parts})


class TestSummarize:
    def test_all_parts(self) -> None:
        """The summary has what a caller chooses by, without schemas."""
        summary = summarize(
            tool(
                namespace="git",
                description="Long",
                tags=["B", "a"],
                annotations=ToolAnnotations(read_only=True),
                meta={
                    "summary": "Short",
                    "category": "vcs",
                    "inputModes": ["text", 7],
                    "outputModes": ["json"],
                    "securitySchemes": {"oauth": {}, "apiKey": {}},
                },
            ),
            [LOCAL, MCP],
        )
        assert summary.to_dict() == {
            "id": "git:t",
            "name": "t",
            "namespace": "git",
            "shortDescription": "Short",
            "category": "vcs",
            "inputModes": ["text"],
            "outputModes": ["json"],
            "securitySummary": "apiKey,oauth",
            "tags": ["b", "a"],
            "annotations": {"readOnlyHint": True},
            "bindings": ["local:local", "mcp:git"],
        }

    def test_empty_parts_are_left_out(self) -> None:
        """A bare tool has a short summary; scores are rounded."""
        assert summarize(tool(), []).to_dict() == {"id": "t", "name": "t"}
        assert Summary(id="t", name="t", score=0.123456, unavailable="down").to_dict() == {
            "id": "t",
            "name": "t",
            "unavailable": "down",
            "score": 0.1235,
        }

    def test_security_requirements_come_first(self) -> None:
        """Each scheme once, in order; requirements before schemes."""
        meta = {
            "securityRequirements": [{"oauth2": []}, {"apiKey": []}, {"apiKey": ["x"]}, 7],
            "securitySchemes": {"z": {}},
        }
        assert summarize(tool(meta=meta), []).security_summary == "apiKey,oauth2"
        assert (
            summarize(tool(meta={"securityRequirements": [], "securitySchemes": {"z": {}}}), []).security_summary == "z"
        )

    def test_odd_metadata_counts_as_absent(self) -> None:
        """Values of the wrong type do not appear."""
        meta = {"summary": 7, "category": [], "inputModes": "text", "securitySchemes": [], "securityRequirements": "x"}
        assert summarize(tool(description="D", meta=meta), []).to_dict() == {
            "id": "t",
            "name": "t",
            "shortDescription": "D",
        }

    @pytest.mark.parametrize("character", ["x", "é", "🚀", "日"])
    def test_long_descriptions_are_cut_between_characters(self, character: str) -> None:
        """120 characters, not bytes, the last one an ellipsis."""
        assert summarize(tool(description=character * 120), []).short_description == character * 120
        cut_off = summarize(tool(description=character * 121), []).short_description
        assert cut_off == character * 119 + "…"

    def test_cut_makes_one_line(self) -> None:
        """Line breaks and runs of blanks become single blanks."""
        assert cut(" a\n\n b\tc ", 10) == "a b c"
        assert cut("", 10) == ""


class TestFilters:
    @pytest.mark.parametrize(
        ("filters", "accepted"),
        [
            (Filters(), True),
            (Filters(namespace="git"), True),
            (Filters(namespace="gi"), False),
            (Filters(namespace=""), False),
            (Filters(tags=("vcs",)), True),
            (Filters(tags=("vcs", "history")), True),
            (Filters(tags=("vcs", "other")), False),
            (Filters(backend="mcp"), True),
            (Filters(backend="git"), True),
            (Filters(backend="local"), True),
            (Filters(backend="provider"), False),
            (Filters(read_only=True), True),
            (Filters(read_only=False), False),
            (Filters(idempotent=True), False),
            (Filters(idempotent=False), True),
            (Filters(namespace="git", read_only=False), False),
        ],
    )
    def test_accept(self, filters: Filters, accepted: bool) -> None:
        """Each field narrows; all of them together must hold."""
        given = tool(namespace="git", tags=["vcs", "history"], annotations=ToolAnnotations(read_only=True))
        assert filters.accept(given, [LOCAL, MCP]) is accepted

    @pytest.mark.parametrize(
        ("hints", "destructive"),
        [
            (ToolAnnotations(), True),
            (ToolAnnotations(read_only=True), False),
            (ToolAnnotations(destructive=False), False),
            (ToolAnnotations(destructive=True), True),
            (ToolAnnotations(read_only=True, destructive=True), True),
        ],
    )
    def test_unsaid_means_destructive(self, hints: ToolAnnotations, destructive: bool) -> None:
        """A tool that does not say is destructive, unless it only reads."""
        given = tool(annotations=hints)
        assert Filters(destructive=True).accept(given, []) is destructive
        assert Filters(destructive=False).accept(given, []) is not destructive

    @pytest.mark.parametrize(("hint", "is_open"), [(None, True), (True, True), (False, False)])
    def test_unsaid_means_open_world(self, hint: bool | None, is_open: bool) -> None:
        """A tool that does not say touches things outside."""
        assert Filters(open_world=True).accept(tool(annotations=ToolAnnotations(open_world=hint)), []) is is_open

    def test_no_bindings(self) -> None:
        """A backend filter needs a binding."""
        assert not Filters(backend="mcp").accept(tool(), [])
        assert Filters(backend="a:b").accept(tool(), [ProviderBinding("a:b", "c")])


def test_parameter_words() -> None:
    """Names and descriptions of the parameters; odd schemas have none."""
    schema = {"properties": {"path": {"description": "Where"}, "any": True, "odd": {"description": 7}}}
    assert parameter_words(tool(input_schema=schema)) == "path Where any odd"
    for odd in (True, {}, {"properties": {}}, {"title": '"properties"'}, {"x": {"properties": {"a": {}}}}):
        assert parameter_words(tool(input_schema=odd)) == ""
    assert parameter_words(tool(input_schema='{"properties": []}')) == ""
