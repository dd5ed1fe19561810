"""What a name is about: `issue_id` is the ID of an issue, `list_issues` gives issues."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from toolexec.discovery.links.vocabulary import (
    CONTENT,
    EMPTY,
    FIELDS,
    PHRASES,
    PREPOSITIONS,
    QUALIFIERS,
    ROLES,
    SAME,
    SELF,
    TRAILING,
    VERBS,
)
from toolexec.discovery.words import words_of

MAX_NAME: Final = 64
"""Longer names are cut before they are read."""
_MAX_WORDS: Final = 8
_MAX_DESCRIPTION: Final = 300
_LESS: Final = 0.74
_IN_PART: Final = 0.85
_SHORT: Final = re.compile(r"[^.;\n(]*")


@dataclass(frozen=True, slots=True)
class Name:
    """`issue_id` is the entity `issue` and the field `id`; `issueIdOrKey` has two fields, `issue` none."""

    entity: str = ""
    fields: tuple[str, ...] = ()

    @property
    def is_content(self) -> bool:
        """Whether a person or a model makes up what goes by this name."""
        return not self.fields and (not self.entity or self.entity.rpartition(" ")[2] in CONTENT)

    @property
    def is_qualifier(self) -> bool:
        """Whether the entity says only which one is meant: `parent_id`."""
        return bool(self.entity) and all(word in QUALIFIERS for word in self.entity.split(" "))


@dataclass(frozen=True, slots=True)
class ToolName:
    """`list_open_issues` does `list` and is about `open issue`; `verb` is empty when there is none that is known."""

    verb: str
    noun: str


@dataclass(frozen=True, slots=True)
class Hint:
    """What a description adds to a name: `ID of the issue`."""

    entity: str = ""
    field: str = ""


@lru_cache(maxsize=16384)
def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name, those that stand for others replaced."""
    found: list[str] = []
    for word in words_of(name[:MAX_NAME])[:_MAX_WORDS]:
        same = SAME.get(word, word)
        joined = PHRASES.get((found[-1], same)) if found else None
        if joined:
            found[-1] = joined
        else:
            found.append(same)
    return tuple(found)


@lru_cache(maxsize=16384)
def parse_name(name: str) -> Name:
    """Return the entity and the fields of an argument's or a property's name."""
    words = _words(name)
    while len(words) > 1 and words[-1] in ("list", "array", "string", "param", "value"):
        words = words[:-1]
    if not words:
        return Name()
    if "or" in words[1:-1]:
        place = words.index("or", 1)
        left, right = words[:place], words[place + 1 :]
        if left[-1] in FIELDS and right[-1] in FIELDS:
            return Name(" ".join(left[:-1]), (left[-1], right[-1]))
    if words[-1] in FIELDS:
        return Name(" ".join(words[:-1]), (words[-1],))
    return Name(" ".join(words))


@lru_cache(maxsize=16384)
def parse_tool_name(namespace: str, name: str) -> ToolName:
    """Return what a tool does, and to what; without a noun of its own it is about what its namespace is about."""
    words, around = _words(name), _words(namespace)
    if around and len(words) > len(around) and words[: len(around)] == around:
        words = words[len(around) :]
    verb = ""
    if words and words[0] in VERBS:
        verb, words = VERBS[words[0]], words[1:]
        if len(words) > 1 and words[0] == "or" and words[1] in VERBS:
            words = words[2:]
    elif words and words[-1] in VERBS:
        verb, words = VERBS[words[-1]], words[:-1]
    else:
        place = next((place for place in (1, 2) if place < len(words) - 1 and words[place] in VERBS), 0)
        if place:  # after the name of a vendor, as in `github_list_issues`
            verb, words = VERBS[words[place]], words[place + 1 :]
    noun = _noun(words) or _noun(around)
    if noun in SELF or (words and words[0] in SELF):
        return ToolName(verb or "get", "user")
    return ToolName(verb, noun)


def _noun(words: tuple[str, ...]) -> str:
    for place, word in enumerate(words):
        if word in PREPOSITIONS:
            words = words[:place]
            break
    while words and words[0] in QUALIFIERS:
        words = words[1:]
    while len(words) > 1 and words[-1] in TRAILING:
        words = words[:-1]
    return " ".join(words[-3:])


@lru_cache(maxsize=4096)
def noun_of(name: str) -> str:
    """Return what a container or a type is named after; empty for `items`, `data` and the like, and for long names."""
    words = _words(name)
    while words and (words[-1] in TRAILING or words[-1] in EMPTY):
        words = words[:-1]
    while words and words[0] in QUALIFIERS:
        words = words[1:]
    return " ".join(words) if len(words) <= 3 else ""


def entities_of(entity: str) -> Iterator[tuple[str, float]]:
    """Yield the entity and what it also is, each with how surely: `open issue` is an `issue`, an `assignee` is a
    `user`."""
    sure, rest = 1.0, entity
    for _ in range(3):
        yield rest, sure
        before, _, rest = rest.partition(" ")
        if not rest:
            if before in ROLES and before != "user":
                yield "user", sure * _IN_PART
            return
        sure *= _LESS


def hint_of(description: str) -> Hint:
    """Return what the first sentence of an argument's description says: `The ID of the issue`, `issue key`, `user's
    login`."""
    words = _words_of_sentence(description)
    for place, word in enumerate(words):
        if word not in FIELDS or (word in ("name", "code", "path") and place > 4):
            continue
        if words[place + 1 : place + 2] == ["of"]:
            after = [w for w in words[place + 2 : place + 7] if w not in ("the", "a", "an", "this", "which")]
            return Hint(after[0] if after and after[0] not in QUALIFIERS and after[0] not in CONTENT else "", word)
        before = words[place - 1] if place else ""
        vague = before in ("the", "a", "an", "unique", "of", "by", "or", "numeric", "its") or before in QUALIFIERS
        return Hint("" if vague or before in FIELDS or before in PREPOSITIONS or before in VERBS else before, word)
    return Hint()


def _words_of_sentence(description: str) -> list[str]:
    first = _SHORT.match(description[:_MAX_DESCRIPTION])
    words = words_of(first[0] if first else "")[:20]
    found: list[str] = []
    for word in words:
        if word == "s" and found:  # of "the key"
            continue
        same = SAME.get(word, word) if word not in ("no", "long", "pull") else word
        joined = PHRASES.get((found[-1], same)) if found else None
        if joined:
            found[-1] = joined
        else:
            found.append(same)
    return found
