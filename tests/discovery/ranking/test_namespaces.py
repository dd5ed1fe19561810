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


def lookups() -> list[Tool]:
    """Return tools that find things by words, of namespaces that a task speaks of and of another."""
    names = ("mail:search_messages", "rooms:findRooms", "strange:search_nothing")
    return [tool(name, "Matches a pattern.") for name in names]


def test_what_looks_things_up_comes_along() -> None:
    """A task names things, and tools take their IDs: what finds these in the task's namespaces is found without a word
    of it, and that of others is not."""
    made = searcher([*tools(), *lookups()])
    whole = made.search(TASK, 50)
    found = [hit.tool_id for hit in whole]
    assert found.index("rooms:findRooms") < 5
    assert found.index("strange:export") < len(found)
    assert "strange:search_nothing" not in found[:6]
    assert found.index("mail:search_messages") < 6
    assert len(found) == len(set(found))
    assert [hit.score for hit in whole] == sorted((hit.score for hit in whole), reverse=True)
    for limit in (1, 3, 10):
        assert made.search(TASK, limit) == whole[:limit]
    assert ids(made, "book meeting room")[-1] == "rooms:findRooms"


def test_what_looks_things_up_is_filtered_too() -> None:
    """A tool that a filter or a rule hides does not come along; one that is removed is gone."""
    made = searcher([*tools(), *lookups()])
    hidden = made.search(TASK, 50, lambda tool_id: tool_id != "rooms:findRooms")
    assert "rooms:findRooms" not in [hit.tool_id for hit in hidden]
    made.search(TASK, 50)
    made.remove("rooms:findRooms")
    assert "rooms:findRooms" not in ids(made, TASK, 50)
    made.add(lookups()[1])
    assert made.search(TASK, 50) == searcher([*tools(), *lookups()]).search(TASK, 50)


def test_what_makes_a_thing_comes_before_what_else_is_done_with_it() -> None:
    """A task that says *mail* and no verb that a tool has needs what sends one; a namespace of which the task says
    nothing that nearly all of its tools have does not get what makes things there."""
    made = searcher(tools())
    found = ids(made, TASK, 50)
    mails = [one for one in found if one.startswith("mail:")]
    assert mails == ["mail:send_mail", "mail:archive_mail", "mail:flag_mail", "mail:forward_mail"]
    assert "strange:send_it" not in ids(searcher([*tools(), tool("strange:send_it", "Odd.")]), TASK, 50)
    assert ids(made, "mail", 1) == ["mail:archive_mail"]


def test_values_say_what_they_are() -> None:
    """A path, an address and a date in a task find the tools for files, mail and events; in a short query they are
    words."""
    kinds = [
        tool("drive:upload", "Stores a file."),
        tool("post:deliver", "Hands in an email."),
        tool("agenda:book", "Makes an event."),
        *(tool(f"x:{letter * 3}", "Another one.") for letter in "abcdefghijklmnop"),
    ]
    made = searcher(kinds)
    long = "our yearly talk lasted hours, hence everybody absent yesterday deserves its complete wording without delay"
    assert ids(made, long) == []
    assert ids(made, f"{long} into /minutes/monday.md")[0] == "drive:upload"
    assert ids(made, f"{long} onto kim@northwind.example")[0] == "post:deliver"
    assert ids(made, f"{long} on 2026-12-07")[0] == "agenda:book"
    assert "drive:upload" not in ids(made, "/minutes/monday.md")


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
