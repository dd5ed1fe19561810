"""A tool as a function: what it takes and gives as types of a language, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from toolexec.code.names import attribute_path
from toolexec.code.stub_book import needed
from toolexec.code.stub_dialects import Dialect
from toolexec.code.stub_text import paragraph
from toolexec.code.stub_types import Budget, Definition, Field, SchemaTypes
from toolexec.model.tool import Tool

_MAX_DESCRIPTION: Final = 400
_CUT: Final = "Shortened: its schema is longer than a stub."


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A tool as a function: its arguments, the type of any others (empty: there are none), the type of its result, and
    the types that these need. `cut` says that a part of its schema had no room."""

    tool: Tool
    fields: tuple[Field, ...]
    rest: str
    returns: str
    definitions: tuple[Definition, ...]
    cut: bool


def signature_of(tool: Tool, numbers: Iterator[int], dialect: Dialect) -> Signature:
    """Return the signature of *tool* in the language of *dialect*; *numbers* are those of its definitions."""
    budget = Budget()
    takes = SchemaTypes(tool.input_schema.to_json(), budget, numbers, dialect=dialect)
    parameters = takes.parameters((tool.name,))
    definitions = takes.definitions
    returns = dialect.any
    if tool.output_schema is not None:
        document = tool.output_schema.to_json()
        gives = SchemaTypes(document, budget, numbers, dialect=dialect)
        returns = gives.type_of(document, (tool.name, "result"))
        definitions = [*definitions, *gives.definitions]
    types = [*(field.type for field in parameters.fields), parameters.rest, returns]
    return Signature(
        tool=tool,
        fields=parameters.fields,
        rest=parameters.rest,
        returns=returns,
        definitions=needed(types, definitions),
        cut=budget.cut,
    )


def about(tool: Tool, *, cut: bool = False) -> list[str]:
    """Return what a stub says of a tool, in lines: what it does, then hints, its ID when its name differs, and whether
    the stub was *cut*."""
    text = paragraph(tool.description or tool.title or tool.annotations.title, _MAX_DESCRIPTION)
    facts = ["Read-only."] * tool.annotations.read_only
    facts += ["Destructive."] * (tool.annotations.destructive is True and not tool.annotations.read_only)
    exact = (tool.namespace, tool.name) if tool.namespace else (tool.name,)
    facts += [_CUT] * cut
    facts += [f"ID: {tool.id}"] * (attribute_path(tool.namespace, tool.name) != exact)
    return [line for line in (text, " ".join(facts)) if line]
