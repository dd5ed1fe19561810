"""Bounds for untrusted schemas, checked before a schema is compiled.

Three things are refused: nesting beyond 100 levels (a compiler recurses), references that leave the document
(fetching them would be a request forged by a stranger), and references that make one value be checked without end
or more than 10,000 times over (`{"$ref": "#"}`, or a chain of `anyOf` pairs that doubles at each link). What
multiplies from one level of the value to the next is bounded at each check instead: see `schema_growth`.
"""

from __future__ import annotations

import json
from typing import Final

from toolexec.errors import InvalidSchemaError
from toolexec.model.schema_graph import MAX_SCHEMA_DEPTH, SchemaGraph, too_deep

MAX_SCHEMA_BYTES: Final = 1 << 20
MAX_CHECKS_PER_VALUE: Final = 10_000
MAX_LINKS: Final = 150


def guard_schema(text: str) -> None:
    """Raise ExternalRefError or InvalidSchemaError when the schema is not safe to compile; cheap when it is small."""
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidSchemaError(f"the schema has {len(text)} characters; {MAX_SCHEMA_BYTES} is the most")
    references = has_references(text)
    if not references and text.count("{") + text.count("[") <= MAX_SCHEMA_DEPTH:
        return  # too few brackets to be too deep, and nothing that refers to anything
    try:
        schema = json.loads(text)
    except RecursionError:
        raise too_deep() from None
    graph = SchemaGraph(schema)
    if references:
        costs: dict[int, int] = {}
        for node in graph.nodes:
            _checks(graph, node, costs, ())


def has_references(text: str) -> bool:
    """Return whether a schema (as JSON text) may have references; never false when it has."""
    return 'Ref"' in text or '"$ref"' in text or "\\u" in text


def _checks(graph: SchemaGraph, node: object, costs: dict[int, int], trail: tuple[int, ...]) -> int:
    """Return how often one value is checked by *node*, with all references that apply to that same value followed."""
    if not isinstance(node, dict):
        return 1
    known = costs.get(id(node))
    if known is not None:
        return known
    if id(node) in trail:
        raise InvalidSchemaError("the schema's references form a loop that never reaches a value")
    if len(trail) > MAX_LINKS:
        raise InvalidSchemaError(f"the schema's references form a chain of more than {MAX_LINKS} links")
    trail = (*trail, id(node))
    total = 1
    for child in graph.same_value(node):
        total += _checks(graph, child, costs, trail)
    if total > MAX_CHECKS_PER_VALUE:
        raise InvalidSchemaError(
            f"the schema would check one value more than {MAX_CHECKS_PER_VALUE} times; simplify its references"
        )
    costs[id(node)] = total
    return total
