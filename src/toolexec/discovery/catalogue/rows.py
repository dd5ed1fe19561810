"""A tool with its bindings as one row of text columns, and back again, without another look at what was checked; and
entries of an index whose tools are made of their rows when first looked at."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, TypeAlias

from toolexec.discovery.index import Registered
from toolexec.errors import CatalogueError, InvalidToolError, ToolConflictError
from toolexec.model.binding import (
    Binding,
    BindingSelector,
    LocalBinding,
    MCPBinding,
    ProviderBinding,
    binding_from_dict,
)
from toolexec.model.json_value import JSONDict
from toolexec.model.sharing import shared_tags, shared_text
from toolexec.model.tool import Icon, Tool, ToolAnnotations, shared_annotations

Row: TypeAlias = tuple[str, str, str, str, str, str, str, str, str]
Stored: TypeAlias = tuple[Tool, tuple[Binding, ...]]
"""A tool and its bindings in order of registration."""

COLUMNS: Final = ("id", "title", "description", "input", "output", "traits", "home", "target", "rest")
"""`traits`: four letters for the hints, then the tags; `home`: kind and backend of the first binding; `target`: what
that calls the tool, if it is not the tool's name (for a local one: its ID), then on a line of its own the destination
of its calls, if it is known; `rest`: what few tools have, as JSON."""

_BLOCK: Final = 64  # some 64 KiB at a time, for which memory is at hand
_LETTERS: Final = {None: "-", False: "n", True: "y"}
_VALUES: Final = {letter: value for value, letter in _LETTERS.items()}


def row_of(tool: Tool, bindings: Sequence[Binding]) -> Row:
    """Return the row of a tool."""
    first = bindings[0]
    rest: JSONDict = {}
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
        rest["bindings"] = [{**each.to_dict(), "destination": each.destination} for each in bindings[1:]]
    strings = {
        "title": tool.title,
        "description": tool.description,
        "input": tool.input_schema.text,
        "output": tool.output_schema.text if tool.output_schema is not None else "",
        "home": home_of(first),
        "target": _written_target(first, tool),
    }
    for name, text in strings.items():
        if not is_storable(text):
            rest[name], strings[name] = text, ""
    return (
        tool.id,
        strings["title"],
        strings["description"],
        strings["input"],
        strings["output"],
        f"{''.join(map(_LETTERS.__getitem__, values))}{' '.join(tool.tags)}",
        strings["home"],
        strings["target"],
        json.dumps(rest, separators=(",", ":")) if rest else "",
    )


def home_of(binding: Binding) -> str:
    """Return the kind and the name of a binding's backend, as the column `home` has them."""
    return f"{binding.kind}:{binding.backend}"


def digest_of(rows: Iterable[Row]) -> bytes:
    """Return the checksum of rows in this order."""
    digest, source = hashlib.sha256(), iter(rows)
    while block := list(islice(source, _BLOCK)):
        digest.update("\0".join(chain.from_iterable(block)).encode())
        digest.update(b"\0")
    return digest.digest()


def fingerprint(tools: Iterable[Stored]) -> str:
    """Return a short text that is the same for the same tools with the same bindings, in whatever order."""
    total = 0
    for tool, bindings in tools:
        total += int.from_bytes(digest_of([row_of(tool, bindings)]), "big")
    return f"{total % (1 << 256):064x}"


def changes_of(
    backend: str, known: Mapping[str, Stored], fresh: Mapping[str, tuple[Tool, Binding]]
) -> tuple[list[Row], set[str]]:
    """Return the rows to write, and the IDs to take out, when *fresh* are all tools of a backend, and *known* what is
    stored of it and under the IDs of those. Raises ToolConflictError."""
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
            kept = own in bindings and len(rest) == len(bindings) - 1
            row = row_of(newer, [own if one == own else one for one in bindings] if kept else (*rest, own))
        elif rest and tool is not None:
            row = row_of(tool, rest)
        else:
            gone.add(tool_id)
            continue
        if tool is None or row != row_of(tool, bindings):
            put.append(row)
    return put, gone


def read_row(row: Row) -> Stored:
    """Return the tool of a row and its bindings, which nothing checks again. Raises CatalogueError for a row that no
    tool was made into."""
    try:
        if row[-1]:
            return _read_rare(*row)
        id, title, description, input, output, traits, home, target, _ = row
        annotations, tags = _traits_of(traits)
        tool = Tool.restored(id, title, description, input, output, annotations, (), tags)
        return tool, (_binding(home, target, tool),)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidToolError) as error:
        raise CatalogueError(f"the stored catalogue is damaged: {row[0][:200]!r} cannot be read", op="open") from error


def _read_rare(id: str, *columns: str) -> Stored:
    data: dict[str, Any] = json.loads(columns[-1])
    strings = {name: str(data.get(name, text)) for name, text in zip(COLUMNS[1:], columns, strict=True)}
    annotations, tags = _traits_of(strings["traits"])
    if "annotations" in data:
        annotations = ToolAnnotations.from_mcp(data["annotations"])
    tool = Tool.restored(
        id,
        strings["title"],
        strings["description"],
        strings["input"],
        strings["output"],
        annotations,
        tuple([Icon.from_mcp(icon) for icon in data.get("icons", ())]),
        tags,
        str(data.get("meta", "")),
    )
    others = [_other_binding(binding) for binding in data.get("bindings", ())]
    return tool, (_binding(strings["home"], strings["target"], tool), *others)


def _binding(home: str, target: str, tool: Tool) -> Binding:
    kind, _, backend = home.partition(":")
    destination = ""
    if "\n" in target:
        target, _, destination = target.rpartition("\n")
    match kind:
        case "mcp":
            return MCPBinding(shared_text(backend), target or tool.name, shared_text(destination))
        case "provider":
            return ProviderBinding(shared_text(backend), target or tool.name, shared_text(destination))
        case "local":
            return LocalBinding(target or tool.id)
        case _:
            raise ValueError(kind)


def _other_binding(data: JSONDict) -> Binding:
    binding = binding_from_dict(data)
    return binding if isinstance(binding, LocalBinding) else replace(binding, destination=str(data["destination"]))


def _written_target(binding: Binding, tool: Tool) -> str:
    """Return the column `target`: the last line is the destination, if it has several."""
    target = "" if binding.tool == _usual_target(binding.kind, tool.id, tool.name) else binding.tool
    if not binding.destination and "\n" not in target:
        return target
    return f"{target}\n{' '.join(binding.destination.split())}"


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
    """Return whether a text has no half of a surrogate pair, which UTF-8 does not know."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_reading = threading.Lock()


class RowEntry(Registered):
    """The entry of a row with a single binding. To make 100,000 tools takes half a second, to look at one 4 us."""

    __slots__ = ("_row",)

    _row: Row | None

    def __init__(self, row: Row) -> None:  # pyright: ignore[reportMissingSuperCall]
        self._row = row

    def __getattr__(self, name: str) -> Any:
        """Return what is asked for and not there yet. Raises CatalogueError when the row cannot be read."""
        with _reading:
            if self._row is not None:
                tool, bindings = read_row(self._row)
                super().__init__(tool, bindings, bindings[0])
                self._row = None
        return object.__getattribute__(self, name)


class ToolsOf(Mapping[str, Tool]):
    """The tools of entries by ID, made when they are asked for."""

    def __init__(self, entries: Mapping[str, Registered]) -> None:
        self._entries = entries

    def __getitem__(self, tool_id: str) -> Tool:
        return self._entries[tool_id].tool

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Entries:
    """The entries of an index from their rows: only those of *backends* (None: of all), and of this process only with
    *local*; *selector* picks one of several bindings. A binding that is not wanted is as if it were not there.

    `by_id` are the entries, `by_backend` the IDs of those that live outside of this process, `left_out` the others.
    """

    def __init__(self, backends: Collection[str] | None, local: bool, selector: BindingSelector) -> None:
        self.by_id: dict[str, Registered] = {}
        self.by_backend: dict[str, list[str]] = {}
        self.left_out: set[str] = set()
        self._backends = None if backends is None else frozenset(backends)
        self._local = local
        self._selector = selector
        self._lists: dict[str, list[str] | None] = {}

    def take(self, rows: Iterable[Row]) -> None:
        """Take in some rows. Raises CatalogueError for one that cannot be read."""
        by_id, lists = self.by_id, self._lists
        for row in rows:
            if row[-1]:
                self._take_rare(row)
                continue
            home = row[6]
            ids = lists[home] if home in lists else self._list_of(*home.split(":", 1))
            if ids is None:
                self.left_out.add(row[0])
            else:
                by_id[row[0]] = RowEntry(row)
                ids.append(row[0])

    def _take_rare(self, row: Row) -> None:
        tool, bindings = read_row(row)
        lists = [(binding, self._list_of(binding.kind, binding.backend)) for binding in bindings]
        wanted = tuple(binding for binding, ids in lists if ids is not None)
        if not wanted:
            self.left_out.add(tool.id)
            return
        self.by_id[tool.id] = Registered(tool, wanted, self._selector(wanted))
        for ids in {id(ids): ids for _, ids in lists if ids is not None}.values():
            ids.append(tool.id)

    def _list_of(self, kind: str, backend: str = "") -> list[str] | None:
        """Return where to note the IDs of tools with such a binding; None when they are not wanted."""
        if kind == "local":
            ids: list[str] | None = [] if self._local else None
        elif self._backends is None or backend in self._backends:
            ids = self.by_backend.setdefault(backend, [])
        else:
            ids = None
        self._lists[f"{kind}:{backend}"] = ids
        return ids
