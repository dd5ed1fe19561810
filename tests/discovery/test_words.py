"""Text falls into the words that a search compares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.discovery.words import words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("git_status", "git status"),
        ("git-status", "git status"),
        ("git:status", "git status"),
        ("git.status/now", "git status now"),
        ("readFile", "read file"),
        ("ReadFile", "read file"),
        ("HTTPServer", "http server"),
        ("parseJSON", "parse json"),
        ("getHTTPResponseCode", "get http response code"),
        ("v1.2.3", "v 1 2 3"),
        ("k8s", "k 8 s"),
        ("C++ c#", "c c"),
        ("Hello,   World!\n", "hello world"),
        ("", ""),
        ("*?()[]", ""),
        ("café Ünïcode", "café ünïcode"),
        ("ÜberÖffnen", "über öffnen"),
        ("gitコミット", "git コミット"),
    ],
)
def test_words_of(text: str, words: str) -> None:
    """Split at punctuation and the humps of camelCase, in lower case."""
    assert words_of(text) == words.split()


def test_other_scripts_have_words() -> None:
    """Japanese, Cyrillic and accents are found, emoji are not words."""
    assert words_of("日本語ツール") == ["日本語ツール"]
    assert words_of("Привет мир") == ["привет", "мир"]
    assert words_of("🚀 rocket") == ["rocket"]


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    """Words are lower-case and never empty; case of the whole text does not invent letters."""
    words = words_of(text)
    assert all(word and word == word.lower() for word in words)
    assert len("".join(words)) <= 3 * len(text)
