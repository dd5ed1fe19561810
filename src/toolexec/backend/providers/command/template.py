"""The arguments of a program, made from those of a call: one element of the template, one argument of the program.

`{name}` is the argument *name*, `{name...}` an element for each item of a list, `{name?--text}` the text if the
argument is true, `{{` and `}}` are braces. A list inside the list is a group: it is left out as a whole when an
argument in it is not there. There is no shell anywhere, so no character of an argument means anything but itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolexec.backend.providers.command.program_text import Word, find_code
from toolexec.errors import ConfigurationError, InputValidationError, Violation
from toolexec.model.json_value import JSONObject, JSONValue

_Kind: TypeAlias = Literal["value", "list", "flag"]
_TOKEN: Final = re.compile(r"\{\{|\}\}|\{(?P<name>[A-Za-z_][\w-]*|\*)(?P<how>\.\.\.|\?[^{}]*)?\}|[{}]", re.ASCII)

ALL: Final = "*"
"""The placeholder for all arguments as a JSON object; only in what a program reads from stdin."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A placeholder: for the value of an argument, the items of a list, or *text* if a flag is set."""

    name: str
    kind: _Kind = "value"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """One element: literal strings and placeholders."""

    parts: tuple[str | Hole, ...]

    @property
    def holes(self) -> list[Hole]:
        """Its placeholders."""
        return [part for part in self.parts if isinstance(part, Hole)]

    def fill(self, args: JSONObject) -> str:
        """Return the text; an argument that is not there is empty."""
        return "".join(
            part
            if isinstance(part, str)
            else _json(args)
            if part.name == ALL
            else written(args[part.name])
            if part.name in args
            else ""
            for part in self.parts
        )


def parse_text(text: str, where: str, *, whole: bool = False) -> Text:
    """Return the element that *text* describes. Raises ConfigurationError for braces that mean nothing.

    *whole* allows `{*}`, all arguments.
    """
    parts: list[str | Hole] = []
    end = 0
    for match in _TOKEN.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        parts.append(_part(match, where, whole=whole))
    parts.append(text[end:])
    found = Text(tuple(_joined(parts)))
    if len(found.parts) > 1 and any(hole.kind != "value" for hole in found.holes):
        raise ConfigurationError(f"{where}: {text!r}: {{name...}} and {{name?text}} must be the whole element")
    return found


def _part(match: re.Match[str], where: str, *, whole: bool) -> str | Hole:
    token, name, how = match[0], match["name"], match["how"] or ""
    if token in ("{{", "}}"):
        return token[0]
    if name is None or (name == ALL and (how or not whole)):
        raise ConfigurationError(
            f"{where}: {match.string!r}: placeholders are {{name}}, {{name...}} and {{name?text}}; a brace is {{{{"
        )
    if not how:
        return Hole(name)
    return Hole(name, "list") if how == "..." else Hole(name, "flag", how[1:])


def _joined(parts: Sequence[str | Hole]) -> Iterator[str | Hole]:
    """Yield the parts, neighbouring strings as one."""
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        if text:
            yield text
        text = ""
        yield part
    if text:
        yield text


class Argv:
    """The template of a program's arguments, the program first.

    *dashes* names the arguments whose values may begin with `-` where the program takes options, and *stdin* is what
    the program reads. Raises ConfigurationError: which program runs depends on an argument, or an argument would become
    code of a program that is in `INTERPRETERS`.
    """

    def __init__(
        self,
        elements: Sequence[str | Sequence[str]],
        where: str,
        *,
        dashes: Collection[str] = (),
        stdin: Text | None = None,
    ) -> None:
        if not elements or not isinstance(elements[0], str) or not elements[0]:
            raise ConfigurationError(f"{where}: argv must begin with the name of a program")
        self._where = where
        self._dashes = frozenset(dashes)
        self._groups = [
            (isinstance(each, str), [parse_text(text, where) for text in ([each] if isinstance(each, str) else each)])
            for each in elements
        ]
        first = self._groups[0][1][0]
        if first.holes:
            raise ConfigurationError(f"{where}: the program {elements[0]!r} must not depend on arguments")
        self.program: str = first.fill({})
        self._refuse_code(tuple(hole.name for hole in stdin.holes) if stdin is not None else ())

    def holes(self) -> Iterator[tuple[Hole, bool]]:
        """Yield each placeholder, and whether the program cannot do without it."""
        for alone, elements in self._groups:
            for hole in (hole for text in elements for hole in text.holes):
                yield hole, alone and hole.kind == "value"

    def fill(self, args: JSONObject, extra: str = "") -> list[str]:
        """Return the program and its arguments; *extra* is put before the first `--`, or at the end.

        Raises InputValidationError for a value that the program would read as an option, and for what no argument of
        a program can have.
        """
        found: list[str] = []
        options = True
        for _, elements in self._groups:
            if any(hole.name not in args for text in elements for hole in text.holes):
                continue
            for text in elements:
                if options and text.parts == ("--",):
                    options = False
                    if extra:
                        found.append(extra)
                        extra = ""
                found += self._elements(text, args, options=options)
        return [*found, extra] if extra else found

    def _elements(self, text: Text, args: JSONObject, *, options: bool) -> Iterator[str]:
        hole = text.parts[0] if text.parts and isinstance(text.parts[0], Hole) else None
        if hole is None:
            yield _usable(text.fill(args), text)
            return
        if hole.kind == "flag":
            if args[hole.name]:
                yield hole.text
            return
        value = args[hole.name]
        items = value if isinstance(value, list) else [value]
        is_whole = hole.kind == "list" or len(text.parts) == 1
        for item in items if hole.kind == "list" else [value]:
            string = written(item) if is_whole else text.fill(args)
            is_number = is_whole and isinstance(item, int | float)  # a program reads -5 as a number
            may_be_option = is_number or self._dashes.issuperset(each.name for each in text.holes)
            if options and string.startswith("-") and not may_be_option:
                raise _refused(
                    hole.name, f"{string[:100]!r} begins with '-', so {self.program} would read it as an option"
                )
            yield _usable(string, text)

    def _refuse_code(self, stdin: tuple[str, ...]) -> None:
        """Raise for a program that is to run an argument: with everything that may be left out, and without it."""
        for has_all in (True, False):
            problem = find_code(list(self._words(has_all=has_all)), stdin)
            if problem:
                raise ConfigurationError(f"{self._where}: {problem}")

    def _words(self, *, has_all: bool) -> Iterator[Word]:
        for alone, elements in self._groups:
            if not has_all and any(not alone or hole.kind != "value" for text in elements for hole in text.holes):
                continue
            for text in elements:
                first = text.parts[0] if text.parts else ""
                if isinstance(first, Hole) and first.kind == "flag":
                    yield Word(first.text)
                    continue
                names = tuple(hole.name for hole in text.holes)
                prefix = first if isinstance(first, str) else ""
                yield Word(prefix, names, may_be_option=bool(names) and self._dashes.issuperset(names))


def written(value: JSONValue) -> str:
    """Return a value as an argument of a program: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else _json(value)


def _json(value: JSONValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _usable(string: str, text: Text) -> str:
    name = text.holes[0].name if text.holes else ""
    if "\0" in string:
        raise _refused(name, "a NUL character cannot be in an argument of a program")
    try:
        string.encode()
    except UnicodeEncodeError:
        raise _refused(name, "half of a character cannot be in an argument of a program") from None
    return string


def _refused(name: str, message: str) -> InputValidationError:
    return InputValidationError([Violation(path=f"/{name}", keyword="argv", message=message)], op="validate_input")
