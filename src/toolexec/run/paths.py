"""Follow a path of JMESPath to the name that is not there."""

from __future__ import annotations

from itertools import islice
from typing import Any

from toolexec.errors import InvalidChainError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONValue, shorten

_THROUGH = frozenset({"subexpression", "index_expression", "pipe"})
_PROJECTIONS = frozenset({"projection", "value_projection", "filter_projection", "flatten"})
_MOST_NAMES = 20
_MOST_COMPARED = 1000


def follow(node: Any, value: JSONValue) -> JSONValue:
    """Return what the parsed path *node* leads to by names and numbers; None after anything else.

    JMESPath gives null for a name that is not there as for one whose value is null. Raises InvalidChainError for the
    first, which names what is there instead. What leads into a null, such as the value of a failed step, is null.
    """
    kind, children = node["type"], node["children"]
    if kind in _THROUGH:
        for child in children:
            value = follow(child, value)
            if not _goes_by_name(child):
                return None
        return value
    if kind in _PROJECTIONS:
        follow(children[0], value)
        return None
    if kind == "field":
        return _member(node["value"], value)
    if kind == "index":
        return _item(node["value"], value)
    return value if kind in ("current", "identity") else None


def _goes_by_name(node: Any) -> bool:
    """Return whether all of the path was followed."""
    if node["type"] in _THROUGH:
        return all(map(_goes_by_name, node["children"]))
    return node["type"] in ("field", "index", "current", "identity")


def _member(name: str, value: JSONValue) -> JSONValue:
    if isinstance(value, dict):
        if name in value:
            return value[name]
        names = [*islice(value, _MOST_NAMES)]
        listed = ", ".join(shorten(each) for each in names) + (", ..." if len(value) > len(names) else "")
        hint = did_you_mean(name, islice(value, _MOST_COMPARED), otherwise=f"it has {listed or 'no keys'}")
        raise InvalidChainError(f"there is no {shorten(repr(name))}; {hint}{_OPTIONAL}")
    if value is None:
        return None
    raise InvalidChainError(f"{_said(value)} has no key {shorten(repr(name))}{_more(value)}{_OPTIONAL}")


def _item(number: int, value: JSONValue) -> JSONValue:
    if isinstance(value, list):
        if -len(value) <= number < len(value):
            return value[number]
        has = "the list is empty" if not value else f"the list has {len(value)} items, 0 to {len(value) - 1}"
        raise InvalidChainError(f"there is no item {number}; {has}{_OPTIONAL}")
    if value is None:
        return None
    raise InvalidChainError(f"{_said(value)} has no item {number}{_OPTIONAL}")


_OPTIONAL = "; where it may be absent, end the path with || `null`"


def _more(value: JSONValue) -> str:
    return "; did you mean [0] or [*] before it?" if isinstance(value, list) else ""


def _said(value: JSONValue) -> str:
    if isinstance(value, list):
        return "a list"
    return {dict: "an object", str: "a text", bool: "a boolean"}.get(type(value), "a number")
