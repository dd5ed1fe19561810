"""The leaves of a schema: where in a result single values are, and which arguments there are. Nothing is trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Final
from urllib.parse import unquote

from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.patterns import lazy_pattern
from toolexec.model.secret_keys import is_telling

_MAX_TEXT: Final = 512 * 1024
_MAX_NODES: Final = 600
_MAX_LEAVES: Final = 120
_MAX_MEMBERS: Final = 200
_MAX_PARTS: Final = 8
_MAX_LINKS: Final = 8
_MAX_DEPTH: Final = 6
_MAX_NAME: Final = 64
_MAX_ARGUMENT_DEPTH: Final = 3
_ALSO: Final = ("allOf", "anyOf", "oneOf")
_SCALARS: Final = frozenset({"string", "integer", "number"})
_PLAIN: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_QUOTED: Final = lazy_pattern(r"[\w$@:.-]{1,64}")
_STEP: Final = r'(?:[A-Za-z_][A-Za-z0-9_]{0,63}|"[\w$@:.-]{1,64}")(?:\[\])*'
PATH: Final = lazy_pattern(rf"@|(?:\[\])+(?:\.{_STEP}){{0,12}}|{_STEP}(?:\.{_STEP}){{0,12}}")
"""What a path into a result looks like: JMESPath of names and `[]`, or `@` for the whole result."""


@dataclass(slots=True)
class Leaf:
    """One value in a result: its `path` (see `PATH`), its name, the names of what it is in, its type (`string`,
    `integer`, `number`), and `hint`, the name of the type of object that it belongs to."""

    path: str
    name: str
    containers: tuple[str, ...]
    kind: str
    format: str = ""
    pattern: str = ""
    hint: str = ""


@dataclass(slots=True)
class Argument:
    """One argument: the names that lead to it (more than one inside of an object), its subschema (without references
    at its top), its type (that of the items, if `many`; empty when it has none), and whether it must be given."""

    names: tuple[str, ...]
    required: bool
    node: JSONDict
    kind: str = ""
    many: bool = False
    description: str = ""
    secret: bool = False
    items: JSONDict = field(default_factory=JSONDict)

    @property
    def name(self) -> str:
        """The names, joined by dots."""
        return ".".join(self.names)


def property_name(name: object) -> str:
    """Return the name as a step of a path, quoted where needed; empty for one that no path should hold."""
    if not isinstance(name, str) or len(name) > _MAX_NAME:
        return ""
    if _PLAIN.fullmatch(name):
        return name
    return f'"{name}"' if _QUOTED.fullmatch(name) else ""


def leaves_of(text: str) -> list[Leaf]:
    """Return the leaves of a result, nearest to the root first, at most 120; none for a schema over 512 KiB.

    Values under telling names, enumerations and what is nested more than 6 levels deep are left out.
    """
    root = _parse(text)
    found: dict[str, Leaf] = {}
    todo: list[tuple[JSONValue, str, tuple[str, ...], str]] = [(root, "", (), "")]
    for node, path, containers, outer in todo:
        if len(found) >= _MAX_LEAVES:
            break
        resolved, named = _resolved(node, root)
        if resolved is None:
            continue
        hint = named or outer
        if len(todo) < _MAX_NODES:
            todo.extend((part, path, containers, hint) for part in _parts(resolved))
        kind = _kind(resolved)
        if kind in _SCALARS:
            _add(found, resolved, kind, path or "@", containers, outer)
            continue
        if len(containers) >= _MAX_DEPTH or len(todo) >= _MAX_NODES:
            continue
        items, members = resolved.get("items"), resolved.get("properties")
        if isinstance(items, dict):
            todo.append((items, f"{path}[]", containers, hint))
        for name, child in islice(members.items(), _MAX_MEMBERS) if isinstance(members, dict) else ():
            step = _step(name) if len(name) <= _MAX_NAME else ""
            if not step:
                continue
            below = f"{path}.{step}" if path else step
            kind = child.get("type") if isinstance(child, dict) else ""
            if isinstance(kind, str) and kind in _SCALARS and "$ref" not in child:
                _add(found, child, kind, below, (*containers, name), hint)  # most are like this
            else:
                todo.append((child, below, (*containers, name), hint))
    return list(found.values())


def _add(found: dict[str, Leaf], node: JSONDict, kind: str, path: str, names: tuple[str, ...], hint: str) -> None:
    if "enum" not in node and "const" not in node and path not in found and len(found) < _MAX_LEAVES:
        name = names[-1] if names else ""
        found[path] = Leaf(path, name, names[:-1], kind, _text(node, "format"), _text(node, "pattern"), hint)


@lru_cache(maxsize=8192)
def _step(name: str) -> str:
    """Return the name as a step of a path; empty for one that no path should hold, or that names a secret."""
    return "" if is_telling(name) else property_name(name)


def arguments_of(text: str) -> list[Argument]:
    """Return the arguments of a tool, those of objects by themselves, required ones first; at most 120."""
    root = _parse(text)
    found: list[Argument] = []
    todo: list[tuple[JSONValue, tuple[str, ...], bool]] = [(root, (), True)]
    for node, names, required in todo:
        resolved, _ = _resolved(node, root)
        if resolved is None:
            continue
        properties: JSONDict = {}
        needed: set[str] = set()
        for part in (resolved, *_conjunction(resolved, root)):
            properties |= dict(islice(_mapping(part, "properties").items(), _MAX_MEMBERS))
            needed |= _required(part)
        if names and (not properties or len(names) >= _MAX_ARGUMENT_DEPTH):
            found.append(_argument(node, resolved, root, names, required))
            if len(found) >= _MAX_LEAVES:
                break
            continue
        for name, child in islice(properties.items(), _MAX_MEMBERS):
            if property_name(name) and len(todo) < _MAX_NODES:
                todo.append((child, (*names, name), required and name in needed))
    return sorted(found, key=lambda argument: not argument.required)


def _argument(node: object, resolved: JSONDict, root: object, names: tuple[str, ...], required: bool) -> Argument:
    """Return one argument; of alternatives it has the type of the first that is not null."""
    effective = resolved
    if not _kind(resolved):
        for part in _parts(resolved):
            option, _ = _resolved(part, root)
            if option is not None and _kind(option) not in ("", "null"):
                effective = option
                break
    kind, items = _kind(effective), effective
    many = kind == "array"
    if many:
        items = _resolved(effective.get("items"), root)[0] or {}
        kind = _kind(items)
    merged = {**effective, **{key: value for key, value in resolved.items() if key not in _ALSO}}
    secret = any(is_telling(name) for name in names) or any(
        part.get("writeOnly") is True or part.get("format") == "password" for part in (merged, items)
    )
    description = _text(node if isinstance(node, dict) else {}, "description") or _text(merged, "description")
    description = description or _text(items, "description")
    return Argument(names, required, merged, kind, many, description, secret, items)


def _parse(text: str) -> JSONValue:
    return json.loads(text) if len(text) <= _MAX_TEXT else None


def _resolved(node: object, root: object) -> tuple[JSONDict | None, str]:
    """Return the subschema that *node* stands for, and the name under which it is kept, if it is a reference."""
    named = ""
    for _ in range(_MAX_LINKS):
        if not isinstance(node, dict):
            return None, ""
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return node, named or _text(node, "title")
        if not reference.startswith("#") or len(reference) > 500:
            return None, ""
        named, node = reference.rpartition("/")[2][:64], _pointed(root, reference)
    return None, ""


def _pointed(root: object, reference: str) -> JSONValue:
    node = root
    for escaped in unquote(reference).split("/")[1:]:
        step = escaped.replace("~1", "/").replace("~0", "~")
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _parts(node: JSONDict) -> Iterator[JSONValue]:
    for key in _ALSO:
        parts = node.get(key)
        if isinstance(parts, list):
            yield from parts[:_MAX_PARTS]


def _conjunction(node: JSONDict, root: object) -> Iterator[JSONDict]:
    """Yield the subschemas that must hold as well."""
    parts = node.get("allOf")
    for part in parts[:_MAX_PARTS] if isinstance(parts, list) else ():
        resolved, _ = _resolved(part, root)
        if resolved is not None:
            yield resolved


def _kind(node: JSONDict) -> str:
    """Return the type, or the first one that is not null; empty when there is none."""
    kind = node.get("type")
    if isinstance(kind, str):
        return kind
    for option in kind[:_MAX_PARTS] if isinstance(kind, list) else ():
        if isinstance(option, str) and option != "null":
            return option
    return ""


def _mapping(node: JSONDict, key: str) -> JSONDict:
    value = node.get(key)
    return value if isinstance(value, dict) else {}


def _required(node: JSONDict) -> set[str]:
    listed = node.get("required")
    return {name for name in listed[:_MAX_MEMBERS] if isinstance(name, str)} if isinstance(listed, list) else set()


def _text(node: JSONDict, key: str) -> str:
    value = node.get(key)
    return value[:500] if isinstance(value, str) else ""
