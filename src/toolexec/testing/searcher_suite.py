"""What every `Searcher` must do, as plain functions: run them with any test framework, or with none."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from toolexec.discovery.search import Hit, Searcher
from toolexec.model.tool import Tool
from toolexec.testing.report import Report, checks_of

MakeSearcher: TypeAlias = Callable[[], Searcher]
"""Makes a new, empty searcher."""


def _tool(tool_id: str, description: str = "", tags: tuple[str, ...] = ()) -> Tool:
    namespace, _, name = tool_id.rpartition(":")
    return Tool(name=name, namespace=namespace, description=description, tags=tags, input_schema={"type": "object"})


def _filled(make: MakeSearcher) -> Searcher:
    searcher = make()
    for tool in (
        _tool("git:commit", "Record changes to the repository", ("vcs",)),
        _tool("git:log", "Show the commit history", ("vcs",)),
        _tool("docker:run", "Start a container from an image", ("devops",)),
        _tool("weather", "Tells the temperature of a place"),
    ):
        searcher.add(tool)
    return searcher


def _ids(hits: list[Hit]) -> list[str]:
    return [hit.tool_id for hit in hits]


def says_what_it_is(make: MakeSearcher) -> None:
    """Require a name for its kind of score, and whether its answers repeat."""
    searcher = make()
    assert isinstance(searcher.name, str), "name must be text"
    assert searcher.name, "name must not be empty"
    assert isinstance(searcher.deterministic, bool), "deterministic must be True or False"


def finds_nothing_when_empty(make: MakeSearcher) -> None:
    """Without tools, every query finds nothing."""
    assert make().search("git", 5) == [], "an empty searcher found something"
    assert make().search("", 5) == [], "an empty searcher found something for the empty query"


def finds_by_name_namespace_description_and_tag(make: MakeSearcher) -> None:
    """Require that a word of any of the four finds the tool."""
    searcher = _filled(make)
    for query, expected in (
        ("weather", "weather"),
        ("docker", "docker:run"),
        ("temperature", "weather"),
        ("devops", "docker:run"),
    ):
        found = _ids(searcher.search(query, 5))
        assert expected in found, f"{query!r} must find {expected}, not only {found}"


def ranks_the_name_first(make: MakeSearcher) -> None:
    """Require that a tool called by the word comes before one that only mentions it."""
    found = _ids(_filled(make).search("commit", 5))
    assert found[:1] == ["git:commit"], f"'commit' must rank git:commit first, not {found}"


def ignores_letter_case(make: MakeSearcher) -> None:
    """`GIT` finds what `git` finds."""
    searcher = _filled(make)
    upper, lower = searcher.search("DOCKER", 5), searcher.search("docker", 5)
    assert upper == lower, f"letter case changed the answer: {_ids(upper)} and {_ids(lower)}"


def finds_nothing_for_unknown_words(make: MakeSearcher) -> None:
    """Require that a word that no tool has finds nothing."""
    found = _ids(_filled(make).search("terraform", 5))
    assert found == [], f"'terraform' must find nothing, not {found}"


def lists_by_id_without_words(make: MakeSearcher) -> None:
    """Require that an empty or blank query gives the first tools by ID, with score 0."""
    for query in ("", "   ", "\t\n"):
        hits = _filled(make).search(query, 3)
        assert _ids(hits) == ["docker:run", "git:commit", "git:log"], f"{query!r} must list by ID, not {_ids(hits)}"
        assert all(hit.score == 0 for hit in hits), f"scores for {query!r} must be 0"


def keeps_to_the_limit(make: MakeSearcher) -> None:
    """Never more than asked for; nothing for a limit below 1; all when the limit is larger than the catalogue."""
    searcher = _filled(make)
    assert len(searcher.search("git", 1)) == 1, "a limit of 1 must give one hit"
    assert len(searcher.search("", 10_000_000)) == 4, "a huge limit must give all"
    for limit in (0, -1, -(2**63)):
        for query in ("git", ""):
            assert searcher.search(query, limit) == [], f"a limit of {limit} must give nothing for {query!r}"


def orders_by_score_then_id(make: MakeSearcher) -> None:
    """Require the highest score first, and equal scores by ID, however the tools came in."""
    searcher = make()
    for name in ("charlie", "alpha", "bravo"):
        searcher.add(_tool(f"same:{name}", "does the same thing"))
    hits = searcher.search("thing", 5)
    assert _ids(hits) == ["same:alpha", "same:bravo", "same:charlie"], f"ties must go by ID, not {_ids(hits)}"
    scores = [hit.score for hit in _filled(make).search("git", 5)]
    assert scores == sorted(scores, reverse=True), f"scores must fall: {scores}"
    assert all(score > 0 for score in scores), f"hits must have positive scores: {scores}"


def asks_accept(make: MakeSearcher) -> None:
    """Only what *accept* lets through counts, also against the limit."""
    searcher = _filled(make)
    found = _ids(searcher.search("git", 1, lambda tool_id: tool_id.endswith(":log")))
    assert found == ["git:log"], f"only git:log was acceptable, found {found}"
    assert _ids(searcher.search("", 1, lambda tool_id: tool_id == "weather")) == ["weather"], "accept was not asked"
    assert searcher.search("git", 5, lambda _: False) == [], "nothing was acceptable"


def forgets_removed_tools(make: MakeSearcher) -> None:
    """Require that a removed tool is not found until it is added again; removing an unknown one changes nothing."""
    searcher = _filled(make)
    searcher.search("docker", 1)
    searcher.remove("docker:run")
    searcher.remove("docker:run")
    searcher.remove("never:there")
    assert searcher.search("docker", 5) == [], "a removed tool was found"
    assert len(searcher.search("", 10)) == 3, "removing must leave the others"
    searcher.add(_tool("docker:run", "Start a container"))
    assert _ids(searcher.search("docker", 5)) == ["docker:run"], "a tool that came back must be found"


def takes_the_new_form(make: MakeSearcher) -> None:
    """Adding a known ID replaces its strings: old words no longer find it, new ones do."""
    searcher = _filled(make)
    searcher.search("temperature", 1)
    searcher.add(_tool("weather", "Forecasts rain"))
    assert searcher.search("temperature", 5) == [], "an old word still finds the tool"
    assert _ids(searcher.search("forecasts", 5)) == ["weather"], "a new word does not find the tool"
    assert len(searcher.search("", 10)) == 4, "the tool must be there once"


def repeats_itself(make: MakeSearcher) -> None:
    """Require that a deterministic searcher repeats its answer, whatever the order in which tools came in."""
    searcher = _filled(make)
    if not searcher.deterministic:
        return
    first = searcher.search("git commit", 5)
    assert all(searcher.search("git commit", 5) == first for _ in range(10)), "the answer changed"
    tools = [_tool("b:two", "git words"), _tool("a:one", "git words here"), _tool("c:three", "git")]
    forward, backward = make(), make()
    for tool in tools:
        forward.add(tool)
    for tool in reversed(tools):
        backward.add(tool)
    assert _ids(forward.search("git", 5)) == _ids(backward.search("git", 5)), "the order of adding changed the answer"


def survives_any_query(make: MakeSearcher) -> None:
    """Special characters, other scripts and very long queries neither fail nor mean anything special."""
    searcher = _filled(make)
    for query in (
        "*",
        "?",
        "(",
        "[a-",
        "a AND b",
        '"',
        "\\",
        "+-&|!",
        "name:git",
        "^$",
        "\x00",
        "日本語",
        "🚀",
        "é" * 9000,
    ):
        searcher.search(query, 5)


def answers_many_threads_at_once(make: MakeSearcher) -> None:
    """Searches on several threads while tools come and go all get whole answers."""
    searcher = _filled(make)

    def look(turn: int) -> list[str]:
        if turn % 10 == 0:
            searcher.add(_tool(f"extra:t{turn}", "something else"))
            searcher.remove(f"extra:t{turn - 10}")
        return _ids(searcher.search("docker", 5))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(look, range(200)))
    assert all(answer == ["docker:run"] for answer in answers), "a search got someone else's answer"


SEARCHER_CHECKS: tuple[Callable[[MakeSearcher], None], ...] = tuple(checks_of(__name__).values())
"""Every check; each takes a factory of empty searchers and raises AssertionError with the broken promise."""


def check_searcher(make: MakeSearcher, *, known_gaps: Collection[str] = ()) -> None:
    """Put the searchers that *make* gives through every check; see `Report` for known gaps and for what is raised."""
    checks = {check.__name__: check for check in SEARCHER_CHECKS}
    report = Report("searcher", checks, known_gaps)
    for name, check in checks.items():
        with report.check(name):
            check(make)
    report.conclude()
