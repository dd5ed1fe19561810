"""A task of several steps finds the tools of all of them."""

from __future__ import annotations

import pytest

from toolexec import Tool
from toolexec.discovery.bm25 import BM25Searcher
from toolexec.discovery.ranking.steps import clauses_of, is_task, spread

NAMES = ("get_card", "move_card", "copy_card", "archive_card", "label_card", "rename_card")


def searcher(*more: tuple[str, str]) -> BM25Searcher:
    made = BM25Searcher()
    cards = [(f"board:{name}", "A card of the board.") for name in NAMES]
    others = [(f"x:{letter * 3}", "Another one.") for letter in "abcdefghijklmnopqrst"]
    for tool_id, description in (*cards, *others, *more):
        space, _, name = tool_id.partition(":")
        made.add(Tool(name=name, namespace=space, description=description, input_schema={"type": "object"}))
    return made


def ids(made: BM25Searcher, query: str, limit: int = 30) -> list[str]:
    return [hit.tool_id for hit in made.search(query, limit)]


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("a b c d e f g h i", 9, True),
        ("close it, book an hour, and mail Kim", 5, True),
        ("close it, book an hour and mail", 4, False),
        ("close it and book an hour for Kim", 5, False),
        ("close v1.2.3 of api.example.com today please", 6, False),
        ("关闭工单，预订一小时，发送邮件", 6, True),
        ("", 0, False),
    ],
)
def test_what_is_a_task(text: str, count: int, expected: bool) -> None:
    """A query of many words is a task, and one of some words if it has three clauses; dots inside of words end none."""
    assert is_task(text, count) is expected


def test_clauses() -> None:
    """A word is in the clause where it comes first; commas, full stops of any script and *and* end one."""
    assert clauses_of("Mail Kim and mail Sam; done.") == {"mail": 0, "kim": 0, "sam": 1, "done": 2}
    assert len(set(clauses_of("关闭工单，发送邮件。完成").values())) == 3
    assert clauses_of("") == {}


def test_words_of_one_clause_say_more() -> None:
    """A tool comes first of two with as many words: the one that has them of one clause."""
    gains = {1: [1.0, 0.0, 1.0, 0.0], 2: [1.0, 1.0, 0.0, 0.0]}
    assert [slot for _, slot in spread({1: 2.0, 2: 2.0}, gains, [0, 0, 1, 1])] == [2, 1]


def test_a_word_adds_less_each_time() -> None:
    """A tool for another step comes before the third one for the same; scores fall, and none is lost."""
    gains = {slot: [4.0, 0.0] for slot in range(5)} | {9: [0.0, 3.0]}
    found = spread({slot: sum(row) for slot, row in gains.items()}, gains, [0, 1])
    assert [slot for _, slot in found] == [0, 1, 9, 2, 3, 4]
    assert [score for score, _ in found] == sorted((score for score, _ in found), reverse=True)


def test_a_slot_without_words_keeps_its_score() -> None:
    """A tool that comes along without a word of the query is ranked by what it was given."""
    assert spread({1: 1.0, 2: 5.0}, {1: [1.0]}, [0])[0] == (5.0, 2)
    assert spread({}, {}, []) == []


def test_a_step_that_one_tool_does_is_not_buried() -> None:
    """Six tools with the same word do not keep off the one with the other."""
    made = searcher(("clock:start_timer", "Counts minutes."))
    found = ids(
        made, "take the card, look at the card, then put the card somewhere and afterwards begin a timer please"
    )
    assert found.index("clock:start_timer") < 5


def test_the_best_by_words_stays_first_in_a_short_task() -> None:
    """A query of few words and several clauses may be about one tool: that which has most of them is first."""
    made = searcher(("shelf:search_jars", "Finds."), ("shelf:open_jar", "A jar."), ("shelf:fill_jar", "A jar."))
    made.add(Tool(name="salt", namespace="pantry", description="Lid of a jar, tightened.", input_schema={}))
    query = "the lid, it is tightened, of this jar somehow"
    assert ids(made, query)[0] == "pantry:salt"
    scores = [hit.score for hit in made.search(query, 30)]
    assert scores == sorted(scores, reverse=True)
