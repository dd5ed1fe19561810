"""A tool with its bindings as one row of text columns, and back again, without another look at what was checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, TypeAlias

from toolexec.errors import CatalogueError, InvalidBindingError, ToolConflictError
from toolexec.model.binding import Binding, LocalBinding, MCPBinding, ProviderBinding, binding_from_dict
from toolexec.model.sharing import shared_tags, shared_text
from toolexec.model.tool import Icon, Tool, ToolAnnotations, shared_annotations

__all__ = [
    "COLUMNS",
    "Row",
    "Stored",
    "changes_of",
    "digest_of",
    "fingerprint",
    "home_of",
    "is_storable",
    "read_row",
    "row_of",
]

Row: TypeAlias = tuple[str, str, str, str, str, str, str, str, str]
Stored: TypeAlias = tuple[Tool, tuple[Binding, ...]]
"""A tool and its bindings in order of registration."""

COLUMNS: Final = ("id", "title", "description", "input", "output", "traits", "home", "target", "rest")
"""`traits`: four letters for the hints, then the tags; `home`: kind and backend of the first binding; `target`: what
that calls the tool, if it is not the tool's name (for a local one: its ID); `rest`: what few tools have, as JSON."""

_BLOCK: Final = 64  # some 64 KiB at a time, for which memory is at hand
_LETTERS: Final = {None: "-", False: "n", True: "y"}
_VALUES: Final = {letter: value for value, letter in _LETTERS.items()}


def row_of(tool: Tool, bindings: Sequence[Binding]) -> Row:
    """The row of a tool."""
    first = bindings[0]
    rest: dict[str, Any] = {}
    hints = tool.annotations
    values = (hints.read_only, hints.idempotent, hints.destructive, hints.open_world)
    if hints.title or any(type(value) is not bool and value is not None for value in values):
        rest["annotations"] = hints.to_mcp()
        values = (None, None, None, None)
    if tool.icons:
        rest["icons"] = [icon.to_mcp() for icon in tool.icons]
    if tool.has_meta:
        rest["meta"] = tool.meta_text
    if len(bindings) > 1:
        rest["bindings"] = [binding.to_dict() for binding in bindings[1:]]
    texts = {
        "title": tool.title,
        "description": tool.description,
        "input": tool.input_schema.text,
        "output": tool.output_schema.text if tool.output_schema is not None else "",
        "home": home_of(first),
        "target": "" if first.tool == _usual_target(first.kind, tool.id, tool.name) else first.tool,
    }
    for name, text in texts.items():
        if not is_storable(text):
            rest[name], texts[name] = text, ""
    return (
        tool.id,
        texts["title"],
        texts["description"],
        texts["input"],
        texts["output"],
        f"{''.join(map(_LETTERS.__getitem__, values))}{' '.join(tool.tags)}",
        texts["home"],
        texts["target"],
        json.dumps(rest, separators=(",", ":")) if rest else "",
    )


def home_of(binding: Binding) -> str:
    """The kind and the name of a binding's backend, as the column `home` has them."""
    return f"{binding.kind}:{binding.backend}"


def digest_of(rows: Iterable[Row]) -> bytes:
    """The checksum of rows in this order."""
    digest, source = hashlib.sha256(), iter(rows)
    while block := list(islice(source, _BLOCK)):
        digest.update("\0".join(chain.from_iterable(block)).encode())
        digest.update(b"\0")
    return digest.digest()


def fingerprint(tools: Iterable[Stored]) -> str:
    """A short text that is the same for the same tools with the same bindings, in whatever order."""
    total = 0
    for tool, bindings in tools:
        total += int.from_bytes(digest_of([row_of(tool, bindings)]), "big")
    return f"{total % (1 << 256):064x}"


def changes_of(
    backend: str, known: Mapping[str, Stored], fresh: Mapping[str, tuple[Tool, Binding]]
) -> tuple[list[Row], set[str]]:
    """The rows to write, and the IDs to take out, when *fresh* are all tools of a backend, and *known* what is stored
    of it and under the IDs of those. Raises ToolConflictError."""
    put: list[Row] = []
    gone: set[str] = set()
    for tool_id in known.keys() | fresh.keys():
        tool, bindings = known.get(tool_id, (None, ()))
        rest = tuple(binding for binding in bindings if binding.backend != backend)
        if tool_id in fresh:
            newer, own = fresh[tool_id]
            if rest and tool is not None and not tool.same_definition(newer):
                raise ToolConflictError(
                    f"{tool_id} is stored with another definition, for {', '.join(map(home_of, rest))}", tool_id=tool_id
                )
            row = row_of(newer, bindings if own in bindings and len(rest) == len(bindings) - 1 else (*rest, own))
        elif rest and tool is not None:
            row = row_of(tool, rest)
        else:
            gone.add(tool_id)
            continue
        if tool is None or row != row_of(tool, bindings):
            put.append(row)
    return put, gone


def read_row(row: Row) -> Stored:
    """The tool of a row and its bindings, which nothing checks again. Raises CatalogueError for a row that no tool was
    made into."""
    try:
        if row[-1]:
            return _read_rare(*row)
        id, title, description, input, output, traits, home, target, _ = row
        annotations, tags = _traits_of(traits)
        tool = Tool.restored(id, title, description, input, output, annotations, (), tags)
        return tool, (_binding(home, target, tool),)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidBindingError) as error:
        raise CatalogueError(f"the stored catalogue is damaged: {row[0][:200]!r} cannot be read", op="open") from error


def _read_rare(id: str, *columns: str) -> Stored:
    data: dict[str, Any] = json.loads(columns[-1])
    texts = {name: str(data.get(name, text)) for name, text in zip(COLUMNS[1:], columns, strict=True)}
    annotations, tags = _traits_of(texts["traits"])
    if "annotations" in data:
        annotations = ToolAnnotations.from_mcp(data["annotations"])
    tool = Tool.restored(
        id,
        texts["title"],
        texts["description"],
        texts["input"],
        texts["output"],
        annotations,
        tuple([Icon.from_mcp(icon) for icon in data.get("icons", ())]),
        tags,
        str(data.get("meta", "")),
    )
    others = [binding_from_dict(binding) for binding in data.get("bindings", ())]
    return tool, (_binding(texts["home"], texts["target"], tool), *others)


def _binding(home: str, target: str, tool: Tool) -> Binding:
    kind, _, backend = home.partition(":")
    match kind:
        case "mcp":
            return MCPBinding(shared_text(backend), target or tool.name)
        case "provider":
            return ProviderBinding(shared_text(backend), target or tool.name)
        case "local":
            return LocalBinding(target or tool.id)
        case _:
            raise ValueError(kind)


@lru_cache(maxsize=4096)
def _traits_of(text: str) -> tuple[ToolAnnotations, tuple[str, ...]]:
    read_only, idempotent, destructive, open_world = (_VALUES[letter] for letter in text[:4])
    annotations = ToolAnnotations(
        read_only=bool(read_only), idempotent=bool(idempotent), destructive=destructive, open_world=open_world
    )
    return shared_annotations(annotations), shared_tags(tuple(text[4:].split()))


def _usual_target(kind: str, tool_id: str, name: str) -> str:
    return tool_id if kind == "local" else name


def is_storable(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, which UTF-8 does not know."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
