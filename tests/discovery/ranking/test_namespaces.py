"""A long query finds the tools of the namespaces that it speaks of."""

from __future__ import annotations

from toolexec import InMemoryIndex, LocalBinding, Tool
from toolexec.discovery.bm25 import BM25Searcher

TASK = "The offer is accepted: write Kim a mail with a short summary, and then book a meeting room for the kickoff"


def tool(tool_id: str, description: str) -> Tool:
    namespace, _, name = tool_id.partition(":")
    return Tool(name=name, namespace=namespace, description=description, input_schema={"type": "object"})


def tools() -> list[Tool]:
    mail = [tool(f"mail:{verb}_mail", "A mail of the mailbox.") for verb in ("send", "archive", "flag", "forward")]
    rooms = [tool(f"rooms:{verb}_room", "A meeting room.") for verb in ("book", "release", "describe")]
    strange = [tool(f"strange:tool_{number}", f"Number {number} of many.") for number in range(20)]
    chance = tool("strange:export", "Write a summary of the mail log, short.")
    return [*mail, *rooms, *strange, chance]


def searcher(every: list[Tool]) -> BM25Searcher:
    made = BM25Searcher()
    for each in every:
        made.add(each)
    return made


def ids(made: BM25Searcher, query: str, limit: int = 10) -> list[str]:
    return [hit.tool_id for hit in made.search(query, limit)]


def test_tools_of_a_namespace_that_is_spoken_of_come_first() -> None:
    """One tool that has many of the words by chance comes after those of namespaces that share a word, and is found
    all the same."""
    found = ids(searcher(tools()), TASK)
    assert found[0] == "rooms:book_room"
    chance = found.index("strange:export")
    assert {one.partition(":")[0] for one in found[:chance]} == {"rooms"}
    ranked_by_words = ids(searcher(tools()), "write mail short summary book meeting room")
    assert ranked_by_words[0] == "strange:export"


def test_a_short_query_is_ranked_by_its_words_alone() -> None:
    """A query for one tool finds it, whatever its namespace is."""
    assert ids(searcher(tools()), "write short summary of mail", 1) == ["strange:export"]


def test_scores_fall_and_pages_fit_together() -> None:
    """A longer answer begins with the shorter one, and no score is higher than the one before."""
    many = [*tools(), *(tool(f"mails{n}:mail_{n}", "A short mail to write.") for n in range(200))]
    made = searcher(many)
    whole = made.search(TASK, 300)
    assert [hit.score for hit in whole] == sorted((hit.score for hit in whole), reverse=True)
    for limit in (1, 10, 60, 61, 100):
        assert made.search(TASK, limit) == whole[:limit]
    index = InMemoryIndex(made)
    index.register_many((each, LocalBinding(each.id)) for each in many)
    pages: list[str] = []
    cursor = None
    for _ in range(4):
        page = index.search_page(TASK, 30, cursor=cursor)
        pages += [summary.id for summary in page.items]
        cursor = page.next_cursor
    assert pages == index.search(TASK, 120).ids()


def test_changes_and_snapshots_count() -> None:
    """A namespace is as large as its tools that are there: after a removal, a change, and in a searcher that was
    loaded."""
    every = tools()
    made = searcher([*every, *(tool(f"mail:extra_{n}", "Nothing that is asked for.") for n in range(30))])
    made.search(TASK, 1)
    for number in range(30):
        made.remove(f"mail:extra_{number}")
    made.add(every[0])
    fresh = searcher(every).search(TASK, 20)
    assert made.search(TASK, 20) == fresh
    loaded = BM25Searcher.load(made.dump(), {each.id: each for each in every})
    assert loaded.search(TASK, 20) == fresh
