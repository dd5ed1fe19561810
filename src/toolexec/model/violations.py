"""Turn one validation failure into a `Violation` that a model or a person can act on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import jsonschema_rs

from toolexec.errors import Violation
from toolexec.model.json_value import JSONValue, pointer, shorten
from toolexec.model.schema_graph import ANY_ITEM, ANY_NAME, Node, SchemaGraph

MASK: Final = "\ue000"
"""What validators write in their messages in place of the value, for `describe_error` to fill in."""

_REDACTED = "***"
_VERY_NEAR: Final = 0.8
"""How alike two names are that mean one thing, whatever other names there are."""


def describe_error(
    error: jsonschema_rs.ValidationError, schema: object, value: object, secrets: SchemaGraph | None = None
) -> Violation:
    """Path, keyword, what was expected and what was found; *error* came from checking *value* against *schema*.

    *secrets* is its graph if any part of it is marked as secret; values there are not shown.
    """
    path = list(error.instance_path)
    keyword = error.kind.name
    detail = error.kind.as_dict()
    expected = next(iter(detail.values()), None) if len(detail) == 1 else (detail or None)
    if keyword in ("anyOf", "oneOf", "oneOfNotValid", "oneOfMultipleValid", "propertyNames"):
        expected = None
    secret = secrets is not None and _is_secret(secrets, path)
    instance = error.instance
    if keyword == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
        instance = _at(value, path)  # an object that knows no names at all is reported by its first member
        keyword, detail = "additionalProperties", {"unexpected": list(instance)}
    message = error.message.replace(MASK, _shown(instance, secret=secret))
    if keyword == "additionalProperties":
        expected, message = _unexpected(detail.get("unexpected") or [], error.schema_path, schema, message)
    if keyword in ("anyOf", "oneOfNotValid", "oneOf") and (choices := _choices(schema, error.schema_path)):
        shown = [json.dumps(each, ensure_ascii=False) for each in choices]
        expected, message = (
            choices,
            f"{_shown(instance, secret=secret)} is not one of {' or '.join((', '.join(shown[:-1]), shown[-1]))}",
        )
    return Violation(
        path="".join(f"/{pointer(step)}" for step in path),
        keyword=keyword,
        message=shorten(message, 300),
        expected=_bounded(expected),
        got=_REDACTED if secret else _found(instance),
    )


def _shown(value: object, *, secret: bool) -> str:
    """Return how a message speaks of the value: small ones as they are, secrets and containers not at all."""
    if secret or isinstance(value, dict | list | tuple):
        return "the value"
    found = _found(value)
    return json.dumps(found, ensure_ascii=False) if found is value or isinstance(value, str) else f"the {found}"


def _unexpected(
    names: Sequence[str], schema_path: Sequence[str | int], schema: object, message: str
) -> tuple[list[str], str]:
    parent = _at(schema, list(schema_path)[:-1])
    known = list(parent.get("properties", {})) if isinstance(parent, dict) else []
    hints: list[str] = []
    for name in names[:5]:
        meant = _meant(name, known)
        hints.append(f"{shorten(name)!r} is not a known name" + (f"; did you mean {meant!r}?" if meant else ""))
    return known, "; ".join(hints) if hints else message


def _meant(name: str, known: Sequence[str]) -> str:
    """Return the known name that is near to this one; "" without one, and where it is not very near and another has a
    word of it too: `page_size` may be `page` or `per_page`."""
    from difflib import get_close_matches

    if close := get_close_matches(name, known, n=1, cutoff=_VERY_NEAR):
        return close[0]
    close = get_close_matches(name, known, n=1)
    words = {*name.lower().split("_")}
    alike = [each for each in known if each in close or words & {*each.lower().split("_")}]
    return close[0] if close and len(alike) == 1 else ""


def _choices(schema: object, schema_path: Sequence[str | int]) -> list[JSONValue]:
    """Return the values that alternatives allow, where all of them list theirs: an enum that may be null is one."""
    branches = _at(schema, list(schema_path))
    found: list[JSONValue] = []
    for branch in branches if isinstance(branches, list) else ():
        if not isinstance(branch, dict):
            return []
        if isinstance(branch.get("enum"), list):
            found += branch["enum"]
        elif "const" in branch:
            found.append(branch["const"])
        elif branch.get("type") == "null":
            found.append(None)
        else:
            return []
    return found if len(found) > 1 else []


def _at(node: JSONValue, path: Sequence[str | int]) -> JSONValue:
    for step in path:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            return None
    return node


def _is_secret(graph: SchemaGraph, path: Sequence[str | int]) -> bool:
    """Return whether any subschema that looks at the value at *path*, or at what holds it, marks it as secret."""
    nodes = _all_at(graph, [graph.root])
    for step in path:
        if any(map(_marks_secret, nodes)):
            return True
        wanted = (f".{step}", ANY_NAME) if isinstance(step, str) else (str(step), ANY_ITEM)
        nodes = _all_at(graph, (child for node in nodes for key, child in graph.deeper(node) if key in wanted))
    return any(map(_marks_secret, nodes))


def _marks_secret(node: Node) -> bool:
    return node.get("writeOnly") is True or node.get("format") == "password"


def _all_at(graph: SchemaGraph, nodes: Iterable[object]) -> list[Node]:
    """*nodes* and every subschema that looks at the same value."""
    found: dict[int, Node] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, dict) and id(node) not in found:
            found[id(node)] = node
            pending.extend(graph.same_value(node))
    return list(found.values())


def _found(value: object) -> JSONValue:
    """Small values as they are; containers and long text as a short description, so that errors stay small."""
    if isinstance(value, dict):
        return f"object with {len(value)} keys"
    if isinstance(value, list | tuple):
        return f"array of {len(value)}"
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"integer of {value.bit_length()} bits"
    return value


def _bounded(expected: object) -> JSONValue:
    try:
        text = json.dumps(expected, ensure_ascii=False)
    except (TypeError, ValueError):
        return shorten(str(expected))
    return expected if len(text) <= 1000 else shorten(text, 1000)
