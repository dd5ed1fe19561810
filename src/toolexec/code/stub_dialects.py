"""How the languages of stubs write types: Python and TypeScript."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from toolexec.code.stub_text import quoted
from toolexec.model.json_value import JSONValue
from toolexec.model.languages import base_language
from toolexec.model.visible import visible_json

_MAX_CHOICES: Final = 64
_MAX_LITERAL: Final = 1_000
_MAX_EXACT: Final = 2**53
_NAME: Final = re.compile("[\\w\x00]+(?:\\[\\])*", re.ASCII)


def is_javascript(language: str) -> bool:
    """Return whether stubs for programs in *language*, in any spelling, are TypeScript; all others are Python."""
    return base_language(language) == "javascript"


class Dialect(ABC):
    """The types of one language, as text. `any` accepts everything, `null` is the type of nothing; `plain` are those of
    JSON Schema's types that have no parts, `words` the values true, false and nothing."""

    any: ClassVar[str]
    null: ClassVar[str]
    plain: ClassVar[Mapping[str, str]]
    words: ClassVar[Mapping[bool | None, str]]

    def union(self, types: Iterable[str], most: int) -> str:
        """Return one of these types; `any` as soon as one is, or when they are more than *most*."""
        found = list(dict.fromkeys(types))
        if self.any in found or len(found) > most:
            return self.any
        return " | ".join(sorted(found, key=lambda text: text == self.null))

    def literal(self, values: Iterable[JSONValue]) -> str:
        """Return one of these JSON values as a type: the values themselves where the language has such types and they
        are few and short, else their types."""
        named: dict[str, str] = {}
        others: set[str] = set()
        for value in values:
            shown = self._value(value)
            if shown:
                named[shown] = self._kind(value)
            else:
                others.add(self._kind(value))
        too_much = len(named) > _MAX_CHOICES or sum(map(len, named)) > _MAX_LITERAL
        parts = list(dict.fromkeys(named.values())) if too_much else self._values(list(named))
        rest = sorted(others - set(parts), key=lambda kind: (kind == self.null, kind))
        return " | ".join([*parts, *rest]) or self.any

    def _kind(self, value: JSONValue) -> str:
        match value:
            case None:
                return self.null
            case bool():
                return self.plain["boolean"]
            case int():
                return self.plain["integer"]
            case float():
                return self.plain["number"]
            case str():
                return self.plain["string"]
            case list():
                return self.array(self.any)
            case _:
                return self.mapping(self.any)

    @abstractmethod
    def _value(self, value: JSONValue) -> str:
        """Return the type of this value alone; empty where there is none."""

    @abstractmethod
    def _values(self, named: Sequence[str]) -> list[str]:
        """Return the type of one of these values as parts of a union; none for no values."""

    @abstractmethod
    def array(self, item: str) -> str:
        """Return the type of lists of this type."""

    @abstractmethod
    def mapping(self, value: str) -> str:
        """Return the type of objects with any keys and values of this type."""

    @abstractmethod
    def tuple(self, items: Sequence[str], more: str) -> str:
        """Return the type of lists that begin with *items*, all others of the type *more* (empty: there are none)."""


class _Python(Dialect):
    any = "Any"
    null = "None"
    words: ClassVar = {True: "True", False: "False", None: "None"}
    plain: ClassVar = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

    def _value(self, value: JSONValue) -> str:
        return quoted(value) if isinstance(value, str) else repr(value) if isinstance(value, int) else ""

    def _values(self, named: Sequence[str]) -> list[str]:
        return [f"Literal[{', '.join(named)}]"] if named else []

    def array(self, item: str) -> str:
        return f"list[{item}]"

    def mapping(self, value: str) -> str:
        return f"dict[str, {value}]"

    def tuple(self, items: Sequence[str], more: str) -> str:
        return f"tuple[{', '.join([*items, *([f'*tuple[{more}, ...]'] if more else [])])}]"


class _TypeScript(Dialect):
    any = "any"
    null = "null"
    words: ClassVar = {True: "true", False: "false", None: "null"}
    plain: ClassVar = {
        "string": "string",
        "integer": "number",
        "number": "number",
        "boolean": "boolean",
        "null": "null",
    }

    def _value(self, value: JSONValue) -> str:
        if isinstance(value, str):
            return visible_json(value)
        if isinstance(value, bool):
            return self.words[value]
        return str(value) if isinstance(value, int) and abs(value) < _MAX_EXACT else ""

    def _values(self, named: Sequence[str]) -> list[str]:
        return list(named)

    def array(self, item: str) -> str:
        return f"{item}[]" if _NAME.fullmatch(item) else f"Array<{item}>"

    def mapping(self, value: str) -> str:
        return f"{{ [key: string]: {value} }}"  # a `Record` could not refer to itself

    def tuple(self, items: Sequence[str], more: str) -> str:
        rest = self.any if "\x00" in more else more  # a type that has a name may not refer to itself here
        return f"[{', '.join([*items, *([f'...{self.array(rest)}'] if more else [])])}]"


PYTHON: Final[Dialect] = _Python()
TYPESCRIPT: Final[Dialect] = _TypeScript()
