"""Bounds for schemas that nobody vouches for, checked before a schema is compiled.

Three things are refused: nesting beyond 100 levels (a compiler recurses), references that leave the document
(fetching them would be a request forged by a stranger), and references that make one value be checked without end
or more than 10,000 times over (`{"$ref": "#"}`, or a chain of `anyOf` pairs that doubles at each link).
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import unquote

from toolexec.errors import ExternalRefError, InvalidSchemaError

__all__ = ["MAX_SCHEMA_BYTES", "guard_schema"]

MAX_SCHEMA_BYTES: Final = 1 << 20
MAX_SCHEMA_DEPTH: Final = 100
MAX_CHECKS_PER_VALUE: Final = 10_000

_IN_PLACE_ONE: Final = ("not", "if", "then", "else")
_IN_PLACE_MANY: Final = ("allOf", "anyOf", "oneOf")
_REFS: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def guard_schema(text: str) -> None:
    """Raise ExternalRefError or InvalidSchemaError when the schema is not safe to compile; cheap when it is small."""
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidSchemaError(f"the schema has {len(text)} characters; {MAX_SCHEMA_BYTES} is the most")
    has_refs = 'Ref"' in text or '"$ref"' in text or "\\u" in text
    if not has_refs and text.count("{") + text.count("[") <= MAX_SCHEMA_DEPTH:
        return  # too few brackets to be too deep, and nothing that refers to anything
    try:
        schema = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    nodes = _collect(schema)
    if has_refs:
        _Expansion(schema, nodes).check()


def _too_deep() -> InvalidSchemaError:
    return InvalidSchemaError(f"the schema is nested too deeply; at most {MAX_SCHEMA_DEPTH} levels are accepted")


def _collect(schema: Any) -> list[dict[str, Any]]:
    """Every object in the document; raises when one is too deep."""
    found: list[dict[str, Any]] = []
    pending: list[tuple[Any, int]] = [(schema, 1)]
    while pending:
        node, depth = pending.pop()
        if not isinstance(node, dict | list):
            continue
        if depth > MAX_SCHEMA_DEPTH:
            raise _too_deep()
        if isinstance(node, dict):
            found.append(node)
        pending.extend((child, depth + 1) for child in (node.values() if isinstance(node, dict) else node))
    return found


class _Expansion:
    """How often one value is checked once all references that apply to that same value are followed."""

    def __init__(self, root: Any, nodes: list[dict[str, Any]]) -> None:
        self.root = root
        self.nodes = nodes
        self.named: dict[str, Any] = {}
        for node in nodes:
            for key in ("$id", "$anchor", "$dynamicAnchor"):
                name = node.get(key)
                if isinstance(name, str):
                    self.named.setdefault(name if key == "$id" else f"#{name}", node)
        if isinstance(root, dict) and isinstance(root.get("$id"), str):
            self.named[root["$id"]] = root
        self.cost: dict[int, int] = {}

    def check(self) -> None:
        for node in self.nodes:
            self._cost_of(node, ())

    def _cost_of(self, node: Any, trail: tuple[int, ...]) -> int:
        if not isinstance(node, dict):
            return 1
        known = self.cost.get(id(node))
        if known is not None:
            return known
        if id(node) in trail:
            raise InvalidSchemaError("the schema's references form a loop that never reaches a value")
        if len(trail) > 400:
            raise InvalidSchemaError("the schema's references form a chain of more than 400 links")
        trail = (*trail, id(node))
        total = 1 + sum(self._cost_of(child, trail) for child in self._same_value(node))
        if total > MAX_CHECKS_PER_VALUE:
            raise InvalidSchemaError(
                f"the schema would check one value more than {MAX_CHECKS_PER_VALUE} times; simplify its references"
            )
        self.cost[id(node)] = total
        return total

    def _same_value(self, node: dict[str, Any]) -> list[Any]:
        """The subschemas that look at the same value as *node* does."""
        children: list[Any] = [node[key] for key in _IN_PLACE_ONE if key in node]
        for key in _IN_PLACE_MANY:
            branches = node.get(key)
            children.extend(branches if isinstance(branches, list) else ())
        for key in ("dependentSchemas", "dependencies"):
            branches = node.get(key)
            children.extend(branches.values() if isinstance(branches, dict) else ())
        for key in _REFS:
            ref = node.get(key)
            if isinstance(ref, str):
                children.append(self._target(ref))
        return children

    def _target(self, ref: str) -> Any:
        """What *ref* points at in this document; raises for anything outside, None when it dangles."""
        base, _, fragment = ref.partition("#")
        document = self.root if not base else self.named.get(base)
        if base and document is None:
            own = next((n for name, n in self.named.items() if name and name.rstrip("#").endswith(f"/{base}")), None)
            if own is None:
                raise ExternalRefError(
                    f"the schema refers to {ref[:200]!r}, outside of itself; put it under $defs and use '#/$defs/...'"
                )
            document = own
        if not fragment:
            return document
        if not fragment.startswith("/"):
            return self.named.get(f"#{fragment}")
        node = document
        for escaped in unquote(fragment)[1:].split("/"):
            step = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = node.get(step)
            elif isinstance(node, list) and step.isdigit() and int(step) < len(node):
                node = node[int(step)]
            else:
                return None
        return node
