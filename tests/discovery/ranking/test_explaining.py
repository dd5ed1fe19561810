"""Why a tool was found."""

from __future__ import annotations

from toolexec.discovery import BM25Searcher, Explains, Filters, InMemoryIndex
from toolexec.discovery.ranking.explaining import snippet
from toolexec.discovery.ranking.stems import stem
from toolexec.model import LocalBinding, Tool

TOOL = Tool(
    name="delete_branch",
    namespace="github",
    description="Removes a branch of the repository for good. Protected branches are refused.",
    tags=["vcs"],
    input_schema={"type": "object", "properties": {"branch": {"type": "string", "description": "Name of the ref"}}},
)


def index() -> InMemoryIndex:
    """An index with the tool and some others."""
    made = InMemoryIndex()
    made.register(TOOL, LocalBinding("x"))
    for name in ("weather", "list_issues", "delete_message"):
        made.register(Tool(name=name, input_schema=True), LocalBinding(name))
    return made


class TestExplain:
    def test_words_fields_and_weights(self) -> None:
        """Each word of the query with the word that stood for it, where that is, and its part of the score."""
        found = index().search("drop branchs reposotory", explain=True)[0]
        assert found.id == "github:delete_branch"
        why = found.explanation
        assert why is not None
        by_word = {match.query_word: match for match in why.matches}
        assert by_word["branchs"].fields == ("name", "description", "parameters")
        assert by_word["reposotory"].kind == "spelling"
        assert by_word["reposotory"].word == "repository"
        assert by_word["drop"].kind == "synonym"
        assert by_word["drop"].word == "delete"
        assert sum(match.weight for match in why.matches) == found.score
        assert [m.weight for m in why.matches] == sorted((m.weight for m in why.matches), reverse=True)
        assert why.snippet.startswith("Removes a **branch** of the **repository** for good.")
        assert found.to_dict()["explanation"]["matches"][0]["weight"] > 0

    def test_only_when_asked(self) -> None:
        """Without `explain` there is none."""
        assert index().search("branch")[0].explanation is None

    def test_nothing_to_explain(self) -> None:
        """Unknown tools, and tools that the query does not find, have no explanation."""
        searcher = BM25Searcher()
        searcher.add(TOOL)
        assert isinstance(searcher, Explains)
        assert searcher.explain("weather", TOOL.id) is None
        assert searcher.explain("branch", "nobody") is None

    def test_pages_explain_too(self) -> None:
        """Explains an empty page after filters as well."""
        found = index().search("delete", filters=Filters(namespace="github"), explain=True)
        assert [summary.id for summary in found] == ["github:delete_branch"]
        assert found[0].explanation is not None


class TestSnippet:
    def test_around_the_words(self) -> None:
        """The piece of a long text that has the words, with marks, and signs where something is left out."""
        text = "filler " * 50 + "the needle is here " + "filler " * 50
        shown = snippet(text, frozenset([stem("needle")]))
        assert "**needle**" in shown
        assert shown.startswith("… ")
        assert shown.endswith("…")
        assert len(shown) < 200

    def test_hostile_texts(self) -> None:
        """Marks of the text itself cannot pose as ours, and a word of a megabyte is cut."""
        assert snippet("**x** needle", frozenset(["needl"])) == "x **needle**"
        assert len(snippet("needle" + "x" * 1_000_000 + " needle", frozenset(["needl"]))) < 400
        assert snippet("", frozenset(["x"])) == ""
