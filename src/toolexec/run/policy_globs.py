"""Patterns of paths as `.gitignore` has them, for paths whose directory may be unknown.

A pattern without `/` matches at any depth, one with a `/` at its beginning the paths from the root, any other one the
paths from the directory that the tool takes relative paths from. `*`, `?` and `[...]` match within a name, `**` any
number of directories. What matches a directory matches everything in it.

Where the answer depends on which directory that is, or on whether a name is a directory, it is unknown.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from toolexec.run.policy_paths import WILD, any_path, one_spelling, parts_of
from toolexec.run.policy_truth import Truth

_Name: TypeAlias = Callable[[str], object] | None
"""Matches one name of a path; None any number of them."""

_ANY_DEPTH: Final = "**"
_ONLY_STARS: Final = re.compile(r"\*+")
_CLASS: Final = re.compile(r"\[[!^]?\]?[^\]]*\]")


def glob_test(patterns: Sequence[str]) -> Callable[[Any], Truth]:
    """Return a test for paths that match one of *patterns*. Raises ValueError, which says what they must be."""
    return any_path([_glob(pattern) for pattern in patterns])


def _glob(pattern: str) -> Callable[[str], Truth]:
    exact, folded = _Pattern(pattern), _Pattern(pattern.casefold())

    def compare(path: str) -> Truth:
        if WILD.search(path):
            return Truth.UNKNOWN  # a tool that expands it may find something else
        return Truth.agreed([exact.matches(path), folded.matches(path.casefold())])

    return compare


class _Pattern:
    """One pattern, read by the rules of `.gitignore`."""

    def __init__(self, pattern: str) -> None:
        path = one_spelling(pattern, wild=True)
        names = parts_of(path)
        _check(pattern, names)
        self.from_root = path.startswith("/")
        self.for_directories = pattern.rstrip().endswith("/")
        self.names = names
        if len(names) == 1 and not self.from_root:
            names = [_ANY_DEPTH, *names]
        if names[-1:] == [_ANY_DEPTH]:
            names = [*names, "*"]  # what is in a directory, not the directory itself
        self.steps = list(map(_name, names))
        first = next((number for number, name in enumerate(names) if name not in ("*", _ANY_DEPTH)), len(names) - 1)
        self.loose: list[_Name] = [None, *self.steps[first:]]
        """The pattern at any depth, and without the directories that it asks for before its first name."""
        self.starts_anywhere = self.steps[0] is None
        self.asks_for_more = first > 0 and not self.starts_anywhere

    def matches(self, path: str) -> Truth:
        """Return whether the pattern matches a path, or a directory that it is in."""
        parts = parts_of(path)
        if self.from_root and not path.startswith("/"):  # what is above the tool's directory is not known
            surely = self.starts_anywhere and self._within(self.steps, parts) is Truth.TRUE
            return Truth.TRUE if surely else Truth.UNKNOWN
        if not parts:  # the root, or the tool's directory: all that is there
            return self._everything
        if path.startswith("/") and not self.from_root and not self.starts_anywhere:
            return self._perhaps(parts)  # which of its directories is the tool's is not known
        matches = self._within(self.steps, parts)
        # `*/.git/*` is likely meant for `.git/config`, too
        return self._perhaps(parts) if matches is Truth.FALSE and self.asks_for_more else matches

    @property
    def _everything(self) -> Truth:
        if not all(map(_ONLY_STARS.fullmatch, self.names)):
            return Truth.FALSE
        return Truth.TRUE if len(self.names) == 1 else Truth.UNKNOWN

    def _perhaps(self, parts: list[str]) -> Truth:
        return Truth.UNKNOWN if _depth(self.loose, parts) else Truth.FALSE

    def _within(self, steps: list[_Name], parts: list[str]) -> Truth:
        depth = _depth(steps, parts)
        if depth == 0:
            return Truth.FALSE
        return Truth.UNKNOWN if self.for_directories and depth == len(parts) else Truth.TRUE


def _check(pattern: str, names: list[str]) -> None:
    odd = pattern.lstrip().startswith("!") or "{" in pattern or "[:" in pattern
    if odd or not names or any("[" in _CLASS.sub("x", name) for name in names):
        raise ValueError(
            "a pattern as in .gitignore, with *, **, ? and [...], but without !, {...} and [[:...:]] "
            f"(write a pattern for each), not {pattern}"
        )


def _name(name: str) -> _Name:
    if name == _ANY_DEPTH:
        return None
    return re.compile(fnmatch.translate(name.replace("[^", "[!"))).match


def _depth(steps: list[_Name], parts: list[str]) -> int:
    """Return how many of *parts* it takes until all *steps* are made, at least; 0 where that is never so."""
    reached = _reached({0}, steps)
    for number, part in enumerate(parts, start=1):
        made: set[int] = set()
        for position in reached:
            if position == len(steps):
                continue
            step = steps[position]
            if step is None:
                made.add(position)
            elif step(part):
                made.add(position + 1)
        reached = _reached(made, steps)
        if len(steps) in reached:
            return number
    return 0


def _reached(positions: set[int], steps: list[_Name]) -> set[int]:
    """Return *positions*, and those after a step that any number of names, also none, may make."""
    found = set(positions)
    for first in positions:
        after = next((at for at in range(first, len(steps)) if steps[at] is not None), len(steps))
        found.update(range(first, after + 1))
    return found
