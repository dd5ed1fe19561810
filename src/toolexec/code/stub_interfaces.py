"""TypeScript's named types, and text from strangers as parts of TypeScript: nothing in it can end its place."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import ClassVar, Final

from toolexec.code.stub_book import TypeBook
from toolexec.code.stub_dialects import TYPESCRIPT
from toolexec.code.stub_text import one_line
from toolexec.code.stub_types import Definition, Field
from toolexec.model.visible import visible_json

_WIDTH: Final = 100
_SHORT: Final = 160
_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_ORDER: Final = re.compile(
    r"(?:@ts-|@jsx|eslint|prettier-ignore|biome-ignore|deno-|tslint:|jshint|istanbul|[cv]8 ignore|<(?:reference|amd))",
    re.IGNORECASE,
)
"""Words by which a comment gives an order to a compiler or a linter."""


class InterfaceBook(TypeBook):
    """The named types of one module of TypeScript."""

    any: ClassVar[str] = TYPESCRIPT.any
    reserved: ClassVar[frozenset[str]] = frozenset({"Array", "Error", "Promise", "ToolError", "Tools"})

    def write(self, name: str, definition: Definition) -> None:
        """Add the lines of a type to `blocks`."""
        if definition.alias:
            self.blocks.append([f"type {name} = {self.resolve(definition.alias)};"])
        else:
            note = self.resolve(definition.note)
            lines = object_lines(definition.fields, self, "", open=bool(note), note=note, width=_WIDTH)
            self.blocks.append([f"interface {name} {lines[0]}", *lines[1:]])


def object_lines(
    fields: Sequence[Field], book: TypeBook, indent: str, *, open: bool, note: str, width: int
) -> list[str]:
    """Return an object type in braces: on one line when nothing is said of its parts and it fits beside *width* other
    characters, else a line for each. When it is *open* it may have other keys, of which *note* says more."""
    rows = [
        (f"{key_of(field.name)}{'' if field.required else '?'}: {book.resolve(field.type)}", _said(field))
        for field in fields
    ]
    if open:
        rows.append((f"[key: string]: {TYPESCRIPT.any}", note))
    line = f"{{ {'; '.join(text for text, _ in rows)} }}"
    if not any(said for _, said in rows) and len(line) + width <= _WIDTH:
        return [line]
    shown = [f"{text};{f' // {line_comment(said, 2 * _SHORT)}' if said else ''}" for text, said in rows]
    return ["{", *(f"{indent}  {row}" for row in shown), f"{indent}}}"]


def key_of(name: str) -> str:
    """Return *name* as the key of an object type, in quotes where it is not a name of JavaScript."""
    return name if _PLAIN.fullmatch(name) else visible_json(name)


def line_comment(text: str, limit: int) -> str:
    """Return the text of a comment that ends with its line, in which no tool finds an order to itself."""
    line = one_line(text, limit).lstrip("/ ")
    return f"note: {line}" if _ORDER.match(line) else line


def block_comment(lines: Sequence[str], indent: str) -> list[str]:
    """Return the lines of a comment that stands before a declaration, wrapped; nothing in them ends it."""
    wrapped: list[str] = []
    for line in lines:
        safe = line.replace("*/", "*\\/")
        wrapped += textwrap.wrap(safe, _WIDTH - len(indent) - 3, break_long_words=False, break_on_hyphens=False)
    shown = [line.lstrip("/* ") for line in wrapped]
    safe = [f"note: {line}" if _ORDER.match(line) else line for line in shown]
    if len(safe) < 2:
        return [f"{indent}/** {line} */" for line in safe]
    return [f"{indent}/**", *(f"{indent} * {line}" for line in safe), f"{indent} */"]


def _said(field: Field) -> str:
    return "; ".join(part for part in (field.comment, one_line(field.description, _SHORT)) if part)
