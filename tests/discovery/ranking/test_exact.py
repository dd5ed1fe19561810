"""A query with just the words of a tool's name or title finds that tool first."""

from __future__ import annotations

import pytest

from toolexec import InMemoryIndex, LocalBinding, Tool
from toolexec.discovery import BM25Searcher, Filters
from toolexec.discovery.ranking.exact import Exact, codes_of
from toolexec.discovery.ranking.vocabulary import Vocabulary

NAME = "repos_get"
QUERY = "get a repository"


def tool(name: str, title: str = "", description: str = "", namespace: str = "github") -> Tool:
    return Tool(name=name, namespace=namespace, title=title, description=description, input_schema={"type": "object"})


def crowd() -> list[Tool]:
    """Tools with the same words in shorter strings and names, and the one that is meant."""
    nouns = ("topic", "tag", "branch", "secret", "variable", "webhook", "page", "license", "readme", "ruleset")
    others = [tool(f"get_repository_{noun}", f"Get a repository {noun}", "Gets a repository.") for noun in nouns]
    long = "The parent and source objects are present when it is a fork. " * 30
    return [*others, tool(NAME, "Get a repository", long)]


def filled(tools: list[Tool]) -> InMemoryIndex:
    index = InMemoryIndex()
    index.register_many((each, LocalBinding(each.id)) for each in tools)
    return index


def ids(index: InMemoryIndex, query: str, limit: int = 5, **filters: str) -> list[str]:
    return index.search(query, limit, filters=Filters(**filters)).ids()


@pytest.mark.parametrize("query", [QUERY, "Get a Repository", "repository get", "repos get", "repos_get"])
def test_it_is_first(query: str) -> None:
    """Stop words, letter case and the order of the words do not matter."""
    assert ids(filled(crowd()), query)[0] == "github:repos_get"


def test_scores_go_down() -> None:
    """The first hit has the highest score, and each tool is there once."""
    found = filled(crowd()).search(QUERY, 20)
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert len(set(found.ids())) == len(found) == 11
    assert filled(crowd()).search(QUERY, 1).ids() == found.ids()[:1]


def test_filters_hold() -> None:
    """A tool that the filters leave out is not found by its title either."""
    index = filled([*crowd(), tool(NAME, "Get a repository", "x", "gitlab")])
    assert ids(index, QUERY, namespace="gitlab") == ["gitlab:repos_get"]
    assert set(ids(index, QUERY, 2)) == {"github:repos_get", "gitlab:repos_get"}


def test_a_tool_that_is_gone_is_not_found() -> None:
    """Neither under its old title, nor is another one that has its place."""
    index = filled(crowd())
    index.unregister("github:repos_get")
    other = tool("repos_read", "Read a repository", "Gets it.")
    index.register(other, LocalBinding(other.id))
    assert "github:repos_get" not in ids(index, QUERY, 20)
    assert ids(index, QUERY)[0] != "github:repos_read"
    assert ids(index, "read a repository")[0] == "github:repos_read"


def test_a_new_title_takes_the_place_of_the_old_one() -> None:
    """A tool that changes is found by what it is called now."""
    index = filled(crowd())
    changed = tool(NAME, "Show the project", "The parent and source objects.")
    index.replace(changed, LocalBinding(changed.id))
    assert ids(index, "show the project")[0] == changed.id
    assert ids(index, QUERY)[0] != changed.id


def test_a_snapshot_remembers_titles() -> None:
    """A searcher that was loaded finds the same."""
    made = BM25Searcher()
    for each in crowd():
        made.add(each)
    loaded = BM25Searcher.load(made.dump(), {each.id: each for each in crowd()})
    assert [hit.tool_id for hit in loaded.search(QUERY, 3)] == [hit.tool_id for hit in made.search(QUERY, 3)]
    assert loaded.search(QUERY, 1)[0].tool_id == "github:repos_get"


def test_a_title_in_the_description_counts_once() -> None:
    """A specification that says a title again in the description does not rank higher for it."""
    once, twice = (
        tool("a", "", "Get a repository. Quickly."),
        tool("b", "Get a repository", "Get a repository. Quickly."),
    )
    found = filled([once, twice]).search("repository quickly", 2)
    assert found[0].score == pytest.approx(found[1].score, rel=0.01)


def test_many_and_none() -> None:
    """Nothing is called by no words; one by one or many at once, all are known."""
    exact = Exact()
    for slot in range(100):
        exact.put(slot, ("ab", ""))
    assert exact.slots("ba") == list(range(100))
    exact.put(100, ("ba",))
    exact.take(3, ("ab", ""))
    exact.take(3, ("ab", ""))
    assert 3 not in exact.slots("ab")
    assert exact.slots("") == exact.slots("abc") == []


def test_a_title_of_the_same_words_is_kept_once() -> None:
    """A title that says what the name says takes no room of its own, and all of a slot goes with the tool, also what a
    snapshot of an older version has twice."""
    words = Vocabulary()
    assert len(codes_of(tool("create_issue", "Create Issue"), words)) == 1
    assert len(codes_of(tool("create_issue", "New issue"), words)) == 2
    exact = Exact()
    exact.put(7, ("ab", "ab"))
    exact.take(7, ("ab",))
    assert exact.slots("ab") == []
