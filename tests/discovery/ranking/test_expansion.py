"""What a query's words stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.discovery import BM25Config, BM25Searcher
from toolexec.discovery.ranking.spelling import distance
from toolexec.discovery.ranking.stems import root, stem, stems_of
from toolexec.discovery.ranking.synonyms import PHRASES, synonyms_of
from toolexec.model import Tool


def searcher(*names: str, config: BM25Config | None = None) -> BM25Searcher:
    """A searcher that knows tools of these names."""
    made = BM25Searcher(config)
    for name in names:
        made.add(Tool(name=name, input_schema=True))
    return made


def best(made: BM25Searcher, query: str) -> str:
    """The first hit's ID, or nothing."""
    hits = made.search(query, 1)
    return hits[0].tool_id if hits else ""


class TestStems:
    @pytest.mark.parametrize(
        "forms",
        [
            "create creates created creating creation",
            "deploy deploys deployed deploying deployment deployments",
            "schedule schedules scheduled scheduling",
            "cancel cancels canceled cancelled cancelling",
            "copy copies copied copying",
            "repository repositories",
            "translate translates translating translation translations",
            "validate validation",
            "box boxes",
            "id ids",
        ],
    )
    def test_forms_of_a_word(self, forms: str) -> None:
        """Plurals, verb forms and nouns made from verbs have one root."""
        assert len({root(stem(form)) for form in forms.split()}) == 1

    @pytest.mark.parametrize("pair", ["set setting", "meet meeting", "status stat", "bill billing", "feed fe"])
    def test_other_words(self, pair: str) -> None:
        """Words that only look alike keep apart."""
        left, right = pair.split()
        assert root(stem(left)) != root(stem(right))

    def test_the_form_that_was_asked_for_comes_first(self) -> None:
        """Other forms are found, after the one of the query."""
        made = searcher("move_deployment", "deploy_app", "stop_app")
        assert [hit.tool_id for hit in made.search("deploy", 5)] == ["deploy_app", "move_deployment"]
        assert [hit.tool_id for hit in made.search("deployments", 5)] == ["move_deployment", "deploy_app"]

    def test_accents_and_other_scripts(self) -> None:
        """Accents do not matter, wide letters are letters, and a part of a Chinese text is found."""
        assert stems_of("Café") == stems_of("cafe") == stems_of("CAFE\u0301")
        assert stems_of("ｇｉｔ") == ["git"]
        assert set(stems_of("日本")) < set(stems_of("東京と日本語"))

    @given(st.text(max_size=200))
    def test_any_text(self, text: str) -> None:
        """Any text has stems, and none is empty."""
        assert all(stems_of(text))


class TestSynonyms:
    @pytest.mark.parametrize(
        ("query", "name"),
        [
            ("remove branch", "delete_branch"),
            ("fetch branch", "get_branch"),
            ("turn off alarm", "disable_alarm"),
            ("turn the kitchen alarm off", "disable_alarm"),
            ("k8s pods", "list_kubernetes_pods"),
            ("repo", "create_repository"),
            ("msg", "send_message"),
            ("to-do", "add_todo"),
            ("roll back", "rollback_release"),
            ("pull request", "list_prs"),
        ],
    )
    def test_same_meaning(self, query: str, name: str) -> None:
        """Verbs, abbreviations and phrases find what they mean."""
        made = searcher(
            "delete_branch",
            "get_branch",
            "disable_alarm",
            "list_kubernetes_pods",
            "create_repository",
            "send_message",
            "add_todo",
            "rollback_release",
            "list_prs",
        )
        assert best(made, query) == name

    def test_the_word_itself_comes_first(self) -> None:
        """A word that means the same counts less."""
        made = searcher("delete_x", "remove_x", "erase_x")
        assert best(made, "remove x") == "remove_x"
        assert best(made, "erase x") == "erase_x"

    def test_they_can_be_switched_off(self) -> None:
        """With a weight of 0 only short and long forms of a word are left."""
        made = searcher("delete_branch", "send_message", config=BM25Config(synonyms=0))
        assert [hit.tool_id for hit in made.search("remove", 5)] == []
        assert best(made, "msg") == "send_message"

    def test_the_table(self) -> None:
        """No word stands for itself, same words know each other, and phrases lead to verbs."""
        for word in ("get", "delet", "msg", "repo"):
            others = dict(synonyms_of(word))
            assert others
            assert word not in others
        assert dict(synonyms_of("msg"))[stem("message")] is True
        assert dict(synonyms_of(stem("delete")))[stem("remove")] is False
        assert all(len(phrase.split()) == 2 for phrase in PHRASES)


class TestUnknownWords:
    @pytest.mark.parametrize(
        ("query", "name", "meant"),
        [
            ("comit", "commit_changes", "commit"),
            ("commmit", "commit_changes", "commit"),
            ("ocmmit", "commit_changes", "commit"),
            ("reposotories list", "search_repositories", "repositories list"),
            ("deploymnet", "create_deployment", "deployment"),
            ("paly", "play_song", "play"),
        ],
    )
    def test_misspelt(self, query: str, name: str, meant: str) -> None:
        """A letter or two too many, too few, wrong or swapped; the answer says what was meant."""
        made = searcher("commit_changes", "search_repositories", "create_deployment", "weather", "play_song")
        hits = made.search(query, 5)
        assert hits[0].tool_id == name
        assert hits.did_you_mean == meant

    @pytest.mark.parametrize(
        ("query", "name"),
        [
            ("notif", "send_notification"),
            ("pullrequest", "close_pull_request"),
            ("webhook", "add_web_hook"),
            ("gtwy", "restart_gateway"),
        ],
    )
    def test_begun_parted_joined_and_shortened(self, query: str, name: str) -> None:
        """The beginning of a word, two words in one, and a word without its vowels."""
        made = searcher("send_notification", "close_pull_request", "add_web_hook", "restart_gateway")
        assert best(made, query) == name

    def test_two_words_for_one(self) -> None:
        """Words that the catalogue writes as one are found."""
        assert best(searcher("create_changelog", "log"), "change log") in ("create_changelog", "log")
        assert best(searcher("create_changelog", "x"), "change log") == "create_changelog"

    def test_known_words_are_taken_at_their_word(self) -> None:
        """Nothing is corrected that some tool has."""
        hits = searcher("commit", "comit").search("comit", 5)
        assert [hit.tool_id for hit in hits] == ["comit"]
        assert hits.did_you_mean is None

    def test_nothing_like_it(self) -> None:
        """An answer without hits says why."""
        made = searcher("commit")
        assert made.search("zzzzzz", 5).note == "no tool has 'zzzzzz', nor a word like it"
        assert made.search("commit zzzzzz", 5).note == "no tool has 'zzzzzz'"
        assert made.search("?!", 5).note == "the query has no words"
        assert made.search("commit", 5, lambda _: False).note == "no tool that the filters let through has these words"
        assert BM25Searcher().search("x", 5).note == "there are no tools"
        assert "only its beginning" in made.search("commit " + "x" * 1_000_000, 5).note
        assert made.search(" ".join(f"q{c}x" for c in "abcdefghi"), 5).note.endswith("and 4 more, nor a word like it")

    def test_strict(self) -> None:
        """Not lenient: only words that are there."""
        assert searcher("commit", config=BM25Config(lenient=False)).search("comit", 5) == []

    def test_new_words_are_known_at_once(self) -> None:
        """A correction knows the words of a tool that was just added, and forgets those of one that is gone."""
        made = searcher("commit")
        assert best(made, "gatway") == ""
        made.add(Tool(name="gateway", input_schema=True))
        assert best(made, "gatway") == "gateway"
        made.remove("gateway")
        assert best(made, "gatway") == ""


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [("abc", "abc", 0), ("abc", "acb", 1), ("abc", "abcd", 1), ("abc", "xbc", 1), ("abcd", "badc", 2), ("", "ab", 2)],
)
def test_distance(left: str, right: str, expected: int) -> None:
    """Letters to insert, delete, replace or swap."""
    assert distance(left, right, 2) == distance(right, left, 2) == expected


@given(st.text("abc", max_size=8), st.text("abc", max_size=8), st.integers(0, 3))
def test_distance_is_bounded(left: str, right: str, most: int) -> None:
    """Beyond the bound it says so; it is 0 for equal words only."""
    apart = distance(left, right, most)
    assert (apart == 0) == (left == right)
    assert apart <= most or distance(left, right, 20) > most
