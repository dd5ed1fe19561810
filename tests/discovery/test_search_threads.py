"""Searching on many threads while tools come, change and go."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

import pytest

from toolexec.discovery import Filters, InMemoryIndex, SearchResults
from toolexec.model import LocalBinding, Tool

pytestmark = pytest.mark.full

WORDS = ("brontok", "quillix", "zumbarel", "fydraw", "olwencha")
COMMON = ("vashtomi", "kerupple")
READERS = 8
MOVING = 40
PACE = 2
"""Searches between two changes, at the least."""


@dataclass
class State:
    """One definition of a tool, and between which ticks of the clock it may have been seen, and surely was seen."""

    tool: Tool
    may_from: int
    surely_from: int
    surely_until: float = float("inf")
    may_until: float = float("inf")


@dataclass
class Seen:
    """One search: what was asked, between which ticks, and what came."""

    word: str
    tag: str | None
    limit: int
    began: int
    ended: int
    found: SearchResults


@dataclass
class Model:
    """What the index should hold, written down by the only thread that changes it."""

    index: InMemoryIndex
    clock: Iterator[int] = field(default_factory=count)
    states: dict[str, list[State]] = field(default_factory=dict)

    def put(self, tool: Tool) -> None:
        """Add the tool, or put it in the place of its former definition."""
        began = next(self.clock)
        self.index.replace(tool, LocalBinding(tool.id))
        ended = next(self.clock)
        known = self.states.setdefault(tool.id, [])
        if known and known[-1].may_until == float("inf"):
            known[-1].surely_until, known[-1].may_until = began, ended
        known.append(State(tool, began, ended))

    def remove(self, tool_id: str) -> None:
        """Take the tool out."""
        began = next(self.clock)
        self.index.unregister(tool_id)
        last = self.states[tool_id][-1]
        last.surely_until, last.may_until = began, next(self.clock)

    def has(self, tool_id: str) -> bool:
        """Return whether the tool is there now."""
        return tool_id in self.states and self.states[tool_id][-1].may_until == float("inf")


def definition(number: int, edition: int, dice: random.Random) -> Tool:
    """An edition of a moving tool: all of its texts tell which one it is."""
    word = dice.choice(WORDS)
    description = f"Works on {word} and {COMMON[edition % 2]} in edition {edition}"
    tags = (f"edition-{edition}", "even" if edition % 2 == 0 else "odd", word)
    return Tool(name=f"t{number}", namespace="moving", description=description, tags=tags, input_schema=True)


def standing(size: int) -> list[Tool]:
    """Tools that stay: each rare word is in one of them, each common one in every third."""
    texts = [f"Rests with {word}" for word in WORDS]
    texts += [f"Rests with {COMMON[i % 2]} number {i}" if i % 3 == 0 else f"Rests number {i}" for i in range(size)]
    return [
        Tool(name=f"s{i}", namespace="standing", description=text, tags=("even", "odd"), input_schema=True)
        for i, text in enumerate(texts[:size])
    ]


def change(model: Model, changes: int, searched: threading.Semaphore) -> None:
    """Let tools come, change and go, in step with the searches."""
    dice = random.Random(changes)
    for edition in range(changes):
        for _ in range(PACE):
            assert searched.acquire(timeout=60), "nobody searches any more"
        number = dice.randrange(MOVING)
        tool_id = f"moving:t{number}"
        if model.has(tool_id) and dice.random() < 0.4:
            model.remove(tool_id)
        else:
            model.put(definition(number, edition, dice))


def search(model: Model, seed: int, done: threading.Event, searched: threading.Semaphore) -> list[Seen]:
    """Ask for words, now and then with a filter, until all changes are made."""
    dice = random.Random(seed)
    seen: list[Seen] = []
    while not done.is_set():
        word = dice.choice(WORDS + COMMON)
        tag = dice.choice((None, None, "even", "odd"))
        limit = 100 if word in WORDS else 10
        filters = Filters(tags=(tag,)) if tag else None
        began = next(model.clock)
        found = model.index.search(word, limit, filters=filters)
        seen.append(Seen(word, tag, limit, began, next(model.clock), found))
        searched.release()
    return seen


def judge(model: Model, seen: Seen) -> None:
    """Every hit is whole, was there, and is what was asked for; nothing that surely was there is missing."""
    ids = seen.found.ids()
    assert len(ids) == len(set(ids)), f"twice in one answer: {ids}"
    for summary in seen.found:
        states = [
            state
            for state in model.states[summary.id]
            if state.tool.description == summary.short_description and state.tool.tags == summary.tags
        ]
        assert states, f"a mixture of definitions: {summary}"
        assert seen.word in summary.short_description, f"{seen.word} found {summary}"
        assert seen.tag is None or seen.tag in summary.tags, f"{seen.tag} let {summary} through"
        assert any(s.may_from <= seen.ended and s.may_until >= seen.began for s in states), f"not there then: {summary}"
    if len(ids) < seen.limit:
        for tool_id, states in model.states.items():
            sure = any(s.surely_from <= seen.began and s.surely_until >= seen.ended and wanted(s, seen) for s in states)
            assert not sure or tool_id in ids, f"{seen.word} with {seen.tag} did not find {tool_id}"


def wanted(state: State, seen: Seen) -> bool:
    """Return whether this definition is the requested one."""
    return seen.word in state.tool.description and (seen.tag is None or seen.tag in state.tool.tags)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(("size", "changes"), [(500, 800), (6_000, 200)])
def test_answers_are_right_while_the_catalogue_changes(size: int, changes: int, restless: None) -> None:
    """Eight threads search while one adds, changes and removes: no answer is wrong, torn, doubled or short."""
    model = Model(InMemoryIndex())
    for tool in standing(size):
        model.put(tool)
    done, searched = threading.Event(), threading.Semaphore(0)
    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(search, model, seed, done, searched) for seed in range(READERS)]
        try:
            change(model, changes, searched)
        finally:
            done.set()
    answers = [seen for reader in readers for seen in reader.result()]
    assert sum(seen.ended - seen.began > 1 for seen in answers) >= 10, "hardly anything happened at the same time"
    assert any(summary.namespace == "moving" for seen in answers for summary in seen.found)
    for seen in answers:
        judge(model, seen)


def test_the_model_notices_faults() -> None:
    """The check above can fail: on a hit that is foreign, stale, torn, doubled, or missing."""
    model = Model(InMemoryIndex())
    old = definition(1, 0, random.Random(0))
    model.put(old)
    word = next(word for word in WORDS if word in old.description)
    right = model.index.search(word)
    began = next(model.clock)
    judge(model, Seen(word, "even", 100, began, began, right))
    model.put(Tool(name="t1", namespace="moving", description="Rests", tags=("odd",), input_schema=True))
    model.remove("moving:t1")
    later = next(model.clock)
    new = model.states["moving:t1"][1].tool
    torn = SearchResults([type(right[0])(id="moving:t1", name="t1", short_description="Rests", tags=old.tags)])
    foreign = SearchResults([type(right[0])(id="moving:t1", name="t1", short_description="Rests", tags=new.tags)])
    for fault in (
        Seen(word, None, 100, later, later, right),
        Seen(word, "odd", 100, began, began, right),
        Seen(word, None, 100, began, began, torn),
        Seen(word, None, 100, began, later, foreign),
        Seen(word, None, 100, began, began, SearchResults([*right, *right])),
        Seen(word, None, 100, began, began, SearchResults()),
    ):
        with pytest.raises(AssertionError):
            judge(model, fault)
