"""What is wrong with a template in which an argument of a call would be the code of a program, or name the program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from toolexec.backend.providers.command.interpreters import INTERPRETERS, LAUNCHERS, Interpreter, Launcher, Operand

_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_VERSION: Final = re.compile(r"[-.0-9]*(\.exe)?$", re.ASCII | re.IGNORECASE)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.ASCII)
_EXEC: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


@dataclass(frozen=True, slots=True)
class Word:
    """One element of a template: its literal text up to the first placeholder, and the arguments that are in it."""

    text: str = ""
    holes: tuple[str, ...] = ()
    may_be_option: bool = False
    """Whether a value may begin with `-` here."""

    @property
    def is_option(self) -> bool:
        """Whether it begins as an option does."""
        return self.text.startswith("-") and (len(self.text) > 1 or bool(self.holes))


def find_code(words: Sequence[Word], stdin: tuple[str, ...] = ()) -> str | None:
    """Return what is wrong with a template that makes an argument of a call code, or decides by one which program
    runs; None for any other. *words* begin with the program, *stdin* are the arguments that it reads.
    """
    if words[0].holes:
        return _decides(words[0].holes[0])
    name = _VERSION.sub("", words[0].text.rpartition("/")[2])
    if name in INTERPRETERS:
        hole = _Scan(INTERPRETERS[name]).run(words[1:], stdin)
        instead = f"write the code without placeholders, and {INTERPRETERS[name].instead}"
        return hole and f"the argument {hole!r} would be code for {words[0].text}; {instead}"
    if name == "find":
        return _after_find(words[1:], stdin)
    launcher = LAUNCHERS.get(name)
    return _after_launcher(launcher, name, words[1:], stdin) if launcher is not None else None


class _Scan:
    """One reading of an interpreter's arguments, from left to right."""

    def __init__(self, kind: Interpreter) -> None:
        self._kind = kind
        self._operand: Operand = kind.operand
        self._next: Literal["code", "value", "file", ""] = ""
        self._has_code = False
        self._reads_stdin = False
        self._skipped = kind.skipped

    def run(self, words: Sequence[Word], stdin: tuple[str, ...]) -> str | None:
        """Return the argument that would be code."""
        options = True
        for number, word in enumerate(words):
            if self._next:
                found = self._value(word)
            elif options and word == Word("--"):
                options, found = False, None
            elif options and (word.is_option or (word.may_be_option and not word.text)):
                found = self._option(word)
            else:
                found = self._first(word)
                options = options and self._kind.permutes
            if found:
                return found
            if self._has_code and self._kind.joins:
                return next((hole for later in words[number + 1 :] for hole in later.holes), None)
            if (self._kind.ends and self._has_code) or not (options or self._next or self._operand != "argument"):
                break
        is_stdin = self._reads_stdin or (self._kind.operand == "script" and not self._has_code)
        return stdin[0] if stdin and is_stdin else None

    def _value(self, word: Word) -> str | None:
        kind, self._next = self._next, ""
        if kind == "code":
            return self._code(word)
        if kind == "file":
            self._script(word)
        return None

    def _code(self, word: Word) -> str | None:
        self._has_code, self._operand = True, "argument"
        return word.holes[0] if word.holes else None

    def _script(self, word: Word) -> None:
        self._has_code, self._operand = True, "argument"
        self._reads_stdin = self._reads_stdin or (word.text in _STDIN and not word.holes)

    def _first(self, word: Word) -> str | None:
        if self._skipped:
            self._skipped -= 1
        elif self._operand == "code":
            return self._code(word)
        elif self._operand == "script":
            self._script(word)
        return None

    def _option(self, word: Word) -> str | None:
        kind = self._kind
        name, is_joined, _ = word.text.partition("=")
        if name in kind.names and (is_joined or not word.holes):
            if is_joined:
                return self._code(word)
            self._next = "code"
        elif name in kind.value_names and (is_joined or not word.holes):
            self._next = "" if is_joined else "value"
        elif name.startswith("--") and (is_joined or not word.holes):
            return None
        elif not name.startswith("--"):
            return self._letters(word)
        else:
            return word.holes[0]
        return None

    def _letters(self, word: Word) -> str | None:
        kind = self._kind
        for place, letter in enumerate(word.text[1:], start=2):
            is_attached = place < len(word.text) or bool(word.holes)
            self._reads_stdin = self._reads_stdin or letter in kind.stdin
            if letter in kind.code and kind.is_flag:
                self._operand = "code"
            elif letter in kind.code:
                if is_attached:
                    return self._code(word)
                self._next = "code"
            elif letter in kind.files:
                if is_attached:
                    self._script(Word(word.text[place:], word.holes))
                else:
                    self._next = "file"
                return None
            elif letter in kind.values or letter in kind.tails:
                self._next = "" if is_attached or letter in kind.tails else "value"
                return None
        return word.holes[0] if word.holes else None


def _after_find(words: Sequence[Word], stdin: tuple[str, ...]) -> str | None:
    """Judge the programs that `find` runs."""
    for place, word in enumerate(words):
        if word.may_be_option and not word.text:
            return f"the argument {word.holes[0]!r} could be an -exec of find; take it out of dashes"
        if word.text not in _EXEC or word.holes:
            continue
        command: list[Word] = []
        for part in words[place + 1 :]:
            if part in (Word(";"), Word("+")):
                break
            command.append(part)
        problem = find_code(command, stdin) if command else None
        if problem:
            return problem
    return None


def _after_launcher(kind: Launcher, name: str, words: Sequence[Word], stdin: tuple[str, ...]) -> str | None:
    """Judge the program that another one runs."""
    skipped, place, replaced = kind.skipped, 0, ""
    while place < len(words):
        word = words[place]
        if word == Word("--") or (kind.assigns and _ASSIGNMENT.match(word.text)):
            place += 1
        elif word.is_option:
            option, value, place = _launcher_option(kind, words, place)
            splits = name == "env" and option in ("S", "--split-string")
            if value.holes and (splits or option == word.text):
                return _decides(value.holes[0])
            if splits:
                return _after_launcher(kind, name, [*map(Word, value.text.split()), *words[place:]], stdin)
            if name == "flock" and option in ("-c", "--command"):
                return find_code([Word("sh"), Word("-c"), *words[place:]], stdin)
            if name == "xargs" and option in ("I", "--replace"):
                replaced = value.text
        elif skipped:
            skipped, place = skipped - 1, place + 1
        else:
            break
    command = list(words[place:])
    if name == "xargs" and stdin:  # each line that it reads becomes an argument
        filled = [replace(word, holes=stdin) if replaced and replaced in word.text else word for word in command]
        command, stdin = (filled if replaced else [*command, Word("", stdin)] if command else []), ()
    return find_code(command, stdin) if command else None


def _launcher_option(kind: Launcher, words: Sequence[Word], place: int) -> tuple[str, Word, int]:
    """Return an option, its value and the place after both; the whole text where it is not known to take a value."""
    word, after = words[place], place + 1
    following = words[after] if after < len(words) else Word()
    name, is_joined, value = word.text.partition("=")
    if name.startswith("--"):
        if is_joined:
            return name, Word(value, word.holes), after
        return (name, following, after + 1) if name in kind.value_names else (word.text, Word("", word.holes), after)
    for end, letter in enumerate(word.text[1:], start=2):
        if letter in kind.values:
            attached = Word(word.text[end:], word.holes)
            return (letter, attached, after) if attached != Word() else (letter, following, after + 1)
    return word.text, Word("", word.holes), after


def _decides(hole: str) -> str:
    return f"the argument {hole!r} would decide which program runs; name the program in the template"
