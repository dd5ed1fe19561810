"""Names for the types of stubs, and how they are written out.

Types that are alike share a name, also across tools. A name is taken from a type's own (`$defs`) or from the way to it:
`CreateIssueResult`, `CreateIssueLabelsItem`; with the namespace before it, or a number behind, when it is taken.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from toolexec.code.stub_dialects import PYTHON
from toolexec.code.stub_text import harmless_comment, is_plain_name, joined_words, one_line, quoted
from toolexec.code.stub_types import Definition, Field

FROM_BUILTINS: Final = frozenset({"bool", "dict", "float", "int", "list", "object", "str", "tuple"})
FROM_TYPING: Final = frozenset({"Any", "Literal", "NotRequired", "TypeAlias", "TypedDict", "Unpack"})
_RESERVED: Final = frozenset({"Exception", "None", "ToolError", "Tools", "builtins", "tools", "typing"})
_TOKEN: Final = re.compile("\x00[0-9]+\x00")
_WORD: Final = re.compile(r"\w+")
_STRING: Final = re.compile(r"""\"(?:\\.|[^"\\])*\"|'(?:\\.|[^'\\])*'""")
_SHORT: Final = 80
_MAX_WORDS: Final = 4


class TypeBook:
    """The named types of one module of Python; *taken* are names that they must not have."""

    any: ClassVar[str] = PYTHON.any
    reserved: ClassVar[frozenset[str]] = FROM_BUILTINS | FROM_TYPING | _RESERVED

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.blocks: list[list[str]] = []
        """The lines of each type, in the order in which they can be read."""
        self._taken = {*self.reserved, *taken}
        self._names: dict[str, str] = {}
        self._known: dict[Any, str] = {}
        self._spaces: dict[str, str] = {}  # which namespace a name was first used for

    def claim(self, *wishes: str) -> str:
        """Return the first of *wishes* that is free, else the first with a number; it is taken from now on."""
        name = next((wish for wish in wishes if wish and wish not in self._taken), "")
        base, number = next(filter(None, wishes), "T"), 2
        while not name:
            name = f"{base}{number}" if f"{base}{number}" not in self._taken else ""
            number += 1
        self._taken.add(name)
        return name

    def add(self, definitions: Sequence[Definition], namespace: str = "") -> None:
        """Give the types of one tool their names, and write down those that are new."""
        waiting = {definition.token: definition for definition in definitions}
        for definition in definitions:
            for token in _tokens_of(definition):
                if token != definition.token and token not in self._names and token in waiting:
                    self._names[token] = self._name(
                        waiting[token], namespace
                    )  # part of a loop: needed before it is written
            del waiting[definition.token]
            self._settle(definition, namespace)

    def resolve(self, text: str) -> str:
        """*text* with the names of types in place of their tokens."""
        return _TOKEN.sub(lambda token: self._names.get(token.group(), self.any), text)

    def _settle(self, definition: Definition, namespace: str) -> None:
        token = definition.token
        if token in self._names:
            self.write(self._names[token], definition)
            return
        shape = self._shape(definition)
        known = self._known.get(shape)
        if known is None:
            known = self._known[shape] = self._name(definition, namespace)
            self._names[token] = known
            self.write(known, definition)
        self._names[token] = known

    def _name(self, definition: Definition, namespace: str) -> str:
        tool, *way = definition.words
        way = way[-_MAX_WORDS:]
        own = joined_words(definition.title)
        path = joined_words(tool, *way)
        wishes = [own, joined_words(tool, own) if own else "", path]
        if self._spaces.get(path) != namespace:
            wishes.append(joined_words(namespace, tool, *way))
        name = self.claim(*wishes)
        self._spaces[name] = namespace
        return name

    def _shape(self, definition: Definition) -> Any:
        """Return what is the same for types that are alike."""

        def shown(text: str) -> str:
            return self.resolve(text.replace(definition.token, "\x00"))

        fields = tuple((field.name, shown(field.type), field.required) for field in definition.fields)
        return shown(definition.alias), frozenset(fields)

    def write(self, name: str, definition: Definition) -> None:
        """Add the lines of a type to `blocks`."""
        if definition.alias:
            self.blocks.append([f"{name}: TypeAlias = {self.resolve(definition.alias)}"])
            return
        fields = [(field, self._field_type(field)) for field in definition.fields]
        used = {word for _, type in fields for word in _WORD.findall(_STRING.sub("", type))}
        plain = all(is_plain_name(field.name) and field.name not in used for field, _ in fields)
        lines = [f"class {name}(TypedDict):" if plain else f'{name} = TypedDict("{name}", {{']
        if definition.note:
            lines.append(f"    # {harmless_comment(self.resolve(definition.note))}")
        for field, type in fields:
            comment = comment_of(field)
            lines.append(
                f"    {field.name}: {type}{comment}" if plain else f"    {quoted(field.name)}: {type},{comment}"
            )
        self.blocks.append(lines if plain else [*lines, "})"])

    def _field_type(self, field: Field) -> str:
        type = self.resolve(field.type)
        return type if field.required else f"NotRequired[{type}]"


def comment_of(field: Field, *, described: bool = True) -> str:
    """Return the comment behind a field, with two spaces before it; empty when there is nothing to say."""
    parts = [field.comment, one_line(field.description, _SHORT) if described else ""]
    text = "; ".join(filter(None, parts))
    return f"  # {harmless_comment(text)}" if text else ""


def unshadowed(type: str, names: Iterable[str]) -> str:
    """Return the type as it is written where *names* mean something else: `builtins.list[str]`."""
    hidden = (FROM_BUILTINS | FROM_TYPING).intersection(names, _WORD.findall(type))
    if not hidden:
        return type
    tree = ast.parse(type, mode="eval")
    return ast.unparse(_Qualify(hidden).visit(tree))


class _Qualify(ast.NodeTransformer):
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names:
            return node
        home = "builtins" if node.id in FROM_BUILTINS else "typing"
        return ast.Attribute(ast.Name(home), node.id)


def needed(types: Iterable[str], definitions: Sequence[Definition]) -> tuple[Definition, ...]:
    """Return those of *definitions* that *types* lead to, in the same order."""
    by_token = {definition.token: definition for definition in definitions}
    pending = [token for type in types for token in _TOKEN.findall(type)]
    found: set[str] = set()
    while pending:
        token = pending.pop()
        if token in by_token and token not in found:
            found.add(token)
            pending += _tokens_of(by_token[token])
    return tuple(definition for definition in definitions if definition.token in found)


def _tokens_of(definition: Definition) -> list[str]:
    strings = [definition.alias, definition.note, *(field.type for field in definition.fields)]
    return [token for text in strings for token in _TOKEN.findall(text)]
